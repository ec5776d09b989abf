"""Work beside a notebook: a thread that is stopped within a moment, whatever it is doing.

Widget callbacks run between cells, in the kernel's main thread; long work runs here. Invariant: a stopped worker raises
KeyboardInterrupt inside its work, so what stops cleanly on Ctrl-C stops cleanly here, and keeps what it has. Work that is
inside a long call of a library meets it when that call returns; until then it is left behind, and nobody waits for it.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class _Run:
    """One piece of work. Attributes: stopping: set once it shall end; is_inside: whether it may be interrupted."""

    work: Callable[[], None]
    stopping: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)
    is_inside: bool = False
    thread: threading.Thread | None = None

    @property
    def is_alive(self) -> bool:
        return self.thread is not None and self.thread.is_alive()


class Worker:
    """One piece of work at a time. Attributes: error: what ended the last work, None if nothing did."""

    def __init__(self, name: str) -> None:
        """Start nothing. name: of the thread."""
        self.name = name
        self.error: BaseException | None = None
        self._current: _Run | None = None
        self._own = threading.local()
        self._idle = threading.Event()

    @property
    def is_running(self) -> bool:
        """Whether work is being done; not: whether work that was left behind still waits for a library."""
        return self._current is not None and self._current.is_alive

    @property
    def stopping(self) -> threading.Event:
        """Set once the calling thread's work shall end; asked from elsewhere, once the latest work shall."""
        own: _Run | None = getattr(self._own, "run", None)
        run = own or self._current
        return self._idle if run is None else run.stopping

    def start(self, work: Callable[[], None]) -> None:
        """Run work in a thread; what runs already is stopped first, or left behind where it does not stop at once."""
        if not self.stop(0.4):
            self._current = None
        self.error = None
        run = _Run(work)
        run.thread = threading.Thread(target=self._run, args=(run,), name=f"workbench {self.name}", daemon=True)
        self._current = run
        run.thread.start()

    def _run(self, run: _Run) -> None:
        self._own.run = run
        try:
            with run.lock:
                run.is_inside = True
            try:
                run.work()
            finally:
                with run.lock:
                    run.is_inside = False
        except KeyboardInterrupt:
            pass
        except BaseException as error:  # the widget shows it; a thread has nobody to raise it to
            if self._current is run:
                self.error = error

    def stop(self, patience_s: float = 5.0, *, grace_s: float = 0.0) -> bool:
        """Stop the work and wait for its end, for so many seconds at most; return whether it ended.

        grace_s: time for work that looks at `stopping` itself, before it is interrupted.
        """
        run = self._current
        if run is None or run.thread is None or run.thread is threading.current_thread():
            return True
        end = time.monotonic() + patience_s
        run.stopping.set()
        run.thread.join(min(grace_s, patience_s))
        while run.is_alive and (left := end - time.monotonic()) > 0:
            _interrupt(run)  # again after a while: one that arrives inside a callback of the collector is swallowed
            run.thread.join(min(left, 1.5))
        if run.is_alive:
            return False
        self._current = None
        return True

    def leave(self) -> None:
        """Wait no longer for work that is being stopped: it ends when the call that it is inside returns."""
        if self._current is not None and self._current.stopping.is_set():
            self._current = None

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the end of the work; return whether it ended in time."""
        run = self._current
        if run is not None and run.thread is not None and run.thread is not threading.current_thread():
            run.thread.join(timeout_s)
        return not self.is_running


def _interrupt(run: _Run) -> None:
    """Let the work meet a KeyboardInterrupt at its next step."""
    with run.lock:
        if run.is_inside and run.thread is not None and run.thread.is_alive():
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(run.thread.ident or 0), ctypes.py_object(KeyboardInterrupt)
            )
