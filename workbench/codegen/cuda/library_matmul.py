"""A matrix product as calls of cuBLAS: which call, with which leading dimensions, strides and offsets.

cuBLAS is column-major. A row-major result is computed as its transpose, right^T @ left^T, so cuBLAS's first operand is
then our right one. Invariant: what is planned here reads and writes the tensors' own strides; nothing is copied.
Source: cuBLAS documentation, "cublasGemmStridedBatchedEx".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from workbench.core.dtypes import DType
from workbench.core.tensors import DeviceTensor
from workbench.errors import EmitError

CUDA_DATA_TYPES = {DType.FLOAT32: 0, DType.FLOAT16: 2, DType.BFLOAT16: 14}  # cudaDataType, library_types.h


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmCall:
    """One cublasGemmStridedBatchedEx; lengths, strides and offsets in elements.

    Attributes: is_swapped: cuBLAS's A is our right operand (the result is row-major); transpose_a, transpose_b: cuBLAS
    transposes; m, n, k, lda, ldb, ldc, stride_a, stride_b, stride_c, batch: its arguments; offset_a, offset_b, offset_c:
    where its matrices begin in their tensors.
    """

    is_swapped: bool
    transpose_a: bool
    transpose_b: bool
    m: int
    n: int
    k: int
    lda: int
    ldb: int
    ldc: int
    stride_a: int
    stride_b: int
    stride_c: int
    batch: int
    offset_a: int = 0
    offset_b: int = 0
    offset_c: int = 0


@dataclass(frozen=True, slots=True)
class _Axis:
    """A batch axis: its extent and its steps in left, right and result."""

    extent: int
    steps: tuple[int, int, int]


def plan_matmul(left: DeviceTensor, right: DeviceTensor, result: DeviceTensor) -> tuple[GemmCall, ...]:
    """Return the calls for result = left @ right; left: (..., m, k), right: (..., k, n), leading axes broadcast.

    Raises: EmitError for types or strides that cuBLAS does not take.
    """
    _check_types(left, right, result)
    is_swapped = _leading_dimension(result, by_rows=True) is not None
    ldc = _leading_dimension(result, by_rows=is_swapped)
    if ldc is None:
        raise _no_unit_step(result)
    first, second = (right, left) if is_swapped else (left, right)
    # turned around like the result, an operand that lies by rows is what cuBLAS calls untransposed
    transpose_a, lda = _operand(first, by_rows=is_swapped)
    transpose_b, ldb = _operand(second, by_rows=is_swapped)
    rows, columns = (result.shape[-1], result.shape[-2]) if is_swapped else result.shape[-2:]
    axes = _batch_axes(left, right, result)
    inner = axes[-1] if axes else _Axis(1, (0, 0, 0))
    calls = []
    for index in product(*(range(axis.extent) for axis in axes[:-1])):
        offsets = [sum(i * axis.steps[which] for i, axis in zip(index, axes[:-1], strict=True)) for which in range(3)]
        a, b = (1, 0) if is_swapped else (0, 1)
        calls.append(
            GemmCall(
                is_swapped=is_swapped, transpose_a=transpose_a, transpose_b=transpose_b, m=rows, n=columns,
                k=left.shape[-1], lda=lda, ldb=ldb, ldc=ldc, stride_a=inner.steps[a], stride_b=inner.steps[b],
                stride_c=inner.steps[2], batch=inner.extent, offset_a=offsets[a], offset_b=offsets[b],
                offset_c=offsets[2],
            )
        )  # fmt: skip
    return tuple(calls)


def _check_types(left: DeviceTensor, right: DeviceTensor, result: DeviceTensor) -> None:
    kinds = (left.dtype, right.dtype, result.dtype)
    is_known = all(kind in CUDA_DATA_TYPES for kind in kinds)
    if not is_known or left.dtype is not right.dtype or result.dtype not in (left.dtype, DType.FLOAT32):
        raise EmitError(
            f"cuBLAS multiplies no {left.dtype} by {right.dtype} into {result.dtype}",
            result.name,
            "let it be emitted as a kernel (library=False), or give both operands one type",
        )


def _operand(tensor: DeviceTensor, *, by_rows: bool) -> tuple[bool, int]:
    """Return whether cuBLAS transposes an operand, and its leading dimension. Raises: EmitError for strides it lacks."""
    for is_transposed in (False, True):
        leading = _leading_dimension(tensor, by_rows=by_rows is not is_transposed)
        if leading is not None:
            return is_transposed, leading
    raise _no_unit_step(tensor)


def _leading_dimension(tensor: DeviceTensor, *, by_rows: bool) -> int | None:
    """Return the step between rows (or columns) that lie contiguous, None if they do not; a lone element may lie anyhow."""
    (rows, columns), (row_step, column_step) = tensor.shape[-2:], tensor.strides[-2:]
    if not by_rows:
        rows, columns, row_step, column_step = columns, rows, column_step, row_step
    if columns > 1 and column_step != 1:
        return None
    return max(row_step if rows > 1 else 1, columns)


def _no_unit_step(tensor: DeviceTensor) -> EmitError:
    return EmitError(
        f"cuBLAS needs a step of 1 along one of the last two axes, strides are {tensor.strides}",
        tensor.name,
        "let it be emitted as a kernel (library=False), or copy the tensor",
    )


def _batch_axes(left: DeviceTensor, right: DeviceTensor, result: DeviceTensor) -> list[_Axis]:
    """Return the batch axes, outermost first, axes of one element dropped and neighbours merged where steps allow."""
    axes: list[_Axis] = []
    batch = result.shape[:-2]
    steps = [_batch_steps(tensor.shape[:-2], tensor.strides[:-2], len(batch)) for tensor in (left, right, result)]
    for extent, *step in zip(batch, *steps, strict=True):
        if extent == 1:
            continue
        axis = _Axis(extent, (step[0], step[1], step[2]))
        if axes and all(outer == extent * inner for outer, inner in zip(axes[-1].steps, axis.steps, strict=True)):
            axes[-1] = _Axis(axes[-1].extent * extent, axis.steps)
        else:
            axes.append(axis)
    return axes


def _batch_steps(shape: Sequence[int], strides: Sequence[int], rank: int) -> list[int]:
    """Return the step along each of `rank` batch axes, 0 where the tensor is repeated."""
    own = [0 if extent == 1 else stride for extent, stride in zip(shape, strides, strict=True)]
    return [0] * (rank - len(own)) + own
