from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings

import workbench as wb
from tests.property.strategies import TAME, Options, kernel_graphs
from workbench.core.dtypes import DType
from workbench.errors import RaggedTileError
from workbench.ops.registry import operators
from workbench.ugraph.builder import KernelBuilder, ThreadBuilder
from workbench.ugraph.expand import expand, expand_composites, inline_thread_graphs
from workbench.ugraph.hashes import wiring_hash
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import Accumulator, AccumulatorKind, OpNode, ThreadNode
from workbench.ugraph.value import Value, exp, silu

BASIC = {AccumulatorKind.SUM, AccumulatorKind.MAX, AccumulatorKind.RESCALE}


def used(graph: KernelGraph) -> set[str]:
    nodes = [*graph.nodes, *(inner for node in graph.graph_defined for inner in node.block.nodes)]
    return {node.op for node in nodes if isinstance(node, OpNode)}


def accumulators(graph: KernelGraph) -> set[AccumulatorKind]:
    return {acc.kind for node in graph.graph_defined for acc in node.block.accumulators}


def random_inputs(graph: KernelGraph, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.normal(size=tensor.shape) for tensor in graph.inputs]


def assert_same_values(graph: KernelGraph, other: KernelGraph) -> None:
    assert [t.name for t in other.inputs] == [t.name for t in graph.inputs]
    assert other.output_names == graph.output_names
    assert [t.dtype for t in other.outputs] == [t.dtype for t in graph.outputs]
    inputs = random_inputs(graph)
    for got, expected in zip(wb.evaluate(other, inputs), wb.evaluate(graph, inputs), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-13)


# -------------------------------------------------------------------------------------------------------- composites
def test_a_norm_becomes_arithmetic() -> None:
    graph = wb.trace(lambda X: wb.rms_norm(X, eps=1e-5), X=(3, 7))
    expanded = expand_composites(graph)
    assert used(expanded) == {"mul", "sum", "scale", "constant", "add", "sqrt", "div"}
    (x,) = inputs = random_inputs(graph)
    np.testing.assert_allclose(
        wb.evaluate(expanded, inputs)[0], x / np.sqrt((x * x).sum(axis=-1, keepdims=True) / 7 + 1e-5), rtol=1e-13
    )
    factors = [
        node.attribute_map["factor"] for node in expanded.nodes if isinstance(node, OpNode) and node.op == "scale"
    ]
    assert factors == [Fraction(1, 7)]


@pytest.mark.parametrize("spec", [spec for spec in operators() if spec.expand is not None], ids=lambda spec: spec.name)
def test_every_composite_goes_down_to_primitives(spec: object) -> None:
    from workbench.ops.spec import OpSpec

    assert isinstance(spec, OpSpec)
    kernel = KernelBuilder()
    x = kernel.input("X", (3, 5), DType.FLOAT64)
    required = {"exponent": -3} if spec.name == "power" else {}
    kernel.output(kernel.apply(spec.name, kernel.apply("abs", x), name="result", **required))
    graph = kernel.build()
    expanded = expand_composites(graph)
    primitives = {other.name for other in operators() if other.expand is None}
    assert used(expanded) <= primitives
    assert_same_values(graph, expanded)


def test_means_can_be_kept() -> None:
    graph = wb.trace(lambda X: wb.layer_norm(X) + wb.mean(X), X=(3, 7))
    kept = expand_composites(graph, keep_means=True)
    assert "mean" in used(kept)
    assert "scale" not in used(kept)
    assert_same_values(graph, kept)


def test_a_mean_over_tiles_that_end_early_stays() -> None:
    """5 columns in 2 blocks: one block divides by 3, the other by 2; no constant says that."""
    kernel = KernelBuilder()
    x = kernel.input("X", (4, 5))
    block = kernel.block(x, grid=(2,))
    tile = block.load(x, imap=(1,))
    block.save(block.apply("rms", tile), omap=(1,))
    kernel.output(*block.finish())
    graph = kernel.build()
    expanded = expand(graph)
    assert used(expanded) == {"mul", "mean", "sqrt"}
    assert_same_values(graph, expanded)
    (x_value,) = random_inputs(graph)
    parts = [np.sqrt((part * part).mean(axis=-1, keepdims=True)) for part in (x_value[:, :3], x_value[:, 3:])]
    np.testing.assert_allclose(wb.evaluate(expanded, [x_value])[0], np.concatenate(parts, axis=-1), rtol=1e-13)


# ------------------------------------------------------------------------------------------------------ accumulators
def looped(fill: Callable[..., Value], columns: int = 12, loop: int = 3, grid: int = 1) -> KernelGraph:
    kernel = KernelBuilder()
    x = kernel.input("X", (4, columns))
    block = kernel.block(x, grid=(grid,), loop=loop)
    tile = block.load(x, imap=(1,) if grid > 1 else (), fmap=1)
    block.save(fill(block, tile), omap=(1,))
    kernel.output(*block.finish())
    return kernel.build()


CLOSED_FORMS: dict[str, tuple[dict[str, object], Callable[[np.ndarray], np.ndarray]]] = {
    "sum": ({}, lambda x: x.reshape(4, 3, 4).sum(axis=1)),
    "sum_dim": ({}, lambda x: x.sum(axis=1, keepdims=True)),
    "sum_to_columns": ({"columns": 2}, lambda x: x.reshape(4, 6, 2).sum(axis=1)),
    "max": ({}, lambda x: x.reshape(4, 3, 4).max(axis=1)),
    "max_dim": ({}, lambda x: x.max(axis=1, keepdims=True)),
    "mean": ({}, lambda x: x.mean(axis=1, keepdims=True)),
    "rms": ({"eps": 0.5}, lambda x: np.sqrt((x * x).mean(axis=1, keepdims=True) + 0.5)),
}


@pytest.mark.parametrize("kind", CLOSED_FORMS)
def test_every_kind_becomes_sum_or_max(kind: str) -> None:
    options, closed = CLOSED_FORMS[kind]
    graph = looped(lambda block, tile: block.accumulate(tile, kind, name="total", **options))
    expanded = expand(graph)
    assert accumulators(expanded) <= BASIC
    assert_same_values(graph, expanded)
    inputs = random_inputs(graph)
    np.testing.assert_allclose(wb.evaluate(expanded, inputs)[0], closed(inputs[0]), rtol=1e-13)


@pytest.mark.parametrize("kind", ["sum_dim", "max_dim", "mean", "rms"])
def test_axes_that_the_loop_cuts_unevenly(kind: str) -> None:
    graph = looped(lambda block, tile: block.accumulate(tile, kind), columns=11)
    expanded = expand(graph)
    assert accumulators(expanded) <= BASIC
    assert_same_values(graph, expanded)
    factors = [
        node.attribute_map["factor"] for n in expanded.graph_defined for node in n.block.nodes
        if isinstance(node, OpNode) and node.op == "scale"
    ]  # fmt: skip
    assert factors == ([Fraction(1, 11)] if kind in ("mean", "rms") else [])


def test_a_mean_that_differs_from_block_to_block_stays() -> None:
    graph = looped(lambda block, tile: block.accumulate(tile, "rms"), columns=11, grid=2)
    expanded = expand(graph)
    assert accumulators(expanded) == {AccumulatorKind.MEAN}
    assert_same_values(graph, expanded)


def test_means_of_accumulators_can_be_kept() -> None:
    graph = looped(lambda block, tile: block.accumulate(tile, "rms"))
    kept = expand(graph, keep_means=True)
    assert accumulators(kept) == {AccumulatorKind.MEAN}
    assert_same_values(graph, kept)


@pytest.mark.parametrize(("per_column", "columns"), [(False, 12), (True, 12), (False, 11)])
def test_rescaled_sums(per_column: bool, columns: int) -> None:
    def fill(block: wb.BlockBuilder, tile: Value) -> Value:
        factor = silu(tile) if per_column else block.apply("max", tile)
        return block.accumulate(tile, "rescale_sum", rescale=factor)

    graph = looped(fill, columns=columns)
    expanded = expand(graph)
    assert accumulators(expanded) == {AccumulatorKind.RESCALE}
    assert_same_values(graph, expanded)
    (x,) = inputs = random_inputs(graph)
    total = np.zeros((4, 4))
    for start in range(0, columns, 4):
        tile = x[:, start : start + 4]
        factor = tile / (1 + np.exp(-tile)) if per_column else tile.max(axis=1, keepdims=True)
        total = total * factor + np.pad(tile, ((0, 0), (0, 4 - tile.shape[1])))
    np.testing.assert_allclose(wb.evaluate(graph, inputs)[0], total.sum(axis=1, keepdims=True), rtol=1e-12)


def test_a_rescaled_sum_over_blocks_that_end_early() -> None:
    """11 columns over 2 blocks of 6; the factor varies along the columns, which the loop does not cut."""
    kernel = KernelBuilder()
    x = kernel.input("X", (6, 11))
    block = kernel.block(x, grid=(2,), loop=3)
    tile = block.load(x, imap=(1,), fmap=0)
    block.save(block.accumulate(tile, "rescale_sum", rescale=silu(tile)), omap=(1,))
    kernel.output(*block.finish())
    graph = kernel.build()
    assert_same_values(graph, expand(graph))
    (value,) = inputs = random_inputs(graph)
    total = np.zeros((2, 11))
    for start in (0, 2, 4):
        rows = value[start : start + 2]
        total = total * rows / (1 + np.exp(-rows)) + rows
    expected = np.stack([total[:, :6].sum(axis=1), total[:, 6:].sum(axis=1)], axis=1)
    np.testing.assert_allclose(wb.evaluate(graph, inputs)[0], expected, rtol=1e-12)


def test_a_rescaled_sum_of_tiles_of_one_element() -> None:
    """3 elements over 4 blocks: the factor is cut as the operand is, though its tiles are as short as a constant's."""
    kernel = KernelBuilder()
    x = kernel.input("X", (2, 3))
    block = kernel.block(x, grid=(4,), loop=2)
    tile = block.load(x, imap=(1,))
    block.save(block.accumulate(tile, "rescale_sum", rescale=tile), omap=(1,))
    kernel.output(*block.finish())
    graph = kernel.build()
    assert_same_values(graph, expand(graph))
    (value,) = inputs = random_inputs(graph)
    expected = np.concatenate([value * value + value, np.zeros((2, 1))], axis=1)
    np.testing.assert_allclose(wb.evaluate(graph, inputs)[0], expected, rtol=1e-12)


def test_power_one_expands_to_its_operand() -> None:
    kernel = KernelBuilder()
    x = kernel.input("X", (2, 3))
    kernel.output(kernel.apply("power", x, exponent=1))
    graph = kernel.build()
    assert_same_values(graph, expand(graph))
    assert graph.structure_hash == wb.trace(lambda X: X, X=(2, 3)).structure_hash


def test_a_factor_that_varies_along_a_ragged_loop_is_refused() -> None:
    with pytest.raises(RaggedTileError, match="rescaling factor varies"):  # also where its tiles have one element
        looped(lambda block, tile: block.accumulate(tile, "rescale_sum", rescale=tile), columns=2)
    with pytest.raises(RaggedTileError, match="rescaling factor varies"):
        looped(lambda block, tile: block.accumulate(tile, "rescale_sum", rescale=silu(tile)), columns=11)


def test_a_sum_folds_in_the_loop_first() -> None:
    expanded = expand(looped(lambda block, tile: block.accumulate(tile, "sum_dim")))
    (node,) = expanded.graph_defined
    (accumulator,) = node.block.accumulators
    assert accumulator.result.shape == (4, 1)
    assert isinstance(node.block.producer(accumulator.operand), OpNode)


# ----------------------------------------------------------------------------------------------------- thread graphs
def test_thread_graphs_are_inlined() -> None:
    kernel = KernelBuilder()
    x, w = kernel.input("X", (4, 8)), kernel.input("W", (8, 6))
    block = kernel.block(x, w)
    tree = ThreadBuilder()
    left, right = tree.input("a", (4, 8)), tree.input("b", (8, 6))
    graph = tree.build(silu(exp(left @ right) * 2))
    block.save(block.thread(graph, block.load(x), block.load(w), name="root"))
    kernel.output(*block.finish())
    threaded = kernel.build()
    inlined = inline_thread_graphs(threaded)
    nodes = inlined.graph_defined[0].block.nodes
    assert not any(isinstance(node, ThreadNode) for node in nodes)
    assert used(inlined) == {"matmul", "exp", "scale", "silu"}
    assert_same_values(threaded, inlined)


# --------------------------------------------------------------------------------------------------------- in general
@settings(max_examples=60)
@given(kernel_graphs(Options(max_steps=5, operators=TAME)))
def test_random_graphs_keep_their_values(graph: KernelGraph) -> None:
    inputs = random_inputs(graph)
    expected = wb.evaluate(graph, inputs)
    for keep_means in (False, True):
        expanded = expand(graph, keep_means=keep_means)
        allowed = BASIC | {AccumulatorKind.MEAN}
        assert accumulators(expanded) <= allowed
        for got, value in zip(wb.evaluate(expanded, inputs), expected, strict=True):
            np.testing.assert_allclose(got, value, rtol=1e-7, atol=1e-9)


@settings(max_examples=30)
@given(kernel_graphs(Options(max_steps=4)))
def test_an_expanded_graph_stays_as_it_is(graph: KernelGraph) -> None:
    once = expand(graph)
    assert wiring_hash(expand(once)) == wiring_hash(once)


def test_nothing_to_expand_changes_nothing() -> None:
    graph = wb.trace(lambda X, W: wb.exp(X @ W), X=(4, 8), W=(8, 6))
    assert wiring_hash(expand(graph)) == wiring_hash(graph)


def test_names_of_later_nodes_are_not_taken() -> None:
    """The expansion of the first node must not use the name of the second."""
    kernel = KernelBuilder()
    x = kernel.input("X", (3, 3))
    first = kernel.apply("silu", x, name="a")
    kernel.output(kernel.apply("exp", first, name="a_1"), first)
    graph = kernel.build()
    assert_same_values(graph, expand(graph))
    assert isinstance(expand(graph).producer("a_1"), OpNode)


def test_accumulator_class_is_closed() -> None:
    assert {kind for kind in AccumulatorKind} == BASIC | {
        AccumulatorKind.SUM_DIM, AccumulatorKind.SUM_TO_COLUMNS, AccumulatorKind.MAX_DIM, AccumulatorKind.MEAN,
        AccumulatorKind.RMS, AccumulatorKind.RESCALE_SUM,
    }  # fmt: skip
    assert issubclass(type(looped(lambda b, t: b.accumulate(t)).graph_defined[0].block.accumulators[0]), Accumulator)
