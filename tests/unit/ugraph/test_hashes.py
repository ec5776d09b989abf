from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import workbench as wb
from workbench.core.layouts import column_major_strides
from workbench.ugraph.block_graph import BlockGraph
from workbench.ugraph.builder import BlockBuilder, KernelBuilder, ThreadBuilder
from workbench.ugraph.hashes import digest, wiring_hash
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import GraphDefinedNode, InputIterator, OpNode
from workbench.ugraph.thread_graph import ThreadGraph
from workbench.ugraph.value import Value, exp, relu, silu, tanh

SQUARE = (4, 4)


def traced(fn: Callable[..., object]) -> str:
    return wiring_hash(wb.trace(fn, X=SQUARE, Y=SQUARE))


def block_graph(
    *, grid: tuple[int, ...] = (2,), loop: int = 4, threads: int = 128, cluster: int = 1, order: str = "xw"
) -> KernelGraph:
    """X @ W / rms(X) in one block; `order` is that of the operands and loads."""
    kernel = KernelBuilder("rms")
    values = {"x": kernel.input("X", (4, 8)), "w": kernel.input("W", (8, 6))}
    block = kernel.block(
        *(values[letter] for letter in order), grid=grid, loop=loop, threads=(threads,), cluster=(cluster,)
    )
    tiles: dict[str, Value] = {}
    for letter in order:
        imap, fmap = ((None,), 1) if letter == "x" else ((1,), 0)
        tiles[letter] = block.load(values[letter], imap=imap, fmap=fmap)
    product, root = block.accumulate(tiles["x"] @ tiles["w"]), block.accumulate(tiles["x"], "rms")
    block.save(product / root, omap=(1,))
    kernel.output(*block.finish())
    return kernel.build()


def renamed(graph: KernelGraph) -> KernelGraph:
    kernel = KernelBuilder("another name")
    values = {t.name: kernel.input(f"in_{t.name}", t.shape, t.dtype, t.strides) for t in graph.inputs}
    for node in graph.nodes:
        assert isinstance(node, OpNode)
        made = kernel.apply_all(node.op, *(values[name] for name in node.operands), name=None, **node.attribute_map)
        values.update(zip((t.name for t in node.results), made, strict=True))
    kernel.output(*(values[name] for name in graph.output_names))
    return kernel.build()


# ------------------------------------------------------------------------------------------------------------ joined
def test_names_do_not_count() -> None:
    graph = wb.trace(lambda X, Y: wb.softmax(X @ Y) - X, X=SQUARE, Y=SQUARE)
    assert wiring_hash(renamed(graph)) == wiring_hash(graph)


def test_order_of_independent_nodes_does_not_count() -> None:
    graph = wb.trace(lambda X, Y: wb.exp(X) @ wb.silu(Y), X=SQUARE, Y=SQUARE)
    first, second, product = graph.nodes
    assert wiring_hash(replace(graph, nodes=(second, first, product))) == wiring_hash(graph)


@pytest.mark.parametrize("op", [wb.add, wb.mul, wb.maximum, wb.minimum])
def test_commuted_operands_join(op: Callable[..., Value]) -> None:
    assert traced(lambda X, Y: op(X, Y)) == traced(lambda X, Y: op(Y, X))


def test_order_of_operands_of_a_block_graph_does_not_count() -> None:
    assert wiring_hash(block_graph(order="wx")) == wiring_hash(block_graph(order="xw"))


def test_an_operand_listed_twice_counts_once() -> None:
    graph = block_graph()
    (node,) = graph.nodes
    assert isinstance(node, GraphDefinedNode)
    again = replace(node.block, operands=(*node.block.operands, node.block.operands[0]))
    twice = replace(graph, nodes=(replace(node, block=again, operands=(*node.operands, node.operands[0])),))
    assert wiring_hash(twice) == wiring_hash(graph)


# --------------------------------------------------------------------------------------------------------- separated
PAIRS: list[tuple[str, Callable[..., object], Callable[..., object]]] = [
    ("operands of a quotient", lambda X, Y: X / Y, lambda X, Y: Y / X),
    ("operands of a difference", lambda X, Y: X - Y, lambda X, Y: Y - X),
    ("operands of a product of matrices", lambda X, Y: X @ Y, lambda X, Y: Y @ X),
    ("inputs of one shape", lambda X, Y: wb.exp(X) * Y, lambda X, Y: X * wb.exp(Y)),
    ("gate and value", lambda X, Y: wb.silu(X @ X) * (X @ Y), lambda X, Y: wb.silu(X @ Y) * (X @ X)),
    ("outputs", lambda X, Y: (wb.exp(X), wb.exp(Y)), lambda X, Y: (wb.exp(Y), wb.exp(X))),
    ("a shared node", lambda X, Y: (lambda e: e @ e)(wb.exp(X)), lambda X, Y: wb.exp(X) @ wb.exp(X)),
    ("the axis", lambda X, Y: wb.sum(X, axis=0), lambda X, Y: wb.sum(X, axis=1)),
    ("the factor", lambda X, Y: X * 2, lambda X, Y: X * 3),
    ("the form", lambda X, Y: wb.gelu(X), lambda X, Y: wb.gelu(X, approximate="tanh")),
    ("composite and expansion", lambda X, Y: wb.square(X), lambda X, Y: X * X),
    ("an unused node", lambda X, Y: X + Y, lambda X, Y: (wb.exp(X), X + Y)[1]),
    ("order of concatenation", lambda X, Y: wb.concat(X, Y), lambda X, Y: wb.concat(Y, X)),
    ("which piece", lambda X, Y: wb.split(X, 2)[0], lambda X, Y: wb.split(X, 2)[1]),
]  # fmt: skip


@pytest.mark.parametrize(("what", "left", "right"), PAIRS, ids=[pair[0] for pair in PAIRS])
def test_what_separates(what: str, left: Callable[..., object], right: Callable[..., object]) -> None:
    assert traced(left) != traced(right)


def test_shape_type_and_strides_separate() -> None:
    def graph(shape: tuple[int, ...] = (4, 8), dtype: str = "float16", columns: bool = False) -> str:
        kernel = KernelBuilder()
        strides = column_major_strides(shape) if columns else None
        kernel.output(exp(kernel.input("X", shape, dtype, strides)))
        return wiring_hash(kernel.build())

    assert len({graph(), graph(shape=(8, 4)), graph(dtype="float32"), graph(columns=True)}) == 4


def test_schedule_separates() -> None:
    variants = [
        block_graph(),
        block_graph(grid=(3,)),
        block_graph(loop=2),
        block_graph(threads=256),
        block_graph(cluster=2),
        block_graph(grid=(1,)),
    ]
    assert len({wiring_hash(graph) for graph in variants}) == len(variants)


def test_maps_separate() -> None:
    def graph(imap: tuple[int | None, ...], fmap: int | None, omap: tuple[int | None, ...]) -> str:
        kernel = KernelBuilder()
        x = kernel.input("X", (4, 4))
        block = kernel.block(x, grid=(2, 2), loop=2)
        block.save(block.accumulate(block.load(x, imap=imap, fmap=fmap)), omap=omap)
        kernel.output(*block.finish())
        return wiring_hash(kernel.build())

    found = {
        graph((0, 1), 0, (0, 1)),
        graph((0, 1), 1, (0, 1)),
        graph((0, 1), None, (0, 1)),
        graph((1, 0), 0, (0, 1)),
        graph((0, 1), 0, (1, 0)),
    }
    assert len(found) == 5


def test_sharing_behind_equal_terms_separates() -> None:
    """All values are equal terms; only which of the equal nodes is shared differs."""

    def graph(sharing: str) -> str:
        kernel = KernelBuilder()
        x = kernel.input("X", (3, 3))
        nodes = {letter: exp(x) for letter in sorted(set(sharing))}
        left, middle, right, last = (nodes[letter] for letter in sharing)
        kernel.output((left @ middle) @ (right @ last))
        return wiring_hash(kernel.build())

    assert len({graph(sharing) for sharing in ("aabb", "abab", "abba", "aaab", "abbb", "aaaa")}) == 6


def test_what_is_launched_together_separates() -> None:
    def graph(pairs: list[tuple[Callable[[Value], Value], Callable[[Value], Value]]]) -> str:
        kernel = KernelBuilder()
        x = kernel.input("X", (4, 4))
        made: dict[str, Value] = {}
        for pair in pairs:
            block = kernel.block(x)
            for op in pair:
                block.save(op(block.load(x)))
            made.update(zip([op.__name__ for op in pair], block.finish(), strict=True))
        kernel.output(*(made[name] for name in sorted(made)))
        return wiring_hash(kernel.build())

    assert graph([(exp, silu), (relu, tanh)]) != graph([(exp, relu), (silu, tanh)])
    assert graph([(exp, silu), (relu, tanh)]) == graph([(tanh, relu), (exp, silu)])


def test_a_thread_graph_separates() -> None:
    def graph(thread: bool) -> KernelGraph:
        kernel = KernelBuilder()
        x = kernel.input("X", (4, 8))
        block = kernel.block(x)
        tile = block.load(x)
        if thread:
            tree = ThreadBuilder()
            register = tree.input("r", (4, 8))
            block.save(block.thread(tree.build(exp(register)), tile))
        else:
            block.save(exp(tile))
        kernel.output(*block.finish())
        return kernel.build()

    assert wiring_hash(graph(True)) != wiring_hash(graph(False))


# ----------------------------------------------------------------------------------------------------- lower levels
def test_block_graphs_hash_by_position() -> None:
    def graph(swapped: bool, saved: str = "ab") -> BlockGraph:
        tensors = block_graph().inputs
        builder = BlockBuilder([replace(tensors[0], name=name, shape=(4, 4), strides=()) for name in "PQ"])
        p, q = builder.load("P"), builder.load("Q")
        results = {"a": exp(q if swapped else p) @ (p if swapped else q), "b": silu(p)}
        for letter in saved:
            builder.save(results[letter])
        return builder.build()

    hashes = {wiring_hash(graph(False)), wiring_hash(graph(True)), wiring_hash(graph(False, "ba"))}
    assert len(hashes) == 3
    assert wiring_hash(graph(False)) == wiring_hash(graph(False))


def test_thread_graphs_hash_by_position() -> None:
    def graph(names: str, swapped: bool) -> ThreadGraph:
        tree = ThreadBuilder()
        first, second = (tree.input(name, (2, 2)) for name in names)
        return tree.build(exp(second) / first if swapped else exp(first) / second)

    assert wiring_hash(graph("ab", False)) == wiring_hash(graph("cd", False)) != wiring_hash(graph("ab", True))


def test_levels_do_not_meet() -> None:
    graph = block_graph()
    node = graph.nodes[0]
    assert isinstance(node, GraphDefinedNode)
    assert wiring_hash(graph) != wiring_hash(node.block)


# --------------------------------------------------------------------------------------------------------- stability
def test_the_hash_is_the_same_everywhere(repository: Path) -> None:
    """Another process with another seed of Python's own hash, and a value written down when the test was made."""
    code = (
        "import workbench as wb; print(wb.trace(lambda X, Y: wb.softmax(X @ Y) - X, X=(4, 4), Y=(4, 4)).hash,"
        "wb.programs.known_good('rms_norm_linear')[0].hash)"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(repository)},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    graph = wb.trace(lambda X, Y: wb.softmax(X @ Y) - X, X=SQUARE, Y=SQUARE)
    assert found == {f"{graph.hash} {wb.programs.known_good('rms_norm_linear')[0].hash}\n"}
    assert graph.hash == PINNED


PINNED = "4afe505ec728f9675ce64a1d289d5939"


def test_digest_keeps_texts_apart() -> None:
    assert digest("ab", "c") != digest("a", "bc")
    assert digest("ab") != digest("ab", "")
    assert len(digest("x")) == 32


def test_all_saved_graphs_hash(shared_data: Path) -> None:
    """Of the 32 gated MLPs half are the other half with the operands of a product exchanged; nothing else joins."""
    counts = {}
    for name in ("gated_mlp", "rmsnorm_bs1", "lora", "mqa_bs1", "gqa_bs1"):
        graphs = wb.load(shared_data / "mirage_mugraphs" / f"{name}.json")
        counts[name] = (len(graphs), len({wiring_hash(graph) for graph in graphs}))
    assert counts == {
        "gated_mlp": (32, 16),
        "rmsnorm_bs1": (18, 18),
        "lora": (4, 4),
        "mqa_bs1": (12, 12),
        "gqa_bs1": (28, 28),
    }


def test_iterators_of_one_tensor_are_told_apart() -> None:
    def graph(same: bool) -> str:
        kernel = KernelBuilder()
        x = kernel.input("X", (4, 4))
        block = kernel.block(x)
        first = block.load(x)
        second = first if same else block.load(x)
        block.save(first @ second)
        kernel.output(*block.finish())
        built = kernel.build()
        node = built.nodes[0]
        assert isinstance(node, GraphDefinedNode)
        assert sum(isinstance(inner, InputIterator) for inner in node.block.nodes) == (1 if same else 2)
        return wiring_hash(built)

    assert graph(True) != graph(False)
