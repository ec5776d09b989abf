"""NumPy arrays on their way to the device and back: one kept buffer for each, in the tensor's own strides.

Invariant: a buffer is allocated once; the host side of a copy lives until the stream has been waited for.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from workbench.codegen.cuda.storage import Array, laid_out, span, storage_dtype
from workbench.core.dtypes import DType
from workbench.core.tensors import DeviceTensor
from workbench.errors import LaunchError

HOST_TO_DEVICE, DEVICE_TO_HOST = 1, 2  # cudaMemcpyKind, driver_types.h


def as_stored(array: Array, tensor: DeviceTensor, where: str) -> Array:
    """Return the array as bytes of the tensor's type; bfloat16 comes as uint16 bits, or as ml_dtypes' type.

    Raises: LaunchError, which begins with `where`, for another type or shape.
    """
    wanted = storage_dtype(tensor.dtype)
    if tensor.dtype is DType.BFLOAT16 and array.dtype.name == "bfloat16":
        array = array.view(np.uint16)
    if array.dtype != wanted:
        bits = " (the bits of bfloat16, as uint16)" if tensor.dtype is DType.BFLOAT16 else ""
        raise LaunchError(f"{where} is {array.dtype}, the program takes {tensor.dtype}{bits}; convert it")
    if array.shape != tensor.shape:
        raise LaunchError(f"{where} has shape {array.shape}, the program takes {tensor.shape}")
    return array


class HostCopy:
    """The device buffer and the host staging memory of one NumPy argument."""

    def __init__(self, tensor: DeviceTensor, cupy: Any) -> None:
        """Allocate both."""
        self.tensor, self._runtime = tensor, cupy.cuda.runtime
        self._staging = np.zeros(span(tensor), storage_dtype(tensor.dtype))
        self._memory = cupy.cuda.alloc(self._staging.nbytes)

    @property
    def pointer(self) -> int:
        """The device address."""
        return int(self._memory.ptr)

    def send(self, array: Array, stream: int) -> None:
        """Enqueue the copy of an array to the device."""
        laid_out(self._staging, self.tensor)[...] = array
        self._runtime.memcpyAsync(self.pointer, self._staging.ctypes.data, self._staging.nbytes, HOST_TO_DEVICE, stream)

    def fetch(self, stream: int) -> None:
        """Enqueue the copy back; `read` has it once the stream was waited for."""
        self._runtime.memcpyAsync(self._staging.ctypes.data, self.pointer, self._staging.nbytes, DEVICE_TO_HOST, stream)

    def read(self, into: Array) -> None:
        """Store what was fetched."""
        into[...] = laid_out(self._staging, self.tensor)
