"""Run work that may fault in a process of its own: an illegal address, a hang or a crash ends that piece of work only.

Invariant: whatever the work does, the caller's process and its CUDA context live on, and the outcome says what happened.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import selectors
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import IO, Any, Generic, Literal, ParamSpec, TypeVar

from workbench.errors import WorkbenchError, WorkerError

Kind = Literal["done", "error", "device fault", "timeout", "crash"]
P = ParamSpec("P")
T = TypeVar("T")
LENGTH_BYTES, STDERR_TAIL = 8, 2000
WAKE_S = 0.1
"""Seconds after which a wait looks whether it was interrupted: a thread hears of it between two waits only."""

# After these the CUDA context of a process is dead and the process must end. Names of the driver, of the runtime, and
# the words both use.
FATAL_ERRORS = (
    "ILLEGAL_ADDRESS", "cudaErrorIllegalAddress", "illegal memory access",
    "LAUNCH_FAILED", "cudaErrorLaunchFailure", "unspecified launch failure",
    "LAUNCH_TIMEOUT", "cudaErrorLaunchTimeout",
    "MISALIGNED_ADDRESS", "cudaErrorMisalignedAddress", "misaligned address",
    "ILLEGAL_INSTRUCTION", "cudaErrorIllegalInstruction", "illegal instruction",
    "INVALID_ADDRESS_SPACE", "cudaErrorInvalidAddressSpace", "INVALID_PC", "cudaErrorInvalidPc",
    "HARDWARE_STACK_ERROR", "cudaErrorHardwareStackError", "CUDA_ERROR_ASSERT", "cudaErrorAssert", "device-side assert",
    "ECC_UNCORRECTABLE", "cudaErrorECCUncorrectable", "CUDA_ERROR_EXTERNAL_DEVICE", "CUDA_ERROR_UNKNOWN", "cudaErrorUnknown",
    "CUDA_ERROR_CONTEXT_IS_DESTROYED", "MPS_CLIENT_TERMINATED", "CUDA_ERROR_TENSOR_MEMORY_LEAK",
)  # fmt: skip


def is_fatal(text: str) -> bool:
    """Return whether an error's text names a fault after which the CUDA context is unusable."""
    return any(name in text for name in FATAL_ERRORS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome(Generic[T]):
    """What became of one piece of work; `reason` is "" when it is done, else one readable line or more."""

    kind: Kind
    reason: str
    elapsed_s: float
    value: T | None = None
    error: BaseException | None = None

    @property
    def is_done(self) -> bool:
        """Whether the work returned a value."""
        return self.kind == "done"

    def result(self) -> T:
        """Return the value. Raises: the work's own error if it is one of ours, else WorkerError with the reason."""
        if self.kind == "done":
            return self.value  # type: ignore[return-value]  # T may itself be None
        if isinstance(self.error, WorkbenchError):
            raise self.error
        raise WorkerError(f"{self.kind}: {self.reason}")


def write_frame(stream: IO[bytes], data: bytes) -> None:
    """Write a message: its length, then its bytes."""
    stream.write(len(data).to_bytes(LENGTH_BYTES, "little") + data)
    stream.flush()


def child_environment() -> dict[str, str]:
    """Return the environment in which the child finds the same modules as we do."""
    places = [place or os.getcwd() for place in sys.path]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(places)}


class Worker:
    """A child process that runs one function call at a time; started when needed, again after it died.

    Functions are found by module and name, so they stand at the top of an importable module; arguments and values
    are pickled. What the function prints goes to the child's standard error, whose end is told after a crash.
    """

    def __init__(self, executable: str = sys.executable) -> None:
        """Start nothing yet."""
        self._executable = executable
        self._process: subprocess.Popen[bytes] | None = None
        self._stderr: Any = None

    def __enter__(self) -> Worker:
        """Return itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        """End the child."""
        self.close()

    @property
    def process_id(self) -> int | None:
        """The child's process id, None while there is no child."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def _start(self) -> subprocess.Popen[bytes]:
        self.close()
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  # it lives as long as the child
        command = [self._executable, "-m", "workbench.device.worker_main"]
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr, env=child_environment()
            )
        except OSError as error:
            self.close()
            raise WorkerError(f"the worker process does not start: {error}") from error
        return self._process

    def _tail(self) -> str:
        if self._stderr is None:  # closed from another thread
            return ""
        end = self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(end - STDERR_TAIL, 0))
        return str(self._stderr.read().decode(errors="replace")).strip()

    def close(self) -> None:
        """End the child at once, whatever it does."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with contextlib.suppress(OSError):  # what was not sent is lost
                        stream.close()
        if self._stderr is not None:
            self._stderr.close()
            self._stderr = None

    def run(self, function: Callable[P, T], timeout_s: float, /, *args: P.args, **kwargs: P.kwargs) -> Outcome[T]:
        """Call `function(*args, **kwargs)` in the child and return what became of it, at most `timeout_s` later.

        The start of a fresh child (a Python process with NumPy) counts into the time.
        Raises: WorkerError when the child cannot be started, pickle's errors for what cannot be sent.
        """
        started = time.perf_counter()
        if function.__module__ == "__main__" or "<" in function.__qualname__:
            raise WorkerError(
                f"{function.__module__}.{function.__qualname__} cannot be found by another process; put the function at "
                "the top of a module"
            )
        call = pickle.dumps((function.__module__, function.__qualname__, args, kwargs))
        process = self._process if self.process_id is not None else None
        process = process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            write_frame(process.stdin, call)
            reply = read_before(process.stdout, started + timeout_s)
        except BrokenPipeError:
            reply = b""
        elapsed = time.perf_counter() - started
        name = f"{function.__module__}.{function.__qualname__}"
        if reply is None:
            self.close()
            return Outcome(kind="timeout", reason=f"{name} did not end within {timeout_s} s", elapsed_s=elapsed)
        if not reply:
            status = process.wait()
            tail = self._tail()
            self.close()
            how = f"signal {-status}" if status < 0 else f"exit status {status}"
            reason = f"{name} ended the process ({how})" + (f": {tail}" if tail else "")
            return Outcome(kind="crash", reason=reason, elapsed_s=elapsed)
        state, value = pickle.loads(reply)
        if state == "done":
            return Outcome(kind="done", reason="", elapsed_s=elapsed, value=value)
        error, text = value
        if is_fatal(text):
            self.close()
            return Outcome(kind="device fault", reason=text, elapsed_s=elapsed, error=error)
        return Outcome(kind="error", reason=text, elapsed_s=elapsed, error=error)


def read_before(stream: Any, deadline: float) -> bytes | None:
    """Return one message, b"" if the other end closed, or None at the deadline (`time.perf_counter` seconds)."""
    descriptor = stream.fileno()
    wanted, data = LENGTH_BYTES, bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while len(data) < wanted:
            left = deadline - time.perf_counter()
            if left <= 0:
                return None
            if not selector.select(min(left, WAKE_S)):
                continue
            part = os.read(descriptor, min(1 << 20, wanted - len(data)))
            if not part:
                return b""
            data += part
            if wanted == LENGTH_BYTES == len(data):
                wanted += int.from_bytes(data, "little")
    return bytes(data[LENGTH_BYTES:])


def run_in_workers(
    function: Callable[[Any], T], items: Sequence[Any], *, workers: int, timeout_s: float
) -> list[Outcome[T]]:
    """Return the outcome of `function(item)` for each item, in order, by `workers` processes side by side."""
    idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()
    pool = [Worker() for _ in range(max(1, min(workers, len(items))))]
    for worker in pool:
        idle.put(worker)
    stopped = threading.Event()

    def one(item: Any) -> Outcome[T]:
        worker = idle.get()
        try:
            if stopped.is_set():
                return Outcome(kind="error", reason="stopped", elapsed_s=0.0)
            return worker.run(function, timeout_s, item)
        finally:
            idle.put(worker)

    with ThreadPoolExecutor(len(pool)) as executor:
        try:
            return list(executor.map(one, items))
        finally:
            stopped.set()
            for worker in pool:
                worker.close()
