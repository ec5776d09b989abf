"""Work in another process: values come back, faults, hangs and crashes are told, and the next work runs."""

from __future__ import annotations

import time

import numpy as np
import pytest

from tests.unit.device import jobs
from workbench.device.worker import Outcome, Worker, is_fatal, run_in_workers
from workbench.errors import KernelCompileError, WorkerError

LONG_S = 30.0


def test_values_and_one_process() -> None:
    with Worker() as worker:
        assert worker.process_id is None
        assert worker.run(jobs.add, LONG_S, 1, b=2).result() == 3
        first = worker.run(jobs.process_id, LONG_S).result()
        assert first == worker.process_id == worker.run(jobs.process_id, LONG_S).result()
        assert worker.run(jobs.nothing, LONG_S).result() is None
        assert worker.run(jobs.chatter, LONG_S).result() == "told"
        n = 300_000
        np.testing.assert_array_equal(worker.run(jobs.large, LONG_S, n).result(), np.arange(n))
    assert worker.process_id is None


def test_errors_come_back_and_the_process_stays() -> None:
    with Worker() as worker:
        outcome = worker.run(jobs.fail, LONG_S, "bad size")
        assert (outcome.kind, outcome.reason, outcome.is_done) == ("error", "ValueError: bad size", False)
        with pytest.raises(WorkerError, match="error: ValueError: bad size"):
            outcome.result()
        refused = worker.run(jobs.refuse, LONG_S)
        with pytest.raises(KernelCompileError, match="short") as caught:
            refused.result()
        assert caught.value.log == "long"
        assert worker.run(jobs.fail_unpicklable, LONG_S).reason == "UnpicklableError: of its own"
        assert worker.process_id is not None


def test_a_dead_context_ends_the_process() -> None:
    with Worker() as worker:
        first = worker.run(jobs.process_id, LONG_S).result()
        outcome = worker.run(jobs.fail, LONG_S, "cudaErrorIllegalAddress: an illegal memory access was encountered")
        assert outcome.kind == "device fault"
        assert worker.process_id is None
        assert worker.run(jobs.process_id, LONG_S).result() != first


def test_a_crash_is_told() -> None:
    with Worker() as worker:
        outcome = worker.run(jobs.abort, LONG_S)
        assert outcome.kind == "crash"
        assert "signal 6" in outcome.reason
        assert "last words" in outcome.reason
        assert "exit status 7" in worker.run(jobs.leave, LONG_S).reason
        assert worker.run(jobs.add, LONG_S, 1).result() == 2


def test_a_hang_is_ended() -> None:
    with Worker() as worker:
        worker.run(jobs.add, LONG_S, 1)
        started = time.perf_counter()
        outcome = worker.run(jobs.sleep, 0.3, 60.0)
        assert outcome.kind == "timeout"
        assert "0.3 s" in outcome.reason
        assert time.perf_counter() - started < 5
        assert worker.run(jobs.add, LONG_S, 1).result() == 2


def test_what_cannot_be_sent() -> None:
    with Worker() as worker, pytest.raises(WorkerError, match="top of a module"):
        worker.run(lambda: 1, LONG_S)
    with pytest.raises(WorkerError, match="does not start"):
        Worker("no-such-python").run(jobs.add, LONG_S, 1)


def test_several_workers_keep_the_order() -> None:
    with Worker() as worker:
        started = worker.run(jobs.add, LONG_S, 1).elapsed_s  # the start of a process counts into the time that it has
    outcomes = run_in_workers(jobs.wait_for_one, [1, 2, 3, 4, 5], workers=2, timeout_s=max(2.0, 6 * started))
    assert [o.kind for o in outcomes] == ["done", "timeout", "crash", "done", "done"]
    assert [o.value for o in outcomes] == [1, None, None, 16, 25]


@pytest.mark.parametrize(
    ("text", "fatal"),
    [
        ("CUDA_ERROR_LAUNCH_FAILED: unspecified launch failure", True),
        ("cudaErrorMisalignedAddress: misaligned address", True),
        ("CUDA_ERROR_INVALID_VALUE: invalid argument", False),
        ("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", False),
        ("out of memory", False),
    ],
)
def test_which_errors_kill_a_context(text: str, fatal: bool) -> None:
    assert is_fatal(text) is fatal


def test_an_outcome_of_a_foreign_error() -> None:
    outcome: Outcome[int] = Outcome(kind="timeout", reason="too long", elapsed_s=1.0)
    with pytest.raises(WorkerError, match="timeout: too long"):
        outcome.result()
