"""A CUDA stream that somebody else made, as a CuPy stream. Invariant: nothing is created or destroyed on the device."""

from __future__ import annotations

from typing import Any


class _Pointer:
    """A stream's address behind the CUDA stream protocol (cuda.core: `__cuda_stream__` returns version 0 and address)."""

    def __init__(self, pointer: int) -> None:
        self.pointer = pointer

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self.pointer)


def existing_stream(cupy: Any, pointer: int) -> Any:
    """Return the stream at an address; the caller keeps it alive. CuPy 14 has a method for it, older ones a class."""
    make = getattr(getattr(cupy.cuda, "Stream", None), "from_external", None)
    return cupy.cuda.ExternalStream(pointer) if make is None else make(_Pointer(pointer))
