"""Inputs for checks: their scales, what they keep from overflowing, and that hard ones tell rows apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from workbench.codegen.cuda.numeric_limits import LOGIT_LIMIT, exponents_of
from workbench.codegen.cuda.storage import from_storage
from workbench.core.dtypes import DType
from workbench.core.tensors import DeviceTensor
from workbench.device.check_inputs import InputKind, draw, make_cases
from workbench.errors import UsageError
from workbench.interpret import evaluate
from workbench.programs import registry
from workbench.ugraph.builder import KernelBuilder
from workbench.ugraph.tracing import trace
from workbench.ugraph.value import exp, max, sum

SIZES: dict[str, Any] = {"batch": 1, "heads": 2, "rows": 16, "head_dim": 64, "context": 64}


def test_random_inputs() -> None:
    x = draw(DeviceTensor("X", (200, 300)), InputKind.RANDOM, np.random.default_rng(0))
    assert abs(x.std() - 0.3) < 0.01
    assert abs(x.mean()) < 0.01


def test_rows_columns_and_heads_of_hard_inputs_differ() -> None:
    x = draw(DeviceTensor("X", (6, 200, 300)), InputKind.HARD, np.random.default_rng(0))
    for axis in range(3):
        others = tuple(other for other in range(3) if other != axis)
        sizes = np.sqrt((x * x).mean(axis=others))
        assert sizes.max() / sizes.min() > 2
    offsets = abs(x.mean(axis=2)) / x.std(axis=2)
    assert (offsets > 0.1).mean() > 0.5


@pytest.mark.parametrize("kind", list(InputKind))
def test_cases_are_reproducible_and_evaluated_as_stored(kind: InputKind) -> None:
    graph = trace(lambda X, W: X @ W, X=(8, 16), W=(16, 8), dtype="bfloat16")
    (case,), (again,) = (make_cases(graph, seed=4, kinds=[kind]) for _ in range(2))
    assert all((a == b).all() for a, b in zip(case.inputs, again.inputs, strict=True))
    assert case.inputs[0].dtype == np.uint16
    values = [from_storage(array, DType.BFLOAT16) for array in case.inputs]
    np.testing.assert_allclose(case.expected[0], values[0] @ values[1], rtol=1e-12)
    (other,) = make_cases(graph, seed=5, kinds=[kind])
    assert not (other.inputs[0] == case.inputs[0]).all()


def test_logits_of_attention_without_a_maximum_are_limited() -> None:
    program = registry.get("gqa", **SIZES)  # the reference has a softmax, which needs no limit
    good = registry.known_good("gqa", **SIZES)
    assert exponents_of(program) == frozenset()
    assert [exponents_of(graph) for graph in good] == [frozenset({0, 1})] * 2
    random, hard = make_cases(program, good)
    for case, low in ((random, 0), (hard, LOGIT_LIMIT / 2)):
        q, k, v = (array.astype(np.float64) for array in case.inputs)
        assert low <= abs(q @ k).max() <= LOGIT_LIMIT
        assert abs(v).max() > 0.3  # what no exponential sees keeps its size
        np.testing.assert_allclose(case.expected[0], evaluate(good[0], [q, k, v])[0], rtol=1e-9)
    free = make_cases(program)[1]
    assert not (free.inputs[0] == hard.inputs[0]).all()


def test_exponentials_below_a_maximum_are_free() -> None:
    safe = trace(lambda X: (e := exp(X - max(X))) / sum(e), X=(8, 16))
    assert exponents_of(safe) == frozenset({0})
    scaled = trace(lambda X: exp(X * 1000), X=(8, 16))
    (case,) = make_cases(scaled, kinds=[InputKind.RANDOM])
    assert abs(case.inputs[0] * 1000.0).max() <= LOGIT_LIMIT * 1.01
    (case,) = make_cases(safe, kinds=[InputKind.RANDOM])
    assert 0.2 < case.inputs[0].std() < 0.4


def test_intermediates_of_a_candidate_stay_within_their_types() -> None:
    program = registry.get("gqa", "standard", "float16", **SIZES)
    kernel = KernelBuilder("float16 sums")
    q, k, v = (kernel.input(tensor.name, tensor.shape) for tensor in program.inputs)
    block = kernel.block(q, k, grid=(2,))
    weights = exp(block.load(q, imap=(0,)) @ block.load(k, imap=(0,)))
    block.save(weights, omap=(0,))
    block.save(sum(weights) * 100, omap=(0,))
    e, s = block.finish(dtypes=["float16", "float16"], name="weights")
    kernel.output((e / s * 100) @ v)
    narrow = kernel.build()
    (free,) = make_cases(program, registry.known_good("gqa", **SIZES), kinds=[InputKind.HARD])
    (case,) = make_cases(program, [narrow], kinds=[InputKind.HARD])
    sums = [
        100 * np.exp(found.inputs[0].astype(np.float64) @ found.inputs[1].astype(np.float64)).sum(-1).max()
        for found in (free, case)
    ]
    assert sums[0] > 65504 / 4 >= sums[1]


def test_nothing_comes_near_the_largest_number() -> None:
    graph = trace(lambda X: (X * 1e6) * 1e-6, X=(8, 16))
    (case,) = make_cases(graph, kinds=[InputKind.RANDOM])
    assert abs(case.inputs[0].astype(np.float64)).max() * 1e6 <= 65504 / 4
    with pytest.raises(UsageError, match="no scale of random inputs"):
        make_cases(trace(lambda X: X + 70000, X=(8, 16)), kinds=[InputKind.RANDOM])
    with pytest.raises(UsageError, match="no scale"):
        make_cases(trace(lambda X: (X - X) / (X - X), X=(2, 2)), kinds=[InputKind.RANDOM])
