from __future__ import annotations

import numpy as np
import pytest

from workbench.core.layouts import check_strides, column_major_strides, innermost_axis, row_major_strides
from workbench.core.tensors import DeviceTensor
from workbench.errors import ShapeError


@pytest.mark.parametrize("shape", [(), (5,), (2, 3), (4, 1, 3), (2, 3, 4, 5)])
def test_dense_strides_are_those_of_numpy(shape: tuple[int, ...]) -> None:
    array = np.zeros(shape, dtype=np.int8)
    assert row_major_strides(shape) == tuple(np.zeros(shape, dtype=np.int8).strides)
    if len(shape) > 1:
        exchanged = np.swapaxes(np.zeros((*shape[:-2], shape[-1], shape[-2]), dtype=np.int8), -1, -2)
        assert exchanged.shape == array.shape
        assert column_major_strides(shape) == exchanged.strides


def test_strides_are_one_integer_per_axis_and_keep_elements_apart() -> None:
    assert check_strides((2, 3), (1, 2), where="X") == (1, 2)
    assert check_strides((2, 3), (8, 1), where="X") == (8, 1)  # padded rows
    assert check_strides((1, 3), (0, 1), where="X") == (0, 1)  # an axis of one element may stand anywhere
    for strides, message in {
        (3,): "1 strides for 2 axes",
        (-3, 1): "negative stride",
        (1, 1): "overlap",
        (0, 1): "overlap",
        (3.5, 1): "must be integers",
    }.items():
        with pytest.raises(ShapeError, match=message):
            DeviceTensor("X", (2, 3), strides=strides)  # type: ignore[arg-type]  # the mistake under test


def test_the_innermost_axis() -> None:
    assert innermost_axis((2, 3), (3, 1)) == -1
    assert innermost_axis((2, 3), (1, 2)) == -2
    assert innermost_axis((2, 3), (6, 2)) is None
