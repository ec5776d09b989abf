"""Which tiles are views: they lie where another tile lies, so they take no memory and no barrier stands before them.

Invariant: a view is made by an operator that only moves elements and has one operand; a concatenation is a copy.
"""

from __future__ import annotations

from workbench.ops.spec import OpKind
from workbench.ugraph.block_graph import BlockGraph
from workbench.ugraph.nodes import BlockNode, OpNode


def is_view(node: BlockNode) -> bool:
    """Return True for an operator whose results lie where its operand lies."""
    return isinstance(node, OpNode) and node.spec.kind is OpKind.MOVEMENT and len(node.operands) == 1


def lies_in(block: BlockGraph) -> dict[str, str]:
    """Return, for every tile, the tile in whose memory it lies: itself, or for a view what it is a view of."""
    found: dict[str, str] = {}
    for node in block.nodes:
        for tensor in node.results:
            found[tensor.name] = found[node.operands[0]] if is_view(node) else tensor.name
    return found
