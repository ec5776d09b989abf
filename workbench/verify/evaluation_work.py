"""How much work an evaluation of a program is, so that a comparison knows where it can afford true shapes.

Invariant: an estimate of multiply-adds and element operations over all blocks and iterations; no units of time.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import GraphDefinedNode, InputIterator, OpNode, ThreadNode


def evaluation_work(graph: KernelGraph) -> float:
    """Return about how many multiply-adds and element operations an evaluation takes."""
    total = float(sum(prod(tensor.shape) for tensor in graph.tensors.values()))
    for node in graph.nodes:
        if isinstance(node, OpNode):
            shapes = tuple(graph.tensor(name).shape for name in node.operands)
            total += node.spec.work(shapes, node.attribute_map).flops / 2
        else:
            total += _block_work(node)
    return total


def _block_work(node: GraphDefinedNode) -> float:
    block = node.block
    total = 0.0
    for inner in block.nodes:
        if isinstance(inner, InputIterator):
            continue
        repeat = block.num_blocks * (block.forloop_range if _in_loop(node, inner.operands) else 1)
        shapes = tuple(block.tiles[name].shape for name in inner.operands)
        if isinstance(inner, OpNode):
            total += repeat * inner.spec.work(shapes, inner.attribute_map).flops / 2
        elif isinstance(inner, ThreadNode):
            total += repeat * sum(prod(tensor.shape) for part in inner.graph.nodes for tensor in part.results)
        else:
            total += repeat * sum(prod(shape) for shape in shapes)
    return total


def _in_loop(node: GraphDefinedNode, names: Sequence[str]) -> bool:
    return any(node.block.places[name].value == "loop" for name in names)
