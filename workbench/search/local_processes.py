"""Processes of this machine as an executor. Invariant: a process that dies takes down its own task and nothing else.

`concurrent.futures.ProcessPoolExecutor` gives up all tasks when one process dies, and starts processes that run the
main script again. These processes are plain interpreters that are told what to import, so they work from notebooks, from
`python -c` and from scripts without a guard; Ctrl-C does not reach them, and they end with the process that made them.
"""

from __future__ import annotations

import os
import pickle
import queue
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import suppress
from typing import BinaryIO, ParamSpec, TypeVar, cast

from workbench.errors import UsageError

P = ParamSpec("P")
T = TypeVar("T")
_Task = tuple[bytes, "Future[object]"]
_ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class LocalProcesses(Executor):
    """An executor of a fixed number of processes, started when there is work.

    A task whose process dies fails with `BrokenExecutor`; others do not notice, and a new process takes the next task.
    """

    def __init__(self, max_workers: int) -> None:
        """Prepare. Raises: UsageError when there would be no process."""
        if max_workers < 1:
            raise UsageError(f"{max_workers} worker processes: at least 1 is needed")
        self.max_workers = max_workers
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._threads: list[threading.Thread] = []
        self._is_open = True
        weakref.finalize(self, _end, self._tasks, self._processes, max_workers)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Return the future result of `fn(*args, **kwargs)`; both travel by pickle, `fn` by its name in its module."""
        if not self._is_open:
            raise RuntimeError("these worker processes were shut down")
        future: Future[object] = Future()
        self._tasks.put((pickle.dumps((fn, args, kwargs)), future))
        if len(self._threads) < self.max_workers:
            arguments = (self._tasks, self._processes, len(self._threads))
            thread = threading.Thread(target=_serve, args=arguments, daemon=True)
            self._threads.append(thread)
            thread.start()
        return cast("Future[T]", future)

    def process_ids(self) -> list[int]:
        """Return the processes that run now."""
        return [process.pid for process in list(self._processes.values())]

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the processes: after what was submitted, or at once when futures are to be cancelled."""
        self._is_open = False
        if cancel_futures:
            while True:
                try:
                    task = self._tasks.get_nowait()
                except queue.Empty:
                    break
                if task is not None:
                    task[1].cancel()
            _kill(self._processes)
        for _ in self._threads:
            self._tasks.put(None)
        if wait:
            for thread in self._threads:
                thread.join()


def _end(tasks: queue.SimpleQueue[_Task | None], processes: dict[int, subprocess.Popen[bytes]], threads: int) -> None:
    """End what an executor leaves that nobody shut down."""
    _kill(processes)
    for _ in range(threads):
        tasks.put(None)


def _kill(processes: dict[int, subprocess.Popen[bytes]]) -> None:
    for process in list(processes.values()):
        process.kill()


def _serve(tasks: queue.SimpleQueue[_Task | None], processes: dict[int, subprocess.Popen[bytes]], slot: int) -> None:
    """Hand tasks to one process at a time, and start another when it dies."""
    while (task := tasks.get()) is not None:
        message, future = task
        if not future.set_running_or_notify_cancel():
            continue
        try:
            process = processes.get(slot)
            if process is not None and process.poll() is not None:
                _close(process)
                process = None
            if process is None:
                process = processes[slot] = _start()
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(message)
            process.stdin.flush()
            is_done, result = pickle.load(process.stdout)
        except (EOFError, OSError, pickle.UnpicklingError):
            future.set_exception(BrokenExecutor(_how_it_ended(processes.pop(slot, None))))
            continue
        except BaseException as error:  # what cannot be unpickled here, most likely; whoever waits must hear of it
            future.set_exception(error)
            continue
        if is_done:
            future.set_result(result)
        else:
            future.set_exception(result)
    process = processes.pop(slot, None)
    if process is not None:
        process.kill()
        _close(process)


def _start() -> subprocess.Popen[bytes]:
    script = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import serve; serve({os.getpid()})"
    return subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=_ONE_THREAD | dict(os.environ),
        start_new_session=True,
    )


def _how_it_ended(process: subprocess.Popen[bytes] | None) -> str:
    if process is None:
        return "no worker process could be started"
    process.kill()
    _close(process)
    code = process.returncode
    how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
    return f"the worker process {process.pid} {how}"


def _close(process: subprocess.Popen[bytes]) -> None:
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with suppress(OSError):  # what was not yet written has no reader any more
                stream.close()


# ----------------------------------------------------------------------------------------------- in the worker process
def serve(parent: int) -> None:
    """Do tasks from standard input until it ends; what tasks print goes to standard error. parent: its process id."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    while True:
        try:
            fn, args, kwargs = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        except Exception as error:
            _answer(answers, False, error)
            continue
        try:
            result = fn(*args, **kwargs)
        except Exception as error:
            _answer(answers, False, error)
        else:
            _answer(answers, True, result)


def _answer(answers: BinaryIO, is_done: bool, result: object) -> None:
    try:
        message = pickle.dumps((is_done, result))
    except Exception as error:
        message = pickle.dumps((False, RuntimeError(f"{type(result).__name__} cannot be sent back: {error}")))
    answers.write(message)
    answers.flush()


def _end_with(parent: int) -> None:
    """End this process once its parent is gone, also in the middle of a task."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)
