"""Launch through the driver's extended call, for what CuPy's launch cannot say: programmatic dependent launch.

Invariant: the launch goes to the stream given, in the context that is current; nothing is allocated on the device.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache

import numpy as np

from workbench.codegen.cuda.launch_shape import LaunchShape
from workbench.errors import LaunchError

PROGRAMMATIC_STREAM_SERIALIZATION = 6  # CU_LAUNCH_ATTRIBUTE_..., cuda.h


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute: an id, four bytes of padding, and a union of 64 bytes."""

    _fields_ = (("id", ctypes.c_uint), ("pad", ctypes.c_uint), ("value", ctypes.c_int), ("rest", ctypes.c_char * 60))


class _Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("attribute_count", ctypes.c_uint),
    )


@cache
def load_driver() -> ctypes.CDLL:
    """Return the CUDA driver's library. Raises: LaunchError when this computer has none."""
    for name in ("libcuda.so.1", "libcuda.so", "nvcuda.dll"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise LaunchError("no CUDA driver (libcuda) on this computer; a kernel needs an NVIDIA GPU to run")


def describe_status(driver: ctypes.CDLL, status: int) -> str:
    """Return the driver's name and words for a status."""
    name, words = ctypes.c_char_p(), ctypes.c_char_p()
    driver.cuGetErrorName(status, ctypes.byref(name))
    driver.cuGetErrorString(status, ctypes.byref(words))
    return f"{(name.value or b'CUDA_ERROR').decode()}: {(words.value or b'').decode()} (status {status})"


def launch_programmatic(function: int, launch: LaunchShape, arguments: Sequence[np.generic], stream: int) -> None:
    """Launch a CUfunction so that it may start before the kernel ahead of it in the stream has ended.

    The kernel must call grid_dependency_wait before it reads what that kernel writes. `stream`: its address.
    Raises: LaunchError with the driver's words.
    """
    driver = load_driver()
    attribute = _Attribute(PROGRAMMATIC_STREAM_SERIALIZATION, 0, 1, b"")
    config = _Config(
        (ctypes.c_uint * 3)(*launch.grid),
        (ctypes.c_uint * 3)(launch.threads, 1, 1),
        launch.shared_bytes,
        stream or None,
        ctypes.pointer(attribute),
        1,
    )
    held = [np.atleast_1d(argument) for argument in arguments]  # own memory for each value until the call returns
    pointers = (ctypes.c_void_p * max(len(held), 1))(*(value.ctypes.data for value in held))
    status = driver.cuLaunchKernelEx(ctypes.byref(config), ctypes.c_void_p(function), pointers, None)
    if status:
        raise LaunchError(f"{launch.kernel} is not launched: {describe_status(driver, status)}")
