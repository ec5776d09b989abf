"""Work beside a notebook: a thread that is stopped within a moment, whatever it is doing.

Widget callbacks run between cells, in the kernel's main thread; long work runs here. Invariant: a stopped worker raises
KeyboardInterrupt inside its work, so what stops cleanly on Ctrl-C stops cleanly here, and keeps what it has.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable


class Worker:
    """One thread at a time. Attributes: error: what ended the last work, None if nothing did."""

    def __init__(self, name: str) -> None:
        """Start nothing. name: of the thread."""
        self.name = name
        self.error: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._inside = False
        self.stopping = threading.Event()

    @property
    def is_running(self) -> bool:
        """Whether work is being done."""
        return self._thread is not None and self._thread.is_alive()

    def start(self, work: Callable[[], None]) -> None:
        """Run work in a thread; what runs already is stopped first."""
        self.stop()
        self.stopping = threading.Event()
        self.error = None
        self._thread = threading.Thread(target=self._run, args=(work,), name=f"workbench {self.name}", daemon=True)
        self._thread.start()

    def _run(self, work: Callable[[], None]) -> None:
        try:
            with self._lock:
                self._inside = True
            try:
                work()
            finally:
                with self._lock:
                    self._inside = False
        except KeyboardInterrupt:
            pass
        except BaseException as error:  # the widget shows it; a thread has nobody to raise it to
            self.error = error

    def interrupt(self) -> None:
        """Ask the work to stop: it meets a KeyboardInterrupt at its next step. Returns at once."""
        self.stopping.set()
        with self._lock:
            thread = self._thread
            if self._inside and thread and thread.is_alive() and thread is not threading.current_thread():
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(thread.ident or 0), ctypes.py_object(KeyboardInterrupt)
                )

    def stop(self, patience_s: float = 5.0) -> None:
        """Interrupt the work and wait for its end, for so many seconds at most."""
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return
        end = time.monotonic() + patience_s
        while thread.is_alive() and (left := end - time.monotonic()) > 0:
            self.interrupt()  # again after a while: one that arrives inside a callback of the collector is swallowed
            thread.join(min(left, 1.5))
        if not thread.is_alive():
            self._thread = None

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the end of the work; return whether it ended in time."""
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout_s)
        return not self.is_running
