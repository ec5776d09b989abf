from __future__ import annotations

from fractions import Fraction
from math import prod
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

import workbench as wb
from tests.property.strategies import TAME, Options, kernel_graphs
from workbench.core.layouts import column_major_strides
from workbench.errors import NotApplicableError, UnknownNameError
from workbench.programs.registry import infer_sizes
from workbench.ugraph.builder import KernelBuilder, ThreadBuilder
from workbench.ugraph.expand import expand
from workbench.ugraph.hashes import wiring_hash
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import OpNode
from workbench.ugraph.reinstantiate import joint_reduction, reduction, reinstantiate
from workbench.ugraph.structure import structure_hash
from workbench.ugraph.value import Value, exp, reshape, silu, sum_to_columns

SAVED = {
    "gated_mlp": "gated_mlp",
    "rmsnorm_bs1": "rms_norm_linear",
    "lora": "lora",
    "ntrans_bs1": "ntrans",
    "mqa_bs1": "mqa",
    "gqa_bs1": "gqa",
    "qknorm_gqa_bs1": "qk_norm_attention",
}


def shapes(graph: KernelGraph) -> list[tuple[int, ...]]:
    return [tensor.shape for tensor in (*graph.inputs, *graph.outputs)]


def difference(program: KernelGraph, candidate: KernelGraph, seed: int = 0) -> float:
    """The largest Frobenius error of the outputs, relative to the program's."""
    rng = np.random.default_rng(seed)
    inputs = [0.5 * rng.normal(size=tensor.shape) for tensor in program.inputs]
    pairs = zip(wb.evaluate(program, inputs), wb.evaluate(candidate, inputs), strict=True)
    return max(float(np.linalg.norm(want - got) / np.linalg.norm(want)) for want, got in pairs)


def attention(*, splits: int = 16, loop: int = 4, context: int = 4096, depth: int = 64) -> KernelGraph:
    """Keys split over 16 blocks and looped; 16 splits * 64 columns added by a second kernel."""
    kernel = KernelBuilder("attention")
    q_in, k_in = kernel.input("Q", (2, 256, depth)), kernel.input("K", (2, depth, context))
    v_in = kernel.input("V", (2, context, depth))
    block = kernel.block(q_in, k_in, v_in, grid=(2, splits, 4), loop=loop)
    q = block.load(q_in, imap=(0, None, 1))
    k = block.load(k_in, imap=(0, 2), fmap=2)
    v = block.load(v_in, imap=(0, 1), fmap=1)
    weights = exp(q @ k)
    block.save(block.accumulate(weights @ v), omap=(0, 2, 1))
    block.save(block.accumulate(weights, "sum_dim"), omap=(0, 2, 1))
    products, sums = block.finish(names=["products", "sums"])
    second = kernel.block(products, sums, grid=(2, 16))
    o, s = second.load(products, imap=(0, 1)), second.load(sums, imap=(0, 1))
    second.save(sum_to_columns(o, depth) / wb.sum(s), omap=(0, 1))
    kernel.output(*second.finish(names=["O"]))
    return kernel.build()


NAMES = {"Q": ("g", "q", "c"), "K": ("g", "c", "s"), "V": ("g", "s", "d")}


# ------------------------------------------------------------------------------------------------- sizes and counts
def test_nothing_asked_changes_nothing() -> None:
    graph = attention()
    assert wiring_hash(reinstantiate(graph)) == wiring_hash(graph)


def test_a_size_changes_everywhere() -> None:
    graph = reinstantiate(attention(), {"s": 2048, "d": 32, "g": 6}, names=NAMES)
    assert shapes(graph) == [(6, 256, 64), (6, 64, 2048), (6, 2048, 32), (6, 256, 32)]
    first, second = graph.graph_defined
    assert [tensor.shape for tensor in first.results] == [(6, 256, 16 * 32), (6, 256, 16)]
    (columns,) = (node for node in second.block.nodes if isinstance(node, OpNode) and node.op == "sum_to_columns")
    assert columns.attribute_map["columns"] == 32
    assert first.block.grid_dims == (2, 16, 4)
    assert first.block.tiles["k"].shape == (3, 64, 2048 // 16 // 4)


def test_counts_multiply_into_dimensions() -> None:
    graph = reinstantiate(attention(), counts={"0.y": 8, "0.loop": 2, "1.y": 64})
    first, second = graph.graph_defined
    assert shapes(graph) == shapes(attention())
    assert [tensor.shape for tensor in first.results] == [(2, 256, 8 * 64), (2, 256, 8)]
    assert (first.block.grid_dims, first.block.forloop_range) == ((2, 8, 4), 2)
    assert second.block.grid_dims == (2, 64, 1)
    assert structure_hash(graph) == structure_hash(attention())


def test_an_instance_of_a_right_graph_is_right() -> None:
    graph = reinstantiate(
        attention(), {"q": 10, "c": 3, "s": 26, "d": 5}, {"0.y": 2, "0.z": 5, "0.loop": 4}, names=NAMES
    )
    q, k, v = (np.random.default_rng(n).normal(size=tensor.shape) for n, tensor in enumerate(graph.inputs))
    weights = np.exp(q @ k)
    np.testing.assert_allclose(
        wb.evaluate(graph, [q, k, v])[0], weights @ v / weights.sum(-1, keepdims=True), rtol=1e-12
    )


def test_counts_grow_from_one() -> None:
    graph = reinstantiate(attention(splits=1, loop=1), counts={"0.y": 16, "0.loop": 4})
    assert wiring_hash(graph) == wiring_hash(attention())


def test_tied_sizes_change_together() -> None:
    graph = wb.trace(lambda X, W: X @ W @ W, X=(4, 6), W=(6, 6))
    changed = reinstantiate(graph, {"h": 9}, names={"X": ("b", "h")})
    assert shapes(changed) == [(4, 9), (9, 9), (4, 9)]


def test_the_two_dimensions_of_a_gram_matrix_change_together() -> None:
    graph = wb.trace(lambda X: X @ wb.transpose(X), X=(4, 6))
    assert shapes(reinstantiate(graph, {"n": 7}, names={"X": ("n", "h")})) == [(7, 6), (7, 7)]


def test_order_in_memory_and_types_stay() -> None:
    kernel = KernelBuilder()
    x = kernel.input("X", (4, 6), "bfloat16", column_major_strides((4, 6)))
    kernel.output(exp(x))
    (changed,) = reinstantiate(kernel.build(), {"a": 5, "b": 3}).inputs
    assert (changed.strides, changed.dtype.value) == (column_major_strides((5, 3)), "bfloat16")


# ---------------------------------------------------------------------------------------- attributes that are extents
def heads(x: Value, w: Value) -> Value:
    return reshape(wb.broadcast(reshape(x, (4, 3, 8)) @ w, (2, 4, 3, 5)), (2, 4, 15))


def test_reshapes_and_broadcasts_follow() -> None:
    graph = wb.trace(heads, x=(4, 24), w=(8, 5))
    changed = reinstantiate(graph, {"h.0": 2, "b": 7, "o": 9}, names={"x": ("b", "h"), "w": ("i", "o")})
    assert shapes(changed) == [(7, 16), (8, 9), (2, 7, 18)]
    assert difference(wb.trace(lambda x, w: heads_of(x, w, 7, 2, 9), x=(7, 16), w=(8, 9)), changed) < 1e-15


def heads_of(x: Value, w: Value, rows: int, count: int, columns: int) -> Value:
    product = reshape(x, (rows, count, 8)) @ w
    return reshape(wb.broadcast(product, (2, rows, count, columns)), (2, rows, count * columns))


def test_pieces_follow_and_their_number_stays() -> None:
    def program(X: Value) -> Value:
        left, right = wb.split(X, 2)
        first, second, third = right.builder.apply_all("split", right, parts=(1, 3, 2))
        return wb.concat(silu(left) * right, first, third) + wb.sum(second)

    graph = wb.trace(program, X=(4, 12))
    pieces = [node for node in graph.nodes if isinstance(node, OpNode) and node.op == "split"]
    names = [tensor.name for tensor in pieces[1].results]
    analysis = wb.trace(program, X=(4, 12))
    assert wiring_hash(reinstantiate(analysis)) == wiring_hash(graph)
    small = reduction(graph, np.random.default_rng(0))
    split = [node for node in small.nodes if isinstance(node, OpNode) and node.op == "split"]
    assert split[0].attribute_map["parts"] == 2
    parts = split[1].attribute_map["parts"]
    assert isinstance(parts, tuple)
    assert parts[0] == 1  # an extent of 1 stays 1
    assert [tensor.name for tensor in split[1].results] == names
    assert small.inputs[0].shape[1] == 2 * sum(parts)


def test_thread_graphs_follow() -> None:
    kernel = KernelBuilder()
    x, w = kernel.input("X", (8, 12)), kernel.input("W", (12, 6))
    block = kernel.block(x, w, grid=(4, 2))
    tree = ThreadBuilder()
    left, right = tree.input("l", (2, 12)), tree.input("r", (12, 3))
    tile = block.thread(tree.build(exp(left @ right) * 2), block.load(x, imap=(0,)), block.load(w, imap=(None, 1)))
    block.save(tile, omap=(0, 1))
    kernel.output(*block.finish())
    graph = kernel.build()
    changed = reinstantiate(graph, {"a": 9, "b": 5}, {"x": 3})
    assert shapes(changed) == [(9, 5), (5, 6), (9, 6)]
    rng = np.random.default_rng(0)
    x_value, w_value = rng.normal(size=(9, 5)), rng.normal(size=(5, 6))
    np.testing.assert_allclose(wb.evaluate(changed, [x_value, w_value])[0], 2 * np.exp(x_value @ w_value), rtol=1e-13)


# ------------------------------------------------------------------------------------------------------------ constants
def rms_by_hand(factor: float, *, after_root: bool = False) -> KernelGraph:
    kernel = KernelBuilder("rms")
    x_in, w_in = kernel.input("X", (8, 4096)), kernel.input("W", (4096, 64))
    block = kernel.block(x_in, w_in, grid=(4,), loop=32)
    x, w = block.load(x_in, fmap=1), block.load(w_in, imap=(1,), fmap=0)
    squares = block.accumulate(x * x, "sum_dim")
    root = wb.sqrt(squares) * factor if after_root else wb.sqrt(squares * factor)
    block.save(block.accumulate(x @ w) / root, omap=(1,))
    kernel.output(*block.finish())
    return kernel.build()


def factor_of(graph: KernelGraph) -> object:
    nodes = [*graph.nodes, *(inner for node in graph.graph_defined for inner in node.block.nodes)]
    return next(node.attribute_map["factor"] for node in nodes if isinstance(node, OpNode) and node.op == "scale")


def test_the_count_of_a_mean_follows() -> None:
    graph = rms_by_hand(1 / 4096)
    assert factor_of(reinstantiate(graph, {"b": 96})) == Fraction(1, 96)
    assert factor_of(reinstantiate(graph, {"a": 5})) == Fraction(1, 4096)
    assert factor_of(reinstantiate(graph, {"b": 100}, {"loop": 7})) == Fraction(1, 100)


def test_another_constant_stays() -> None:
    assert factor_of(reinstantiate(rms_by_hand(1 / 4095), {"b": 96})) == Fraction(repr(1 / 4095))


def test_a_count_under_a_root_needs_a_square() -> None:
    graph = rms_by_hand(1 / 64, after_root=True)
    assert factor_of(reinstantiate(graph, {"b": 144})) == Fraction(1, 12)
    with pytest.raises(NotApplicableError, match="root of a count"):
        reinstantiate(graph, {"b": 96})
    program = wb.programs.get("rms_norm_linear", style="mirage", batch=8, hidden=4096, out=64)
    for seed in range(5):
        assert difference(*joint_reduction(program, graph, np.random.default_rng(seed))) < 1e-14


def test_constants_written_in_the_program_follow_too() -> None:
    program = wb.trace(lambda X: X / wb.sqrt(wb.sum(X * X) * (1 / 24) + 1), X=(4, 24))
    candidate = wb.trace(lambda X: X / wb.rms(X, eps=1), X=(4, 24))
    wrong = wb.trace(lambda X: X / wb.sqrt(wb.sum(X * X) * (1 / 23) + 1), X=(4, 24))
    for seed in range(5):
        assert difference(*joint_reduction(program, candidate, np.random.default_rng(seed))) < 1e-15
        assert difference(*joint_reduction(program, wrong, np.random.default_rng(seed))) > 1e-3


# --------------------------------------------------------------------------------------------------------- refusals
def test_what_cannot_be_asked() -> None:
    graph = attention()
    with pytest.raises(UnknownNameError, match="no axis 'z'"):
        reinstantiate(graph, {"z": 4}, names=NAMES)
    with pytest.raises(UnknownNameError, match="no count 'loop'; the graph has 2"):
        reinstantiate(graph, counts={"loop": 4})
    with pytest.raises(UnknownNameError, match=r"no count '2\.x'"):
        reinstantiate(graph, counts={"2.x": 4})
    with pytest.raises(NotApplicableError, match="at least 1"):
        reinstantiate(graph, {"s": 0}, names=NAMES)


def test_a_stretched_dimension_stays_one() -> None:
    graph = wb.trace(lambda X, B: X + B, X=(4, 6), B=(1, 6))
    names = {"X": ("b", "h"), "B": ("one", "h")}
    with pytest.raises(NotApplicableError, match="fixed extents forbid"):
        reinstantiate(graph, {"one": 4}, names=names)


def test_a_batch_of_one_can_grow() -> None:
    graph = wb.programs.get("mqa", batch=1, context=64)
    assert graph.inputs[0].shape[0] == 1
    grown = reinstantiate(graph, {"g": 3}, names={"Q": ("g", "q", "c")})
    assert shapes(grown)[0][0] == 3
    assert {tensor.shape[0] for tensor in grown.inputs} == {3}


def test_multiplicities_stay() -> None:
    """x added in every iteration is 4 x: another number of iterations is another program."""
    kernel = KernelBuilder()
    x_in = kernel.input("X", (4, 6))
    block = kernel.block(x_in, grid=(2,), loop=4)
    block.save(block.accumulate(block.load(x_in, imap=(0,))), omap=(0,))
    kernel.output(*block.finish())
    graph = kernel.build()
    with pytest.raises(NotApplicableError):
        reinstantiate(graph, counts={"loop": 2})
    program = wb.trace(lambda X: 4 * X, X=(4, 6))
    assert difference(*joint_reduction(program, graph, np.random.default_rng(0))) == 0


def test_a_loop_that_would_fold_what_it_now_shows_is_refused() -> None:
    """Two iterations over 8 rows would add rows to rows; the one iteration of this graph shows all 8."""
    kernel = KernelBuilder()
    x_in = kernel.input("X", (8, 6))
    block = kernel.block(x_in, loop=1)
    block.save(block.accumulate(block.load(x_in, fmap=0)))
    kernel.output(*block.finish())
    with pytest.raises(NotApplicableError, match="would have shape"):
        reinstantiate(kernel.build(), counts={"loop": 2})


def test_different_interfaces_are_refused() -> None:
    rng = np.random.default_rng(0)
    program = wb.trace(lambda X: wb.exp(X), X=(4, 6))
    for other in (
        wb.trace(lambda X: wb.exp(X), X=(4, 7)),
        wb.trace(lambda X, Y: wb.exp(X), X=(4, 6), Y=(4,)),
        wb.trace(lambda X: wb.sum(X), X=(4, 6)),
    ):
        with pytest.raises(NotApplicableError, match="of the program have shapes"):
            joint_reduction(program, other, rng)


# ------------------------------------------------------------------------------------------------------- reductions
def test_small_counts_and_different_extents() -> None:
    """Counts are 2 or 3, tiles different primes, the second kernel's tile what is left; 16 * 64 follows."""
    program = wb.programs.get("gqa", style="mirage")
    for seed in range(10):
        small_program, small = joint_reduction(program, attention(), np.random.default_rng(seed))
        first, second = small.graph_defined
        counts = (*first.block.grid_dims, first.block.forloop_range, second.block.grid_dims[0])
        assert set(counts) <= {2, 3}
        (g, q, c), (_, _, s), (_, _, d) = (tensor.shape for tensor in small.inputs)
        assert first.results[0].shape == (g, q, first.block.grid_dims[1] * d)
        tiles = {q // first.block.grid_dims[2], c, d, s // first.block.grid_dims[1] // first.block.forloop_range}
        assert len(tiles) == 4
        assert {c, d} <= {2, 3, 5, 7}
        assert shapes(small_program) == shapes(small)
        assert difference(small_program, small) < 1e-14


def test_reductions_follow_the_seed() -> None:
    program, graph = wb.programs.get("gqa", style="mirage"), attention()
    first, again, other = (joint_reduction(program, graph, np.random.default_rng(seed))[1] for seed in (1, 1, 2))
    assert wiring_hash(first) == wiring_hash(again) != wiring_hash(other)


@pytest.mark.parametrize("style", ["standard", "mirage"])
@pytest.mark.parametrize("name", wb.programs.names())
def test_known_graphs_reduce_with_their_program(name: str, style: str) -> None:
    program = wb.programs.get(name, style=style)
    for graph in wb.programs.known_good(name, style=style):
        for ragged in (False, True):
            try:
                small_program, small = joint_reduction(program, graph, np.random.default_rng(7), ragged=ragged)
            except NotApplicableError:
                assert ragged
                assert name in ("ntrans", "softmax")  # one row a block: nothing can end early
                continue
            assert difference(small_program, small) < 1e-13
            assert max(prod(shape) for shape in shapes(small)) < 5000
            uneven = [tile.is_ragged for node in small.graph_defined for tile in node.block.tiles.values()]
            assert any(uneven) is ragged


@pytest.mark.parametrize("name", SAVED)
def test_saved_graphs_reduce_with_their_program(shared_data: Path, name: str) -> None:
    """All 293: the 103 right ones stay right, the 190 wrong ones stay wrong."""
    graphs = wb.load(shared_data / "mirage_mugraphs" / f"{name}.json")
    _, sizes = infer_sizes(SAVED[name], [tensor.shape for tensor in graphs[0].inputs])
    program = wb.programs.get(SAVED[name], style="mirage", dtype="float16", **sizes)
    for seed, graph in enumerate(graphs):
        small_program, small = joint_reduction(program, graph, np.random.default_rng(seed))
        found = difference(small_program, small, seed)
        assert found > 0.01 if name.startswith("qknorm") else found < 1e-13
        counts = [count for node in small.graph_defined for count in (*node.block.grid_dims, node.block.forloop_range)]
        assert max(prod(shape) for shape in shapes(small)) < 5000
        old = [count for node in graph.graph_defined for count in (*node.block.grid_dims, node.block.forloop_range)]
        assert all((a > 1) == (b > 1) for a, b in zip(old, counts, strict=True))


@pytest.mark.parametrize("seed", range(4))
def test_a_graph_and_its_rewriting_keep_equal_counts(seed: int) -> None:
    """The sum of roots of parts depends on the number of parts; the expanded graph has as many."""
    kernel = KernelBuilder()
    x_in = kernel.input("X", (4, 24))
    block = kernel.block(x_in, grid=(2,), loop=4)
    x = block.load(x_in, imap=(0,), fmap=1)
    block.save(block.accumulate(block.apply("rms", x)), omap=(0,))
    kernel.output(*block.finish())
    graph = kernel.build()
    small, rewritten = joint_reduction(graph, expand(graph), np.random.default_rng(seed))
    assert [node.block.forloop_range for node in (*small.graph_defined, *rewritten.graph_defined)] in ([2, 2], [3, 3])
    assert difference(small, rewritten) < 1e-14


@settings(max_examples=40)
@given(kernel_graphs(Options(max_steps=5, blocks=False, operators=TAME)))
def test_random_programs_reduce_with_their_expansion(graph: KernelGraph) -> None:
    program, expanded = joint_reduction(graph, expand(graph), np.random.default_rng(0))
    rng = np.random.default_rng(1)
    inputs = [0.5 * rng.normal(size=tensor.shape) for tensor in program.inputs]
    for want, got in zip(wb.evaluate(program, inputs), wb.evaluate(expanded, inputs), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-8, atol=1e-10)


@settings(max_examples=40)
@given(kernel_graphs(Options(max_steps=4)))
def test_random_graphs_are_their_own_instance(graph: KernelGraph) -> None:
    assert wiring_hash(reinstantiate(graph)) == wiring_hash(graph)
