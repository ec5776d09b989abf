"""Rewriting a µGraph into fewer kinds of node: composites, sugar of accumulators and thread graphs expanded.

Invariant: every pass keeps inputs, outputs, their names and, in float64, their values; what it adds stands in the place
(kernel, loop, after the loop) where the expanded node stood.

The canonical accumulators are `sum`, `max` and `rescale`: what folds the last axis folds it in the loop first, so that a
tile that ends early is folded where it is known how far it goes, and one element per row is carried from iteration to
iteration. `mean` and `rms` divide after the loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Protocol, TypeVar, assert_never

from workbench.core.tensors import DeviceTensor, SharedTensor
from workbench.errors import MissingRuleError
from workbench.ops.attributes import complete_attributes, integer
from workbench.ops.registry import operator
from workbench.ops.spec import Apply, Attributes, AttributeValue
from workbench.ugraph.block_graph import BlockGraph
from workbench.ugraph.builder import BlockBuilder
from workbench.ugraph.dataflow import Path
from workbench.ugraph.inference import LOOP
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import Accumulator, AccumulatorKind, BlockNode, KernelNode, OpNode, ThreadNode
from workbench.ugraph.rewrite import LevelBuilder, Rewriter, restate
from workbench.ugraph.value import Value

T = TypeVar("T")


def expand(graph: KernelGraph, *, keep_means: bool = False) -> KernelGraph:
    """Return the graph with thread graphs inlined, then accumulators and composites expanded as far as they go.

    keep_means: leave `mean` (operator and accumulator) whole, so that no size turns into a constant.
    A mean over an axis whose tiles end early stays whole in any case: its count differs from tile to tile.
    """
    # A pass that finds nothing to do would copy the graph all the same, and a search hashes many graphs.
    if any(isinstance(node, ThreadNode) for launch in graph.graph_defined for node in launch.block.nodes):
        graph = inline_thread_graphs(graph)
    return _Everything(keep_means).rewrite(graph) if any(map(_is_expanded, _nodes(graph))) else graph


CANONICAL_ACCUMULATORS = (AccumulatorKind.SUM, AccumulatorKind.MAX, AccumulatorKind.RESCALE)
"""Accumulators that fold iterations only."""


def _nodes(graph: KernelGraph) -> Iterator[KernelNode | BlockNode]:
    yield from graph.nodes
    for launch in graph.graph_defined:
        yield from launch.block.nodes


def _is_expanded(node: KernelNode | BlockNode) -> bool:
    match node:
        case Accumulator():
            return node.kind not in CANONICAL_ACCUMULATORS
        case OpNode():
            return node.spec.expand is not None
    return False


def expand_composites(graph: KernelGraph, *, keep_means: bool = False) -> KernelGraph:
    """Return the graph with composites (`OpSpec.expand`) replaced by what they are made of, down to primitives.

    rms_norm(x) -> div(x, sqrt(scale(sum(mul(x, x)), 1/n))). Operators inside thread graphs are left; inline those first.
    """
    return _Composites(keep_means).rewrite(graph)


class Accumulate(Protocol[T]):
    """Adds an accumulator of a kind, the rescaling factor after its operand, and returns what it leaves."""

    def __call__(self, kind: AccumulatorKind, value: T, rescale: T | None = None) -> T:
        """Return the accumulated value."""
        ...


def accumulator_in_parts(
    node: Accumulator, put: Apply[T], accumulate: Accumulate[T], operands: Sequence[T], rescale: SharedTensor | None
) -> T:
    """Return what an accumulator that is not canonical leaves, made of operators and others.

    accumulate sum_dim(x)        -> accumulate sum(sum(x))
    accumulate sum_to_columns(x) -> accumulate sum(sum_to_columns(x))
    accumulate max_dim(x)        -> accumulate max(max(x))
    accumulate mean(x)           -> scale(accumulate sum(sum(x)), 1/n)
    accumulate rms(x)            -> sqrt(add(accumulate mean(square(x)), eps))
    accumulate rescale_sum(x, r) -> accumulate rescale(sum(x), r), or sum(accumulate rescale(x, r)) if r varies along
                                    the last axis

    n is the number of elements folded; it is not the same in every block where a ragged axis is split over the grid:
    there `mean` stays.

    put, accumulate: add an operator, an accumulator (canonical, or a mean); rescale: the tile of the rescaling factor.
    """
    value = operands[0]
    match node.kind:
        case AccumulatorKind.SUM_DIM:
            return accumulate(AccumulatorKind.SUM, put("sum", value, axis=-1))
        case AccumulatorKind.SUM_TO_COLUMNS:
            assert node.columns is not None
            return accumulate(AccumulatorKind.SUM, put("sum_to_columns", value, columns=node.columns))
        case AccumulatorKind.MAX_DIM:
            return accumulate(AccumulatorKind.MAX, put("max", value, axis=-1))
        case AccumulatorKind.MEAN:
            return accumulate(AccumulatorKind.MEAN, value)
        case AccumulatorKind.RMS:
            made = accumulate(AccumulatorKind.MEAN, put("square", value))
            if node.eps:
                made = put("add", made, put("constant", value=node.eps))
            return put("sqrt", made)
        case AccumulatorKind.RESCALE_SUM:
            assert rescale is not None
            if rescale.shape[-1:] in ((), (1,)) and rescale.ragged[-1:] in ((), (None,)):
                return accumulate(AccumulatorKind.RESCALE, put("sum", value, axis=-1), operands[1])
            return put("sum", accumulate(AccumulatorKind.RESCALE, value, operands[1]), axis=-1)
        case AccumulatorKind.SUM | AccumulatorKind.MAX | AccumulatorKind.RESCALE:
            raise AssertionError(f"accumulator {node.kind.value} is canonical")
        case _:
            assert_never(node.kind)


def inline_thread_graphs(graph: KernelGraph) -> KernelGraph:
    """Return the graph with every thread graph's operators in the block graph, its values tiles in shared memory."""
    return _Inline().rewrite(graph)


class _Pass(Rewriter):
    """What the passes share: adding operators under fresh names beside a tensor whose name they derive from."""

    def add(self, builder: LevelBuilder, stem: str, op: str, *operands: Value, **attributes: AttributeValue) -> Value:
        """Add an operator under a fresh name."""
        return builder.apply(op, *operands, name=self.names(stem), **attributes)

    def put(self, builder: LevelBuilder, stem: str, op: str, *operands: Value, **attributes: AttributeValue) -> Value:
        """Add an operator of an expansion, which a pass may expand in turn."""
        return self.add(builder, stem, op, *operands, **attributes)


class _Composites(_Pass):
    def __init__(self, keep_means: bool) -> None:
        self.keep_means = keep_means

    def operator(self, builder: LevelBuilder, node: OpNode, operands: list[Value], path: Path) -> list[Value]:
        if not self._expands(builder, node.op, operands, node.attribute_map):
            return self.plain_operator(builder, node, operands, path)
        made = self._expand(builder, node.results[0].name, node.op, operands, node.attribute_map)
        if made.name in [operand.name for operand in operands]:  # power 1: a node must bear the result's name
            made = self.add(builder, node.results[0].name, "scale", made, factor=1)
        last = builder.nodes[-1].results
        if [tensor.name for tensor in last] != [made.name]:
            raise MissingRuleError(f"the expansion of {node.op} does not end with the operator that makes its result")
        return restate(builder, [made], node.results)

    def _expand(
        self, builder: LevelBuilder, stem: str, op: str, operands: list[Value], attributes: Attributes
    ) -> Value:
        def apply(name: str, *inner: Value, **given: AttributeValue) -> Value:
            complete = complete_attributes(operator(name), given, tuple(value.shape for value in inner))
            if self._expands(builder, name, list(inner), complete):
                return self._expand(builder, stem, name, list(inner), complete)
            return self.add(builder, stem, name, *inner, **complete)

        expansion = operator(op).expand
        assert expansion is not None
        return expansion(apply, tuple(operands), tuple(value.shape for value in operands), attributes)

    def _expands(self, builder: LevelBuilder, op: str, operands: list[Value], attributes: Attributes) -> bool:
        if operator(op).expand is None:
            return False
        if op != "mean":
            return True
        if self.keep_means:
            return False
        axis = integer(attributes, "axis")
        return not isinstance(builder, BlockBuilder) or builder.tile(operands[0]).ragged[axis] is None


class _Accumulators(_Pass):
    def __init__(self, keep_means: bool) -> None:
        self.keep_means = keep_means

    def accumulator(self, block: BlockBuilder, node: Accumulator, operands: list[Value], path: Path) -> Value:
        if node.kind in CANONICAL_ACCUMULATORS:
            return self.plain_accumulator(block, node, operands, path)
        stem = node.result.name

        def put(name: str, *read: Value, **attributes: AttributeValue) -> Value:
            return self.put(block, stem, name, *read, **attributes)

        def accumulate(kind: AccumulatorKind, value: Value, rescale: Value | None = None) -> Value:
            if kind is AccumulatorKind.MEAN:
                return self._mean(block, stem, value)
            return block.accumulate(value, kind, rescale=rescale, name=self.names(stem))

        rescale = block.tile(operands[1]) if len(operands) > 1 else None
        made = accumulator_in_parts(node, put, accumulate, operands, rescale)
        return restate(block, [made], node.results)[0]

    def _mean(self, block: BlockBuilder, stem: str, value: Value) -> Value:
        split = block.tile(value).ragged[-1]
        if self.keep_means or (split is not None and any(axis != LOOP for axis, _ in split.parts)):
            return block.accumulate(value, AccumulatorKind.MEAN, name=self.names(stem))
        count = value.shape[-1] * block.loop if split is None else split.extent
        folded = self.put(block, stem, "sum", value, axis=-1)
        total = block.accumulate(folded, AccumulatorKind.SUM, name=self.names(stem))
        return self.put(block, stem, "scale", total, factor=Fraction(1, count))


class _Everything(_Accumulators, _Composites):
    """Accumulators and composites in one pass; block graphs with neither stay as they are."""

    def put(self, builder: LevelBuilder, stem: str, op: str, *operands: Value, **attributes: AttributeValue) -> Value:
        complete = complete_attributes(operator(op), attributes, tuple(value.shape for value in operands))
        if self._expands(builder, op, list(operands), complete):
            return self._expand(builder, stem, op, list(operands), complete)
        return self.add(builder, stem, op, *operands, **complete)

    def block_graph(self, block: BlockGraph, operands: Sequence[DeviceTensor], number: int, label: str) -> BlockGraph:
        if tuple(operands) == block.operands and not any(map(_is_expanded, block.nodes)):
            return block
        return super().block_graph(block, operands, number, label)


class _Inline(_Pass):
    def thread(self, block: BlockBuilder, node: ThreadNode, operands: list[Value], path: Path) -> Value:
        values = dict(zip((register.name for register in node.graph.inputs), operands, strict=True))
        for inner in node.graph.nodes:
            read = [values[name] for name in inner.operands]
            made = block.apply_all(inner.op, *read, name=self.names(node.results[0].name), **inner.attribute_map)
            values.update(zip((tensor.name for tensor in inner.results), made, strict=True))
        # a tree has one node without a consumer, its root, so that is the operator added last
        return restate(block, [values[node.graph.output]], node.results)[0]
