"""Products as calls of cuBLAS, executed by cuBLAS' own definition on memory: column-major, strided, batched."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from workbench.codegen.cuda.library_matmul import GemmCall, plan_matmul
from workbench.codegen.cuda.storage import laid_out, span
from workbench.core.dtypes import DType
from workbench.core.tensors import DeviceTensor
from workbench.errors import EmitError

Array = npt.NDArray[Any]


def gemm(call: GemmCall, first: Array, second: Array, result: Array) -> None:
    """What the documentation of cublasGemmStridedBatchedEx says, element by element, on flat memory."""
    for batch in range(call.batch):
        a0 = call.offset_a + batch * call.stride_a
        b0 = call.offset_b + batch * call.stride_b
        c0 = call.offset_c + batch * call.stride_c
        rows_a, rows_b = (call.k if call.transpose_a else call.m), (call.n if call.transpose_b else call.k)
        assert call.lda >= rows_a
        assert call.ldb >= rows_b
        assert call.ldc >= call.m
        for i in range(call.m):
            for j in range(call.n):
                total = 0.0
                for p in range(call.k):
                    a = first[a0 + (p + i * call.lda if call.transpose_a else i + p * call.lda)]
                    b = second[b0 + (j + p * call.ldb if call.transpose_b else p + j * call.ldb)]
                    total += a * b
                result[c0 + i + j * call.ldc] = total


def check(left: DeviceTensor, right: DeviceTensor, result: DeviceTensor) -> tuple[GemmCall, ...]:
    rng = np.random.default_rng(3)
    memories = [rng.standard_normal(span(tensor)) for tensor in (left, right)]
    out = np.full(span(result), np.nan)
    calls = plan_matmul(left, right, result)
    for call in calls:
        first, second = reversed(memories) if call.is_swapped else memories
        gemm(call, first, second, out)
    expected = laid_out(memories[0], left) @ laid_out(memories[1], right)
    np.testing.assert_allclose(laid_out(out, result), expected, rtol=1e-12)
    return calls


def tensor(*shape: int, strides: tuple[int, ...] = (), dtype: DType = DType.FLOAT16) -> DeviceTensor:
    return DeviceTensor("t", shape, dtype, strides)


@pytest.mark.parametrize("left_strides", [(), (1, 3), (7, 1), (1, 9)])
@pytest.mark.parametrize("right_strides", [(), (1, 5), (6, 1)])
@pytest.mark.parametrize("result_strides", [(), (1, 3), (8, 1), (1, 4)])
def test_every_layout_of_a_plain_product(
    left_strides: tuple[int, ...], right_strides: tuple[int, ...], result_strides: tuple[int, ...]
) -> None:
    calls = check(
        tensor(3, 5, strides=left_strides), tensor(5, 4, strides=right_strides), tensor(3, 4, strides=result_strides)
    )
    assert len(calls) == 1
    assert calls[0].batch == 1


@pytest.mark.parametrize(("m", "k", "n"), [(1, 5, 4), (3, 1, 4), (3, 5, 1), (1, 1, 1), (1, 5, 1), (1, 1, 4)])
def test_extents_of_one(m: int, k: int, n: int) -> None:
    check(tensor(m, k), tensor(k, n), tensor(m, n))
    check(tensor(m, k, strides=(1, m)), tensor(k, n, strides=(1, k)), tensor(m, n, strides=(1, m)))


def test_batches_are_one_strided_call() -> None:
    assert [c.batch for c in check(tensor(6, 3, 5), tensor(6, 5, 4), tensor(6, 3, 4))] == [6]
    assert [c.batch for c in check(tensor(2, 3, 3, 5), tensor(2, 3, 5, 4), tensor(2, 3, 3, 4))] == [6]


def test_leading_axes_broadcast() -> None:
    assert [c.stride_a for c in check(tensor(6, 3, 5), tensor(5, 4), tensor(6, 3, 4))] == [0]
    assert [c.stride_b for c in check(tensor(3, 5), tensor(6, 5, 4), tensor(6, 3, 4))] == [0]
    calls = check(tensor(2, 1, 3, 5), tensor(4, 5, 4), tensor(2, 4, 3, 4))
    assert [(c.batch, c.offset_a, c.offset_b) for c in calls] == [(4, 0, 0), (4, 0, 15)]


def test_batches_with_gaps() -> None:
    check(tensor(2, 3, 3, 5, strides=(100, 20, 5, 1)), tensor(2, 3, 5, 4), tensor(2, 3, 3, 4))


def test_types() -> None:
    half, brain, single = (DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32)
    for kind in (half, brain, single):
        plan_matmul(tensor(2, 2, dtype=kind), tensor(2, 2, dtype=kind), tensor(2, 2, dtype=single))
    for kinds in ((half, brain, single), (single, half, single), (single, single, half), (half, half, brain)):
        with pytest.raises(EmitError, match="library=False"):
            plan_matmul(*(tensor(2, 2, dtype=kind) for kind in kinds))
    with pytest.raises(EmitError, match="float64"):
        plan_matmul(*(tensor(2, 2, dtype=DType.FLOAT64) for _ in range(3)))


def test_strides_that_cublas_lacks() -> None:
    with pytest.raises(EmitError, match="step of 1"):
        plan_matmul(tensor(3, 5, strides=(20, 2)), tensor(5, 4), tensor(3, 4))
    with pytest.raises(EmitError, match="step of 1"):
        plan_matmul(tensor(3, 5), tensor(5, 4), tensor(3, 4, strides=(20, 2)))
