"""cuBLAS: planned products, launched on the caller's stream with float32 accumulation.

The library that CuPy brings is called through ctypes, since CuPy's own calls refuse a stream that is being captured.
Invariant: the handle is ours alone, so that nobody's math mode or pointer mode changes what a
product means, and its workspace is ours too, so that a captured graph allocates nothing.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from workbench.codegen.cuda.library_matmul import CUDA_DATA_TYPES, GemmCall
from workbench.core.dtypes import DType
from workbench.device.launch import load_cupy
from workbench.errors import LaunchError

COMPUTE_32F, GEMM_DEFAULT = 68, -1  # cublasComputeType_t, cublasGemmAlgo_t; cublas_api.h
DISALLOW_REDUCED_PRECISION_REDUCTION = 16  # cublasMath_t: partial sums of a split product stay float32
ONE, ZERO = np.ones(1, np.float32), np.zeros(1, np.float32)
LIBRARIES = ("libcublas.so.13", "libcublas.so.12", "libcublas.so", "cublas64_13.dll", "cublas64_12.dll")
WORKSPACE_BYTES = 32 << 20
"""What cuBLAS asks for on Hopper (cuBLAS documentation, "cublasSetWorkspace"); more than other GPUs need."""

MOST_WORKSPACES = 8
STATUSES = {
    1: "NOT_INITIALIZED", 3: "ALLOC_FAILED", 7: "INVALID_VALUE", 8: "ARCH_MISMATCH", 11: "MAPPING_ERROR",
    13: "EXECUTION_FAILED", 14: "INTERNAL_ERROR", 15: "NOT_SUPPORTED", 16: "LICENSE_ERROR",
}  # fmt: skip
"""cublasStatus_t, cublas_api.h."""


def loaded_libraries() -> list[str]:
    """Return the files of cuBLAS that this process has loaded, where the system tells (Linux)."""
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    paths = (line.split(maxsplit=5)[5] for line in lines if "/libcublas.so" in line)
    return list(dict.fromkeys(paths))


class CublasLibrary:
    """The functions that a product takes, by ctypes. Handle and calls are of one copy of the library, should there be two."""

    def __init__(self) -> None:
        """Find it, loaded already or by name. Raises: OSError when no file of its names loads."""
        for name in (*loaded_libraries(), *LIBRARIES):
            try:
                self._library = ctypes.CDLL(name)
                break
            except OSError:
                continue
        else:
            raise OSError(f"none of {', '.join(LIBRARIES)} loads")
        pointer, number, wide = ctypes.c_void_p, ctypes.c_int, ctypes.c_longlong
        self._library.cublasCreate_v2.argtypes = (ctypes.POINTER(pointer),)
        self._library.cublasSetMathMode.argtypes = (pointer, number)
        self._library.cublasSetStream_v2.argtypes = (pointer, pointer)
        self._library.cublasSetWorkspace_v2.argtypes = (pointer, pointer, ctypes.c_size_t)
        self._library.cublasGemmStridedBatchedEx.argtypes = (
            pointer, *(number,) * 5, pointer, pointer, number, number, wide, pointer, number, number, wide, pointer, pointer,
            number, number, wide, number, number, number,
        )  # fmt: skip

    def create(self, math_mode: int) -> int:
        """Return a new handle of a math mode. Raises: RuntimeError with the status."""
        handle = ctypes.c_void_p()
        self._check(self._library.cublasCreate_v2(ctypes.byref(handle)))
        self._check(self._library.cublasSetMathMode(handle, math_mode))
        return int(handle.value or 0)

    def use_stream(self, handle: int, stream: int, workspace: int, nbytes: int) -> None:
        """Launch on a stream from now on; a change of stream drops the workspace, so it is given anew."""
        self._check(self._library.cublasSetStream_v2(handle, stream or None))
        self._check(self._library.cublasSetWorkspace_v2(handle, workspace, nbytes))

    def gemmStridedBatchedEx(self, *arguments: int) -> None:
        """Launch, with cuBLAS' arguments in its order. Raises: RuntimeError with the status."""
        self._check(self._library.cublasGemmStridedBatchedEx(*arguments))

    @staticmethod
    def _check(status: int) -> None:
        if status:
            raise RuntimeError(f"CUBLAS_STATUS_{STATUSES.get(status, status)}")


class Cublas:
    """A cuBLAS handle on the current device."""

    def __init__(self) -> None:
        """Create the handle. Raises: LaunchError when there is no GPU or no cuBLAS."""
        self._cupy = load_cupy()
        self._workspaces: dict[int, Any] = {}
        self._spare: Any = None
        try:
            from cupy.cuda import cublas

            cublas.destroy(cublas.create())  # so CuPy loads the library, from where it knows it to be
            self._library: Any = CublasLibrary()
            self._handle = self._library.create(DISALLOW_REDUCED_PRECISION_REDUCTION)
        except (ImportError, RuntimeError, OSError) as error:
            raise LaunchError(
                f"cuBLAS does not load: {error}; pip install 'cuda-toolkit[cublas]==13.0.*', or compile with library=False, "
                "which writes every product as a kernel"
            ) from error

    def multiply(
        self,
        calls: Sequence[GemmCall],
        dtypes: tuple[DType, DType, DType],
        pointers: tuple[int, int, int],
        stream: int,
    ) -> None:
        """Launch planned calls on a stream; dtypes and addresses of left, right and result.

        Raises: LaunchError with cuBLAS' words.
        """
        left, right, result = (CUDA_DATA_TYPES[dtype] for dtype in dtypes)
        sizes = tuple(dtype.nbytes for dtype in dtypes)
        try:
            self._library.use_stream(self._handle, stream, self._workspace(stream), WORKSPACE_BYTES)
            for call in calls:
                a, b = (1, 0) if call.is_swapped else (0, 1)
                kinds = (left, right)
                self._library.gemmStridedBatchedEx(
                    self._handle, int(call.transpose_a), int(call.transpose_b), call.m, call.n, call.k,
                    ONE.ctypes.data,
                    pointers[a] + call.offset_a * sizes[a], kinds[a], call.lda, call.stride_a,
                    pointers[b] + call.offset_b * sizes[b], kinds[b], call.ldb, call.stride_b,
                    ZERO.ctypes.data,
                    pointers[2] + call.offset_c * sizes[2], result, call.ldc, call.stride_c,
                    call.batch, COMPUTE_32F, GEMM_DEFAULT,
                )  # fmt: skip
        except RuntimeError as error:
            raise LaunchError(f"cuBLAS refuses a product: {error}") from error

    def _workspace(self, stream: int) -> int:
        """Return the address of a stream's own workspace: two streams may compute at once.

        One more than is used is kept, since nothing can be allocated while a new stream is captured.
        """
        if stream not in self._workspaces:
            if len(self._workspaces) >= MOST_WORKSPACES and not self._is_capturing(stream):
                self._cupy.cuda.runtime.deviceSynchronize()  # the oldest stream is gone, most likely; in case it is not
                self._workspaces.pop(next(iter(self._workspaces)))
            self._workspaces[stream], self._spare = self._spare or self._cupy.cuda.alloc(WORKSPACE_BYTES), None
        if self._spare is None and not self._is_capturing(stream):
            self._spare = self._cupy.cuda.alloc(WORKSPACE_BYTES)
        return int(self._workspaces[stream].ptr)

    def _is_capturing(self, stream: int) -> bool:
        try:
            return bool(self._cupy.cuda.runtime.streamIsCapturing(stream))
        except RuntimeError:  # the legacy stream, while another one is captured
            return True


@cache
def cublas_of(device: int) -> Cublas:
    """Return the handle of a device, which must be the current one; made once, since each takes memory."""
    return Cublas()
