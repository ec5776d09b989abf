"""Inputs that several stages read are read once: which are, and that the numbers stay right."""

from __future__ import annotations

from pathlib import Path

from tests.unit.codegen.cuda.emitting import check_graph
from tests.unit.codegen.cuda.planned import block_graph, node_of
from workbench.codegen.cuda.kernel import emit_block
from workbench.core.dtypes import DType
from workbench.ugraph.builder import BlockBuilder


def normalised(block: BlockBuilder) -> None:
    x = block.load(0, imap=(0,))
    block.save(x / block.apply("rms", x, axis=-1) * block.load(1), omap=(0,))


def test_rows_that_are_read_twice_are_held(host_cache: Path) -> None:
    graph = block_graph(normalised, (6, 1000), (1000,), grid=(6,))
    body = emit_block(node_of(graph)).body
    assert "x_held" in body
    assert body.count("x_global +") == 1
    check_graph(graph, host_cache)


def test_rows_that_registers_do_not_hold_are_read_again(host_cache: Path) -> None:
    graph = block_graph(normalised, (2, 12000), (12000,), grid=(2,), dtype=DType.FLOAT32)
    assert "x_held" not in emit_block(node_of(graph)).body
    check_graph(graph, host_cache)


def test_what_is_read_once_is_not_held() -> None:
    graph = block_graph(lambda b: b.save(b.apply("silu", b.load(0))), (6, 1000))
    assert "_held" not in emit_block(node_of(graph)).body


def test_a_loop_holds_nothing() -> None:
    def fill(block: BlockBuilder) -> None:
        x = block.load(0, fmap=1)
        block.save(block.accumulate(x, "rms") + block.accumulate(x, "max_dim"))

    assert "x_held" not in emit_block(node_of(block_graph(fill, (6, 1000), loop=2))).body
