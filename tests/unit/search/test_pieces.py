"""Programs with concatenations and splits, taken apart and put together."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb
from tests.unit.search.searched import PRODUCT, Formula, graph_of
from workbench.errors import NotApplicableError
from workbench.search.pieces import pieces_of
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import OpNode
from workbench.ugraph.value import (
    Value,
    concat,
    maximum,
    reshape,
    rms_norm,
    silu,
    softmax,
    split,
    transpose,
)
from workbench.ugraph.value import max as max_of
from workbench.ugraph.value import (
    sum as sum_of,
)


def last_of_two(x: Value) -> Value:
    return split(x, (1, 5))[1]  # type: ignore[arg-type]


def rotated(q: Value, k: Value, c: Value, s: Value) -> Value:
    a, b = split(q, 2)
    return concat(a * c - b * s, b * c + a * s, axis=-1) @ k


def split_again(x: Value) -> Value:
    a, b, c = split(x, 3)
    d, e = split(concat(b, a, axis=-1), 2)
    return d * e + c


CASES: dict[str, tuple[Formula, dict[str, tuple[int, ...]]]] = {
    "columns": (lambda x, y, w: concat(x, y, axis=-1) @ w, {"X": (4, 6), "Y": (4, 3), "W": (9, 5)}),
    "rows": (lambda x, y, w: concat(x, y, axis=0) @ w, {"X": (4, 6), "Y": (2, 6), "W": (6, 5)}),
    "halves of a product": (lambda x, w: silu(split(x @ w, 2)[0]) * split(x @ w, 2)[1], {"X": (4, 6), "W": (6, 8)}),
    "halves of an input": (lambda x, w: split(x, 2)[0] @ w + split(x, 2)[1] @ w, {"X": (4, 6), "W": (3, 5)}),
    "unequal parts": (last_of_two, {"X": (4, 6)}),
    "an output of two": (lambda x, y, w: concat(x @ w, y, axis=-1), {"X": (4, 6), "Y": (4, 3), "W": (6, 5)}),
    "rotated": (rotated, {"Q": (4, 6), "K": (6, 5), "c": (3,), "s": (3,)}),
    "split of a concatenation": (split_again, {"X": (4, 6)}),
    "a softmax along it": (lambda x, y, w: softmax(concat(x, y, axis=-1)) @ w, {"X": (4, 6), "Y": (4, 3), "W": (9, 5)}),
    "a maximum along it": (lambda x, y: max_of(concat(x, y, axis=-1)), {"X": (4, 6), "Y": (4, 3)}),
    "a norm along it": (lambda x, y: rms_norm(concat(x, y, axis=-1)), {"X": (4, 6), "Y": (4, 3)}),
    "a sum across it": (lambda x, y: sum_of(concat(x, y, axis=-1), axis=0), {"X": (4, 6), "Y": (4, 3)}),
    "both axes": (
        lambda x, y, z: concat(concat(x, y, axis=-1), z, axis=0), {"X": (4, 6), "Y": (4, 3), "Z": (2, 9)}
    ),
    "transposed": (lambda x, y: transpose(concat(x, y, axis=-1)), {"X": (4, 6), "Y": (4, 3)}),
    "broadcast": (lambda x, y: maximum(concat(x, y, axis=-1), 0.5), {"X": (4, 6), "Y": (4, 3)}),
    "batches": (lambda x, y, w: concat(x, y, axis=0) @ w, {"X": (2, 4, 6), "Y": (1, 4, 6), "W": (3, 6, 5)}),
}  # fmt: skip


def values(graph: KernelGraph, arrays: list[np.ndarray]) -> list[np.ndarray]:
    return [np.asarray(value) for value in wb.evaluate(graph, arrays)]


@pytest.mark.parametrize("name", CASES)
def test_the_pieces_together_are_the_program(name: str) -> None:
    formula, sizes = CASES[name]
    program = graph_of(formula, **sizes)
    pieces = pieces_of(program)
    assert pieces is not None
    assert not any(isinstance(node, OpNode) and node.op in ("concat", "split") for node in pieces.core.nodes)
    whole = pieces.whole(pieces.core)
    assert [tensor.name for tensor in whole.inputs] == [tensor.name for tensor in program.inputs]
    rng = np.random.default_rng(1)
    arrays = [rng.uniform(0.5, 1.5, tensor.shape) for tensor in program.inputs]
    for left, right in zip(values(program, arrays), values(whole, arrays), strict=True):
        assert left.shape == right.shape
        assert np.allclose(left, right)


def test_a_program_without_them_has_no_pieces() -> None:
    assert pieces_of(PRODUCT) is None


def test_a_reshape_of_a_cut_axis_is_refused_with_a_cure() -> None:
    program = graph_of(lambda x, y: reshape(concat(x, y, axis=-1), (3, 12)), X=(4, 6), Y=(4, 3))
    with pytest.raises(NotApplicableError, match="before the concatenation or after the split"):
        pieces_of(program)
