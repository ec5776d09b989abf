"""The stepper by its traits: steps, jumps, restarts, records of 50,000 events, and stopping within half a second."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path

import pytest

import workbench as wb
from workbench.errors import UsageError
from workbench.search.events import Event, Extended, Pruned, Said
from workbench.search.prefix.engine import search
from workbench.search.recording import record
from workbench.search.space import Space
from workbench.widgets.search_stepper import SearchStepper
from workbench.widgets.tape import Settings, Tape

PROGRAM = wb.programs.get("rms_norm_linear", batch=4, hidden=24, out=10)
SPACE = Space(max_block_ops=3)
EVENTS = 50_000


@pytest.fixture
def stepper() -> Iterator[SearchStepper]:
    """A stepper of a small live search."""
    made = SearchStepper(PROGRAM, space=SPACE)
    yield made
    made.close()


def test_opens_at_the_first_event(stepper: SearchStepper) -> None:
    assert (stepper.position, stepper.kind) == (0, "Started")
    assert "event 1 of" in stepper.status


def arrived(stepper: SearchStepper, position: int) -> int:
    """Return the position once a step has led there: where the search needs longer, it goes on while the notebook does."""
    end = time.monotonic() + 20
    while stepper.position != position and time.monotonic() < end:
        time.sleep(0.01)
    return stepper.position


def test_steps_show_the_events_of_the_search(stepper: SearchStepper) -> None:
    expected = list(search(PROGRAM, space=SPACE))
    for number, event in enumerate(expected[:40]):
        stepper.jump(number)
        assert arrived(stepper, number) == number
        assert stepper.kind == type(event).__name__
        if isinstance(event, Extended | Pruned) and event.prefix:
            assert stepper.prefix == event.prefix
        if isinstance(event, Extended):
            assert stepper.panels["event"].count("<math") == 2
        if isinstance(event, Pruned):
            assert stepper.rule == event.rule
            assert f"dropped by {event.rule}" in stepper.panels["event"]


def test_counts_are_those_of_the_events(stepper: SearchStepper) -> None:
    expected = list(search(PROGRAM, space=SPACE))
    assert stepper.run(timeout_s=50)
    stepper.jump(100)
    dropped: dict[str, int] = {}
    for event in expected[:101]:
        if isinstance(event, Pruned):
            dropped[event.rule] = dropped.get(event.rule, 0) + event.count
    assert stepper.dropped == dropped
    assert stepper.kept == sum(isinstance(event, Extended) for event in expected[:101])
    assert len(stepper.tape.events) == len(expected)


def test_back_and_jump_stay_within_what_is_there(stepper: SearchStepper) -> None:
    stepper.back(5)
    assert stepper.position == 0
    assert stepper.run(timeout_s=50)
    stepper.jump(10**9)
    assert stepper.position == len(stepper.tape.events) - 1
    assert stepper.kind == "Finished"
    stepper.previous_complete()
    assert stepper.kind == "Completed"
    assert "<svg" in stepper.panels["graph"]
    stepper.position = 0
    stepper.next_complete()
    assert stepper.position == stepper.tape.numbers("Completed")[0]


def test_keeping_a_dropped_prefix_on_purpose(stepper: SearchStepper) -> None:
    while not stepper.rule:
        stepper.step()
    dropped = stepper.prefix
    stepper.keep_pruned()
    assert stepper.run(timeout_s=50)
    names = [event.prefix for event in stepper.tape.events if isinstance(event, Extended)]
    assert dropped in names
    assert all(name.startswith(dropped.rpartition("/")[0]) for name in names)
    assert "runs side by side" in str(stepper.rows)
    assert f"keeps {dropped}" in stepper.panels["runs"]


def test_continuing_from_a_prefix(stepper: SearchStepper) -> None:
    while stepper.kind != "Extended":
        stepper.step()
    start = stepper.prefix
    stepper.continue_from()
    assert stepper.run(timeout_s=50)
    names = [event.prefix for event in stepper.tape.events if isinstance(event, Extended | Pruned) and event.prefix]
    assert names
    assert all(name.startswith(f"{start}/") for name in names)


def test_switching_pruners_compares_two_runs(stepper: SearchStepper) -> None:
    assert stepper.run(timeout_s=50)
    stepper.restart(pruners=["abstract_expression", "axes", "reducibility"])
    assert stepper.run(timeout_s=50)
    first, second = (tape.summary("") for tape in stepper.tapes)
    assert "demand" in first.dropped
    assert "demand" not in second.dropped
    assert second.kept > first.kept
    assert "the second run kept and the first dropped" in stepper.panels["runs"]
    assert f"{first.kept:,}" in stepper.panels["runs"]


def test_commands_of_the_page(stepper: SearchStepper) -> None:
    stepper.set_state({"command": {"do": "step", "value": None, "n": 1}})
    assert arrived(stepper, 1) == 1
    stepper.set_state({"command": {"do": "jump", "value": 0, "n": 2}})
    assert stepper.position == 0
    stepper.set_state({"command": {"do": "continue_from", "value": None, "n": 3}})
    assert "no prefix" in stepper.status
    stepper.set_state({"command": {"do": "nonsense", "value": None, "n": 4}})
    assert "unknown command" in stepper.status


def test_playing_goes_by_itself(stepper: SearchStepper) -> None:
    stepper.play(speed=100)
    end = time.monotonic() + 20
    while stepper.position < 5 and time.monotonic() < end:
        time.sleep(0.02)
    stepper.pause()
    assert stepper.position >= 5
    assert not stepper.playing


def seconds_to_stop() -> float:
    """Stop a search that no machine ends before (it has no pruner); check what is kept; return how long stopping took."""
    stepper = SearchStepper(wb.programs.get("rms_norm_linear"), space=Space(max_block_ops=11), pruners=())
    try:
        stepper.run(timeout_s=0)
        end = time.monotonic() + 20
        while len(stepper.tape.events) < 200 and time.monotonic() < end:
            time.sleep(0.02)
        start = time.monotonic()
        stepper.cancel()
        took = time.monotonic() - start
        kept = len(stepper.tape.events)
        assert kept >= 200
        assert not stepper.running
        assert stepper._worker.wait(20)
        assert "are kept" in stepper.status
        before = stepper.position
        stepper.back()
        assert stepper.position == before - 1
    finally:
        stepper.close()
    return took


def test_stopping_a_search_takes_less_than_half_a_second_and_keeps_all() -> None:
    assert any(seconds_to_stop() < 0.5 for _ in range(3))  # other work on this machine only adds


def names(events: Iterable[Event]) -> list[str]:
    """What tells events apart."""
    return [f"{type(event).__name__} {getattr(event, 'prefix', '')}" for event in events]


def test_stopping_inside_a_long_call_returns_at_once_and_the_search_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = names(search(PROGRAM, space=SPACE))
    inside, passed = threading.Event(), count()

    def events(settings: Settings) -> Iterator[Event]:
        for number, event in enumerate(search(PROGRAM, space=SPACE)):
            if (
                number == 40 and next(passed) == 0
            ):  # as an operator on large arrays: it does not hear of an interruption
                inside.set()
                time.sleep(1.2)
            yield event

    monkeypatch.setattr(Settings, "events", events)
    stepper = SearchStepper(PROGRAM, space=SPACE)
    try:
        stepper.run(timeout_s=0)
        assert inside.wait(20)
        time.sleep(0.05)
        start, mine = time.monotonic(), time.thread_time()
        stepper.set_state({"command": {"do": "cancel", "n": 1}})
        assert time.thread_time() - mine < 0.1  # besides the 0.4 s that it waits for the thread, at most
        assert time.monotonic() - start < 1.1  # the call itself takes longer
        assert (stepper.length, stepper.finished, stepper.running) == (40, False, False)
        assert stepper.status == "stopped; 40 events are kept"
        stepper.step()
        assert arrived(stepper, 40) == 40
        time.sleep(1.3)  # what was left behind has met its interruption; nothing of it is taken
        assert stepper.run(timeout_s=50)
        assert names(stepper.tape.events) == expected
    finally:
        stepper.close()


def test_a_search_that_was_interrupted_inside_an_event_is_not_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    passed = count()

    def events(settings: Settings) -> Iterator[Event]:
        for number, event in enumerate(search(PROGRAM, space=SPACE)):
            if number == 25 and next(passed) == 0:
                raise KeyboardInterrupt
            yield event

    monkeypatch.setattr(Settings, "events", events)
    tape = Tape.live(Settings(program=PROGRAM, space=SPACE, engine="prefix"))
    with pytest.raises(KeyboardInterrupt):
        sum(iter(tape.grow, False))
    assert len(tape.events) == 25
    assert not tape.is_finished
    sum(iter(tape.grow, False))
    assert tape.is_finished
    assert names(tape.events) == names(search(PROGRAM, space=SPACE))


def test_the_values_engine_too() -> None:
    stepper = SearchStepper(PROGRAM, space=Space(max_block_ops=6), engine="values")
    try:
        assert stepper.run(timeout_s=50)
        stepper.next_complete()
        stepper.position = stepper.tape.numbers("Completed")[0]
        assert "<svg" in stepper.panels["graph"]
        with pytest.raises(UsageError, match="no prefix"):
            stepper.continue_from()
    finally:
        stepper.close()


def test_closing_while_it_searches_frees_observers_and_threads() -> None:
    stepper = SearchStepper(wb.programs.get("rms_norm_linear"), space=Space(max_block_ops=8))
    stepper.run(timeout_s=0)
    stepper.close()
    stepper.close()
    assert not stepper._worker.is_running
    assert not stepper._trait_notifiers
    assert stepper.comm is None


@pytest.mark.parametrize(
    ("arguments", "message"), [({}, "give a program"), ({"program": PROGRAM, "record": "x"}, "one")]
)
def test_one_search_at_a_time(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        SearchStepper(**arguments)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------------ records
def written(path: Path, events: int) -> None:
    """Write a record of so many events: the real prefixes of a search, their texts of the usual length."""
    program = wb.programs.get("rms_norm_linear", batch=16, hidden=4096, out=4096)
    space = Space(max_block_ops=9)
    verdicts = Said("\n".join(f"{name} keeps: {'evidence ' * 8}" for name in ("abstract_expression", "axes", "demand")))
    long = Said(r"\Sigma_{b}\!\left[X \cdot G \cdot W\right]" * 3)

    def few() -> Iterator[Event]:
        for number, event in enumerate(search(program, space=space)):
            if number >= events:
                return
            if isinstance(event, Extended) and event.prefix:
                yield dataclasses.replace(
                    event, expression=long, latex=long, goal=long, goal_latex=long, verdicts=verdicts
                )
            elif isinstance(event, Pruned) and event.prefix:
                yield dataclasses.replace(event, subject=Said("add(3, 4) = X·G"), evidence=long, verdicts=verdicts)
            else:
                yield event

    for _ in record(few(), path, program, space, engine="prefix"):
        pass


PROBE = """
import os, resource, sys, time
from workbench.widgets.search_stepper import SearchStepper
start = time.process_time()
stepper = SearchStepper(record=sys.argv[1])
opened = time.process_time() - start
slowest = 0.0
for number in (1, 2, 3, 25_000, 25_001, 25_002, 49_000, 49_001, 10, 11):
    start = time.process_time()
    stepper.jump(number)
    spent = time.process_time() - start
    if number in (2, 3, 25_001, 25_002, 49_001, 11):
        slowest = max(slowest, spent)
    assert stepper.position == number and stepper.prefix
stepper._worker.wait(60)
peak_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
if os.path.exists("/proc/self/status"):  # there, ru_maxrss counts what the parent held when it started this process
    peak_kb = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(stepper.length, stepper.tape.tree.read, opened, slowest, peak_kb / 1024)
stepper.close()
"""


@pytest.mark.timeout(180)
def test_a_record_of_50_000_events(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    written(path, EVENTS)
    done = subprocess.run(
        [sys.executable, "-c", PROBE, str(path)], capture_output=True, text=True, check=True, timeout=120
    )
    length, read, opened_s, slowest_s, peak_mb = map(float, done.stdout.split())
    assert length == read == EVENTS
    assert opened_s < 1.0
    assert slowest_s < 0.1
    assert peak_mb < 500
