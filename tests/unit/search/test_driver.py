"""Units of work, merged into one stream; interrupted anywhere and continued, the stream is the same."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest

import workbench as wb
from tests.unit.search.small_works import Small, SmallWork, lines_of
from workbench.search.driver import drive
from workbench.search.events import Completed, Finished, Progress, Refused, Verified
from workbench.search.recording import Recorder, Subject
from workbench.search.replay import replay
from workbench.search.space import Space
from workbench.search.verdicts import Screening, VerdictLike
from workbench.ugraph.kernel_graph import KernelGraph

PROGRAM = wb.programs.get("lora", batch=4, hidden=12, out=10, rank=3)
SPACE = Space(max_block_ops=6)


def test_numbers_and_counts_add_up() -> None:
    events = list(drive(SmallWork([Small(0), Small(1), Small(2)])))
    assert [event.number for event in events if isinstance(event, Completed)] == list(range(6))
    assert [event.number for event in events if isinstance(event, Verified)] == list(range(6))
    progress = [event for event in events if isinstance(event, Progress)]
    assert progress == [Progress(number, 6, 10 * number, number) for number in range(1, 7)]
    assert events[-1] == Finished(60, 6, 6, 6, {"too far": 6}, 12, 0.0)


def test_the_search_cuts_itself_into_units() -> None:
    events = list(wb.search(PROGRAM, space=SPACE))
    finished = events[-1]
    assert isinstance(finished, Finished)
    completed = [event for event in events if isinstance(event, Completed)]
    assert len({event.number for event in completed}) == len(completed) == finished.structures
    progress = [event for event in events if isinstance(event, Progress)]
    assert progress[-1].done <= progress[-1].total
    assert [event.done for event in progress] == sorted(event.done for event in progress)
    assert finished.states == progress[-1].states


@pytest.mark.parametrize("share", [0.0, 0.02, 0.3, 0.5, 0.71, 0.97, 1.0])
def test_a_generator_closed_early_is_continued(tmp_path: Path, share: float) -> None:
    whole = list(wb.search(PROGRAM, space=SPACE))
    path = tmp_path / "run.jsonl"
    run = wb.search(PROGRAM, space=SPACE, record=path)
    before = list(islice(run, int(share * len(whole))))
    run.close()
    if before:
        assert len(replay(path)) == len(before)
    again = list(wb.search(PROGRAM, space=SPACE, record=path))
    assert lines_of(again) == lines_of(whole)
    assert list(replay(path)) == whole
    units = [line for line in path.read_text().splitlines() if line.startswith('{"unit"')]
    assert len({json.loads(line)["unit"] for line in units}) == len(units) > 3


class Counting:
    """A verifier that says yes to even calls, and counts them."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, program: KernelGraph, candidate: KernelGraph) -> VerdictLike:
        self.calls += 1
        return Screening("equal" if len(candidate.nodes) % 2 else "different", f"asked about {candidate.hash}")


def test_what_was_verified_is_not_asked_again(tmp_path: Path) -> None:
    verifier = Counting()
    whole = list(wb.search(PROGRAM, space=SPACE, verifier=verifier))
    asked = verifier.calls
    assert asked == sum(isinstance(event, Verified | Refused) for event in whole) > 8
    path = tmp_path / "run.jsonl"
    told_verdicts = [number for number, event in enumerate(whole) if isinstance(event, Verified | Refused)]
    for stop in (len(whole) // 2, *(told_verdicts[n] + 1 for n in (0, 1, 2, 5, 7)), len(whole) - 1):
        verifier = Counting()
        path.unlink(missing_ok=True)
        run = wb.search(PROGRAM, space=SPACE, verifier=verifier, record=path)
        told = list(islice(run, stop))
        run.close()
        verdicts = sum(isinstance(event, Verified | Refused) for event in told)
        assert verifier.calls <= verdicts + 1
        again = list(wb.search(PROGRAM, space=SPACE, verifier=verifier, record=path))
        assert lines_of(again) == lines_of(whole)
        assert verifier.calls <= asked + 1  # one was asked and could not be told any more


def test_interrupted_twice(tmp_path: Path) -> None:
    whole = list(wb.search(PROGRAM, space=SPACE))
    path = tmp_path / "run.jsonl"
    for stop in (20, 20, 150, 151):
        run = wb.search(PROGRAM, space=SPACE, record=path)
        list(islice(run, stop))
        run.close()
    assert lines_of(list(wb.search(PROGRAM, space=SPACE, record=path))) == lines_of(whole)


def test_a_generator_never_started_leaves_no_file(tmp_path: Path) -> None:
    wb.search(PROGRAM, space=SPACE, record=tmp_path / "run.jsonl")
    assert not list(tmp_path.iterdir())


def test_a_record_begins_when_a_search_is_long(tmp_path: Path) -> None:
    path, subject = tmp_path / "run.jsonl", Subject(PROGRAM, SPACE)
    work = SmallWork([Small(0), Small(1)])
    whole = list(drive(work, journal=Recorder(path, subject, after_s=100.0)))
    assert not path.exists()
    run = drive(work, journal=Recorder(path, subject, after_s=100.0))
    told = list(islice(run, 4))
    run.close()
    assert list(replay(path)) == told
    assert list(drive(work, journal=Recorder(path, subject))) == whole
    assert list(replay(path)) == whole


def test_a_record_that_nobody_asked_for_is_given_up(tmp_path: Path) -> None:
    work, subject = SmallWork([Small(0), Small(1)]), Subject(PROGRAM, SPACE)
    whole = list(drive(work))
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "run.jsonl"  # no folder can be made there
    assert list(drive(work, journal=Recorder(path, subject, optional=True))) == whole
    with pytest.raises(OSError, match="file"):
        list(drive(work, journal=Recorder(path, subject)))
    damaged = tmp_path / "damaged.jsonl"
    damaged.write_text("no record\n")
    assert list(drive(work, journal=Recorder(damaged, subject, optional=True))) == whole
    assert list(replay(damaged)) == whole


SLOW = """
import sys, time
import workbench as wb
from workbench.search.space import Space
from workbench.search.verdicts import Screening

stop_after, asked = int(sys.argv[2]), 0

class Slow:
    def __call__(self, program, candidate):
        global asked
        asked += 1
        print("asked", flush=True)
        time.sleep(0.05)
        while asked == stop_after:
            time.sleep(0.02)  # a signal that comes just before a sleep would wait for its end
        return Screening("equal", "after a while")

Slow.__module__ = "slow"
program = wb.programs.get("lora", batch=4, hidden=12, out=10, rank=3)
try:
    for event in wb.search(program, space=Space(max_block_ops=6), verifier=Slow(), record=sys.argv[1]):
        pass
except KeyboardInterrupt:
    sys.exit(7)
print("finished", flush=True)
"""


def _asked(path: Path, stop_after: int = 0, how: signal.Signals = signal.SIGKILL) -> tuple[int, int, bool]:
    """Run the slow search in a process of its own; return its exit code, questions asked, and whether it finished.

    The question at which it is stopped has no answer, however fast the machine is.
    """
    script = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n" + SLOW
    command = [sys.executable, "-c", script, str(path), str(stop_after)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        asked, finished = 0, False
        for line in process.stdout:
            asked += line == "asked\n"
            finished |= line == "finished\n"
            if asked == stop_after:
                os.kill(process.pid, how)
                stop_after = 0
    return process.returncode, asked, finished


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """The record of a slow search, and how many questions it asked."""
    path = tmp_path_factory.mktemp("slow") / "whole.jsonl"
    code, every, finished = _asked(path)
    assert (code, finished) == (0, True)
    return path, every


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_process_is_continued(uninterrupted: tuple[Path, int], tmp_path: Path, how: signal.Signals) -> None:
    (whole, every), stopped = uninterrupted, tmp_path / "stopped.jsonl"
    code, first, finished = _asked(stopped, stop_after=every // 2, how=how)
    assert (code, finished) == (-signal.SIGKILL if how is signal.SIGKILL else 7, False)
    code, second, finished = _asked(stopped)
    assert (code, finished) == (0, True)
    assert second < every
    assert every <= first + second <= every + 8  # of the last fifth of a second, and the one that was being asked
    assert _events(stopped) == _events(whole)


def _events(path: Path) -> list[str]:
    return lines_of(list(replay(path)))
