"""Theorem 1 put to the test for one program: what brute force has and an engine has not. Used by the test and the benchmark."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

import workbench as wb
from tests.property.brute_force import SIZES, Found, Program, find
from workbench.core.dtypes import DType
from workbench.search.events import Event, Verified
from workbench.search.problem import problem_of
from workbench.ugraph.block_graph import BlockGraph
from workbench.ugraph.builder import KernelBuilder
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import Accumulator, AccumulatorKind, GraphDefinedNode, InputIterator, OpNode, OutputSaver

ENGINES = ("values", "prefix")
NAMES = {size: axis for axis, size in SIZES.items()}
Key = tuple[str | None, Hashable]


@dataclass
class Comparison:
    """What came of one program.

    Attributes: minimum: operators of the smallest graph; largest: limit; expected: graphs that must be found; cancelled,
    repeated: as of `Found`; lost, extra: (engine, limit, graph) that the engine lacks, or that the oracle does not know.
    """

    program: Program
    minimum: int = 0
    largest: int = 0
    expected: int = 0
    cancelled: int = 0
    repeated: int = 0
    lost: list[tuple[str, int, Key]] = field(default_factory=list)
    extra: list[tuple[str, int, Key]] = field(default_factory=list)


def graph_of(program: Program) -> KernelGraph:
    """Return the program as a graph of predefined operators."""
    kernel = KernelBuilder("random")
    values = {
        name: kernel.input(name, tuple(SIZES[axis] for axis in axes), DType.FLOAT32)
        for name, axes in program.inputs.items()
    }
    for number, (op, operands, axis) in enumerate(program.nodes):
        named = [values[name] for name in operands]
        if op == "sum":
            values[f"t{number}"] = kernel.apply(
                op, *named, axis=named[0].shape.index(SIZES[axis]) - len(named[0].shape)
            )
        else:
            values[f"t{number}"] = kernel.apply(op, *named)
    kernel.output(values[f"t{len(program.nodes) - 1}"])
    return kernel.build()


def compare(program: Program, largest: int, *, more: int = 2, engines: Iterable[str] = ENGINES) -> Comparison | None:
    """Return the comparison at the smallest size and up to `more` above it, within `largest`; None where nothing is that small."""
    graph = graph_of(program)
    problem = problem_of(graph)
    kept = {name for dim in problem.goals[0].dims for name in dim}
    letters = {name: NAMES[problem.extents[name]] for name in problem.extents if problem.extents[name] > 1}
    if len(set(letters.values())) < len(letters):
        return None  # two axes that nothing joins have one letter: the oracle would take them for one
    loops = [None, *(letters[name] for name in problem.reduced if name not in kept)]
    found = find(program, loops, min(largest, len(program.nodes) + more))
    if not found.sizes:
        return None
    minimum = min(found.sizes.values())
    largest = min(largest, minimum + more, len(program.nodes) + more)
    result = Comparison(program, minimum, largest, len(found.sizes), found.cancelled, found.repeated)
    for engine in engines:
        for limit in range(minimum, largest + 1):
            keys = keys_of(engine, graph, limit)
            expected = {key for key, size in found.sizes.items() if size <= limit}
            result.lost += [(engine, limit, key) for key in sorted(expected - keys, key=repr)]
            result.extra += [(engine, limit, key) for key in sorted(keys - set(_all(found, limit)), key=repr)]
    return result


def _all(found: Found, limit: int) -> Iterable[Key]:
    return [key for key, size in found.sizes.items() if size <= limit]


def keys_of(engine: str, graph: KernelGraph, limit: int) -> set[Key]:
    """Return the graphs that an engine finds, in the oracle's words."""
    space = wb.Space(max_block_ops=limit, max_block_graphs=1, max_kernel_ops=1, kernel_palette=(), palette=PALETTE)
    events: Iterable[Event] = wb.search(graph, space=space, engine=engine)  # type: ignore[arg-type]
    return {key_of(event.graph) for event in events if isinstance(event, Verified)}


PALETTE = ("matmul", "sum", "add", "mul", "div", "exp", "square", "sqrt")


def key_of(graph: KernelGraph) -> Key:
    """Return the looped axis and the output of a graph with one block graph, in the oracle's words."""
    (node,) = [n for n in graph.nodes if isinstance(n, GraphDefinedNode)]
    return _Reader(graph, node).key()


class _Reader:
    """Reads a block graph; axes are told by extents, which no grid or loop cuts at these sizes."""

    def __init__(self, graph: KernelGraph, node: GraphDefinedNode) -> None:
        self.block: BlockGraph = node.block
        self.operands = node.operands
        self.keys: dict[str, Hashable] = {}
        self.loop: str | None = None
        self.sources = {tensor.name: tensor for tensor in graph.inputs}
        self.outer: dict[str, str] = {tensor.name: tensor.name for tensor in graph.inputs}
        for other in graph.nodes:
            if isinstance(other, OpNode) and other.op in ("reshape", "transpose"):
                self.outer[other.results[0].name] = self.outer.get(other.operands[0], "")
        self.graph = graph

    def axes(self, name: str) -> frozenset[str]:
        return frozenset(NAMES[extent] for extent in self.block.tiles[name].shape if extent > 1)

    def key(self) -> Key:
        saved: Hashable = None
        for node in self.block.nodes:
            match node:
                case InputIterator():
                    source = self.operands[node.operand]
                    self.keys[node.result.name] = ("in", self.outer[source])
                    if node.fmap is not None:
                        self.loop = NAMES[self.graph.tensor(source).shape[node.fmap]]
                case OutputSaver():
                    saved = self.keys[node.operand]
                case Accumulator():
                    inner = self.keys[node.operand]
                    if node.kind is AccumulatorKind.SUM_DIM:
                        (axis,) = self.axes(node.operand) - self.axes(node.result.name)
                        inner = ("sum", axis, inner)
                    self.keys[node.result.name] = ("acc", inner)
                case OpNode():
                    self.keys[node.results[0].name] = self._operator(node)
        return self.loop, saved

    def _operator(self, node: OpNode) -> Hashable:
        operands = [self.keys[name] for name in node.operands]
        if node.op in ("reshape", "transpose"):
            return operands[0]
        inside = frozenset().union(*(self.axes(name) for name in node.operands))
        folded = sorted(inside - self.axes(node.results[0].name))
        if node.op in ("add", "mul", "matmul"):
            operands.sort(key=repr)
        return (node.op, *folded, *operands)
