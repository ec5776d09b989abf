"""A µGraph as one list of steps over numbered values, its levels flattened: what hashes, axes and structure walk over.

Invariant: a step stands after what it reads, and a thread graph's operators stand where its node stood.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from workbench.core.shapes import Shape
from workbench.core.tensors import DeviceTensor
from workbench.ugraph.block_graph import BlockGraph
from workbench.ugraph.inference import Place
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import (
    Accumulator,
    GraphDefinedNode,
    InputIterator,
    OpNode,
    OutputSaver,
    RunningMax,
    ThreadNode,
)

StepNode = DeviceTensor | OpNode | InputIterator | Accumulator | RunningMax | OutputSaver
Path = tuple[str, ...]


@dataclass(slots=True, eq=False)
class Step:
    """One thing a program does. Never changed; not frozen, which would make it several times as slow to make.

    Attributes:
        node: a program input (its tensor), an operator, or what only block graphs have.
        operands, results: numbers of the values read and made; an output saver makes a kernel tensor.
        launch: which graph-defined operator it belongs to, None at the kernel level.
        place: when it happens inside a block graph, None at the kernel level.
        path: names that lead to the (first) result from the outside inwards; for an output saver the kernel tensor's.
    """

    node: StepNode
    operands: tuple[int, ...]
    results: tuple[int, ...]
    launch: int | None
    place: Place | None
    path: Path


@dataclass(frozen=True, slots=True)
class Dataflow:
    """A kernel graph flattened.

    Attributes: graph; steps; shapes: per value; paths: per value, its name from the outside inwards; outputs: numbers of
    the program's outputs; launches: the graph-defined operators in order.
    """

    graph: KernelGraph
    steps: tuple[Step, ...]
    shapes: tuple[Shape, ...]
    paths: tuple[Path, ...]
    outputs: tuple[int, ...]
    launches: tuple[GraphDefinedNode, ...]

    def block(self, launch: int) -> BlockGraph:
        """Return the block graph of a launch."""
        return self.launches[launch].block

    def makers(self) -> dict[int, Step]:
        """Return, per value, the step that makes it."""
        return {value: step for step in self.steps for value in step.results}


def flatten(graph: KernelGraph) -> Dataflow:
    """Return the dataflow of a program, all levels in one list."""
    return Flattener(graph).run()


class Flattener:
    """Goes through a kernel graph; a pass overrides what a node of a kind becomes. `run` may be called once."""

    def __init__(self, graph: KernelGraph) -> None:
        self.graph = graph
        self.steps: list[Step] = []
        self.shapes: list[Shape] = []
        self.paths: list[Path] = []

    def run(self) -> Dataflow:
        """Return the dataflow."""
        values: dict[str, int] = {}
        for tensor in self.graph.inputs:
            values[tensor.name] = self.value(tensor.shape, (tensor.name,))
            self.step(tensor, (), (values[tensor.name],), None, None)
        launches: list[GraphDefinedNode] = []
        for node in self.graph.nodes:
            operands = tuple([values[name] for name in node.operands])
            match node:
                case OpNode():
                    results = self.operator(node, operands, None, None, ())
                case GraphDefinedNode():
                    results = self.launch(node, operands, len(launches))
                    launches.append(node)
                case _:
                    assert_never(node)
            values.update(zip([tensor.name for tensor in node.results], results, strict=True))
        outputs = tuple(values[name] for name in self.graph.output_names)
        return Dataflow(self.graph, tuple(self.steps), tuple(self.shapes), tuple(self.paths), outputs, tuple(launches))

    def value(self, shape: Shape, path: Path) -> int:
        """Return the number of a new value."""
        self.shapes.append(shape)
        self.paths.append(path)
        return len(self.shapes) - 1

    def step(
        self,
        node: StepNode,
        operands: tuple[int, ...],
        results: tuple[int, ...],
        launch: int | None,
        place: Place | None,
    ) -> None:
        """Add a step."""
        self.steps.append(Step(node, operands, results, launch, place, self.paths[results[0]]))

    def operator(
        self, node: OpNode, operands: tuple[int, ...], launch: int | None, place: Place | None, label: Path
    ) -> tuple[int, ...]:
        """Add a predefined operator of any level; label: the path to its graph. Returns its results."""
        results = tuple([self.value(tensor.shape, (*label, tensor.name)) for tensor in node.results])
        self.step(node, operands, results, launch, place)
        return results

    def accumulator(
        self, node: Accumulator, operands: tuple[int, ...], launch: int, block: BlockGraph, label: Path
    ) -> int:
        """Add an accumulator; returns what it leaves."""
        result = self.value(node.result.shape, (*label, node.result.name))
        self.step(node, operands, (result,), launch, Place.AFTER)
        return result

    def launch(self, node: GraphDefinedNode, operands: tuple[int, ...], number: int) -> tuple[int, ...]:
        """Add the steps of a graph-defined operator; returns its results."""
        block, label = node.block, (node.results[0].name,)
        tiles: dict[str, int] = {}
        saved: list[int] = []
        for inner in block.nodes:
            read = tuple([tiles[name] for name in inner.operands])
            results: tuple[int, ...]
            match inner:
                case OutputSaver():
                    result = node.results[len(saved)]
                    saved.append(self.value(result.shape, (result.name,)))
                    self.step(inner, read, (saved[-1],), number, Place.AFTER)
                    continue
                case ThreadNode():
                    results = (self.thread(inner, read, number, block, label),)
                case OpNode():
                    results = self.operator(inner, read, number, block.places[inner.results[0].name], label)
                case Accumulator():
                    results = (self.accumulator(inner, read, number, block, label),)
                case InputIterator() | RunningMax():
                    if isinstance(inner, InputIterator):
                        read = (operands[inner.operand],)
                    results = tuple([self.value(tensor.shape, (*label, tensor.name)) for tensor in inner.results])
                    self.step(inner, read, results, number, block.places[inner.results[0].name])
                case _:
                    assert_never(inner)
            tiles.update(zip([tensor.name for tensor in inner.results], results, strict=True))
        return tuple(saved)

    def thread(self, node: ThreadNode, read: tuple[int, ...], number: int, block: BlockGraph, label: Path) -> int:
        """Add the operators of a thread graph; returns its root."""
        root = node.results[0]
        registers = dict(zip((tensor.name for tensor in node.graph.inputs), read, strict=True))
        for inner in node.graph.nodes:
            operands = tuple(registers[name] for name in inner.operands)
            results = self.operator(inner, operands, number, block.places[root.name], (*label, root.name))
            registers.update(zip((tensor.name for tensor in inner.results), results, strict=True))
        return registers[node.graph.output]
