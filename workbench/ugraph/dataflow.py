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


@dataclass(frozen=True, slots=True)
class Step:
    """One thing a program does.

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
    return _Flattener(graph).run()


class _Flattener:
    def __init__(self, graph: KernelGraph) -> None:
        self.graph = graph
        self.steps: list[Step] = []
        self.shapes: list[Shape] = []
        self.paths: list[Path] = []

    def run(self) -> Dataflow:
        values: dict[str, int] = {}
        for tensor in self.graph.inputs:
            values[tensor.name] = self.value(tensor.shape, (tensor.name,))
            self.step(tensor, (), (values[tensor.name],), None, None)
        launches: list[GraphDefinedNode] = []
        for node in self.graph.nodes:
            operands = tuple(values[name] for name in node.operands)
            match node:
                case OpNode():
                    results = tuple(self.value(tensor.shape, (tensor.name,)) for tensor in node.results)
                    self.step(node, operands, results, None, None)
                case GraphDefinedNode():
                    results = self.launch(node, operands, len(launches))
                    launches.append(node)
                case _:
                    assert_never(node)
            values.update(zip((tensor.name for tensor in node.results), results, strict=True))
        outputs = tuple(values[name] for name in self.graph.output_names)
        return Dataflow(self.graph, tuple(self.steps), tuple(self.shapes), tuple(self.paths), outputs, tuple(launches))

    def value(self, shape: Shape, path: Path) -> int:
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
        self.steps.append(Step(node, operands, results, launch, place, self.paths[results[0]]))

    def launch(self, node: GraphDefinedNode, operands: tuple[int, ...], number: int) -> tuple[int, ...]:
        block, label = node.block, node.results[0].name
        tiles: dict[str, int] = {}
        saved: list[int] = []
        for inner in block.nodes:
            read = tuple(tiles[name] for name in inner.operands)
            match inner:
                case OutputSaver():
                    result = node.results[len(saved)]
                    saved.append(self.value(result.shape, (result.name,)))
                    self.step(inner, read, (saved[-1],), number, Place.AFTER)
                    continue
                case ThreadNode():
                    tiles[inner.results[0].name] = self.thread(inner, read, number, block, label)
                    continue
                case InputIterator():
                    read = (operands[inner.operand],)
                case OpNode() | Accumulator() | RunningMax():
                    pass
                case _:
                    assert_never(inner)
            results = tuple(self.value(tensor.shape, (label, tensor.name)) for tensor in inner.results)
            self.step(inner, read, results, number, block.places[inner.results[0].name])
            tiles.update(zip((tensor.name for tensor in inner.results), results, strict=True))
        return tuple(saved)

    def thread(self, node: ThreadNode, read: tuple[int, ...], number: int, block: BlockGraph, label: str) -> int:
        root = node.results[0]
        registers = dict(zip((tensor.name for tensor in node.graph.inputs), read, strict=True))
        for inner in node.graph.nodes:
            results = tuple(self.value(tensor.shape, (label, root.name, tensor.name)) for tensor in inner.results)
            operands = tuple(registers[name] for name in inner.operands)
            self.step(inner, operands, results, number, block.places[root.name])
            registers.update(zip((tensor.name for tensor in inner.results), results, strict=True))
        return registers[node.graph.output]
