"""What the tests of the worker process have it do."""

from __future__ import annotations

import os
import time

import numpy as np
import numpy.typing as npt

from workbench.errors import KernelCompileError


def add(a: int, b: int = 1) -> int:
    return a + b


def process_id() -> int:
    return os.getpid()


def nothing() -> None:
    return None


def fail(text: str) -> None:
    raise ValueError(text)


def refuse() -> None:
    raise KernelCompileError("short", log="long")


class UnpicklableError(Exception):
    def __init__(self, a: int, b: int) -> None:
        super().__init__("of its own")
        self.both = a, b


def fail_unpicklable() -> None:
    raise UnpicklableError(1, 2)


def abort() -> None:
    os.write(2, b"last words\n")
    os.abort()


def leave() -> None:
    os._exit(7)


def sleep(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def chatter() -> str:
    print("to standard output")
    os.write(1, b"and below it\n")
    return "told"


def large(n: int) -> npt.NDArray[np.float64]:
    return np.arange(n, dtype=np.float64)


def wait_for_one(item: int) -> int:
    if item == 2:
        time.sleep(60)
    if item == 3:
        os.abort()
    return item * item
