from __future__ import annotations

import numpy as np
import pytest

from workbench import programs
from workbench.codegen.cuda.host_program import run_program_on_host
from workbench.codegen.cuda.host_run import HostOptions
from workbench.codegen.cuda.kernel_level import emit_program
from workbench.interpret import evaluate
from workbench.interpret.rounded import evaluate_rounded
from workbench.optimize.stable_softmax import Stabilised, stabilise_softmax
from workbench.optimize.thread_graphs import build_thread_graphs
from workbench.ugraph import value as op
from workbench.ugraph.builder import KernelBuilder
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import OpNode
from workbench.verify.compare import verify

SMALL = {"rows": 16, "head_dim": 32, "context": 256}


def good(name: str, **sizes: int) -> list[KernelGraph]:
    return programs.known_good(name, "standard", "float16", **(SMALL | sizes))


def attention(*, divide: bool = True, weights_too: bool = False) -> KernelGraph:
    k = KernelBuilder()
    Q, K, V = k.input("Q", (8, 4)), k.input("K", (4, 12)), k.input("V", (12, 6))
    b = k.block(Q, K, V, loop=3)
    w = op.exp(b.load(Q) @ b.load(K, fmap=1))
    total, product = b.accumulate(w, "sum_dim"), b.accumulate(w @ b.load(V, fmap=0))
    b.save(product / total if divide else product)
    if weights_too:
        b.save(total)
    k.output(*b.finish())
    return k.build()


def apart(graph: KernelGraph) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.uniform(-1, 1, tensor.shape) for tensor in graph.inputs]


def test_one_kernel_becomes_the_structure_of_attention_safe() -> None:
    sizes = {"rows": 64, "head_dim": 16, "context": 128}
    safe = programs.known_good("attention_safe", "standard", "float16", **sizes)[1]
    graphs = programs.known_good("gqa", "standard", "float16", **sizes)
    (one,) = [graph for graph in graphs if len(graph.nodes) == 1]
    assert one.structure_hash != safe.structure_hash
    assert stabilise_softmax(one).graph.structure_hash == safe.structure_hash


@pytest.mark.parametrize("name", ["gqa", "gqa_decode", "mha", "qk_norm_attention"])
def test_both_forms_are_verified_equal_to_the_program(name: str) -> None:
    program = programs.get(name, "standard", "float16", **SMALL)
    forms = good(name)
    assert {len(graph.nodes) for graph in forms} >= {1, 2}
    for graph in forms:
        result = stabilise_softmax(graph)
        assert result.changes
        assert not result.left
        assert verify(program, result.graph).kind == "equal"


def test_true_shapes_of_decoding_are_equal() -> None:
    program = programs.get("gqa_decode")
    for graph in programs.known_good("gqa_decode"):
        assert verify(program, stabilise_softmax(graph).graph, shapes="reduced").kind == "equal"


def logits_near(graph: KernelGraph, size: float) -> list[np.ndarray]:
    """Inputs whose logits reach about `size`, rounded to float16."""
    rng = np.random.default_rng(1)
    q, k, v = (rng.standard_normal(tensor.shape) for tensor in graph.inputs[:3])
    q *= size / np.abs(q @ k).max()
    return [array.astype(np.float16).astype(np.float64) for array in (q, k, v)]


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("name", ["gqa", "gqa_decode"])
def test_logits_near_100_are_right_where_the_unsafe_form_overflows(name: str, number: int) -> None:
    graph = good(name)[number]
    stable = stabilise_softmax(graph).graph
    inputs = logits_near(graph, 100)
    right = evaluate(programs.get(name, "standard", "float16", **SMALL), inputs)[0]
    with np.errstate(all="ignore"):
        unsafe = np.asarray(evaluate_rounded(graph, inputs)[0], dtype=np.float64)
    assert not np.isfinite(unsafe).all()
    rounded = np.asarray(evaluate_rounded(stable, inputs)[0], dtype=np.float64)
    # float16 holds a logit of 100 to 1/32, so a weight to 3%
    np.testing.assert_allclose(rounded, right, atol=0.04 * np.abs(right).max())
    emitted = emit_program(stable)
    (found,) = run_program_on_host(emitted, inputs, HostOptions())
    np.testing.assert_allclose(found.astype(np.float64), right, atol=2e-3 * np.abs(right).max())


def test_a_ragged_split_with_short_blocks_is_right() -> None:
    program = programs.get("gqa", "standard", "float16", rows=8, head_dim=4, context=150)
    for graph in programs.known_good("gqa", "standard", "float16", rows=8, head_dim=4, context=150):
        stable = stabilise_softmax(graph).graph
        inputs = apart(program)
        np.testing.assert_allclose(evaluate(stable, inputs)[0], evaluate(program, inputs)[0], rtol=1e-10)


@pytest.mark.parametrize("splits", [1, 2])
def test_rows_whose_first_tiles_are_masked_are_right(splits: int) -> None:
    """A mask of -inf leaves nothing of a tile, or of a block's keys: -inf - -inf would be no number."""
    k = KernelBuilder()
    shapes = {"Q": (16, 16), "K": (16, 64), "V": (64, 16), "M": (16, 64)}
    Q, K, V, M = (k.input(name, shape, "float16") for name, shape in shapes.items())
    b = k.block(Q, K, V, M, grid=(splits,), loop=4 // splits)
    logits = b.load(Q) @ b.load(K, imap=(1,), fmap=1) + b.load(M, imap=(1,), fmap=1)
    w, v = op.exp(logits), b.load(V, imap=(0,), fmap=0)
    product, total = b.accumulate(w @ v), b.accumulate(w, "sum_dim")
    if splits == 1:
        b.save(product / total, omap=(1,))
    else:
        b.save(product, omap=(1,))
        b.save(total, omap=(1,))
        parts = b.finish(dtypes=["float32", "float32"])
        b = k.block(*parts)
        b.save(op.sum_to_columns(b.load(parts[0]), 16) / op.sum(b.load(parts[1])))
    k.output(*b.finish())
    graph = k.build()
    stable = stabilise_softmax(graph).graph
    mask = np.zeros((16, 64))
    mask[::2, :40] = mask[1, 32:] = -np.inf
    inputs = [*logits_near(graph, 80), mask]
    scores = inputs[0] @ inputs[1] + mask
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    right = weights @ inputs[2] / weights.sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(evaluate(stable, inputs)[0], right, rtol=1e-10)
    np.testing.assert_allclose(evaluate_rounded(stable, inputs)[0], right, atol=0.04 * np.abs(right).max())
    (found,) = run_program_on_host(emit_program(stable), inputs, HostOptions())
    np.testing.assert_allclose(found.astype(np.float64), right, atol=4e-3 * np.abs(right).max())


def test_a_part_of_a_row_that_is_masked_whole_is_right_after_the_loop_too() -> None:
    """The loop is over the heads' depth, so each block takes the maximum of its part of the keys once."""
    k = KernelBuilder()
    shapes = {"Q": (8, 12), "K": (12, 16), "V": (16, 6), "M": (8, 16)}
    Q, K, V, M = (k.input(name, shape) for name, shape in shapes.items())
    b = k.block(Q, K, V, M, grid=(2,), loop=2)
    logits = b.accumulate(b.load(Q, fmap=1) @ b.load(K, imap=(1,), fmap=0)) + b.load(M, imap=(1,))
    w = op.exp(logits)
    b.save(w @ b.load(V, imap=(0,)), omap=(1,))
    b.save(op.sum(w), omap=(1,))
    parts = b.finish()
    b = k.block(*parts)
    b.save(op.sum_to_columns(b.load(parts[0]), 6) / op.sum(b.load(parts[1])))
    k.output(*b.finish())
    graph = k.build()
    result = stabilise_softmax(graph)
    assert any("rescaled to their common maximum" in change for change in result.changes)
    assert verify(graph, result.graph).kind == "equal"
    q, key, v, mask = apart(graph)
    mask[::2, :8] = -np.inf
    scores = 40 * q @ key + mask
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    right = weights @ v / weights.sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(evaluate(result.graph, [40 * q, key, v, mask])[0], right, rtol=1e-10)


def test_a_second_kernel_subtracts_the_maximum_that_the_first_one_found() -> None:
    k = KernelBuilder()
    Q, K, V = k.input("Q", (4, 3)), k.input("K", (3, 12)), k.input("V", (12, 5))
    b = k.block(Q, K, loop=2)
    b.save(b.accumulate(op.exp(b.load(Q) @ b.load(K, fmap=1)), "sum_dim"))
    (total,) = b.finish(names=["total"], dtypes=["float32"])
    b = k.block(Q, K, V, total, loop=3)
    w = op.exp(b.load(Q) @ b.load(K, fmap=1)) / b.load(total)
    b.save(b.accumulate(w @ b.load(V, fmap=0)))
    k.output(*b.finish())
    graph = k.build()
    result = stabilise_softmax(graph)
    assert any("the maximum that exp of" in change for change in result.changes)
    assert verify(graph, result.graph).kind == "equal"
    inputs = [array * 30 for array in apart(graph)]
    assert np.isfinite(np.asarray(evaluate_rounded(result.graph, inputs)[0], dtype=np.float64)).all()


def test_clusters_are_given_up_where_the_iterations_need_their_order() -> None:
    k = KernelBuilder()
    Q, K, V = k.input("Q", (8, 16)), k.input("K", (16, 64)), k.input("V", (64, 16))
    b = k.block(Q, K, V, loop=4, cluster=(2,))
    w = op.exp(b.load(Q) @ b.load(K, fmap=1))
    b.save(b.accumulate(w @ b.load(V, fmap=0)) / b.accumulate(w, "sum_dim"))
    k.output(*b.finish())
    graph = k.build()
    result = stabilise_softmax(graph)
    assert result.graph.graph_defined[0].block.cluster_dims == (1, 1, 1)
    assert any("clusters are given up" in change for change in result.changes)
    assert verify(graph, result.graph).kind == "equal"
    emit_program(result.graph)


def test_an_exponential_after_the_loop_gets_the_row_maximum() -> None:
    k = KernelBuilder()
    Q, K, V = k.input("Q", (4, 6)), k.input("K", (6, 12)), k.input("V", (12, 5))
    b = k.block(Q, K, V, loop=2)
    w = op.exp(b.accumulate(b.load(Q, fmap=1) @ b.load(K, fmap=0)))
    b.save((w @ b.load(V)) / op.sum(w))
    k.output(*b.finish())
    graph = k.build()
    result = stabilise_softmax(graph)
    nodes = result.graph.graph_defined[0].block.nodes
    ops = [node.op for node in nodes if isinstance(node, OpNode)]
    assert [name for name in ops if name in ("max", "sub")] == ["max", "sub"]
    assert verify(graph, result.graph).kind == "equal"


def reasons(result: Stabilised) -> str:
    return " ".join(result.left)


def test_a_factor_that_nothing_divides_away_is_left() -> None:
    for graph in (attention(divide=False), attention(weights_too=True)):
        result = stabilise_softmax(graph)
        assert result.graph is graph
        assert not result.changes
        assert "would keep the factor" in reasons(result)


def test_an_added_number_is_no_factor() -> None:
    k = KernelBuilder()
    X = k.input("X", (4, 12))
    b = k.block(X, loop=3)
    w = op.exp(b.load(X, fmap=1))
    b.save(b.accumulate(w, "sum_dim") / (b.accumulate(w, "sum_dim") + 1))
    k.output(*b.finish())
    assert "scaled differently" in reasons(stabilise_softmax(k.build()))


def test_a_factor_per_row_does_not_pass_the_contracted_axis() -> None:
    k = KernelBuilder()
    X, V = k.input("X", (4, 12)), k.input("V", (5, 4))
    b = k.block(X, V, loop=3)
    w = op.exp(b.load(X, fmap=1))
    product = b.load(V) @ w  # sums over the rows, each of which would have its own factor
    b.save(b.accumulate(product, "sum_dim") / b.accumulate(product, "sum_dim"))
    k.output(*b.finish())
    assert stabilise_softmax(k.build()).left


def test_rows_that_are_looped_unevenly_keep_no_maximum() -> None:
    k = KernelBuilder()
    X = k.input("X", (7, 4))
    b = k.block(X, loop=3)
    w = op.exp(b.load(X, fmap=0))
    total = op.sum(w, axis=-2)
    b.save(b.accumulate(total, "sum_dim") / b.accumulate(total, "sum_dim"))
    k.output(*b.finish())
    graph = k.build()
    assert stabilise_softmax(graph).graph is graph


def test_what_is_safe_already_stays() -> None:
    for graph in programs.known_good("attention_safe", "standard", "float16", **SMALL):
        result = stabilise_softmax(graph)
        assert result.graph is graph
        assert not result.left


def test_twice_is_once_and_thread_graphs_are_seen_through() -> None:
    for graph in good("gqa"):
        once = stabilise_softmax(graph).graph
        assert stabilise_softmax(once).graph is once
        threaded = stabilise_softmax(build_thread_graphs(graph).graph).graph
        assert threaded.structure_hash == once.structure_hash


def test_a_rewrite_that_forgot_to_rescale_would_be_found() -> None:
    """The verifier tells the running maximum's rescaling from a plain sum."""
    k = KernelBuilder()
    Q, K, V = k.input("Q", (8, 4)), k.input("K", (4, 12)), k.input("V", (12, 6))
    b = k.block(Q, K, V, loop=3)
    s = b.load(Q) @ b.load(K, fmap=1)
    largest, _ = b.running_max(s)
    w = op.exp(s - largest)
    b.save(b.accumulate(w @ b.load(V, fmap=0)) / b.accumulate(w, "sum_dim"))
    k.output(*b.finish())
    assert verify(attention(), k.build()).kind == "different"
