"""Wrong on purpose: every small mistake that can be made in a right µGraph, each named in words.

A mutation changes one node; everything after it is inferred again, and what nothing reads any more is left out.
Invariant: a mutant that is built is a legal µGraph with the inputs and outputs of its original; whether it is wrong is
for others to say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations

from workbench.errors import NotApplicableError
from workbench.ops.attributes import fraction
from workbench.ops.spec import AttributeValue, OpKind
from workbench.ugraph.block_graph import BlockGraph
from workbench.ugraph.builder import BlockBuilder
from workbench.ugraph.dataflow import Path
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import (
    Accumulator,
    AccumulatorKind,
    BlockNode,
    GraphDefinedNode,
    InputIterator,
    KernelNode,
    OpNode,
    OutputSaver,
)
from workbench.ugraph.rewrite import LevelBuilder, Rewriter
from workbench.ugraph.value import Value

_VERBS = {"mul": "multiply by", "add": "add", "div": "divide by", "sub": "subtract", "maximum": "compare with"}
_REDUCTIONS = {"sum": "the sum", "mean": "the mean", "max": "the maximum"}
_INSTEAD = {"sum": ("mean", "max"), "mean": ("sum",), "max": ("sum",)}
_KINDS = {
    AccumulatorKind.SUM: (AccumulatorKind.MAX,),
    AccumulatorKind.SUM_DIM: (AccumulatorKind.MEAN, AccumulatorKind.MAX_DIM),
    AccumulatorKind.MEAN: (AccumulatorKind.SUM_DIM,),
    AccumulatorKind.MAX: (AccumulatorKind.SUM,),
    AccumulatorKind.MAX_DIM: (AccumulatorKind.SUM_DIM,),
    AccumulatorKind.RMS: (AccumulatorKind.MEAN,),
}
_NAMES = {
    AccumulatorKind.SUM: "the sum", AccumulatorKind.SUM_DIM: "the sum", AccumulatorKind.MEAN: "the mean",
    AccumulatorKind.MAX: "the maximum", AccumulatorKind.MAX_DIM: "the maximum", AccumulatorKind.RMS: "the root mean square",
}  # fmt: skip
_SUMS = (AccumulatorKind.SUM, AccumulatorKind.SUM_DIM)

Change = Callable[[LevelBuilder, list[Value], "Mutator"], Value]


@dataclass(frozen=True)
class Mutation:
    """One mistake. Attributes: words: what was done wrong; build: makes the mutant, or raises a WorkbenchError."""

    words: str
    build: Callable[[], KernelGraph]


def mutations(graph: KernelGraph) -> Iterator[Mutation]:
    """Yield the mistakes that one node, or one exchange of inputs, can have; building one may show that it is not legal."""
    for path, node, operands in _nodes(graph):
        for said, change in _changes(node, operands):
            yield Mutation(said, partial(_mutant, graph, path, change))
    for one, other in combinations(graph.inputs, 2):
        if (one.shape, one.dtype, one.strides) == (other.shape, other.dtype, other.strides):
            yield Mutation(f"exchanged {one.name} and {other.name}", partial(_exchanged, graph, one.name, other.name))


def _mutant(graph: KernelGraph, path: Path, change: Change) -> KernelGraph:
    return without_dead(Mutator(path, change).rewrite(graph))


def _exchanged(graph: KernelGraph, one: str, other: str) -> KernelGraph:
    names = {one: other, other: one}
    nodes: list[KernelNode] = [
        replace(node, operands=tuple(names.get(name, name) for name in node.operands)) for node in graph.nodes
    ]
    return replace(graph, nodes=tuple(nodes))


class Mutator(Rewriter):
    """Copies a graph, one node changed. Remembers what made each value, so that a change can reach behind an operand."""

    def __init__(self, path: Path, change: Change) -> None:
        self.path, self.change = path, change
        self._makers: dict[tuple[int, str], tuple[OpNode | Accumulator, list[Value]]] = {}

    def maker(self, value: Value) -> tuple[OpNode | Accumulator, list[Value]]:
        """Return the node that made a value, and its operands. Raises: NotApplicableError for what was loaded."""
        found = self._makers.get((id(value.builder), value.name))
        if found is None:
            raise NotApplicableError(f"{value.name} was not made by an operator")
        return found

    def apply(self, builder: LevelBuilder, op: str, *operands: Value, **attributes: AttributeValue) -> Value:
        """Add an operator that the original does not have."""
        return builder.apply(op, *operands, name=self.names("wrong"), **attributes)

    def accumulate(self, builder: LevelBuilder, operand: Value, kind: AccumulatorKind) -> Value:
        """Add an accumulator that the original does not have. Raises: NotApplicableError outside a block graph."""
        if not isinstance(builder, BlockBuilder):
            raise NotApplicableError("only a block graph accumulates")
        return builder.accumulate(operand, kind, name=self.names("wrong"))

    def operator(self, builder: LevelBuilder, node: OpNode, operands: list[Value], path: Path) -> list[Value]:
        """Add an operator, or what stands in its place."""
        if path == self.path:
            return [self._changed(builder, operands, node.results[0].shape)]
        made = self.plain_operator(builder, node, operands, path)
        self._makers.update({(id(value.builder), value.name): (node, operands) for value in made})
        return made

    def accumulator(self, block: BlockBuilder, node: Accumulator, operands: list[Value], path: Path) -> Value:
        """Add an accumulator, or what stands in its place."""
        if path == self.path:
            return self._changed(block, operands, node.result.shape)
        made = self.plain_accumulator(block, node, operands, path)
        self._makers[id(made.builder), made.name] = (node, operands)
        return made

    def _changed(self, builder: LevelBuilder, operands: list[Value], shape: tuple[int, ...]) -> Value:
        made = self.change(builder, operands, self)
        if made.shape != shape:
            raise NotApplicableError(f"the result would have shape {made.shape} instead of {shape}")
        return made


# ------------------------------------------------------------------------------------------------------------ changes
def _changes(node: OpNode | Accumulator, operands: list[_Operand]) -> Iterator[tuple[str, Change]]:
    """Yield what can go wrong in a node, in words."""
    words = [operand.words for operand in operands]
    if isinstance(node, Accumulator):
        yield from _accumulator_changes(node, operands[0])
        return
    if node.spec.kind is OpKind.ELEMENTWISE and len(words) == 1:
        yield f"forgot {_factor(node) if node.op == 'scale' else node.op} of {words[0]}", _keep(0)
    if node.op == "mul" and words[0] == words[1]:
        yield f"forgot to square {words[0]}", _keep(0)
    elif node.op in _VERBS:
        for position in (1, 0) if node.spec.commutative else (1,):
            yield f"forgot to {_VERBS[node.op]} {words[position]}", _keep(1 - position)
        if all(operand.is_sum for operand in operands):
            yield f"merged two sums, {words[0]} and {words[1]}, into one sum under {node.op}", _merge(node.op)
    if node.op in ("div", "sub", "matmul") and words[0] != words[1]:
        yield f"exchanged the operands of {node.op}: {words[1]} before {words[0]}", _apply(node, (1, 0))
    for instead in _INSTEAD.get(node.op, ()):
        is_mean = (node.op, instead) == ("mean", "sum")
        told = "forgot 1/n in the mean" if is_mean else f"took {_REDUCTIONS[instead]} instead of {_REDUCTIONS[node.op]}"
        yield f"{told} of {words[0]}", _reduce(node, instead)
    if node.op == "sum" and operands[0].function:
        told = f"took {operands[0].function} after the sum instead of before: {words[0]}"
        yield told, _sum_after(node)
    if node.op in ("rms", "rms_norm", "l2_norm", "layer_norm") and node.attribute_map.get("eps"):
        yield f"forgot eps in {node.op} of {words[0]}", _without_eps(node)


def _accumulator_changes(node: Accumulator, operand: _Operand) -> Iterator[tuple[str, Change]]:
    for kind in _KINDS.get(node.kind, ()):
        told = f"took {_NAMES[kind]} instead of {_NAMES[node.kind]}"
        if (node.kind, kind) == (AccumulatorKind.MEAN, AccumulatorKind.SUM_DIM):
            told = "forgot 1/n in the mean"
        yield f"{told} of {operand.words}", _accumulate(kind)
    if node.kind is AccumulatorKind.RMS:
        if node.eps:
            yield f"forgot eps in the root mean square of {operand.words}", _accumulate(AccumulatorKind.RMS)
        yield f"forgot 1/n in the root mean square of {operand.words}", _root_of_squares(node)
    if node.kind in _SUMS and operand.function:
        told = f"took {operand.function} after the sum instead of before: {operand.words}"
        yield told, _sum_after(node)


def _factor(node: OpNode) -> str:
    factor = fraction(node.attribute_map, "factor")
    return f"1/n (n = {factor.denominator})" if factor.numerator == 1 else f"the factor {factor}"


def _keep(position: int) -> Change:
    return lambda builder, operands, mutator: operands[position]


def _apply(node: OpNode, order: tuple[int, ...]) -> Change:
    def change(builder: LevelBuilder, operands: list[Value], mutator: Mutator) -> Value:
        return mutator.apply(builder, node.op, *(operands[position] for position in order), **node.attribute_map)

    return change


def _reduce(node: OpNode, op: str) -> Change:
    return lambda builder, operands, mutator: mutator.apply(builder, op, operands[0], **node.attribute_map)


def _without_eps(node: OpNode) -> Change:
    attributes = {**node.attribute_map, "eps": 0}
    return lambda builder, operands, mutator: mutator.apply(builder, node.op, *operands, **attributes)


def _accumulate(kind: AccumulatorKind) -> Change:
    return lambda builder, operands, mutator: mutator.accumulate(builder, operands[0], kind)


def _root_of_squares(node: Accumulator) -> Change:
    def change(builder: LevelBuilder, operands: list[Value], mutator: Mutator) -> Value:
        squares = mutator.apply(builder, "square", operands[0])
        total = mutator.accumulate(builder, squares, AccumulatorKind.SUM_DIM)
        if node.eps:
            total = mutator.apply(builder, "add", total, mutator.apply(builder, "constant", value=node.eps))
        return mutator.apply(builder, "sqrt", total)

    return change


def _sum_after(node: OpNode | Accumulator) -> Change:
    """Sum first what an elementwise operator is then applied to: sum(f(x)) -> f(sum(x))."""

    def change(builder: LevelBuilder, operands: list[Value], mutator: Mutator) -> Value:
        function, inner = mutator.maker(operands[0])
        assert isinstance(function, OpNode)
        if isinstance(node, Accumulator):
            total = mutator.accumulate(builder, inner[0], node.kind)
        else:
            total = mutator.apply(builder, node.op, inner[0], **node.attribute_map)
        return mutator.apply(builder, function.op, total, **function.attribute_map)

    return change


def _merge(op: str) -> Change:
    """Fold once what was folded twice: sum(x) / sum(y) -> sum(x / y)."""

    def change(builder: LevelBuilder, operands: list[Value], mutator: Mutator) -> Value:
        (left, x), (right, y) = (mutator.maker(operand) for operand in operands)
        inner = mutator.apply(builder, op, x[0], y[0])
        if isinstance(left, Accumulator) and isinstance(right, Accumulator):
            return mutator.accumulate(builder, inner, left.kind)
        if isinstance(left, OpNode) and isinstance(right, OpNode):
            return mutator.apply(builder, left.op, inner, **left.attribute_map)
        raise NotApplicableError("a sum over a tile and one over iterations cannot be merged")

    return change


# -------------------------------------------------------------------------------------------------------------- nodes
@dataclass(frozen=True, slots=True)
class _Operand:
    """A value that a node reads. Attributes: words; node: that made it, None for what was loaded."""

    words: str
    node: OpNode | Accumulator | None = None

    @property
    def is_sum(self) -> bool:
        """Whether it is a sum over a tile or over iterations."""
        return (isinstance(self.node, Accumulator) and self.node.kind in _SUMS) or (
            isinstance(self.node, OpNode) and self.node.op == "sum"
        )

    @property
    def function(self) -> str:
        """The elementwise operator of one operand that made it, "" for anything else."""
        node = self.node
        is_function = isinstance(node, OpNode) and node.spec.kind is OpKind.ELEMENTWISE and len(node.operands) == 1
        return node.op if isinstance(node, OpNode) and is_function else ""


def _nodes(graph: KernelGraph) -> Iterator[tuple[Path, OpNode | Accumulator, list[_Operand]]]:
    """Yield the nodes that can be changed, their paths as `Rewriter` has them, and what they read."""
    known = {tensor.name: _Operand(tensor.name) for tensor in graph.inputs}
    for node in graph.nodes:
        match node:
            case OpNode():
                operands = [known[name] for name in node.operands]
                yield (node.results[0].name,), node, operands
                known |= {result.name: _Operand(_said(node, operands), node) for result in node.results}
            case GraphDefinedNode():
                label = node.results[0].name
                tiles: dict[str, _Operand] = {}
                saved = 0
                for inner in node.block.nodes:
                    match inner:
                        case InputIterator():
                            tiles[inner.result.name] = _Operand(known[node.operands[inner.operand]].words)
                        case OutputSaver():
                            known[node.results[saved].name] = _Operand(tiles[inner.operand].words)
                            saved += 1
                        case OpNode() | Accumulator():
                            operands = [tiles[name] for name in inner.operands]
                            yield (label, inner.results[0].name), inner, operands
                            tiles |= {result.name: _Operand(_said(inner, operands), inner) for result in inner.results}
                        case _:
                            tiles |= {result.name: _Operand(result.name) for result in inner.results}


_LONGEST = 60
_INFIX = {"mul": "·", "add": " + ", "sub": " - ", "div": " / ", "matmul": "@"}


def _said(node: OpNode | Accumulator, operands: list[_Operand]) -> str:
    """Return a value in words, as far as that is short."""
    words = [operand.words for operand in operands]
    if isinstance(node, Accumulator):
        name = node.kind.value
        said = f"Σ {words[0]}" if node.kind in _SUMS else f"{name}({_bare(words[0])})"
    else:
        name = node.op
        if name == "constant":
            said = str(fraction(node.attribute_map, "value"))
        elif name in _INFIX:
            said = f"({words[0]}{_INFIX[name]}{words[1]})"
        elif name == "scale":
            said = f"({fraction(node.attribute_map, 'factor')}·{words[0]})"
        else:
            said = f"{name}({', '.join(_bare(word) for word in words)})"
    return said if len(said) <= _LONGEST else f"the {name} {node.results[0].name}"


def _bare(words: str) -> str:
    """Return words without the parentheses that stand around all of them."""
    return words[1:-1] if words.startswith("(") else words


# --------------------------------------------------------------------------------------------------------- dead nodes
def without_dead(graph: KernelGraph) -> KernelGraph:
    """Return a graph without nodes that no output needs, in block graphs too. Raises: WorkbenchError if none is left."""
    needed = set(graph.output_names)
    nodes: list[KernelNode] = []
    for node in reversed(graph.nodes):
        if not any(result.name in needed for result in node.results):
            continue
        if isinstance(node, GraphDefinedNode):
            node = _live(node)
        needed.update(node.operands)
        nodes.append(node)
    return replace(graph, nodes=tuple(reversed(nodes)))


def _live(node: GraphDefinedNode) -> GraphDefinedNode:
    block = node.block
    needed: set[str] = set()
    kept: list[BlockNode] = []
    for inner in reversed(block.nodes):
        if isinstance(inner, OutputSaver) or any(result.name in needed for result in inner.results):
            needed.update(inner.operands)
            kept.append(inner)
    read = sorted({inner.operand for inner in kept if isinstance(inner, InputIterator)})
    if not read:
        raise NotApplicableError("nothing of the block graph is left")
    moved = [
        replace(inner, operand=read.index(inner.operand)) if isinstance(inner, InputIterator) else inner
        for inner in reversed(kept)
    ]
    operands = tuple(block.operands[number] for number in read)
    smaller = BlockGraph(
        operands, tuple(moved), block.grid_dims, block.forloop_range, block.block_dims, block.cluster_dims
    )
    return replace(node, block=smaller, operands=tuple(node.operands[number] for number in read))
