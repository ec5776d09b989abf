"""`workbench optimize`: passes left out, stable forms, and a run that was killed in the middle."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import workbench as wb
from tests.unit.commands.calling import answer, complaint

SMALL = ["--no-measure", "--set", "batch=16", "hidden=256", "out=192"]


def test_passes_are_told_and_can_be_left_out(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    values = answer(
        capsys, "optimize", "rms_norm_linear", "--keep", "2", "--without", "layouts,order", "--out", tmp_path, *SMALL
    )
    told = {note["name"]: note["on"] for note in values["best"]["passes"]}
    assert told == {"threads": True, "layouts": False, "order": False, "memory": True}
    page = (tmp_path / "report.html").read_text()
    assert "What the optimizer&#x27;s passes did" in page or "What the optimizer's passes did" in page
    files = ["result.json", "search.jsonl", "spaces.json", "best.ugraph.json", "report.html"]
    assert values["files"] == files
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(files)


def test_an_unknown_pass_is_one_line_with_the_names(capsys: pytest.CaptureFixture[str]) -> None:
    line = complaint(capsys, "optimize", "rms_norm_linear", "--without", "layouts,colours")
    assert "no pass colours" in line
    assert "layouts, order, memory, threads" in line


def test_stable_forms_are_marked(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    sizes = ["--no-measure", "--set", "heads=1", "rows=32", "head_dim=32", "context=256"]
    answer(capsys, "optimize", "gqa", "--stable", "--keep", "12", "--max-block-ops", "8", "--out", tmp_path, *sizes)
    found = json.loads((tmp_path / "result.json").read_text())["candidates"]
    assert {one["origin"] for one in found} >= {"search", "search, stable softmax"}


@pytest.mark.timeout(180)  # three processes, one after the other
def test_a_run_that_is_killed_continues(tmp_path: Path) -> None:
    """SIGKILL in the middle of the search: the same command ends, with the answer of a run that was not killed."""
    options = ["--keep", "1", "--max-block-ops", "9", "--no-measure"]
    command = [sys.executable, "-m", "workbench", "optimize", "rms_norm_linear", *options]
    sizes = ["--set", "batch=16", "hidden=256", "out=192"]
    run = [*command, "--out", str(tmp_path / "killed"), *sizes]
    record = tmp_path / "killed" / "search.jsonl"
    process = subprocess.Popen(run, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and not (record.is_file() and len(record.read_bytes()) > 20_000):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not (tmp_path / "killed" / "result.json").exists()
    kept = record.read_bytes()
    whole_lines = kept[: kept.rfind(b"\n") + 1]
    assert subprocess.run(run, capture_output=True, check=False).returncode == 0
    assert record.read_bytes().startswith(whole_lines)  # what was found is not looked for again
    other = [*command, "--out", str(tmp_path / "whole"), *sizes]
    assert subprocess.run(other, capture_output=True, check=False).returncode == 0
    best = [wb.load(tmp_path / name / "best.ugraph.json")[0].hash for name in ("killed", "whole")]
    assert best[0] == best[1]
