"""A copy of the process that helps does not show in what a search says, whatever becomes of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2, reason="copies are made on Linux, with two processors"
)


def run(name: str, *arguments: object, status: int = 0) -> dict[str, Any]:
    """Return what one of `forked_runs` tells, having left no process behind."""
    call = f"from tests.unit.search import forked_runs; forked_runs.{name}(*{[str(one) for one in arguments]!r})"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", call],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == status, done.stderr
    assert done.stderr == ""
    told: dict[str, Any] = json.loads(done.stdout) if done.stdout else {"children": False}
    assert told.pop("children") is False
    return told


def test_a_search_says_the_same(tmp_path: Path) -> None:
    told = run("whole_search", tmp_path)
    assert told.pop("events") > 100
    assert told == {"later": True, "settled": True, "copies": 2, "here": False, "files": 0}


def test_texts_come_later(tmp_path: Path) -> None:
    told = run("texts_of_the_copy")
    assert told["same"]
    assert told["later"] > 10


def test_a_copy_that_dies_loses_nothing(tmp_path: Path) -> None:
    assert run("killed_copy", tmp_path) == {"same": True}
    assert (tmp_path / "killed").read_text() == "x"


def test_texts_are_written_in_the_copy_once_a_record_needs_them() -> None:
    without, before, after = run("texts_for_a_record")["later"]
    assert min(without, before) > 0
    assert after == 0


def test_texts_that_come_later_travel_on() -> None:
    assert run("pickled_again") == {"same": [True, True], "later": False}


@pytest.mark.parametrize("what", ["fork", "pipe", "write"])
def test_without_a_copy_the_search_goes_on_alone(what: str) -> None:
    assert run("refused", what) == {"same": True, "asked": 1, "files": 0}


def test_of_many_units_the_last_are_shared() -> None:
    assert run("more_units_than_claims") == {"same": True}


def test_closed_streams_do_not_matter() -> None:
    assert run("without_streams") == {"same": True, "helped": True}


def test_ctrl_c_leaves_nothing_half_made_or_half_ended() -> None:
    assert run("interrupted") == {"said": ["interrupted"], "files": 0, "handled": True}


def test_an_error_in_a_unit_is_raised_here() -> None:
    assert run("failing_unit") == {"said": "planned in unit 1"}


def test_a_search_left_early_ends_its_copy() -> None:
    assert run("left_early") == {"files": 0}


def test_a_search_is_recorded_and_continued(tmp_path: Path) -> None:
    assert run("continued", tmp_path) == {"same": True, "replayed": True}


def test_no_copy_is_made_beside_a_thread() -> None:
    told = run("beside_a_thread")
    assert told["alone"] == [True, False]
    assert not told["beside"]


def test_a_copy_ends_with_the_process_that_made_it(tmp_path: Path) -> None:
    run("ended_from_outside", tmp_path, status=-9)
    copy = Path(f"/proc/{(tmp_path / 'copy').read_text()}")
    for _ in range(500):
        if not copy.exists() or ") Z" in (copy / "stat").read_text():
            return
        time.sleep(0.02)
    pytest.fail(f"{copy.name} lives on")
