"""Launching, with stand-ins for CuPy and device arrays: what is checked, what is passed on, what is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.unit.device.fake_gpu import FakeCupy, FakeDeviceArray, FakeStream
from workbench.codegen.cuda.launch_shape import LaunchShape
from workbench.device import launch as module
from workbench.device.array_view import CPU
from workbench.device.compile import CompiledKernel, KernelUsage
from workbench.device.driver_launch import load_driver
from workbench.device.launch import (
    ArrayParameter,
    LoadedKernel,
    Parameter,
    ScalarParameter,
    explain_failure,
    run_on_device,
    stream_pointer,
)
from workbench.errors import KernelCompileError, LaunchError

SHAPE: dict[str, Any] = {"kernel": "k", "grid": (1, 1, 1), "threads": 32}
PARAMETERS: list[Parameter] = [
    ArrayParameter("x", "float32", (2, 4)),
    ArrayParameter("y", "float32", (2, 4), None, True),
    ScalarParameter("n", "int32"),
    ScalarParameter("eps", "float32"),
]


def compiled(static_bytes: int = 0) -> CompiledKernel:
    usage = KernelUsage("k", 32, 0, 0, static_bytes)
    return CompiledKernel(
        cubin=b"", path=Path("own.cubin"), arch="sm_90a", compiler="nvrtc", log="", compile_s=0.0, load_s=0.0,
        is_cached=False, kernels=(usage,),
    )  # fmt: skip


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> FakeCupy:
    fake = FakeCupy()
    monkeypatch.setattr(module, "load_cupy", lambda: fake)
    return fake


def aligned(array: Any) -> Any:
    """A copy that begins at a multiple of 16 bytes."""
    raw = np.empty(array.nbytes + 16, np.uint8)
    start = -raw.ctypes.data % 16
    out = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    out[...] = array
    return out


def device_arrays() -> tuple[FakeDeviceArray, FakeDeviceArray]:
    x = aligned(np.arange(8, dtype=np.float32).reshape(2, 4))
    return FakeDeviceArray(x), FakeDeviceArray(aligned(np.zeros((2, 4), np.float32)))


def test_a_launch_passes_addresses_and_typed_numbers(cupy: FakeCupy) -> None:
    kernel = LoadedKernel(compiled(), LaunchShape(**SHAPE, shared_bytes=1024), PARAMETERS)
    x, y = device_arrays()
    kernel(x, y, 7, 1e-6)
    grid, block, arguments, shared, stream = cupy.raw.kernel.launches[0]
    assert (grid, block, shared, stream) == ((1, 1, 1), (32, 1, 1), 1024, 5)
    assert [type(a) for a in arguments] == [np.uint64, np.uint64, np.int32, np.float32]
    assert arguments[3] == np.float32(1e-6)
    np.testing.assert_array_equal(y.array, 2 * x.array)
    assert cupy.paths == ["own.cubin"]
    assert cupy.raw.max_dynamic_shared_size_bytes == 48 * 1024
    assert cupy.buffers == []


def test_shared_memory_and_clusters_are_opted_in(cupy: FakeCupy) -> None:
    launch = LaunchShape(kernel="k", grid=(16, 1, 1), threads=32, cluster=(16, 1, 1), shared_bytes=100_000)
    LoadedKernel(compiled(), launch, PARAMETERS)
    assert cupy.raw.max_dynamic_shared_size_bytes == 100_000
    assert cupy.attributes_set == [(77, 14, 1)]


def test_too_much_shared_memory(cupy: FakeCupy) -> None:
    with pytest.raises(LaunchError, match=r"needs 232,500 B .* allows 232,448 B; reduce the stages"):
        LoadedKernel(compiled(static_bytes=500), LaunchShape(**SHAPE, shared_bytes=232_000), PARAMETERS)


def test_numpy_arrays_are_copied_to_buffers_that_stay(cupy: FakeCupy) -> None:
    kernel = LoadedKernel(compiled(), LaunchShape(**SHAPE), PARAMETERS)
    for scale in (1, 3):
        x, y = np.arange(8, dtype=np.float32).reshape(2, 4) * scale, np.zeros((2, 4), np.float32)
        kernel(x, y, 7, 0.0)
        np.testing.assert_array_equal(y, 2 * x)
        np.testing.assert_array_equal(x, np.arange(8).reshape(2, 4) * scale)
    assert len(cupy.buffers) == 2
    FakeStream.waited.clear()
    kernel(np.ones((2, 4), np.float32), np.zeros((2, 4), np.float32), 7, 0.0, stream=FakeStream(31))
    assert FakeStream.waited == [31]  # before the copy back


def test_a_prepared_launch_checks_once(cupy: FakeCupy) -> None:
    kernel = LoadedKernel(compiled(), LaunchShape(**SHAPE), PARAMETERS)
    x, y = device_arrays()
    go = kernel.prepare(x, y, 7, 0.0, stream=3)
    assert len(x.streams) == 1
    for _ in range(3):
        go()
    assert [call[4] for call in cupy.raw.kernel.launches] == [3, 3, 3]
    assert len(x.streams) == 1
    for arguments in ((x, y, 7), (np.zeros((2, 4), np.float32), y, 7, 0.0)):
        with pytest.raises(LaunchError, match="4 arguments on the device"):
            kernel.prepare(*arguments)


X, Y = np.zeros((2, 4), np.float32), np.zeros((2, 4), np.float32)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda x, y: (x, y, 7), "takes 4 arguments, got 3"),
        (lambda x, y: (FakeDeviceArray(aligned(X), device=1), y, 7, 0.0), r"argument 0 \(x\) lies on cuda:1, .* cuda:0"),
        (lambda x, y: (FakeDeviceArray(aligned(X), device_type=CPU), y, 7, 0.0), "lies on cpu:0"),
        (lambda x, y: (FakeDeviceArray(aligned(X.astype(np.float64))), y, 7, 0.0), "is float64, the kernel takes float32"),
        (lambda x, y: (FakeDeviceArray(aligned(X[:1])), y, 7, 0.0), r"shape \(1, 4\), the kernel was made for \(2, 4\)"),
        (lambda x, y: (FakeDeviceArray(aligned(np.zeros((4, 2), np.float32)).T), y, 7, 0.0), r"strides \(1, 2\)"),
        (lambda x, y: (FakeDeviceArray(aligned(np.zeros((3, 4), np.float32)).reshape(-1)[1:9].reshape(2, 4)), y, 7, 0.0),
         "16-byte alignment"),
        (lambda x, y: (x, y, "7", 0.0), r"argument 2 \(n\) is str, the kernel takes int32"),
        (lambda x, y: (x, [0.0], 7, 0.0), r"argument 1 \(y\): list is no array"),
        (lambda x, y: (X.astype(np.float16), y, 7, 0.0), r"is float16 \(2, 4\), the kernel takes float32"),
        (lambda x, y: (np.zeros((4, 2), np.float32).T, y, 7, 0.0), "row-major only"),
    ],
)  # fmt: skip
def test_arguments_that_do_not_fit(make: Any, words: str, cupy: FakeCupy) -> None:
    kernel = LoadedKernel(compiled(), LaunchShape(**SHAPE), PARAMETERS)
    with pytest.raises(LaunchError, match=words):
        kernel(*make(*device_arrays()))
    assert cupy.raw.kernel.launches == []


def test_strides_of_extent_one_do_not_matter(cupy: FakeCupy) -> None:
    odd = ArrayParameter("x", "float32", (1, 8), (99, 1))
    kernel = LoadedKernel(compiled(), LaunchShape(**SHAPE), [odd, ArrayParameter("y", "float32", (8,), None, True)])
    y = FakeDeviceArray(aligned(np.zeros(8, np.float32)))
    kernel(FakeDeviceArray(aligned(np.ones((1, 8), np.float32))), y)
    assert y.array.sum() == 16


def test_the_callers_stream(cupy: FakeCupy) -> None:
    class TorchStream:
        cuda_stream = 11

    assert stream_pointer(FakeStream(9), (), cupy) == 9
    assert stream_pointer(TorchStream(), (), cupy) == 11
    assert stream_pointer(12, (), cupy) == 12
    assert stream_pointer(None, (), cupy) == 5


def test_torchs_current_stream(cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch) -> None:
    class FakeTorch:
        Tensor = FakeDeviceArray

        class cuda:  # torch's own name
            @staticmethod
            def current_stream() -> Any:
                class Stream:
                    cuda_stream = 21

                return Stream()

    monkeypatch.setitem(module.sys.modules, "torch", FakeTorch)  # type: ignore[attr-defined]
    assert stream_pointer(None, device_arrays(), cupy) == 21
    assert stream_pointer(None, (X,), cupy) == 5


def test_a_refused_launch_and_a_missing_kernel(cupy: FakeCupy) -> None:
    kernel = LoadedKernel(compiled(), LaunchShape(**SHAPE), PARAMETERS)
    cupy.raw.kernel.error = RuntimeError("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES: too many resources requested")
    with pytest.raises(LaunchError, match=r"is not launched.*lower the threads"):
        kernel(*device_arrays(), 7, 0.0)
    usage = KernelUsage("other", 1, 0, 0, 0)
    lacking = CompiledKernel(
        cubin=b"",
        path=Path("x"),
        arch="sm_90a",
        compiler="",
        log="",
        compile_s=0,
        load_s=0,
        is_cached=False,
        kernels=(usage,),
    )
    with pytest.raises(KernelCompileError, match="no kernel 'k'"):
        LoadedKernel(lacking, LaunchShape(**SHAPE), PARAMETERS)
    with pytest.raises(LaunchError, match="does not load: CUDA_ERROR_NOT_FOUND"):
        LoadedKernel(lacking, LaunchShape(**(SHAPE | {"kernel": "other"})), PARAMETERS)


def test_one_run_on_numpy_arrays(cupy: FakeCupy) -> None:
    x, y = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    run = run_on_device(compiled(), LaunchShape(**SHAPE), [x, y, np.int32(3)], [1])
    np.testing.assert_array_equal(run.outputs[0], 2 * x)
    np.testing.assert_array_equal(y, 0)  # the caller's array is left alone
    cupy.raw.kernel.error = RuntimeError("cudaErrorIllegalAddress: an illegal memory access was encountered")
    with pytest.raises(LaunchError, match="cudaErrorIllegalAddress"):
        run_on_device(compiled(), LaunchShape(**SHAPE), [x, y, np.int32(3)], [1])


def test_failures_are_explained() -> None:
    text = str(explain_failure("k", "faulted", RuntimeError("CUDA_ERROR_NO_BINARY_FOR_GPU: no kernel image")))
    assert text.startswith("k faulted: CUDA_ERROR_NO_BINARY_FOR_GPU")
    assert "compile for this one's architecture" in text


def test_without_a_driver() -> None:
    try:
        load_driver()
    except LaunchError as error:
        assert "no CUDA driver" in str(error)  # noqa: PT017  # either is right, by the machine
