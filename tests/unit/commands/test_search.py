"""`workbench search`: what it answers, records, continues, and says when nothing is found."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import workbench as wb
from tests.unit.commands.calling import answer, ask, complaint
from workbench.ugraph.text import parse_kernel_graph

SIZES = ("--set", "batch=4", "hidden=24", "out=10")
KEYS = {"space", "states", "pruned", "candidates", "verified", "structures", "known_good", "seconds", "peak_mb"}


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_what_is_answered(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    values = answer(capsys, "search", "rms_norm_linear", *SIZES)
    assert set(values) >= KEYS
    assert values["known_good"] is True
    assert values["verified"] == len(values["structures"]) > 5
    assert all(set(one) >= {"structure_hash", "text", "operators"} for one in values["structures"])
    assert isinstance(values["pruned"], dict)
    assert (values["record"], values["interrupted"], values["engine"]) == (None, False, "values")
    graphs = [parse_kernel_graph(one["text"]) for one in values["structures"]]
    assert [graph.structure_hash for graph in graphs] == [one["structure_hash"] for one in values["structures"]]
    assert not list(tmp_path.rglob("*.jsonl"))


def test_text_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = ask(capsys, "search", "softmax", "--max-block-ops", "4")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[-1] == "a structure known to be good is among them"
    (good,) = (line for line in lines if line.endswith(", known to be good"))
    shown = lines.index(good.partition(":")[0] + ", whole:")  # that one stands there whole, the others are a line each
    graph = parse_kernel_graph("\n".join(lines[shown + 1 : lines.index("}") + 1]))
    assert f"hash {graph.structure_hash[:12]}, known" in good
    assert sum(line.startswith("kernel_graph") for line in lines) == 1
    code, out, err = ask(capsys, "search", "softmax", "--max-block-ops", "4", "--graphs")
    listed = sum(line.startswith("structure ") for line in out.splitlines())
    assert sum(line.startswith("kernel_graph") for line in out.splitlines()) == listed == 2


def test_workers_and_the_other_engine(capsys: pytest.CaptureFixture[str]) -> None:
    alone = answer(capsys, "search", "softmax", "--max-block-ops", "3")
    together = answer(capsys, "search", "softmax", "--max-block-ops", "3", "--workers", "2")
    assert {name: value for name, value in alone.items() if name not in ("seconds", "peak_mb")} == {
        name: value for name, value in together.items() if name not in ("seconds", "peak_mb")
    }
    prefixes = answer(capsys, "search", "softmax", "--max-block-ops", "3", "--pruners", "abstract_expression,demand")
    assert prefixes["engine"] == "prefix"
    assert set(prefixes["pruned"]) >= {"abstract_expression", "demand"}
    found = [{one["structure_hash"] for one in values["structures"]} for values in (alone, prefixes)]
    assert found[0] <= found[1]


def test_nothing_found_says_what_came_closest(capsys: pytest.CaptureFixture[str]) -> None:
    limits = ("--max-block-ops", "1", "--max-kernel-ops", "1", "--max-block-graphs", "1")
    values = answer(capsys, "search", "rms_norm_linear", *SIZES, *limits, code=1)
    assert values["structures"] == []
    assert values["pruned"]
    miss = values["nearest_miss"]
    assert miss["expression"] == "X / √(1 / 1000000 + Σ_b[X·X] / 24)"
    assert (miss["operators"], miss["distance"], miss["output"]) == (1, 1, 0)
    assert miss["missing"] == "multiply by G·W, then sum over b"
    assert miss["goal"] == "Σ_b[⟦X / √(1 / 1000000 + Σ_b[X·X] / 24)⟧·G·W]"
    assert miss["found_with_operators"] == 3
    code, out, _ = ask(capsys, "search", "rms_norm_linear", *SIZES, *limits)
    assert code == 1
    assert "nothing found; nearest miss: X / √(" in out
    assert "left out: " in out


def test_records_are_replayed_continued_and_replaced(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    first = answer(capsys, "search", "softmax", "--record", path)
    whole = path.read_bytes()
    assert first["record"] == str(path)
    told = answer(capsys, "replay", path)
    shared = set(told) & set(first) - {"seconds"}
    assert {name: told[name] for name in shared} == {name: first[name] for name in shared}
    assert shared >= KEYS - {"seconds", "peak_mb"}
    lines = whole.splitlines(keepends=True)
    path.write_bytes(b"".join(lines[: len(lines) // 2]))
    part = answer(capsys, "replay", path)
    assert (part["finished"], part["candidates"]) == (False, None)
    again = answer(capsys, "search", "softmax", "--record", path)  # goes on without being told to
    assert again["structures"] == first["structures"]
    assert [line for line in path.read_bytes().splitlines() if b"seconds" not in line and b"elapsed" not in line] == [
        line for line in whole.splitlines() if b"seconds" not in line and b"elapsed" not in line
    ]
    changed = path.read_bytes().replace(b'"rule":"unreachable"', b'"rule":"as recorded"')
    path.write_bytes(changed)
    answer(capsys, "search", "softmax", "--record", path, "--resume")  # there is nothing left to do
    assert path.read_bytes() == changed
    answer(capsys, "search", "softmax", "--record", path)
    assert path.read_bytes() != changed
    answer(capsys, "search", "softmax", "--record", path, "--max-block-ops", "4")  # another search replaces a record
    assert answer(capsys, "replay", path)["space"]["max_block_ops"] == 4
    assert "holds another search" in complaint(capsys, "search", "softmax", "--record", path, "--resume")
    other = tmp_path / "notes.txt"
    other.write_text("keep me\n")
    assert "it is left as it is" in complaint(capsys, "search", "softmax", "--record", other)
    assert other.read_text() == "keep me\n"


def test_files_and_functions(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    graph = wb.programs.get("softmax")
    wb_file = tmp_path / "graph.json"
    wb_file.write_text(wb.dumps(graph))
    by_file = answer(capsys, "search", wb_file, "--max-block-ops", "3")
    assert by_file["known_good"] is None
    assert by_file["verified"] > 0
    module = tmp_path / "mine.py"
    module.write_text(
        "import workbench as wb\n@wb.program\ndef f(X: 'b h', W: 'h d'):\n    return wb.exp(X) @ W\n"
        "def g(X, W):\n    return wb.exp(X) @ W\n"
    )
    one = answer(capsys, "search", f"{module}:f", "--set", "b=4", "h=6", "d=5")
    two = answer(capsys, "search", f"{module}:g", "--set", "X=4x6", "W=6x5")
    assert [s["structure_hash"] for s in one["structures"]] == [s["structure_hash"] for s in two["structures"]] != []


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (["--workers", "0"], "at least 1"),
        (["--max-block-ops", "0"], "must be at least 1"),
        (["--pruners", "nonsense"], "unknown pruner 'nonsense'"),
        (["--pruners", ","], "names none"),
        (["--engine", "values", "--mapping", "enumerate"], "belongs to the prefix engine"),
        (["--engine", "magic"], "invalid choice"),
    ],
)
def test_mistakes(capsys: pytest.CaptureFixture[str], tokens: list[str], message: str) -> None:
    assert message in complaint(capsys, "search", "softmax", *tokens)


def test_a_record_that_cannot_be_written(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "file" in complaint(capsys, "search", "softmax", "--record", tmp_path / "file" / "run.jsonl")
    assert "directory" in complaint(capsys, "search", "softmax", "--record", tmp_path)


SLOW = """
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background
import workbench.commands.search as command
from workbench.search import forked
from workbench.search.verdicts import Screening
forked.AFTER_S = float(sys.argv.pop(1))
stop_after, asked, here = int(sys.argv.pop(1)), 0, os.getpid()
def slow(program, candidate, *, shapes, seed):
    global asked
    asked += 1
    print("asked", file=sys.stderr, flush=True)
    while asked == stop_after and os.getpid() == here:  # this one has no answer, however fast or slow the machine is
        time.sleep(0.02)  # a signal that comes just before a sleep would wait for its end
    return Screening("equal", "after a while")
command.verify = slow
from workbench.cli import main
sys.exit(main(sys.argv[1:]))
"""


def slow_search(
    folder: Path, *tokens: str, stop_after: int = 0, copy_after: float = math.inf
) -> tuple[int, str, list[str]]:
    """Run a search in a process of its own, stopped at one of its questions; return exit code and lines of both outputs.

    copy_after: seconds after which a copy of the process helps. folder: of the cache and of what the search prints; read from
    a pipe after the questions, that would have to fit one.
    """
    command = [
        sys.executable,
        "-c",
        SLOW,
        str(copy_after),
        str(stop_after),
        "search",
        "lora",
        "--certify",
        "--json",
        *tokens,
    ]
    command += ["--max-block-ops", "6", "--set", "batch=4", "hidden=12", "out=10", "rank=3"]
    environment, out = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}, folder / "out.json"
    with (
        out.open("w") as file,
        subprocess.Popen(command, stdout=file, stderr=subprocess.PIPE, text=True, env=environment) as process,
    ):
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if stop_after and lines.count("asked\n") == stop_after:
                process.send_signal(signal.SIGINT)
                stop_after = 0
    return process.returncode, out.read_text(), lines


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, object], int]:
    """What a slow search answers, and how many structures it asked about."""
    code, out, lines = slow_search(tmp_path_factory.mktemp("whole"))
    assert code == 0
    values = json.loads(out)
    return values, lines.count("asked\n")


@pytest.mark.parametrize(("with_record", "copy_after"), [(True, math.inf), (False, math.inf), (False, 0.0)])
def test_ctrl_c_keeps_what_was_found_and_is_continued(
    uninterrupted: tuple[dict[str, object], int], tmp_path: Path, with_record: bool, copy_after: float
) -> None:
    record = ("--record", str(tmp_path / "run.jsonl")) if with_record else ()
    code, out, lines = slow_search(tmp_path, *record, stop_after=5, copy_after=copy_after)
    assert code == 130
    values = json.loads(out)
    assert values["interrupted"] is True
    kept = len(values["structures"])  # a copy may have answered four questions by then, or eight
    assert kept == 4 if copy_after else kept in (4, 8, 12)
    assert Path(values["record"]).exists()
    assert lines[-1].startswith("workbench: interrupted; what was found is in ")
    assert lines[-1].endswith(f"the same command{'' if with_record else ' with --resume'} continues\n")
    code, out, lines = slow_search(tmp_path, *record, *(() if with_record else ("--resume",)))
    assert code == 0
    rest = lines.count("asked\n")
    assert json.loads(out)["interrupted"] is False
    whole, asked = uninterrupted
    assert 0 < rest <= asked - kept
    found = json.loads(out)
    assert all(found[name] == whole[name] for name in set(whole) - {"seconds", "peak_mb", "record"})
