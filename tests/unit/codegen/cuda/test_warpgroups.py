"""Products by warpgroups: chosen where a tile is one swizzled span, the same numbers on the host by mma."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.codegen.cuda.emitting import check_graph
from tests.unit.codegen.cuda.planned import attention, block_graph, node_of
from workbench.codegen.cuda.kernel import emit_block
from workbench.codegen.cuda.layouts import ProductShape
from workbench.codegen.cuda.warpgroups import warpgroup_layout
from workbench.core.dtypes import DType
from workbench.ugraph.builder import BlockBuilder
from workbench.ugraph.kernel_graph import KernelGraph


def product(block: BlockBuilder) -> None:
    block.save(block.accumulate(block.load(0, fmap=1) @ block.load(1, fmap=0)))


def is_by_warpgroups(graph: KernelGraph) -> bool:
    return "warpgroup_mma" in emit_block(node_of(graph)).body


@pytest.mark.parametrize(
    ("rows", "depth", "columns", "dtype", "expected"),
    [
        (64, 128, 64, DType.FLOAT16, True),
        (64, 128, 32, DType.BFLOAT16, True),
        (50, 64, 16, DType.FLOAT16, True),
        (64, 128, 64, DType.FLOAT32, False),
        (64, 128, 48, DType.FLOAT16, False),
        (16, 128, 64, DType.FLOAT16, False),
    ],
)
def test_where_they_are_chosen(
    rows: int, depth: int, columns: int, dtype: DType, expected: bool, host_cache: Path
) -> None:
    graph = block_graph(product, (rows, depth), (depth, columns), loop=2, dtype=dtype)
    assert is_by_warpgroups(graph) is expected
    check_graph(graph, host_cache)


def test_two_products_that_follow_each_other(host_cache: Path) -> None:
    graph = block_graph(attention, (64, 64), (64, 128), (128, 64), loop=2)
    assert is_by_warpgroups(graph)
    check_graph(graph, host_cache)


def test_a_right_factor_that_ends_early_is_zero_beyond(host_cache: Path) -> None:
    check_graph(block_graph(product, (64, 100), (100, 64), loop=2), host_cache)
    check_graph(block_graph(attention, (64, 32), (32, 100), (100, 32), loop=2), host_cache)


def test_layouts_have_whole_groups() -> None:
    shape = ProductShape(1, 128, 64, (64,), "f16")
    made = warpgroup_layout(shape, 8, split_depth=False, most=128)
    assert made is not None
    assert (made.rows % 4, made.columns) == (0, 1)
    assert warpgroup_layout(ProductShape(1, 16, 64, (64,), "f16"), 4, split_depth=False, most=128) is None
