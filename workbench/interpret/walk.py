"""The only function that visits a µGraph; a domain supplies the meaning of each kind of node.

Invariant: nodes are visited once, in the graph's order, and nothing about a domain is known here (STYLE 2.3).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar, assert_never

from workbench.core.tensors import DeviceTensor
from workbench.errors import ShapeError
from workbench.ugraph.block_graph import BlockGraph
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
from workbench.ugraph.thread_graph import ThreadGraph

V = TypeVar("V")  # value of a tensor at the kernel level
W = TypeVar("W")  # value of a tile, for all blocks and iterations at once
Observer = Callable[[tuple[str, ...], object], None]


class Domain(Protocol[V, W]):
    """In what a program is evaluated. `V` stands for a kernel tensor, `W` for a tile."""

    def operator(self, node: OpNode, operands: tuple[V, ...]) -> tuple[V, ...]:
        """Return the results of a predefined kernel operator."""
        ...

    def launch(self, node: GraphDefinedNode, operands: tuple[V, ...], observe: Observer | None) -> tuple[V, ...]:
        """Return the results of a graph-defined operator; calls `walk_block` once or once per part of the grid."""
        ...

    def load(self, node: InputIterator, value: V, tensor: DeviceTensor, block: BlockGraph) -> W:
        """Return the tiles that an input iterator brings."""
        ...

    def tile_operator(self, node: OpNode, operands: tuple[W, ...]) -> tuple[W, ...]:
        """Return the results of an operator on tiles."""
        ...

    def accumulate(self, node: Accumulator, operand: W, rescale: W | None, block: BlockGraph) -> W:
        """Return what an accumulator leaves after the loop."""
        ...

    def running_max(self, node: RunningMax, operand: W, block: BlockGraph) -> tuple[W, W]:
        """Return the running maximum and its shift, per iteration."""
        ...


def walk(graph: KernelGraph, inputs: Sequence[V], domain: Domain[V, W], observe: Observer | None = None) -> list[V]:
    """Return the values of the outputs, in order.

    inputs: one value per program input; observe: called with (path of names, value) for every tensor made.
    Raises: ShapeError when the number of inputs is wrong, and what the domain raises.
    """
    if len(inputs) != len(graph.inputs):
        names = ", ".join(tensor.name for tensor in graph.inputs)
        raise ShapeError(
            f"program {graph.name or '(unnamed)'} takes {len(graph.inputs)} inputs ({names}), got {len(inputs)}"
        )
    values: dict[str, V] = {}
    for tensor, value in zip(graph.inputs, inputs, strict=True):
        values[tensor.name] = value
        if observe:
            observe((tensor.name,), value)
    last_use = _last_uses(graph)
    for position, node in enumerate(graph.nodes):
        operands = tuple(values[name] for name in node.operands)
        match node:
            case OpNode():
                results = domain.operator(node, operands)
            case GraphDefinedNode():
                results = domain.launch(node, operands, observe)
            case _:
                assert_never(node)
        for result, value in zip(node.results, results, strict=True):
            values[result.name] = value
            if observe:
                observe((result.name,), value)
        for name in node.operands:  # free what nobody reads any more: intermediate tensors can be large
            if last_use.get(name) == position:
                values.pop(name, None)
    return [values[name] for name in graph.output_names]


def _last_uses(graph: KernelGraph) -> dict[str, int]:
    uses = {name: position for position, node in enumerate(graph.nodes) for name in node.operands}
    return {name: position for name, position in uses.items() if name not in graph.output_names}


def walk_block(
    block: BlockGraph,
    operands: Sequence[V],
    domain: Domain[V, W],
    observe: Observer | None = None,
    path: tuple[str, ...] = (),
) -> list[W]:
    """Return the tiles that the output savers store, in the order of the savers."""
    tiles: dict[str, W] = {}
    saved: list[W] = []
    for node in block.nodes:
        read = tuple(tiles[name] for name in node.operands)
        results: tuple[W, ...]
        match node:
            case InputIterator():
                results = (domain.load(node, operands[node.operand], block.operands[node.operand], block),)
            case OpNode():
                results = domain.tile_operator(node, read)
            case Accumulator():
                results = (domain.accumulate(node, read[0], read[1] if len(read) > 1 else None, block),)
            case RunningMax():
                results = domain.running_max(node, read[0], block)
            case ThreadNode():
                results = (walk_thread(node.graph, read, domain),)
            case OutputSaver():
                saved.append(read[0])
                continue
            case _:
                assert_never(node)
        for result, value in zip(node.results, results, strict=True):
            tiles[result.name] = value
            if observe:
                observe((*path, result.name), value)
    return saved


def walk_thread(graph: ThreadGraph, operands: Sequence[W], domain: Domain[V, W]) -> W:
    """Return the value of a thread graph's root; registers mean what tiles mean, only closer to the processor."""
    values = {tensor.name: value for tensor, value in zip(graph.inputs, operands, strict=True)}
    for node in graph.nodes:
        results = domain.tile_operator(node, tuple(values[name] for name in node.operands))
        values.update({tensor.name: value for tensor, value in zip(node.results, results, strict=True)})
    return values[graph.output]
