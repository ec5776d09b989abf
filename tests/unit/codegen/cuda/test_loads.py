"""Copies of input tiles: the widest access that every row allows, right values for every layout of an input."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.codegen.cuda.emitting import check_graph
from workbench.codegen.cuda.kernel import emit_block
from workbench.codegen.cuda.loads import matrix_index
from workbench.core.dtypes import DType
from workbench.core.layouts import Strides
from workbench.ugraph.builder import KernelBuilder
from workbench.ugraph.kernel_graph import KernelGraph


def product_of(shape: tuple[int, int], strides: Strides, dtype: DType, *, loop: int = 1, grid: int = 1) -> KernelGraph:
    """X W with an X of these strides, its rows cut over the grid, its columns looped."""
    kernel = KernelBuilder("loads")
    x, w = kernel.input("X", shape, dtype, strides), kernel.input("W", (shape[1], 16), dtype)
    block = kernel.block(x, w, grid=(grid,), loop=loop)
    block.save(block.accumulate(block.load(0, imap=(0,), fmap=1) @ block.load(1, fmap=0)), omap=(0,))
    kernel.output(*block.finish(name="loads"))
    return kernel.build()


@pytest.mark.parametrize(
    ("strides", "dtype", "how"),
    [
        ((64, 1), DType.FLOAT16, "cp.async of 16 bytes"),
        ((68, 1), DType.FLOAT16, "cp.async of 8 bytes"),
        ((66, 1), DType.FLOAT16, "cp.async of 4 bytes"),
        ((65, 1), DType.FLOAT16, "element by element"),
        ((65, 1), DType.FLOAT32, "cp.async of 4 bytes"),
        ((130, 2), DType.FLOAT16, "element by element"),
        ((1, 16), DType.FLOAT16, "kept as its transpose"),
        ((1, 17), DType.BFLOAT16, "kept as its transpose"),
    ],
)
def test_the_widest_copy_that_rows_allow(strides: Strides, dtype: DType, how: str, host_cache: Path) -> None:
    graph = product_of((16, 64), strides, dtype, loop=2)
    assert how in emit_block(graph.graph_defined[0]).body
    check_graph(graph, host_cache)


@pytest.mark.parametrize(("rows", "grid", "loop"), [(13, 4, 3), (5, 8, 1), (16, 3, 7)])
def test_tiles_that_end_early_are_zero_beyond(rows: int, grid: int, loop: int, host_cache: Path) -> None:
    for strides in ((72, 1), (71, 1), (1, rows)):
        check_graph(product_of((rows, 70), strides, DType.FLOAT16, loop=loop, grid=grid), host_cache)


def test_matrix_index() -> None:
    assert matrix_index((4,), 0) == "matrix"
    assert matrix_index((2, 3), 0) == "(matrix / 3)"
    assert matrix_index((2, 3), 1) == "(matrix % 3)"
    assert matrix_index((2, 3, 5), 1) == "((matrix / 5) % 3)"
