"""Renaming, reordering and commuting keep both hashes of random µGraphs; exchanging what is not exchangeable changes them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.strategies import TAME, Options, kernel_graphs
from workbench.core.tensors import DeviceTensor, SharedTensor
from workbench.errors import WorkbenchError
from workbench.interpret import evaluate
from workbench.ugraph.block_graph import BlockGraph
from workbench.ugraph.hashes import wiring_hash
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import (
    Accumulator,
    BlockNode,
    GraphDefinedNode,
    InputIterator,
    KernelNode,
    OpNode,
    OutputSaver,
    RunningMax,
    ThreadNode,
)
from workbench.ugraph.structure import structure_hash

T = TypeVar("T")
N = TypeVar("N", bound=KernelNode | BlockNode)
GRAPHS = kernel_graphs(Options(max_steps=5, odd_names=True))
NON_COMMUTATIVE = ("sub", "div", "pow", "matmul", "concat", "exp", "sum", "transpose")
SEEDS = st.integers(0, 1 << 30)


# -------------------------------------------------------------------------------------------------- disguising a graph
class Disguise:
    """Renames every tensor, reorders independent nodes and operands of block graphs, exchanges commutative operands."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.count = 0

    def name(self) -> str:
        self.count += self.random.randint(1, 3)
        return f"n{self.count}"

    def graph(self, graph: KernelGraph) -> KernelGraph:
        names = {tensor.name: self.name() for tensor in graph.inputs}
        inputs = tuple(replace(tensor, name=names[tensor.name]) for tensor in graph.inputs)
        nodes: list[KernelNode] = []
        for node in self.reordered(graph.nodes):
            results = tuple(
                replace(tensor, name=self.name()) for tensor in node.results if isinstance(tensor, DeviceTensor)
            )
            operands = tuple(names[name] for name in node.operands)
            names.update(zip((tensor.name for tensor in node.results), (t.name for t in results), strict=True))
            if isinstance(node, OpNode):
                nodes.append(replace(node, operands=self.commuted(node, operands), results=results))
            else:
                nodes.append(self.launch(node, operands, results))
        return KernelGraph(inputs, tuple(nodes), tuple(names[name] for name in graph.output_names), "disguised")

    def launch(
        self, node: GraphDefinedNode, operands: tuple[str, ...], results: tuple[DeviceTensor, ...]
    ) -> GraphDefinedNode:
        order = self.shuffled(range(len(operands)))
        block = self.block(node.block, order)
        return GraphDefinedNode(block, tuple(operands[i] for i in order), results, "renamed")

    def block(self, block: BlockGraph, order: Sequence[int]) -> BlockGraph:
        names: dict[str, str] = {}
        nodes: list[BlockNode] = []
        savers = [node for node in block.nodes if isinstance(node, OutputSaver)]  # their order makes the results
        for node in [*self.reordered([n for n in block.nodes if not isinstance(n, OutputSaver)]), *savers]:
            read = tuple(names[name] for name in node.operands)
            tiles = tuple(replace(tile, name=self.name()) for tile in node.results if isinstance(tile, SharedTensor))
            names.update(zip((tile.name for tile in node.results), (tile.name for tile in tiles), strict=True))
            match node:
                case InputIterator():
                    nodes.append(replace(node, operand=order.index(node.operand), result=tiles[0]))
                case OpNode():
                    nodes.append(replace(node, operands=self.commuted(node, read), results=tiles))
                case Accumulator():
                    rescale = read[1] if len(read) > 1 else None
                    nodes.append(replace(node, operand=read[0], rescale=rescale, result=tiles[0]))
                case RunningMax():
                    nodes.append(replace(node, operand=read[0], maximum=tiles[0], shift=tiles[1]))
                case ThreadNode():
                    nodes.append(replace(node, operands=read, results=tiles))
                case OutputSaver():
                    nodes.append(replace(node, operand=read[0]))
        operands = tuple(replace(block.operands[i], name=self.name()) for i in order)
        return replace(block, operands=operands, nodes=tuple(nodes))

    def commuted(self, node: OpNode, operands: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(self.shuffled(operands)) if node.spec.commutative else operands

    def shuffled(self, items: Sequence[T]) -> list[T]:
        return self.random.sample(list(items), len(items))

    def reordered(self, nodes: Sequence[N]) -> list[N]:
        """Return the nodes in a random order in which each still stands after what it reads."""
        makers = {tensor.name: i for i, node in enumerate(nodes) for tensor in node.results}
        waiting = {i: {makers[name] for name in node.operands if name in makers} for i, node in enumerate(nodes)}
        order: list[int] = []
        while waiting:
            ready = sorted(i for i, needs in waiting.items() if needs <= set(order))
            order.append(self.random.choice(ready))
            del waiting[order[-1]]
        return [nodes[i] for i in order]


@settings(max_examples=40)
@given(GRAPHS, SEEDS)
def test_a_disguised_graph_keeps_its_hashes(graph: KernelGraph, seed: int) -> None:
    disguised = Disguise(seed).graph(graph)
    assert wiring_hash(disguised) == wiring_hash(graph)
    assert structure_hash(disguised) == structure_hash(graph)


# -------------------------------------------------------------------------------------------------- changing a graph
def same_values(graph: KernelGraph, other: KernelGraph) -> bool:
    """Whether two programs with inputs of equal shapes compute the same on random inputs."""
    rng = np.random.default_rng(0)
    inputs = [rng.normal(size=tensor.shape) for tensor in graph.inputs]
    pairs = zip(evaluate(graph, inputs), evaluate(other, inputs), strict=True)
    return all(a.shape == b.shape and np.allclose(a, b, rtol=1e-9, atol=1e-12, equal_nan=True) for a, b in pairs)


def term(graph: KernelGraph, name: str) -> str:
    """The hash of what a tensor is computed from, and nothing else."""
    needed, kept = {name}, []
    for node in reversed(graph.nodes):
        if any(tensor.name in needed for tensor in node.results):
            needed.update(node.operands)
            kept.append(node)
    return wiring_hash(replace(graph, nodes=tuple(reversed(kept)), output_names=(name,)))


@settings(max_examples=50)
@given(kernel_graphs(Options(max_steps=6, blocks=False, operators=NON_COMMUTATIVE)), st.data())
def test_operands_of_a_non_commutative_operator_do_not_commute(graph: KernelGraph, data: st.DataObject) -> None:
    nodes = [node for node in graph.nodes if isinstance(node, OpNode) and len(set(node.operands)) > 1]
    nodes = [node for node in nodes if not node.spec.commutative and len({term(graph, o) for o in node.operands}) > 1]
    if not nodes:
        return
    node = data.draw(st.sampled_from(nodes))
    turned = replace(node, operands=tuple(reversed(node.operands)))
    try:
        other = replace(graph, nodes=tuple(turned if candidate is node else candidate for candidate in graph.nodes))
    except WorkbenchError:  # shapes that only fit one way
        return
    assert wiring_hash(other) != wiring_hash(graph)


@settings(max_examples=50)
@given(kernel_graphs(Options(max_steps=5, operators=TAME)), st.data())
def test_exchanged_inputs_join_only_where_they_may_be_exchanged(graph: KernelGraph, data: st.DataObject) -> None:
    """One reader of an input reads another input like it; then the two inputs are exchanged."""
    readers = [(node, name) for node in graph.nodes for name in node.operands if name in {t.name for t in graph.inputs}]
    if not readers:
        return
    node, name = data.draw(st.sampled_from(readers))
    twin = replace(graph.tensor(name), name="twin")
    operands = tuple("twin" if operand == name else operand for operand in node.operands)
    nodes = tuple(replace(node, operands=operands) if candidate is node else candidate for candidate in graph.nodes)
    inputs = (*graph.inputs, twin)
    exchanged = tuple(twin if t.name == name else graph.tensor(name) if t is twin else t for t in inputs)
    first, second = replace(graph, inputs=inputs, nodes=nodes), replace(graph, inputs=exchanged, nodes=nodes)
    if wiring_hash(first) == wiring_hash(second) or structure_hash(first) == structure_hash(second):
        assert same_values(first, second)


@settings(max_examples=40)
@given(kernel_graphs(Options(max_steps=5, operators=TAME)))
def test_exchanged_outputs_join_only_where_they_are_equal(graph: KernelGraph) -> None:
    other = replace(graph, output_names=tuple(reversed(graph.output_names)))
    if wiring_hash(other) == wiring_hash(graph) or structure_hash(other) == structure_hash(graph):
        assert same_values(graph, other)
    else:
        assert graph.output_names != other.output_names


@settings(max_examples=40)
@given(GRAPHS, st.data())
def test_counts_and_threads_are_part_of_the_hash(graph: KernelGraph, data: st.DataObject) -> None:
    if not graph.graph_defined:
        return
    node = data.draw(st.sampled_from(graph.graph_defined))
    threads = data.draw(st.sampled_from([(64, 1, 1), (512, 1, 1)]))
    changed = replace(node, block=replace(node.block, block_dims=threads))
    other = replace(graph, nodes=tuple(changed if candidate is node else candidate for candidate in graph.nodes))
    assert wiring_hash(other) != wiring_hash(graph)
    assert structure_hash(other) == structure_hash(graph)
