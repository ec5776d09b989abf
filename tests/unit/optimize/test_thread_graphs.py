from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from tests.property.strategies import Options, kernel_graphs
from workbench import programs
from workbench.interpret import evaluate
from workbench.optimize.thread_graphs import build_thread_graphs
from workbench.ugraph import value as op
from workbench.ugraph.builder import KernelBuilder
from workbench.ugraph.expand import expand, inline_thread_graphs
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import OpNode, ThreadNode


def threads(graph: KernelGraph) -> list[list[str]]:
    nodes = [node for launch in graph.graph_defined for node in launch.block.nodes]
    return [[inner.op for inner in node.graph.nodes] for node in nodes if isinstance(node, ThreadNode)]


def gated() -> KernelGraph:
    k = KernelBuilder()
    X, W, V = k.input("X", (4, 8)), k.input("W", (8, 6)), k.input("V", (8, 6))
    b = k.block(X, W, V, grid=(2,), loop=2)
    x = b.load(X, fmap=1)
    a = b.accumulate(x @ b.load(W, imap=(1,), fmap=0))
    c = b.accumulate(x @ b.load(V, imap=(1,), fmap=0))
    b.save(op.silu(a) * c, omap=(1,))
    k.output(*b.finish())
    return k.build()


def same(left: KernelGraph, right: KernelGraph) -> None:
    rng = np.random.default_rng(0)
    inputs = [rng.uniform(0.3, 1.2, tensor.shape) for tensor in left.inputs]
    for a, b in zip(evaluate(left, inputs), evaluate(right, inputs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_silu_and_product_after_the_loop_stay_in_registers() -> None:
    fused = build_thread_graphs(gated())
    assert threads(fused.graph) == [["silu", "mul"]]
    assert len(fused.changes) == 1
    assert fused.changes[0].endswith("stays in registers: silu, mul")
    same(gated(), fused.graph)


def test_the_three_operators_after_the_loop_of_rms_norm() -> None:
    """The paper's example: multiply by a constant, root, division; here with the accumulator's sugar expanded."""
    graph = expand(programs.known_good("rms_norm_linear", batch=4, hidden=64, out=32)[0])
    (chain,) = [chain for chain in threads(build_thread_graphs(graph).graph) if "div" in chain]
    assert {"sqrt", "div"} <= set(chain)


def test_a_value_with_two_readers_keeps_its_tile_and_a_matmul_becomes_a_leaf() -> None:
    k = KernelBuilder()
    X, W = k.input("X", (4, 8)), k.input("W", (8, 6))
    b = k.block(X, W, loop=2)
    e = op.exp(b.load(X, fmap=1) @ b.load(W, fmap=0))
    b.save(b.accumulate(op.square(e) + e))
    k.output(*b.finish())
    graph = k.build()
    fused = build_thread_graphs(graph)
    assert sorted(threads(fused.graph)) == [["matmul", "exp"], ["square", "add"]]
    same(graph, fused.graph)


def test_loop_invariant_and_looped_values_are_not_mixed() -> None:
    k = KernelBuilder()
    X, G = k.input("X", (4, 8)), k.input("G", (4, 1))
    b = k.block(X, G, loop=2)
    b.save(b.accumulate(b.load(X, fmap=1) * op.exp(b.load(G))))
    k.output(*b.finish())
    assert threads(build_thread_graphs(k.build()).graph) == []


def test_a_number_with_several_readers_is_copied_into_each_chain() -> None:
    k = KernelBuilder()
    X, Y = k.input("X", (4, 8)), k.input("Y", (4, 8))
    b = k.block(X, Y)
    x, y = b.load(X), b.load(Y)
    b.save((op.exp(x) + 1) / (op.exp(y) * 2 + 1))  # 1 is one constant of the block, read twice
    b.save(op.sum(op.square(y) + 1))
    k.output(*b.finish())
    graph = k.build()
    fused = build_thread_graphs(graph).graph
    first, second = threads(fused)
    assert first.count("constant") == 2
    assert second == ["square", "constant", "add"]
    (launch,) = fused.graph_defined
    kinds = [node.op for node in launch.block.nodes if isinstance(node, OpNode)]
    assert kinds == ["sum"]  # no constant is left behind
    same(graph, fused)


@pytest.mark.parametrize(
    "name", ["gqa", "lora", "gated_mlp", "ntrans", "softmax", "attention_safe", "qk_norm_attention"]
)
def test_known_good_graphs_compute_the_same(name: str) -> None:
    sizes = {parameter.name: min(parameter.default, 24) for parameter in programs.parameters(name)}
    for graph in programs.known_good(name, "standard", "float16", **sizes):
        fused = build_thread_graphs(graph).graph
        same(graph, fused)
        same(graph, inline_thread_graphs(fused))
        assert build_thread_graphs(fused).graph.structure_hash == graph.structure_hash


@settings(max_examples=40)
@given(kernel_graphs(Options(threads=False)))
def test_random_graphs_compute_the_same(graph: KernelGraph) -> None:
    fused = build_thread_graphs(graph).graph
    rng = np.random.default_rng(0)
    inputs = [rng.uniform(0.3, 1.2, tensor.shape) for tensor in graph.inputs]
    for a, b in zip(evaluate(graph, inputs), evaluate(fused, inputs), strict=True):
        np.testing.assert_array_equal(a, b)
