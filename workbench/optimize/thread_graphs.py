"""Thread graphs by rule: elementwise operators fused onto their producers, so that their values stay in registers.

Invariant: the graph computes the same, tile for tile; only who holds the values in between changes. The rule is the
paper's (section 4.1, lines 32 to 36 of algorithm 1), taken across binary operators and onto a matmul as its epilogue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from workbench.core.dtypes import DType
from workbench.core.tensors import RegisterTensor, SharedTensor
from workbench.ops.spec import OpKind
from workbench.ugraph.block_graph import BlockGraph
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import BlockNode, GraphDefinedNode, OpNode, ThreadNode
from workbench.ugraph.rewrite import FreshNames
from workbench.ugraph.thread_graph import ThreadGraph

_FUSED = (OpKind.ELEMENTWISE, OpKind.CONSTANT)


@dataclass(frozen=True, slots=True)
class Fused:
    """A graph with thread graphs, and what was done, in words."""

    graph: KernelGraph
    changes: tuple[str, ...]


def build_thread_graphs(graph: KernelGraph) -> Fused:
    """Return a µGraph whose block graphs hold their elementwise chains as thread graphs.

    A chain is a tree: each value but the root's has one consumer, in the chain, at the same place (in the loop, after
    it, or loop-invariant). A matmul whose only consumer is in a chain becomes its leaf. Chains of one operator stay. A number
    that several read is copied into each chain.

    `c = exp(s)` and `d = mul(c, w)` with no other reader of c become one node `d = thread(s, w) { exp, mul }`.
    """
    changes: list[str] = []
    nodes = []
    for node in graph.nodes:
        if isinstance(node, GraphDefinedNode):
            block, done = fuse_block(node.block)
            where = node.name or node.results[0].name
            changes += [f"{where}: {change}" for change in done]
            node = replace(node, block=block) if done else node
        nodes.append(node)
    if not changes:
        return Fused(graph, ())
    return Fused(KernelGraph(graph.inputs, tuple(nodes), graph.output_names, graph.name), tuple(changes))


def fuse_block(block: BlockGraph) -> tuple[BlockGraph, tuple[str, ...]]:
    """Return a block graph with its elementwise chains as thread graphs, and one line per chain."""
    roots = _roots(block)
    groups: dict[int, list[int]] = {}
    for number, root in roots.items():
        groups.setdefault(root, []).append(number)
    groups = {root: sorted(members) for root, members in groups.items() if len(members) > 1}
    if not groups:
        return block, ()
    members = {number for group in groups.values() for number in group}
    nodes: list[BlockNode] = []
    changes: list[str] = []
    for number, node in enumerate(block.nodes):
        if number in groups:
            fused = _thread_node(block, [block.nodes[member] for member in groups[number]])
            nodes.append(fused)
            names = ", ".join(inner.op for inner in fused.graph.nodes if inner.spec.kind is not OpKind.CONSTANT)
            changes.append(f"{fused.results[0].name} stays in registers: {names}")
        elif number not in members:
            nodes.append(node)
    unread = frozenset(block.tiles) - {name for node in block.nodes for name in node.operands}
    return replace(block, nodes=_without_unread_constants(nodes, unread)), tuple(changes)


def _roots(block: BlockGraph) -> dict[int, int]:
    """Return, per node that joins a chain, the number of the chain's root."""
    readers: dict[str, list[int]] = {}
    for number, node in enumerate(block.nodes):
        for name in node.operands:
            readers.setdefault(name, []).append(number)
    roots: dict[int, int] = {}
    with_contraction: set[int] = set()
    for number in range(len(block.nodes) - 1, -1, -1):
        node = block.nodes[number]
        if not isinstance(node, OpNode) or len(node.results) != 1:
            continue
        name = node.results[0].name
        found = set(readers.get(name, ()))
        consumer = found.pop() if len(found) == 1 else None
        joins = consumer is not None and consumer in roots and block.places[name] is _place(block, consumer)
        after_contraction = joins and consumer is not None and _is_contraction(block.nodes[consumer])
        if node.spec.kind in _FUSED:
            roots[number] = roots[consumer] if joins and not after_contraction and consumer is not None else number
        elif _is_contraction(node) and joins and consumer is not None and roots[consumer] not in with_contraction:
            roots[number] = roots[consumer]
            with_contraction.add(roots[consumer])
    return roots


def _is_contraction(node: BlockNode) -> bool:
    return isinstance(node, OpNode) and node.spec.kind is OpKind.CONTRACTION


def _place(block: BlockGraph, number: int) -> object:
    return block.places[block.nodes[number].results[0].name]


def _thread_node(block: BlockGraph, chain: Sequence[BlockNode]) -> ThreadNode:
    inside = {tensor.name for node in chain for tensor in node.results}
    numbers = _constants(block)
    operands = list(dict.fromkeys(name for node in chain for name in node.operands if name not in inside))
    operands = [name for name in operands if name not in numbers]
    inputs = tuple(RegisterTensor(name, block.tiles[name].shape, block.tiles[name].dtype) for name in operands)
    fresh = FreshNames([*inside, *operands])
    inner: list[OpNode] = []
    for node in chain:
        assert isinstance(node, OpNode)
        read = []
        for name in node.operands:
            if name in numbers and name not in inside:  # a tree shares nothing: each reader has a number of its own
                made = RegisterTensor(fresh(name), (), DType.FLOAT32)
                inner.append(replace(numbers[name], results=(made,)))
                name = made.name
            read.append(name)
        (result,) = node.results
        register = RegisterTensor(result.name, result.shape, DType.FLOAT32)
        inner.append(replace(node, operands=tuple(read), results=(register,)))
    (root,) = chain[-1].results
    assert isinstance(root, SharedTensor)
    return ThreadNode(ThreadGraph(inputs, tuple(inner), root.name), tuple(operands), (root,))


def _constants(block: BlockGraph) -> dict[str, OpNode]:
    """Return the nodes that make a number, by their tile."""
    return {
        node.results[0].name: node
        for node in block.nodes
        if isinstance(node, OpNode) and node.spec.kind is OpKind.CONSTANT and node.results[0].shape == ()
    }


def _without_unread_constants(nodes: Sequence[BlockNode], unread_before: frozenset[str]) -> tuple[BlockNode, ...]:
    """Return nodes without the numbers that only chains read, which have their own now."""
    read = {name for node in nodes for name in node.operands} | unread_before
    return tuple(
        node
        for node in nodes
        if not (isinstance(node, OpNode) and node.spec.kind is OpKind.CONSTANT and node.results[0].name not in read)
    )
