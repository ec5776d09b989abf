"""Processes of this machine as an executor."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import BrokenExecutor, CancelledError, wait

import pytest

from workbench.errors import UsageError
from workbench.search.local_processes import LocalProcesses


def test_results_errors_and_order() -> None:
    with LocalProcesses(2) as executor:
        assert list(executor.map(math.factorial, range(12))) == [math.factorial(n) for n in range(12)]
        with pytest.raises(ZeroDivisionError):
            executor.submit(divmod, 1, 0).result()
        with pytest.raises(RuntimeError, match="cannot be sent back"):
            executor.submit(iter, [1]).result() and executor.submit(open, os.devnull).result()
        assert executor.submit(print, "not an answer").result() is None
        assert executor.submit(os.getpid).result() != os.getpid()
        processes = executor.process_ids()
        assert len(processes) == 2
    for process in processes:
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)
    with pytest.raises(RuntimeError, match="shut down"):
        executor.submit(math.factorial, 3)


def test_a_process_that_dies_takes_its_own_task_only() -> None:
    with LocalProcesses(2) as executor:
        slow = executor.submit(time.sleep, 0.5)
        dead = executor.submit(os._exit, 3)
        others = [executor.submit(math.factorial, n) for n in range(4)]
        with pytest.raises(BrokenExecutor, match="ended with exit code 3"):
            dead.result()
        assert [other.result() for other in others] == [1, 1, 2, 6]
        assert slow.result() is None
        (victim, *_) = executor.process_ids()
        os.kill(victim, signal.SIGKILL)
        wait([executor.submit(math.factorial, n) for n in range(4)])
        assert executor.submit(math.factorial, 5).result() == 120


def test_shutdown_at_once() -> None:
    executor = LocalProcesses(1)
    running = executor.submit(time.sleep, 60)
    waiting = executor.submit(time.sleep, 60)
    while not executor.process_ids():
        time.sleep(0.01)
    start = time.monotonic()
    executor.shutdown(cancel_futures=True)
    assert time.monotonic() - start < 20
    with pytest.raises(CancelledError):
        waiting.result()
    with pytest.raises(BrokenExecutor):
        running.result()


def test_no_process_is_refused() -> None:
    with pytest.raises(UsageError, match="0 worker processes"):
        LocalProcesses(0)


def test_processes_end_with_their_parent() -> None:
    script = (
        "import os, time\n"
        "from workbench.search.local_processes import LocalProcesses\n"
        "executor = LocalProcesses(1)\n"
        "executor.submit(time.sleep, 60)\n"
        "while not executor.process_ids(): time.sleep(0.01)\n"
        "time.sleep(1)\n"
        "print(*executor.process_ids(), flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=False, timeout=50)
    worker = int(done.stdout)
    for _ in range(200):
        try:
            os.kill(worker, 0)
        except ProcessLookupError:
            return
        if _is_zombie(worker):
            return
        time.sleep(0.1)
    os.kill(worker, signal.SIGKILL)
    pytest.fail("the worker outlived its parent")


def _is_zombie(process: int) -> bool:
    """Return whether a process has ended and only waits for somebody to notice."""
    done = subprocess.run(["ps", "-o", "stat=", "-p", str(process)], capture_output=True, text=True, check=False)
    return done.stdout.strip().startswith("Z") or not done.stdout.strip()
