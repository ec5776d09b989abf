"""`workbench replay`: records and folders of runs."""

from __future__ import annotations

from pathlib import Path

import pytest

import workbench as wb
from tests.unit.commands.calling import answer, ask, complaint


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A record of a small search, in a folder of a run."""
    path = tmp_path / "search.jsonl"
    for _ in wb.search(wb.programs.get("softmax"), space=wb.Space(max_block_ops=4), record=path):
        pass
    return path


def test_a_record_and_its_folder(capsys: pytest.CaptureFixture[str], run: Path) -> None:
    values = answer(capsys, "replay", run)
    assert values["known_good"] is True
    assert values["events"]["Verified"] == values["verified"] == len(values["structures"])
    assert (values["finished"], values["message"], values["workbench"]) == (True, "", wb.__version__)
    assert values["replay_seconds"] < 5
    from_folder = answer(capsys, "replay", run.parent)
    assert from_folder | {"replay_seconds": 0} == values | {"replay_seconds": 0}


def test_a_run_of_several_parts(capsys: pytest.CaptureFixture[str], run: Path) -> None:
    program = wb.trace(lambda X, W: wb.exp(X) @ W, X=(4, 6), W=(6, 5))
    list(wb.search(program, space=wb.Space(max_block_ops=3), record=run.with_name("search-1.jsonl")))
    values = answer(capsys, "replay", run.parent)
    assert [part["record"] for part in values["parts"]] == [str(run), str(run.with_name("search-1.jsonl"))]
    assert values["program"] == values["parts"][0]["program"] == "softmax"
    code, out, _ = ask(capsys, "replay", run.parent)
    assert code == 0
    assert out.count("engine, seed 0), finished") == 2


def test_events_in_words(capsys: pytest.CaptureFixture[str], run: Path) -> None:
    code, out, err = ask(capsys, "replay", run, "--events")
    assert (code, err) == (0, "")
    assert out.splitlines()[0].startswith("search of softmax (values engine, seed 0), finished")
    assert "searching loops none" in out
    assert "Σ_b[exp(X)]" in out


def test_nothing_found_is_no(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    space = wb.Space(max_block_ops=1, max_kernel_ops=1, max_block_graphs=1)
    program = wb.trace(lambda X, W: wb.exp(X) @ W, X=(4, 6), W=(6, 5))
    list(wb.search(program, space=space, record=path))
    assert answer(capsys, "replay", path, code=1)["structures"] == []


def test_a_cut_record_is_told_about(capsys: pytest.CaptureFixture[str], run: Path) -> None:
    run.write_bytes(run.read_bytes()[:-9])
    code, out, _ = ask(capsys, "replay", run)
    assert code == 0
    assert "the last one, is cut off or damaged and left out" in out
    assert "not finished" in out


def test_other_things_are_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path, run: Path) -> None:
    graph = tmp_path / "graph.json"
    graph.write_text(wb.dumps(wb.programs.get("softmax")))
    assert "no record that this version replays" in complaint(capsys, "replay", graph)
    assert "No such file" in complaint(capsys, "replay", tmp_path / "missing.jsonl")
    (tmp_path / "empty").mkdir()
    assert "holds no search.jsonl" in complaint(capsys, "replay", tmp_path / "empty")
    assert "leave --set away" in complaint(capsys, "replay", run, "--set", "batch=3")
    lines = run.read_bytes().split(b"\n")
    run.write_bytes(b"\n".join([*lines[:4], lines[4][:20], *lines[5:]]))
    assert "line 5" in complaint(capsys, "replay", run)
