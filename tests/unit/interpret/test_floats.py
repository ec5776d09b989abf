from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.unit.interpret.slow_block import run_block
from workbench.core.tensors import RaggedSplit
from workbench.errors import ShapeError, UsageError
from workbench.interpret import evaluate
from workbench.interpret.floats import FloatDomain
from workbench.interpret.tiling import split_indices
from workbench.interpret.walk import walk
from workbench.ugraph import value as op
from workbench.ugraph.builder import KernelBuilder, ThreadBuilder


def against_slow(graph: Any, seed: Any = 0, scale: Any = 0.5) -> Any:
    rng = np.random.default_rng(seed)
    inputs = [scale * rng.standard_normal(t.shape) for t in graph.inputs]
    (node,) = graph.nodes
    expected = run_block(node.block, [inputs[[t.name for t in graph.inputs].index(name)] for name in node.operands])
    for got, want in zip(evaluate(graph, inputs), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-11, atol=1e-12)
    return inputs


def rms_linear(
    batch: Any = 6, hidden: Any = 24, out: Any = 20, grid: Any = (4,), loop: Any = 3, split_rows: Any = None
) -> Any:
    k = KernelBuilder("rms")
    X, W = k.input("X", (batch, hidden)), k.input("W", (hidden, out))
    b = k.block(X, W, grid=grid, loop=loop)
    x, w = b.load(X, imap=(None, split_rows), fmap=1), b.load(W, imap=(1,), fmap=0)
    b.save(b.accumulate(x @ w) / b.accumulate(x, "rms", eps=1e-6), omap=(1, split_rows))
    k.output(*b.finish())
    return k.build()


def test_rms_linear_equals_closed_form() -> None:
    graph = rms_linear()
    x, w = against_slow(graph)
    want = (x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6)) @ w
    np.testing.assert_allclose(evaluate(graph, [x, w])[0], want, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("batch", "hidden", "out", "grid", "loop", "rows"),
    [(7, 100, 33, (4,), 6, None), (7, 100, 33, (5, 3), 7, 0), (5, 4, 4, (3, 4), 3, 0), (1, 9, 8, (3,), 1, None)],
)
def test_ragged_tiles_fold_exactly_their_axis(
    batch: Any, hidden: Any, out: Any, grid: Any, loop: Any, rows: Any
) -> None:
    graph = rms_linear(batch, hidden, out, grid, loop, rows)
    x, w = against_slow(graph)
    want = (x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6)) @ w
    np.testing.assert_allclose(evaluate(graph, [x, w])[0], want, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", ["sum", "sum_dim", "sum_to_columns", "max", "max_dim", "mean", "rms"])
@pytest.mark.parametrize("looped", [True, False])
def test_every_accumulator(kind: Any, looped: Any) -> None:
    k = KernelBuilder()
    X = k.input("X", (4, 24))
    b = k.block(X, grid=(2,), loop=3)
    x = b.load(X, imap=(0,), fmap=1 if looped else None)
    b.save(b.accumulate(x, kind, columns=4 if kind == "sum_to_columns" else None), omap=(0,))
    k.output(*b.finish())
    against_slow(k.build())


@pytest.mark.parametrize("kind", ["sum_dim", "max_dim", "mean", "rms"])
def test_folding_accumulators_on_ragged_axes(kind: Any) -> None:
    k = KernelBuilder()
    X = k.input("X", (5, 23))
    b = k.block(X, grid=(2, 3), loop=4)
    x = b.load(X, imap=(0, 1), fmap=1)
    b.save(b.accumulate(x, kind), omap=(0, 1))
    k.output(*b.finish())
    graph = k.build()
    assert graph.outputs[0].shape == (5, 3)
    if kind in ("sum_dim", "max_dim"):  # the last cells of a mean may be empty: 0/0 in the oracle
        against_slow(graph)
    else:
        array = np.random.default_rng(1).standard_normal((5, 23))
        parts = [array[:, 0:8], array[:, 8:16], array[:, 16:23]]
        square = kind == "rms"
        want = np.stack([(p**2 if square else p).mean(-1) for p in parts], -1)
        np.testing.assert_allclose(
            evaluate(graph, [array])[0], np.sqrt(want) if square else want, rtol=1e-9, atol=1e-12
        )


def test_a_maximum_of_negative_numbers_sees_no_zero_beyond_the_end_of_a_tile() -> None:
    """7 numbers over 2 blocks of 4: the second one ends after 3."""
    k = KernelBuilder()
    X = k.input("X", (3, 7))
    b = k.block(X, grid=(2,))
    x = b.load(X, imap=(1,))
    b.save(op.max(x), omap=(1,))
    b.save(b.accumulate(x, "max_dim"), omap=(1,))
    k.output(*b.finish())
    array = -np.exp(np.random.default_rng(2).standard_normal((3, 7)))
    want = np.stack([array[:, :4].max(axis=1), array[:, 4:].max(axis=1)], axis=1)
    for got in evaluate(k.build(), [array]):
        np.testing.assert_array_equal(got, want)


def test_an_output_that_a_later_kernel_reads_is_kept() -> None:
    k = KernelBuilder()
    X = k.input("X", (2,))
    y = op.exp(X)
    k.output(y, op.exp(y), X)
    array = np.array([0.5, -1.0])
    for got, want in zip(evaluate(k.build(), [array]), (np.exp(array), np.exp(np.exp(array)), array), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-15)


def online_softmax(context: Any = 20, loop: Any = 5, grid: Any = 1) -> Any:
    k = KernelBuilder()
    Q, K, V = k.input("Q", (3, 4)), k.input("K", (4, context)), k.input("V", (context, 6))
    b = k.block(Q, K, V, grid=(grid,), loop=loop)
    q, kk, v = b.load(Q), b.load(K, fmap=1), b.load(V, imap=(1,), fmap=0)
    s = q @ kk
    m, shift = b.running_max(s)
    e, r = op.exp(s - m), op.exp(shift)
    o = b.accumulate(e @ v, "rescale", rescale=r)
    total = b.accumulate(e, "rescale_sum", rescale=r)
    b.save(o / total, omap=(1,))
    k.output(*b.finish())
    return k.build()


@pytest.mark.parametrize("loop", [1, 5])
def test_online_softmax_equals_safe_softmax_at_large_logits(loop: Any) -> None:
    graph = online_softmax(loop=loop, grid=2)
    inputs = against_slow(graph)
    q, kk, v = [20 * inputs[0], 20 * inputs[1], inputs[2]]
    s = q @ kk
    e = np.exp(s - s.max(-1, keepdims=True))
    np.testing.assert_allclose(evaluate(graph, [q, kk, v])[0], e @ v / e.sum(-1, keepdims=True), rtol=1e-10)


def test_online_softmax_with_ragged_keys() -> None:
    graph = online_softmax(context=23, loop=4)
    q, kk, v = (np.random.default_rng(3).standard_normal(t.shape) for t in graph.inputs)
    e = np.exp(q @ kk)
    np.testing.assert_allclose(evaluate(graph, [q, kk, v])[0], e @ v / e.sum(-1, keepdims=True), rtol=1e-9, atol=1e-12)


def test_blocks_without_keys_have_nothing_to_rescale() -> None:
    """9 keys over 6 blocks of 2 in a loop of 2: the last block is empty, and others end early."""
    k = KernelBuilder()
    S = k.input("S", (3, 9))
    b = k.block(S, grid=(6,), loop=2)
    s = b.load(S, imap=(1,), fmap=1)
    largest, shift = b.running_max(s)
    total = b.accumulate(op.exp(s - largest), "rescale_sum", rescale=op.exp(shift))
    b.save(total, omap=(1,))
    b.save(b.accumulate(largest, "max"), omap=(1,))
    b.save(b.accumulate(shift), omap=(1,))
    totals, maxima, shifts = b.finish()
    weight = op.exp(maxima - op.max(maxima))
    k.output(op.sum(totals * weight), op.max(maxima), shifts)
    scores = 30 * np.random.default_rng(4).standard_normal((3, 9))
    total_, largest_, shifts_ = evaluate(k.build(), [scores])
    top = scores.max(axis=1, keepdims=True)
    np.testing.assert_allclose(largest_, top, rtol=1e-12)
    np.testing.assert_allclose(total_, np.exp(scores - top).sum(axis=1, keepdims=True), rtol=1e-11)
    np.testing.assert_array_equal(shifts_[:, 5], 0)  # nothing was ever seen there


def test_inputs_read_after_the_loop_are_not_accumulated() -> None:
    k = KernelBuilder()
    X, W, bias, res = k.input("X", (4, 12)), k.input("W", (12, 8)), k.input("b", (8,)), k.input("R", (4, 8))
    b = k.block(X, W, bias, res, grid=(2,), loop=3)
    y = b.accumulate(b.load(X, fmap=1) @ b.load(W, imap=(1,), fmap=0))
    b.save(y + b.load(bias, imap=(0,)) + b.load(res, imap=(1,)), omap=(1,))
    k.output(*b.finish())
    graph = k.build()
    x, w, c, r = against_slow(graph)
    np.testing.assert_allclose(evaluate(graph, [x, w, c, r])[0], x @ w + c + r, rtol=1e-9, atol=1e-12)


def test_composites_on_a_ragged_row_axis_and_on_a_ragged_folded_axis() -> None:
    k = KernelBuilder()
    X = k.input("X", (7, 10))
    b = k.block(X, grid=(3,), loop=1)
    x = b.load(X, imap=(0,))
    b.save(b.accumulate(op.softmax(x) + op.rms_norm(x) + b.apply("mean", x, axis=-2) * 0), omap=(0,))
    k.output(*b.finish())
    graph = k.build()
    array = np.random.default_rng(2).standard_normal((7, 10))
    e = np.exp(array)
    want = e / e.sum(-1, keepdims=True) + array / np.sqrt((array**2).mean(-1, keepdims=True) + 1e-6)
    np.testing.assert_allclose(evaluate(graph, [array])[0], want, rtol=1e-9, atol=1e-12)
    k = KernelBuilder()
    X = k.input("X", (7, 10))
    b = k.block(X, grid=(3,), loop=1)
    b.save(b.accumulate(op.softmax(b.load(X, imap=(0,)), axis=0)), omap=(0,))
    k.output(*b.finish())
    got = evaluate(k.build(), [array])[0]
    for rows in (slice(0, 3), slice(3, 6), slice(6, 7)):
        part = np.exp(array[rows])
        np.testing.assert_allclose(got[rows], part / part.sum(0), rtol=1e-9, atol=1e-12)


def test_thread_graph_means_what_its_operators_mean() -> None:
    k = KernelBuilder()
    X, Y = k.input("X", (4, 8)), k.input("Y", (4, 8))
    b = k.block(X, Y, grid=(2,))
    t = ThreadBuilder()
    p, q = t.input("p", (2, 8)), t.input("q", (2, 8))
    graph = t.build(op.silu(p) * q)
    b.save(b.thread(graph, b.accumulate(b.load(X, imap=(0,))), b.accumulate(b.load(Y, imap=(0,)))), omap=(0,))
    k.output(*b.finish())
    x, y = against_slow(k.build())
    np.testing.assert_allclose(evaluate(k.build(), [x, y])[0], x / (1 + np.exp(-x)) * y, rtol=1e-9, atol=1e-12)


def test_operands_of_different_rank_meet_at_their_trailing_axes() -> None:
    k = KernelBuilder()
    X, g = k.input("X", (6, 4, 8)), k.input("g", (8,))
    b = k.block(X, g, grid=(3, 2), loop=2)
    b.save(b.accumulate(b.load(X, imap=(0, 1), fmap=2) * b.load(g, fmap=0), "sum_dim"), omap=(0, 1))
    k.output(*b.finish())
    x, c = against_slow(k.build())
    np.testing.assert_allclose(evaluate(k.build(), [x, c])[0], (x * c).sum(-1, keepdims=True), rtol=1e-9, atol=1e-12)


def test_two_grid_axes_split_one_dimension() -> None:
    k = KernelBuilder()
    X = k.input("X", (4, 24))
    b = k.block(X, grid=(2, 3), loop=2)
    x = b.load(X, imap=(1, 1), fmap=0)
    b.save(b.accumulate(x), omap=(1, 1))
    k.output(*b.finish())
    x = against_slow(k.build())[0]
    np.testing.assert_allclose(evaluate(k.build(), [x])[0], x.reshape(2, 2, 24).sum(0), rtol=1e-9, atol=1e-12)


def test_parts_of_the_grid_give_the_same_result() -> None:
    graph = rms_linear(6, 24, 20, (5, 3), 3, 0)
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(t.shape) for t in graph.inputs]
    whole = walk(graph, inputs, FloatDomain())[0]
    for chunk in (1, 50, 100, 333):
        np.testing.assert_array_equal(walk(graph, inputs, FloatDomain(chunk_elements=chunk))[0], whole)


def test_ragged_parts_in_chunks() -> None:
    graph = rms_linear(7, 100, 33, (5, 3), 7, 0)
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(t.shape) for t in graph.inputs]
    np.testing.assert_array_equal(
        walk(graph, inputs, FloatDomain(chunk_elements=64))[0], walk(graph, inputs, FloatDomain())[0]
    )


def test_split_indices_cover_each_element_once() -> None:
    for extent in range(1, 30):
        for parts in (((0, 3),), ((0, 2), (3, 4)), ((1, 5), (3, 2))):
            index, valid = split_indices(RaggedSplit(extent, parts))
            assert sorted(index[valid]) == list(range(extent))


def test_observer_sees_tensors_and_tiles() -> None:
    seen = []
    graph = rms_linear()
    evaluate(graph, [np.ones((6, 24)), np.ones((24, 20))], observe=lambda path, value: seen.append(path))
    assert ("X",) in seen
    assert any(len(path) == 2 for path in seen)


def test_wrong_inputs_are_named() -> None:
    graph = rms_linear()
    with pytest.raises(ShapeError, match=r"takes 2 inputs \(X, W\), got 1"):
        evaluate(graph, [np.ones((6, 24))])
    with pytest.raises(ShapeError, match=r"input W has shape \(24, 21\)"):
        evaluate(graph, [np.ones((6, 24)), np.ones((24, 21))])
    with pytest.raises(UsageError, match="no array of numbers"):
        evaluate(graph, [np.ones((6, 24)), [["a"] * 20] * 24])
    with pytest.raises(UsageError, match="a KernelGraph is evaluated, got function"):
        evaluate(rms_linear, [np.ones((6, 24))])  # type: ignore[arg-type]  # the mistake under test
    with pytest.raises(UsageError, match="complex"):
        evaluate(graph, [np.ones((6, 24)), np.ones((24, 20)) * 1j])
    with pytest.raises(UsageError, match="sequence"):
        evaluate(graph, {"X": 1})  # type: ignore[arg-type]  # the mistake under test
