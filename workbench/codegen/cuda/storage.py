"""Arrays as kernels store them: float16, the bits of bfloat16 as uint16, float32; and the bytes behind strides.

Invariant: numbers are rounded to nearest even once, on the way in; the way out is exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.codegen.cuda.selftest.case import from_bf16, to_bf16
from workbench.core.dtypes import DType
from workbench.core.tensors import DeviceTensor
from workbench.errors import DTypeError

Array = npt.NDArray[Any]
STORAGE: dict[DType, np.dtype[Any]] = {
    DType.FLOAT16: np.dtype(np.float16),
    DType.BFLOAT16: np.dtype(np.uint16),
    DType.FLOAT32: np.dtype(np.float32),
}
"""The NumPy type whose bytes are those of an element in device memory; NumPy has no bfloat16, so its bits stand in."""


def storage_dtype(dtype: DType) -> np.dtype[Any]:
    """Return the NumPy type of an element's bytes. Raises: DTypeError for a type that no kernel reads or writes."""
    if dtype not in STORAGE:
        raise DTypeError(f"kernels do not store {dtype}; use float32 or a 16-bit type")
    return STORAGE[dtype]


def to_storage(array: npt.ArrayLike, dtype: DType) -> Array:
    """Return an array of numbers rounded to `dtype`, as stored; what is too large becomes an infinity."""
    kind = storage_dtype(dtype)
    with np.errstate(over="ignore"):
        return to_bf16(np.asarray(array)) if dtype is DType.BFLOAT16 else np.asarray(array).astype(kind)


def from_storage(array: Array, dtype: DType) -> npt.NDArray[np.float64]:
    """Return the numbers of a stored array, exactly."""
    return (from_bf16(array) if dtype is DType.BFLOAT16 else array).astype(np.float64)


def span(tensor: DeviceTensor) -> int:
    """Return how many elements lie between a tensor's first and last element in memory, both counted."""
    return 1 + sum((extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.strides, strict=True))


def laid_out(memory: Array, tensor: DeviceTensor) -> Array:
    """Return the tensor's elements as a view of flat memory of `span(tensor)` stored elements; writes go through."""
    strides = tuple(stride * memory.itemsize for stride in tensor.strides)
    return np.lib.stride_tricks.as_strided(memory, tensor.shape, strides)
