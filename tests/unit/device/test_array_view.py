"""Arrays through DLPack: address, shape, strides, type and place; nothing copied, nothing consumed."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

from tests.unit.device.fake_gpu import FakeDeviceArray
from workbench.device.array_view import CPU, CUDA, contiguous_strides, view_array
from workbench.errors import LaunchError


@pytest.mark.parametrize(
    "dtype", ["float16", "float32", "float64", "int8", "int32", "int64", "uint16", "bool", "complex64"]
)
def test_numpy_arrays(dtype: str) -> None:
    array = np.zeros((3, 4, 5), dtype)
    view = view_array(array, "x")
    assert (view.pointer, view.shape, view.strides, view.dtype) == (array.ctypes.data, (3, 4, 5), (20, 5, 1), dtype)
    assert (view.device_type, view.is_on_gpu) == (CPU, False)


def test_strides_and_offset() -> None:
    array = np.arange(24, dtype=np.float32).reshape(4, 6)
    view = view_array(array.T[1:, ::2], "x")
    assert view.pointer == array.ctypes.data + 4
    assert (view.shape, view.strides) == ((5, 2), (1, 12))


def test_a_scalar_and_an_empty_array() -> None:
    assert view_array(np.array(2.0), "x").shape == ()
    assert view_array(np.empty((0, 3)), "x").shape == (0, 3)


def test_the_array_lives_on() -> None:
    array = np.arange(10.0)
    for _ in range(100):
        view_array(array, "x")
    gc.collect()
    np.testing.assert_array_equal(array, np.arange(10.0))


def test_a_device_array_is_asked_for_no_synchronisation() -> None:
    array = FakeDeviceArray(np.zeros((2, 8), np.uint16), device=3, code=4)
    view = view_array(array, "x")
    assert (view.device_type, view.device_id, view.dtype, view.is_on_gpu) == (CUDA, 3, "bfloat16", True)
    assert array.streams == [-1]
    assert view.owner is array


class Stingy:
    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __dlpack__(self, stream: Any = None) -> Any:
        raise RuntimeError("it requires grad")


def test_what_is_no_array() -> None:
    with pytest.raises(LaunchError, match="k: argument 0: list is no array"):
        view_array([1.0], "k: argument 0")
    with pytest.raises(LaunchError, match="x: the array does not lend its memory: it requires grad"):
        view_array(Stingy(), "x")
    frozen = np.zeros(3)
    frozen.flags.writeable = False
    view_or_error = pytest.raises(LaunchError, match="does not lend")
    with view_or_error:
        view_array(frozen, "x")


def test_contiguous_strides() -> None:
    assert contiguous_strides((2, 3, 4)) == (12, 4, 1)
    assert contiguous_strides((2, 0, 4)) == (4, 4, 1)
    assert contiguous_strides(()) == ()
