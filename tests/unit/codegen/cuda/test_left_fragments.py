"""Fragments of left factors that are not loaded again: shared by two products, or held over the loop."""

from __future__ import annotations

from pathlib import Path

from tests.unit.codegen.cuda.emitting import check_graph
from tests.unit.codegen.cuda.planned import attention, block_graph, node_of
from workbench.codegen.cuda.kernel import emit_block
from workbench.ugraph.builder import BlockBuilder


def gated(block: BlockBuilder) -> None:
    """X W and X V over the loop: both read the same X."""
    x = block.load(0, fmap=1)
    gate, up = block.accumulate(x @ block.load(1, fmap=0)), block.accumulate(x @ block.load(2, fmap=0))
    block.save(block.apply("silu", gate) * up)


def test_two_products_share_their_left_fragments(host_cache: Path) -> None:
    graph = block_graph(gated, (16, 256), (256, 48), (256, 48), loop=4)
    body = emit_block(node_of(graph)).body
    assert body.count("load_a") == 1
    check_graph(graph, host_cache)


def test_products_of_unlike_shapes_do_not(host_cache: Path) -> None:
    def fill(block: BlockBuilder) -> None:
        x = block.load(0, fmap=1)
        block.save(block.accumulate(x @ block.load(1, fmap=0)))
        block.save(block.accumulate(block.apply("transpose", x) @ block.load(2)))

    graph = block_graph(fill, (16, 64), (64, 24), (16, 40), loop=2)
    assert emit_block(node_of(graph)).body.count("load_a") == 2
    check_graph(graph, host_cache)


def test_what_the_loop_does_not_change_is_loaded_once(host_cache: Path) -> None:
    graph = block_graph(attention, (16, 32), (32, 256), (256, 32), loop=8)
    body = emit_block(node_of(graph)).body
    assert "if (step == first) {" in body
    check_graph(graph, host_cache)


def test_a_computed_left_factor_is_held_too(host_cache: Path) -> None:
    def fill(block: BlockBuilder) -> None:
        left = block.apply("silu", block.load(0))
        block.save(block.accumulate(block.apply("sum", left @ block.load(1, fmap=1), axis=-1)))

    check_graph(block_graph(fill, (16, 32), (32, 128), loop=4), host_cache)
