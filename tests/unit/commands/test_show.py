"""`workbench programs` and `workbench show`."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

import workbench as wb
from tests.unit.commands.calling import SMALL, answer, ask, complaint


def test_programs(capsys: pytest.CaptureFixture[str]) -> None:
    values = answer(capsys, "programs")
    listed = {entry["name"]: entry for entry in values["programs"]}
    assert list(listed) == wb.programs.names()
    entry = listed["rms_norm_linear"]
    assert entry["parameters"] == {"batch": 16, "hidden": 4096, "out": 4096}
    assert [tensor["name"] for tensor in entry["inputs"]] == ["X", "G", "W"]
    assert entry["outputs"][0]["shape"] == [16, 4096]
    code, out, _ = ask(capsys, "programs")
    assert code == 0
    assert all(name in out for name in listed)


def test_one_program(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = ask(capsys, "programs", "ntrans")
    assert (code, out.strip()) == (0, wb.programs.describe("ntrans"))
    assert len(answer(capsys, "programs", "ntrans")["programs"]) == 1


def test_show_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    values = answer(capsys, "show", "gqa", "--set", "batch=2", "rows=4")
    graph = wb.programs.get("gqa", batch=2, rows=4)
    assert values["hash"] == graph.hash
    assert values["structure_hash"] == graph.structure_hash
    assert (values["nodes"], values["levels"]) == (3, {"kernel": 3, "block": 0, "thread": 0})
    assert values["inputs"][0]["shape"] == [4, 4, 64]
    assert ElementTree.fromstring(values["svg"]).tag.endswith("svg")
    code, out, _ = ask(capsys, "show", "gqa", "--set", "batch=2", "rows=4")
    assert code == 0
    assert graph.describe() in out
    assert graph.hash in out


def test_show_counts_the_nodes_of_every_level(capsys: pytest.CaptureFixture[str]) -> None:
    values = answer(capsys, "show", "gqa", "--known-good")
    assert values["levels"]["kernel"] == 2
    assert values["levels"]["block"] == sum(
        len(node.block.nodes) for node in wb.programs.known_good("gqa")[0].graph_defined
    )
    assert values["graphs"] == 2


@pytest.mark.parametrize("suffix", [".svg", ".html", ".json", ".txt"])
def test_show_writes_files(capsys: pytest.CaptureFixture[str], tmp_path: Path, suffix: str) -> None:
    out = tmp_path / f"graph{suffix}"
    values = answer(capsys, "show", "lora", "--known-good", "1", "-o", out)
    assert values["out"] == str(out)
    text = out.read_text(encoding="utf-8")
    if suffix == ".svg":
        assert values["svg"] == str(out)
        assert ElementTree.fromstring(text).tag.endswith("svg")
    elif suffix == ".html":
        assert text.startswith("<!doctype html>")
        assert text.count("<svg") == 1
    else:  # what was written can be shown, and is the same graph
        again = answer(capsys, "show", out)
        assert again["hash"] == values["hash"] == wb.programs.known_good("lora")[1].hash


def test_show_picks_a_graph_of_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "two.json"
    graphs = wb.programs.known_good("rms_norm_linear")
    wb.save(path, graphs)
    assert answer(capsys, "show", path)["hash"] == graphs[0].hash
    assert answer(capsys, "show", path, "--index", "1")["hash"] == graphs[1].hash
    assert "there is no 2" in complaint(capsys, "show", path, "--index", "2")
    assert "there is no -1" in complaint(capsys, "show", path, "--index", "-1")


def test_show_reads_style_and_dtype_either_way(capsys: pytest.CaptureFixture[str]) -> None:
    by_option = answer(capsys, "show", "rms_norm_linear", "--style", "mirage", "--dtype", "bfloat16", *SMALL)
    by_setting = answer(capsys, "show", *SMALL, "style=mirage", "dtype=bfloat16", "rms_norm_linear")
    assert by_option["hash"] == by_setting["hash"]
    assert [tensor["name"] for tensor in by_option["inputs"]] == ["X", "W"]
    assert by_option["inputs"][0]["dtype"] == "bfloat16"


def test_a_picture_that_hides_nodes_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    few = answer(capsys, "show", "gqa", "--known-good", "--max-nodes", "4")["svg"]
    every = answer(capsys, "show", "gqa", "--known-good", "--max-nodes", "0")["svg"]
    assert " 0 nodes hidden" in every
    assert " 0 nodes hidden" not in few
    assert "nodes hidden" in few
    assert few.count("<g ") < every.count("<g ")
