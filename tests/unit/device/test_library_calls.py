"""What is handed to cuBLAS: its arguments in its order, addresses of the matrices, the stream; and its refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.device.host_gpu import HostGpu
from workbench.codegen.cuda.library_matmul import plan_matmul
from workbench.core.dtypes import DType
from workbench.core.tensors import DeviceTensor
from workbench.device import library_calls as module
from workbench.device.launch import load_cupy
from workbench.device.library_calls import Cublas, CublasLibrary
from workbench.errors import LaunchError

HALF, SINGLE = DType.FLOAT16, DType.FLOAT32


class Library:
    """Records the calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.error: Exception | None = None
        self.streams: list[tuple[int, ...]] = []

    def use_stream(self, *arguments: int) -> None:
        self.streams.append(arguments)

    def gemmStridedBatchedEx(self, *arguments: Any) -> None:
        if self.error is not None:
            raise self.error
        self.calls.append(arguments)


@pytest.fixture
def cublas() -> tuple[Cublas, Library]:
    made, library = Cublas.__new__(Cublas), Library()
    made._cupy, made._library, made._handle = HostGpu(), library, 99
    made._workspaces, made._spare = {}, None
    return made, library


def test_arguments_in_cublas_order(cublas: tuple[Cublas, Library]) -> None:
    left, right = DeviceTensor("l", (2, 4, 3, 5)), DeviceTensor("r", (2, 1, 5, 7))
    result = DeviceTensor("o", (2, 4, 3, 7), SINGLE)
    cublas[0].multiply(plan_matmul(left, right, result), (HALF, HALF, SINGLE), (1000, 2000, 3000), 8)
    first, second = cublas[1].calls
    one, zero = module.ONE.ctypes.data, module.ZERO.ctypes.data
    # handle, transposes, m, n, k, alpha, A, type, lda, stride, B, type, ldb, stride, beta, C, type, ldc, stride, batch, ...
    assert first == (99, 0, 0, 7, 3, 5, one, 2000, 2, 7, 0, 1000, 2, 5, 15, zero, 3000, 0, 7, 21, 4, 68, -1)
    assert (second[7], second[11], second[16]) == (2000 + 2 * 35, 1000 + 2 * 60, 3000 + 4 * 84)


def test_columns_first(cublas: tuple[Cublas, Library]) -> None:
    left, right, result = DeviceTensor("l", (3, 5)), DeviceTensor("r", (5, 7)), DeviceTensor("o", (3, 7), HALF, (1, 3))
    cublas[0].multiply(plan_matmul(left, right, result), (HALF, HALF, HALF), (1000, 2000, 3000), 8)
    (call,) = cublas[1].calls
    assert call[1:6] == (1, 1, 3, 7, 5)
    assert (call[7], call[11]) == (1000, 2000)


def test_each_stream_has_its_workspace_and_old_ones_are_dropped(cublas: tuple[Cublas, Library]) -> None:
    tensors = [DeviceTensor("t", (2, 2)) for _ in range(3)]
    for stream in (7, 8, 7, *range(20, 20 + module.MOST_WORKSPACES)):
        cublas[0].multiply(plan_matmul(*tensors), (HALF, HALF, HALF), (0, 0, 0), stream)
    streams = cublas[1].streams
    assert [(handle, stream) for handle, stream, _, _ in streams[:3]] == [(99, 7), (99, 8), (99, 7)]
    assert streams[0] == streams[2]
    assert streams[0][2] != streams[1][2]
    assert all(size == module.WORKSPACE_BYTES for *_, size in streams)
    assert len(cublas[0]._workspaces) == module.MOST_WORKSPACES


def test_nothing_is_allocated_while_a_new_stream_is_captured(
    cublas: tuple[Cublas, Library], monkeypatch: pytest.MonkeyPatch
) -> None:
    tensors = [DeviceTensor("t", (2, 2)) for _ in range(3)]
    cublas[0].multiply(plan_matmul(*tensors), (HALF, HALF, HALF), (0, 0, 0), 7)
    monkeypatch.setattr(cublas[0], "_is_capturing", lambda stream: stream == 9)
    allocated: list[int] = []
    real = cublas[0]._cupy.cuda.alloc

    def alloc(size: int) -> Any:
        allocated.append(size)
        return real(size)

    monkeypatch.setattr(cublas[0]._cupy.cuda, "alloc", alloc)
    cublas[0].multiply(plan_matmul(*tensors), (HALF, HALF, HALF), (0, 0, 0), 9)
    assert not allocated
    assert cublas[1].streams[0][2] != cublas[1].streams[1][2]
    cublas[0].multiply(plan_matmul(*tensors), (HALF, HALF, HALF), (0, 0, 0), 7)
    assert len(allocated) == 1


def test_loaded_libraries_are_found_by_file(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [
        "7f00-7f01 r-xp 00000000 08:01 77 /usr/lib/libc.so.6",
        "7f02-7f03 r-xp 00000000 08:01 78 /opt/a b/nvidia/cu13/lib/libcublas.so.13",
        "7f03-7f04 rw-p 00000000 08:01 78 /opt/a b/nvidia/cu13/lib/libcublas.so.13",
        "7f05-7f06 r-xp 00000000 08:01 79 /opt/nvidia/lib/libcublasLt.so.13",
    ]
    monkeypatch.setattr(Path, "read_text", lambda self, **options: "\n".join(lines))
    assert module.loaded_libraries() == ["/opt/a b/nvidia/cu13/lib/libcublas.so.13"]


def test_statuses_are_told_by_name() -> None:
    with pytest.raises(RuntimeError, match="CUBLAS_STATUS_INVALID_VALUE"):
        CublasLibrary._check(7)
    with pytest.raises(RuntimeError, match="CUBLAS_STATUS_99"):
        CublasLibrary._check(99)
    CublasLibrary._check(0)


def test_a_refusal_is_ours(cublas: tuple[Cublas, Library]) -> None:
    cublas[1].error = RuntimeError("CUBLAS_STATUS_INVALID_VALUE")
    tensors = [DeviceTensor("t", (2, 2)) for _ in range(3)]
    with pytest.raises(LaunchError, match="cuBLAS refuses a product: CUBLAS_STATUS_INVALID_VALUE"):
        cublas[0].multiply(plan_matmul(*tensors), (HALF, HALF, HALF), (0, 0, 0), 0)


def test_without_a_gpu() -> None:
    try:
        load_cupy()
    except LaunchError:
        with pytest.raises(LaunchError):
            Cublas()
    else:
        Cublas()
