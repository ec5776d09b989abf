"""cuBLAS through CuPy: planned products, launched on the caller's stream with float32 accumulation.

Invariant: the handle is ours alone, so that nobody's math mode or pointer mode changes what a product means.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from workbench.codegen.cuda.library_matmul import CUDA_DATA_TYPES, GemmCall
from workbench.core.dtypes import DType
from workbench.device.launch import load_cupy
from workbench.device.streams import existing_stream
from workbench.errors import LaunchError

COMPUTE_32F, GEMM_DEFAULT = 68, -1  # cublasComputeType_t, cublasGemmAlgo_t; cublas_api.h
DISALLOW_REDUCED_PRECISION_REDUCTION = 16  # cublasMath_t: partial sums of a split product stay float32
ONE, ZERO = np.ones(1, np.float32), np.zeros(1, np.float32)


class Cublas:
    """A cuBLAS handle on the current device."""

    def __init__(self) -> None:
        """Create the handle. Raises: LaunchError when there is no GPU or no cuBLAS."""
        self._cupy = load_cupy()
        try:
            from cupy.cuda import cublas

            self._library: Any = cublas
            self._handle = cublas.create()
            cublas.setMathMode(self._handle, DISALLOW_REDUCED_PRECISION_REDUCTION)
        except (ImportError, RuntimeError) as error:
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
            with existing_stream(self._cupy, stream):  # CuPy launches cuBLAS on its current stream
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


@cache
def cublas_of(device: int) -> Cublas:
    """Return the handle of a device, which must be the current one; made once, since each takes memory."""
    return Cublas()
