"""The inputs of exported code: exact in every type, rows that differ, no overflow; splitmix64's published numbers."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.codegen.cuda.export.self_check import make_input, make_inputs, make_self_check, mix
from workbench.codegen.cuda.storage import from_storage, to_storage
from workbench.core.dtypes import DType
from workbench.core.tensors import DeviceTensor
from workbench.errors import UsageError
from workbench.interpret import evaluate
from workbench.programs import registry
from workbench.ugraph.tracing import trace
from workbench.ugraph.value import exp


def test_splitmix64() -> None:
    """The first outputs of the generator with seed 0, whose state grows by the golden ratio's bits."""
    golden = 0x9E3779B97F4A7C15
    states = np.array([0, golden, 2 * golden % 2**64], dtype=np.uint64)
    assert [hex(int(word)) for word in mix(states)] == ["0xe220a8397b1dcdaf", "0x6e789e6aa1b965f4", "0x6c45d188009454f"]


@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32])
@pytest.mark.parametrize("shift", [0, 1, 14])
def test_inputs_are_exact_in_every_type(dtype: DType, shift: int) -> None:
    x = make_input(DeviceTensor("X", (50, 40), dtype), 3, shift)
    np.testing.assert_array_equal(from_storage(to_storage(x, dtype), dtype), x)


def test_rows_differ_in_scale_and_offset() -> None:
    x = make_input(DeviceTensor("X", (200, 500)), 0, 1)
    sizes = x.std(axis=1)
    assert sizes.max() / sizes.min() > 3.5
    assert (abs(x.mean(axis=1)) / sizes).max() > 0.4
    assert abs(x.mean()) < 0.02
    other = make_input(DeviceTensor("X", (200, 500)), 1, 1)
    assert abs(np.corrcoef(x.ravel(), other.ravel())[0, 1]) < 0.02
    assert make_input(DeviceTensor("X", ()), 0, 1).shape == ()


def test_right_outputs() -> None:
    graph = trace(lambda X, W: X @ W, X=(8, 16), W=(16, 8))
    check = make_self_check(graph)
    x, w = make_inputs(graph.inputs, check.shifts)
    assert (check.shifts, check.tolerance) == ((1, 1), 2e-3)
    np.testing.assert_allclose(check.expected[0], x @ w, rtol=1e-12)
    single = trace(lambda X: X * 2, X=(8, 16), dtype="float32")
    assert make_self_check(single).tolerance == 1e-4


def test_logits_and_sizes_are_limited() -> None:
    good = registry.known_good("gqa", heads=1, rows=16, head_dim=64, context=64)[0]
    check = make_self_check(good)
    q, k, v = make_inputs(good.inputs, check.shifts)
    assert 1 < abs(q @ k).max() <= 10
    assert check.shifts[2] == 1
    np.testing.assert_allclose(check.expected[0], evaluate(good, [q, k, v])[0])
    steep = trace(lambda X, W: exp(X @ W * 20), X=(16, 64), W=(64, 16))
    check = make_self_check(steep)
    x, w = make_inputs(steep.inputs, check.shifts)
    assert 2 < abs(x @ w * 20).max() <= 10
    assert min(check.shifts) > 1
    large = trace(lambda X: (X * 1e5) * 1e-5, X=(8, 16))
    assert abs(make_inputs(large.inputs, make_self_check(large).shifts)[0]).max() * 1e5 < 65504 / 4
    with pytest.raises(UsageError, match="no scale of the self check's inputs"):
        make_self_check(trace(lambda X: X + 70000, X=(8, 16)))
