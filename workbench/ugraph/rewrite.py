"""Copying a kernel graph node by node through the builders; a pass overrides what it changes.

Invariant: names, types and orders of axes in memory stay, shapes and tiles are inferred again, so a copy is legal or is
refused with the rule that it breaks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from workbench.core.layouts import Strides, row_major_strides
from workbench.core.shapes import Shape
from workbench.core.tensors import DeviceTensor, RegisterTensor, SharedTensor
from workbench.ops.spec import AttributeValue
from workbench.ugraph.block_graph import BlockGraph
from workbench.ugraph.builder import BlockBuilder, KernelBuilder, ThreadBuilder
from workbench.ugraph.dataflow import Path
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import (
    Accumulator,
    DimMap,
    GraphDefinedNode,
    InputIterator,
    OpNode,
    OutputSaver,
    RunningMax,
    ThreadNode,
)
from workbench.ugraph.thread_graph import ThreadGraph
from workbench.ugraph.value import Value

LevelBuilder = KernelBuilder | BlockBuilder | ThreadBuilder


@dataclass(frozen=True, slots=True)
class Launch:
    """The counts of a block graph."""

    grid: Shape
    loop: int
    threads: Shape
    cluster: Shape


def dense_strides(shape: Shape, strides: Strides, new: Shape) -> Strides:
    """Return strides for another shape, the axes in the same order in memory; padding is left out where it differs.

    An axis of extent 1 says nothing about order: it stays before the axis that follows it in the shape.
    """
    if new == shape:
        return strides
    if strides == row_major_strides(shape):
        return row_major_strides(new)
    keys = list(strides)
    for axis in reversed(range(len(shape))):
        if shape[axis] == 1:
            keys[axis] = keys[axis + 1] if axis + 1 < len(shape) else 0
    order = sorted(range(len(shape)), key=lambda axis: (-keys[axis], axis))
    result, step = [0] * len(shape), 1
    for axis in reversed(order):
        result[axis] = step
        step *= new[axis]
    return tuple(result)


class FreshNames:
    """Gives names that no tensor of a graph bears."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)

    def __call__(self, stem: str) -> str:
        """Return `stem_1`, `stem_2`, ...: the first that is free."""
        number = 1
        while f"{stem}_{number}" in self._taken:
            number += 1
        self._taken.add(f"{stem}_{number}")
        return f"{stem}_{number}"


class Rewriter:
    """Copies a kernel graph; `path` arguments are those of `dataflow.Step`."""

    def rewrite(self, graph: KernelGraph) -> KernelGraph:
        """Return the copy. Raises: what a builder raises when the copy is not legal."""
        kernel = KernelBuilder(graph.name)
        values: dict[str, Value] = {}
        for tensor in graph.inputs:
            new = self.input(tensor)
            values[tensor.name] = kernel.input(new.name, new.shape, new.dtype, new.strides)
        self.names = FreshNames(graph.tensors)
        launches = 0
        for node in graph.nodes:
            operands = [values[name] for name in node.operands]
            match node:
                case OpNode():
                    results = self.operator(kernel, node, operands, (node.results[0].name,))
                case GraphDefinedNode():
                    results = self.graph_defined(kernel, node, operands, launches)
                    launches += 1
                case _:
                    assert_never(node)
            values.update(zip((tensor.name for tensor in node.results), results, strict=True))
        kernel.output(*(values[name] for name in graph.output_names))
        return kernel.build()

    # ----------------------------------------------------------------------------------------------- to be overridden
    def input(self, tensor: DeviceTensor) -> DeviceTensor:
        """Return the program input that stands for this one."""
        return tensor

    def launch(self, number: int, block: BlockGraph) -> Launch:
        """Return the counts of the n-th graph-defined operator."""
        return Launch(block.grid_dims, block.forloop_range, block.block_dims, block.cluster_dims)

    def imap(self, node: InputIterator, path: Path, number: int) -> DimMap:
        """Return how the grid of the n-th graph-defined operator splits what an input iterator loads."""
        return node.imap

    def omap(self, node: OutputSaver, result: int, number: int) -> DimMap:
        """Return how the grid of the n-th graph-defined operator lays out its r-th result."""
        return node.omap

    def attributes(self, node: OpNode, path: Path) -> dict[str, AttributeValue]:
        """Return the attributes of an operator."""
        return node.attribute_map

    def columns(self, node: Accumulator, path: Path) -> int | None:
        """Return the columns of an accumulator that sums to columns."""
        return node.columns

    def operator(self, builder: LevelBuilder, node: OpNode, operands: list[Value], path: Path) -> list[Value]:
        """Add an operator."""
        return self.plain_operator(builder, node, operands, path)

    def accumulator(self, block: BlockBuilder, node: Accumulator, operands: list[Value], path: Path) -> Value:
        """Add an accumulator."""
        return self.plain_accumulator(block, node, operands, path)

    def thread(self, block: BlockBuilder, node: ThreadNode, operands: list[Value], path: Path) -> Value:
        """Add a graph-defined block operator."""
        return self.plain_thread(block, node, operands, path)

    # --------------------------------------------------------------------------------------------------- faithful copies
    def plain_operator(self, builder: LevelBuilder, node: OpNode, operands: list[Value], path: Path) -> list[Value]:
        """Add an operator as it is."""
        first = node.results[0].name
        name = first if len(node.results) == 1 else self.names(first)
        made = builder.apply_all(node.op, *operands, name=name, **self.attributes(node, path))
        return restate(builder, made, node.results)

    def plain_accumulator(self, block: BlockBuilder, node: Accumulator, operands: list[Value], path: Path) -> Value:
        """Add an accumulator as it is."""
        made = block.accumulate(
            operands[0],
            node.kind,
            rescale=operands[1] if len(operands) > 1 else None,
            columns=self.columns(node, path),
            eps=node.eps,
            name=node.result.name,
        )
        return restate(block, [made], node.results)[0]

    def plain_thread(self, block: BlockBuilder, node: ThreadNode, operands: list[Value], path: Path) -> Value:
        """Add a graph-defined block operator as it is."""
        graph = self.thread_graph(node.graph, [operand.shape for operand in operands], path)
        made = block.thread(graph, *operands, name=node.results[0].name)
        return restate(block, [made], node.results)[0]

    def thread_graph(self, graph: ThreadGraph, shapes: Sequence[Shape], path: Path) -> ThreadGraph:
        """Return a thread graph over registers of these shapes."""
        tree = ThreadBuilder()
        values = {
            register.name: tree.input(register.name, shape, register.dtype)
            for register, shape in zip(graph.inputs, shapes, strict=True)
        }
        outer, self.names = self.names, FreshNames([*values, *(t.name for node in graph.nodes for t in node.results)])
        for node in graph.nodes:
            read = [values[name] for name in node.operands]
            results = self.plain_operator(tree, node, read, (*path, node.results[0].name))
            values.update(zip((tensor.name for tensor in node.results), results, strict=True))
        self.names = outer
        return tree.build(values[graph.output])

    def graph_defined(
        self, kernel: KernelBuilder, node: GraphDefinedNode, operands: list[Value], number: int
    ) -> list[Value]:
        """Add a graph-defined operator, its block graph copied."""
        known = {tensor.name: tensor for tensor in kernel.inputs}
        known |= {t.name: t for made in kernel.nodes for t in made.results if isinstance(t, DeviceTensor)}
        tensors = [
            replace(known[operand.name], name=tensor.name)
            for operand, tensor in zip(operands, node.block.operands, strict=True)
        ]
        block = self.block_graph(node.block, tensors, number, node.results[0].name)
        names = [self.names(tensor.name) for tensor in node.results]
        made = kernel.graph_defined(block, operands, names=names, name=node.name)
        return restate(kernel, made, node.results)

    def computed(
        self, builder: BlockBuilder, node: OpNode | Accumulator | RunningMax | ThreadNode, read: list[Value], path: Path
    ) -> list[Value]:
        """Add a node of a block graph that computes tiles of tiles, by the method for its kind."""
        match node:
            case OpNode():
                return self.operator(builder, node, read, path)
            case Accumulator():
                return [self.accumulator(builder, node, read, path)]
            case RunningMax():
                both = builder.running_max(read[0], name=self.names(node.maximum.name))
                return restate(builder, both, node.results)
            case ThreadNode():
                return [self.thread(builder, node, read, path)]
            case _:
                assert_never(node)

    def block_graph(self, block: BlockGraph, operands: Sequence[DeviceTensor], number: int, label: str) -> BlockGraph:
        """Return a block graph over these kernel tensors."""
        launch = self.launch(number, block)
        builder = BlockBuilder(
            operands, grid=launch.grid, loop=launch.loop, threads=launch.threads, cluster=launch.cluster
        )
        outer, self.names = self.names, FreshNames(block.tiles)
        tiles: dict[str, Value] = {}
        saved: list[str] = []
        for node in block.nodes:
            read = [tiles[name] for name in node.operands]
            path = (label, *(tensor.name for tensor in node.results[:1]))
            results: list[Value]
            match node:
                case InputIterator():
                    imap = self.imap(node, path, number)
                    made = builder.load(node.operand, imap=imap, fmap=node.fmap, name=node.result.name)
                    results = restate(builder, [made], node.results)
                case OpNode() | Accumulator() | RunningMax() | ThreadNode():
                    results = self.computed(builder, node, read, path)
                case OutputSaver():
                    builder.save(read[0], omap=self.omap(node, len(saved), number))
                    saved.append(node.operand)
                    results = []
                case _:
                    assert_never(node)
            tiles.update(zip((tensor.name for tensor in node.results), results, strict=True))
        self.names = outer
        return builder.build()


def restate(
    builder: LevelBuilder,
    made: Sequence[Value],
    originals: Sequence[DeviceTensor | SharedTensor | RegisterTensor],
) -> list[Value]:
    """Give the results of the node added last the names, types and order in memory of these tensors."""
    match builder:
        case KernelBuilder():
            tensors = [
                replace(t, shape=value.shape, strides=dense_strides(t.shape, t.strides, value.shape))
                if value.shape != t.shape
                else t
                for t, value in zip(originals, made, strict=True)
                if isinstance(t, DeviceTensor)
            ]
            return list(builder.restate(*tensors))
        case BlockBuilder():
            found = [t for t in builder.nodes[-1].results if isinstance(t, SharedTensor)]
            if all(t.name == o.name and t.dtype is o.dtype for t, o in zip(found, originals, strict=True)):
                return list(made)
            tiles = [replace(t, name=o.name, dtype=o.dtype) for t, o in zip(found, originals, strict=True)]
            return list(builder.restate(*tiles))
        case ThreadBuilder():
            registers = [RegisterTensor(o.name, value.shape, o.dtype) for o, value in zip(originals, made, strict=True)]
            return list(builder.restate(*registers))
        case _:
            assert_never(builder)
