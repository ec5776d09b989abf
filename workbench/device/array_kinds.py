"""Whose array is it (NumPy, torch, CuPy, another library's), and a new one of the same kind for an output.

Invariant: no library is imported that the caller has not imported already, except CuPy, which launches.
"""

from __future__ import annotations

import sys
from enum import Enum
from typing import Any

import numpy as np

from workbench.codegen.cuda.storage import laid_out, span, storage_dtype
from workbench.core.dtypes import DType
from workbench.core.tensors import DeviceTensor


class ArrayKind(Enum):
    """Which library an array belongs to."""

    NUMPY = "NumPy"
    TORCH = "torch"
    CUPY = "CuPy"
    OTHER = "another library"

    @property
    def is_on_host(self) -> bool:
        """True when arrays of this kind are copied to the device and back."""
        return self is ArrayKind.NUMPY


def kind_of(value: object) -> ArrayKind:
    """Return the kind of an array; whatever is no array is OTHER, and refused when it is viewed."""
    if isinstance(value, np.ndarray | np.generic):
        return ArrayKind.NUMPY
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return ArrayKind.TORCH
    return ArrayKind.CUPY if type(value).__module__.partition(".")[0] == "cupy" else ArrayKind.OTHER


def stored_type(dtype_name: str, dtype: DType) -> str:
    """Return the type name that an array of `dtype_name` must have: bfloat16 may come as its bits, in uint16."""
    return "uint16" if dtype is DType.BFLOAT16 and dtype_name == "uint16" else dtype.value


def new_array(kind: ArrayKind, tensor: DeviceTensor, device: int, cupy: Any) -> Any:
    """Return an array of a tensor's shape, type and strides, its contents undefined; OTHER gets a CuPy array.

    bfloat16 is torch.bfloat16 in torch, uint16 bits in CuPy and NumPy.
    """
    if kind is ArrayKind.TORCH:
        torch = sys.modules["torch"]
        kinds = {"dtype": getattr(torch, tensor.dtype.value), "device": f"cuda:{device}"}
        return torch.empty_strided(tensor.shape, tensor.strides, **kinds)
    dtype = storage_dtype(tensor.dtype)
    if kind is ArrayKind.NUMPY:
        return laid_out(np.empty(span(tensor), dtype), tensor)
    strides = tuple(stride * dtype.itemsize for stride in tensor.strides)
    memory = cupy.cuda.alloc(span(tensor) * dtype.itemsize)
    return cupy.ndarray(tensor.shape, dtype, memory, strides)
