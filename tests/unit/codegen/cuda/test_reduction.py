"""Folds of an axis on the host: along rows, across them, over warps, of views; and the texts of one fold."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.codegen.cuda.emitting import check_graph
from tests.unit.codegen.cuda.planned import block_graph, node_of
from workbench.codegen.cuda.kernel import emit_block
from workbench.codegen.cuda.reduction import added
from workbench.codegen.cuda.tile_values import Folding
from workbench.core.dtypes import DType
from workbench.ugraph.builder import BlockBuilder


@pytest.mark.parametrize("shape", [(3, 7), (1, 700), (40, 8), (2, 3, 20), (130, 3), (9,)])
@pytest.mark.parametrize("axis", [-1, -2, -3])
@pytest.mark.parametrize("op", ["sum", "max", "mean"])
def test_folds_along_every_axis(shape: tuple[int, ...], axis: int, op: str, host_cache: Path) -> None:
    if -axis > len(shape):
        return

    def fill(block: BlockBuilder) -> None:
        block.save(block.apply(op, block.load(0), axis=axis))

    check_graph(block_graph(fill, shape, dtype=DType.FLOAT32), host_cache)


@pytest.mark.parametrize("op", ["sum", "max"])
def test_folds_of_what_ends_early(op: str, host_cache: Path) -> None:
    def fill(block: BlockBuilder) -> None:
        block.save(block.apply(op, block.load(0, imap=(1,)), axis=-1), omap=(1,))

    check_graph(block_graph(fill, (5, 22), dtype=DType.FLOAT32, grid=(4,)), host_cache)


def test_a_fold_of_a_transposed_view(host_cache: Path) -> None:
    def fill(block: BlockBuilder) -> None:
        block.save(block.apply("sum", block.apply("transpose", block.load(0)), axis=-1))

    check_graph(block_graph(fill, (12, 20), dtype=DType.FLOAT32), host_cache)


def test_a_fold_that_is_read_by_rows_stays_in_registers(host_cache: Path) -> None:
    """x / sum(x): the same threads go over the same rows, so the total needs no shared memory."""

    def fill(block: BlockBuilder) -> None:
        x = block.load(0)
        block.save(x / block.apply("sum", x * x, axis=-1))

    graph = block_graph(fill, (16, 32), dtype=DType.FLOAT32)
    kernel = emit_block(node_of(graph))
    assert kernel.launch.shared_bytes == 0
    assert "block_barrier" not in kernel.body
    check_graph(graph, host_cache)


def test_a_row_shared_by_several_warps_meets_in_shared_memory() -> None:
    def fill(block: BlockBuilder) -> None:
        x = block.load(0)
        block.save(x / block.apply("sum", x * x, axis=-1))

    body = emit_block(node_of(block_graph(fill, (1, 4096)))).body
    assert "block_barrier();" in body
    assert "warp_sum<32>" in body


def test_texts() -> None:
    assert added(Folding.SUM, "a", "b") == "a += b;"
    assert added(Folding.MAX, "a", "b") == "a = maximum(a, b);"
    assert Folding.MAX.neutral == "-infinity()"
    assert Folding.SUM.combine("a", "b") == "a + b"
