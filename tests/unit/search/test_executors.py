"""Who runs the units does not show in the events; a lost worker costs no result."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

import workbench as wb
from tests.unit.search.small_works import Small, SmallWork, lines_of
from workbench.errors import UsageError
from workbench.search.driver import drive
from workbench.search.events import Event, Pruned
from workbench.search.executors import LOST, HasExecutor, runner_of
from workbench.search.local_processes import LocalProcesses
from workbench.search.space import Space
from workbench.verify.compare import verify

PROGRAM = wb.programs.get("softmax")
SPACE = Space(max_block_ops=6)


@pytest.fixture(scope="module")
def workers() -> Iterator[LocalProcesses]:
    """Two processes."""
    with LocalProcesses(2) as executor:
        yield executor


@pytest.fixture(scope="module")
def alone() -> list[str]:
    """The lines of a search in this process."""
    return lines_of(list(wb.search(PROGRAM, space=SPACE)))


def test_two_processes_say_the_same(workers: LocalProcesses, alone: list[str]) -> None:
    assert lines_of(list(wb.search(PROGRAM, space=SPACE, executor=workers))) == alone
    assert len(workers.process_ids()) == 2


def test_prefixes_say_the_same(workers: LocalProcesses, tmp_path: Path) -> None:
    space = Space(max_block_ops=3)
    events = lines_of(list(wb.search(PROGRAM, space=space, engine="prefix")))
    path = tmp_path / "run.jsonl"
    run = wb.search(PROGRAM, space=space, engine="prefix", executor=workers, record=path)
    for _ in range(len(events) // 2):
        next(run)
    run.close()
    assert lines_of(list(wb.search(PROGRAM, space=space, engine="prefix", executor=workers, record=path))) == events


def test_one_process_says_the_same(alone: list[str]) -> None:
    assert lines_of(list(wb.search(PROGRAM, space=SPACE, executor=1))) == alone


def test_threads_say_the_same(alone: list[str]) -> None:
    with ThreadPoolExecutor(3) as executor:
        assert lines_of(list(wb.search(PROGRAM, space=SPACE, executor=executor))) == alone


def test_a_verifier_runs_in_the_workers(workers: LocalProcesses) -> None:
    verifier = partial(verify, shapes="reduced", seed=0)
    events = list(wb.search(PROGRAM, space=SPACE, verifier=verifier))
    assert lines_of(list(wb.search(PROGRAM, space=SPACE, verifier=verifier, executor=workers))) == lines_of(events)


def test_a_search_with_workers_is_recorded_and_continued(
    workers: LocalProcesses, alone: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "run.jsonl"
    run = wb.search(PROGRAM, space=SPACE, executor=workers, record=path)
    for _ in range(len(alone) // 3):
        next(run)
    run.close()
    assert lines_of(list(wb.search(PROGRAM, space=SPACE, executor=workers, record=path))) == alone
    assert lines_of(list(wb.replay(path))) == alone


def run_small(units: list[Small], executor: Executor | HasExecutor | int) -> list[Event]:
    """Return the events of a small work."""
    return list(drive(SmallWork(units), runner=runner_of(executor)))


def test_a_killed_worker_loses_nothing(
    workers: LocalProcesses, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    units = [Small(0), Small(1, kills=(tmp_path / "killed", 1)), Small(2), Small(3)]
    with caplog.at_level(logging.WARNING):
        events = run_small(units, workers)
    assert (tmp_path / "killed").read_text() == "x"
    assert lines_of(events) == lines_of(list(drive(SmallWork([Small(number) for number in range(4)]))))
    (note,) = (record.message for record in caplog.records)
    assert note.startswith("unit 1 lost its worker (the worker process ")
    assert "was ended by signal 9" in note
    assert note.endswith("is done again in a process of its own")


def test_a_unit_that_kills_twice_is_left_out(workers: LocalProcesses, tmp_path: Path) -> None:
    events = run_small([Small(0), Small(1, kills=(tmp_path / "killed", 9)), Small(2)], workers)
    assert (tmp_path / "killed").read_text() == "xx"
    (lost,) = (event for event in events if isinstance(event, Pruned) and event.rule == LOST)
    assert lost.plan == "unit 1"
    assert "it ended its worker twice; at last, the worker process" in lost.evidence()
    rest = [event for event in events if event is not lost]
    expected = list(drive(SmallWork([Small(0), Small(2)])))
    assert [type(event) for event in rest] == [type(event) for event in expected]
    finished = events[-1]
    assert finished.pruned == {"too far": 4, LOST: 1}  # type: ignore[union-attr]
    assert run_small([Small(0)], workers)  # the workers go on


def test_a_pool_that_breaks_as_a_whole(tmp_path: Path) -> None:
    units = [Small(0), Small(1, kills=(tmp_path / "killed", 1)), Small(2)]
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as executor:
        events = run_small(units, executor)
    assert lines_of(events) == lines_of(list(drive(SmallWork([Small(number) for number in range(3)]))))


def test_an_error_in_a_unit_is_raised_here(workers: LocalProcesses) -> None:
    run = drive(SmallWork([Small(0), Small(1, fails=True)]), runner=runner_of(workers))
    with pytest.raises(ArithmeticError, match="planned in unit 1"):
        list(run)


@pytest.mark.parametrize(
    ("executor", "message"), [(0, "at least 1"), ("two", "expected an executor"), (-1, "at least 1")]
)
def test_other_executors_are_refused(executor: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        wb.search(PROGRAM, executor=executor)  # type: ignore[arg-type]


def test_without_a_guard_and_from_a_command_line(tmp_path: Path) -> None:
    script = (
        "import workbench as wb\n"
        "print('once')\n"
        "events = list(wb.search(wb.programs.get('softmax'), space=wb.Space(max_block_ops=4), executor=2))\n"
        "print(len(events))\n"
    )
    file = tmp_path / "unguarded.py"
    file.write_text(script)
    expected = f"once\n{len(list(wb.search(wb.programs.get('softmax'), space=Space(max_block_ops=4))))}\n"
    for command in ([sys.executable, "-c", script], [sys.executable, str(file)]):
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=50)
        assert (done.stdout, done.stderr) == (expected, "")


@pytest.mark.skipif(importlib.util.find_spec("distributed") is None, reason="needs the extra cluster (dask)")
@pytest.mark.filterwarnings("default")
def test_dask_says_the_same(alone: list[str], tmp_path: Path) -> None:
    distributed: Any = importlib.import_module("distributed")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, host="127.0.0.1",
            local_directory=str(tmp_path),
        ) as cluster,
        distributed.Client(cluster) as client,
    ):  # fmt: skip
        assert lines_of(list(wb.search(PROGRAM, space=SPACE, executor=client))) == alone
        assert lines_of(run_small([Small(0), Small(1)], client.get_executor())) == lines_of(
            list(drive(SmallWork([Small(0), Small(1)])))
        )
