"""Arrays as kernels store them: one rounding on the way in, none on the way out, strides as told."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.codegen.cuda.storage import from_storage, laid_out, span, storage_dtype, to_storage
from workbench.core.dtypes import DType
from workbench.core.tensors import DeviceTensor
from workbench.errors import DTypeError


def test_what_a_type_holds_comes_back() -> None:
    numbers = np.array([0.0, 1.0, -2.5, 0.375, 65504.0, np.inf, -np.inf])
    for dtype in (DType.FLOAT16, DType.FLOAT32):
        np.testing.assert_array_equal(from_storage(to_storage(numbers, dtype), dtype), numbers)
    held = np.array([0.0, 1.0, -2.5, 0.375, 2.0**100, np.inf])
    np.testing.assert_array_equal(from_storage(to_storage(held, DType.BFLOAT16), DType.BFLOAT16), held)
    assert np.isnan(from_storage(to_storage([np.nan], DType.BFLOAT16), DType.BFLOAT16))[0]


def test_rounding_is_to_nearest_even() -> None:
    half = 1 + 2.0**-8  # between two bfloat16 numbers
    assert from_storage(to_storage([half, 1 + 3 * 2.0**-8], DType.BFLOAT16), DType.BFLOAT16).tolist() == [
        1.0,
        1 + 2.0**-6,
    ]
    assert from_storage(to_storage([1e6], DType.FLOAT16), DType.FLOAT16)[0] == np.inf


def test_strides_leave_gaps_alone() -> None:
    tensor = DeviceTensor("X", (3, 2), DType.FLOAT32, (5, 2))
    assert span(tensor) == 13
    memory = np.zeros(span(tensor), np.float32)
    laid_out(memory, tensor)[...] = [[1, 2], [3, 4], [5, 6]]
    assert np.flatnonzero(memory).tolist() == [0, 2, 5, 7, 10, 12]
    assert span(DeviceTensor("s", (), DType.FLOAT16)) == 1


def test_float64_is_not_stored() -> None:
    with pytest.raises(DTypeError, match="float32"):
        storage_dtype(DType.FLOAT64)
