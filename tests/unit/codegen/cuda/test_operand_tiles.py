"""Staged operands without padding: short tiles are read at their last row, odd ones eight columns at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.codegen.cuda.emitting import check_graph
from workbench.codegen.cuda.kernel import emit_block
from workbench.codegen.cuda.schedule import Schedule, WarpLayout
from workbench.core.dtypes import DType
from workbench.core.layouts import column_major_strides
from workbench.ugraph.builder import KernelBuilder
from workbench.ugraph.kernel_graph import KernelGraph


def product(
    m: int, k: int, n: int, *, grid: int = 1, loop: int = 1, dtype: DType = DType.FLOAT16, lead: tuple[int, ...] = (),
    by_columns: str = "", computed: bool = False,
) -> KernelGraph:  # fmt: skip
    """X W, an operand kept by columns where `by_columns` names it; `computed`: the left one is silu(X)."""
    kernel = KernelBuilder("product")
    shapes = {"X": (*lead, m, k), "W": (*lead, k, n)}
    inputs = []
    for name, shape in shapes.items():
        strides = column_major_strides(shape) if name in by_columns else None
        inputs.append(kernel.input(name, shape, dtype, strides))
    block = kernel.block(*inputs, grid=(grid,), loop=loop)
    last = len(lead) + 1
    x = block.load(0, fmap=last)
    w = block.load(1, imap=(last,), fmap=last - 1)
    left = block.apply("silu", x) if computed else x
    block.save(block.accumulate(left @ w), omap=(last,))
    kernel.output(*block.finish(names=["O"], name="product"))
    return kernel.build()


@pytest.mark.parametrize(
    ("m", "k", "n", "options"),
    [
        (2, 64, 8, {}),
        (1, 40, 24, {"loop": 2}),
        (7, 100, 33, {"grid": 3, "loop": 3}),
        (17, 48, 72, {"grid": 3}),
        (2, 64, 9, {"by_columns": "W"}),
        (3, 64, 40, {"by_columns": "X", "loop": 2}),
        (5, 32, 20, {"by_columns": "XW", "loop": 2}),
        (3, 24, 5, {"lead": (2, 3)}),
        (3, 24, 5, {"lead": (2,), "by_columns": "W"}),
        (2, 64, 8, {"computed": True, "loop": 2}),
        (2, 64, 8, {"dtype": DType.FLOAT32}),
        (9, 24, 21, {"dtype": DType.FLOAT32, "by_columns": "W", "lead": (2,)}),
        (3, 20, 8, {"dtype": DType.BFLOAT16, "loop": 2}),
    ],
)
def test_small_and_ragged_products(m: int, k: int, n: int, options: dict[str, object], host_cache: Path) -> None:
    check_graph(product(m, k, n, **options), host_cache)  # type: ignore[arg-type]  # options are product's keywords


def test_a_tile_that_is_both_operands_keeps_its_padding(host_cache: Path) -> None:
    """X^T X sums over the rows of X, so rows that are not there must be zero."""
    kernel = KernelBuilder("gram")
    x = kernel.input("X", (5, 24))
    block = kernel.block(x)
    tile = block.load(0)
    block.save(block.apply("transpose", tile) @ tile)
    block.save(tile @ block.apply("transpose", tile))
    kernel.output(*block.finish(names=["columns", "rows"], name="gram"))
    check_graph(kernel.build(), host_cache)


def test_rows_of_an_odd_product_are_read_beyond_its_tiles(host_cache: Path) -> None:
    """The fragments of a 3 x 5 product reach beyond the tiles of X and W, which it also reads element by element."""
    kernel = KernelBuilder("mixed")
    x, w = kernel.input("X", (3, 3)), kernel.input("W", (3, 5))
    block = kernel.block(x, w, loop=1)
    a, b = block.load(0), block.load(1)
    block.save((a @ b) * b)
    kernel.output(*block.finish(names=["O"], name="mixed"))
    check_graph(kernel.build(), host_cache)


def test_fragments_read_a_tile_through_an_axis_of_one(host_cache: Path) -> None:
    """sum_to_columns leaves [17, 1, 8]; 17 rows of fragments are 32, and read it along its first axis."""
    kernel = KernelBuilder("columns")
    x, w, y = kernel.input("X", (17, 16)), kernel.input("W", (16, 8)), kernel.input("Y", (17, 24))
    block = kernel.block(x, w, y)
    product = block.load(0) @ block.load(1)
    block.save(product + block.apply("sum_to_columns", block.load(2), columns=8))
    kernel.output(*block.finish(names=["O"], name="columns"))
    check_graph(kernel.build(), host_cache)


def test_shared_memory_holds_the_rows_that_exist() -> None:
    """Without a loop, X [2, 4096] and eight columns of W fit: 16 KB and 64 KB, not 128 KB each."""
    notes = "\n".join(emit_block(product(2, 4096, 8).graph_defined[0]).notes)
    assert "x [2, 4096] of X: staged in shared memory (16,384 B)".lower() in notes.lower()
    assert "[4096, 8] of W: staged in shared memory (65,536 B)" in notes


def test_an_odd_number_of_column_tiles_costs_no_more_than_it_must() -> None:
    """24 columns are three tensor-core tiles: a pair and a single one."""
    alone = Schedule(layouts={"t0": WarpLayout(1, 1, 4)})
    body = emit_block(product(16, 64, 24).graph_defined[0], schedule=alone).body
    assert body.count("load_b_pair(") == 1
    assert body.count("load_b(") == 1
