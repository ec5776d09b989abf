"""Where an array lies and how it is laid out, read through DLPack: torch, CuPy and others without importing them.

Invariant: the array is neither copied nor consumed; its memory lives as long as the view's owner.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import Any

from workbench.errors import LaunchError

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13  # DLDeviceType
DEVICE_NAMES = {CPU: "cpu", CUDA: "cuda", CUDA_HOST: "pinned host memory", CUDA_MANAGED: "cuda managed memory"}
KINDS = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex", 6: "bool"}  # DLDataTypeCode
# DLPack: the producer does nothing about streams; their order is the caller's, and a capture stays legal
NO_SYNCHRONISATION = -1


class _Tensor(ctypes.Structure):
    """DLTensor followed by the manager's two pointers (DLManagedTensor), as in dlpack.h."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = (ctypes.py_object, ctypes.c_char_p)


@dataclass(frozen=True, slots=True)
class ArrayView:
    """An array: address in bytes, shape, strides in elements, dtype name ("float16", "bfloat16", ...), DLPack device."""

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    device_type: int
    device_id: int
    owner: Any = field(repr=False, compare=False)

    @property
    def is_on_gpu(self) -> bool:
        """Whether a kernel may use the address."""
        return self.device_type in (CUDA, CUDA_MANAGED)


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides, in elements, of a row-major array of this shape."""
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


def view_array(value: Any, where: str) -> ArrayView:
    """Return the view of anything with `__dlpack__`. Raises: LaunchError, which begins with `where`."""
    if not hasattr(value, "__dlpack__") or not hasattr(value, "__dlpack_device__"):
        raise LaunchError(f"{where}: {type(value).__name__} is no array; give a torch, CuPy or NumPy array")
    try:
        on_cpu = value.__dlpack_device__()[0] == CPU
        capsule = value.__dlpack__() if on_cpu else value.__dlpack__(stream=NO_SYNCHRONISATION)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:  # it requires grad, it is read-only, ...
        raise LaunchError(f"{where}: the array does not lend its memory: {error}") from error
    tensor = _Tensor.from_address(_capsule_pointer(capsule, b"dltensor"))
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    strides = tuple(tensor.strides[i] for i in range(tensor.ndim)) if tensor.strides else contiguous_strides(shape)
    kind = KINDS.get(tensor.code, f"code{tensor.code}_")
    dtype = "bool" if kind == "bool" else f"{kind}{tensor.bits}"
    if tensor.lanes != 1:
        dtype += f"x{tensor.lanes}"
    # the capsule's destructor gives the loan back; the caller's `value` keeps the memory
    pointer = int(tensor.data or 0) + int(tensor.byte_offset)
    return ArrayView(pointer, shape, strides, dtype, tensor.device_type, tensor.device_id, value)
