"""Texts of products: which fragments are loaded, how many multiplications, where results go; right values on the host."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.codegen.cuda.emitting import check_graph
from tests.unit.codegen.cuda.planned import block_graph, node_of, planned
from workbench.codegen.cuda.contraction import (
    is_never_negative,
    matrix_row,
    mma_line,
    plus,
    scale_start,
    store_fragments,
    unscaled_lines,
    zeroed,
)
from workbench.codegen.cuda.kernel import emit_block
from workbench.codegen.cuda.schedule import Schedule, WarpLayout
from workbench.codegen.cuda.steps import ProductStep, Section
from workbench.codegen.cuda.tile_storage import operand_tile, plain_tile
from workbench.core.dtypes import DType
from workbench.ugraph.builder import BlockBuilder
from workbench.ugraph.kernel_graph import KernelGraph


def product(m: int, k: int, n: int, dtype: DType = DType.FLOAT16, lead: tuple[int, ...] = ()) -> KernelGraph:
    return block_graph(lambda b: b.save(b.load(0) @ b.load(1)), (*lead, m, k), (*lead, k, n), dtype=dtype)


def step_of(graph: KernelGraph, layout: WarpLayout) -> ProductStep:
    plan = planned(graph, schedule=Schedule(layouts={"t0": layout}))
    (step,) = (s for s in plan.steps[Section.AFTER] if isinstance(s, ProductStep))
    return step


LAYOUTS = [
    WarpLayout(1, 1, 1),
    WarpLayout(2, 1, 1),
    WarpLayout(1, 2, 1),
    WarpLayout(1, 1, 2),
    WarpLayout(2, 2, 1),
    WarpLayout(1, 2, 2),
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: f"{layout.rows}x{layout.columns}x{layout.depth}")
@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.FLOAT32], ids=lambda dtype: dtype.value)
def test_every_layout_gives_the_same_product(layout: WarpLayout, dtype: DType, host_cache: Path) -> None:
    check_graph(product(20, 64, 32, dtype, (2,)), host_cache, schedule=Schedule(layouts={"t0": layout}))


def test_mma_lines_name_their_places() -> None:
    step = step_of(product(16, 64, 32), WarpLayout(1, 1, 1))
    left, right = step.operands[0]
    assert mma_line(step, left, right, "acc", "2 * nt", 0) == "mma<f16>(acc[0][2 * nt], left[0], right);"
    assert mma_line(step, left, right, "acc", "3", 1) == "mma<f16>(acc[0][3], left[0], right + 2);"
    wide = step_of(product(16, 64, 32, DType.FLOAT32), WarpLayout(1, 1, 1))
    left, right = wide.operands[0]
    assert mma_line(wide, left, right, "acc", "0", 0).startswith(
        "mma_split<true, true>(acc[0][0], left[0], left_low[0]"
    )


def test_results_of_depth_parts_lie_in_slices() -> None:
    step = step_of(product(16, 64, 16), WarpLayout(1, 1, 2))
    tile = plain_tile("out", (16, 16), slices=2, is_product=True)
    text = "\n".join(store_fragments(step.layout, "acc", tile))
    assert "(warp) * 16" in text
    assert "if (warp < 2)" in text


def test_matrices_of_broadcast_factors() -> None:
    tile = operand_tile("t", "f16", (3, 16, 32), transposed=False)
    (left, right), *_ = step_of(product(16, 32, 8, lead=(3,)), WarpLayout(1, 1, 1)).value.pairs
    assert matrix_row(left, tile, (3,)) == "matrix * 16"
    assert matrix_row(left, tile, (2, 3)) == "(matrix % 3) * 16"
    assert matrix_row(right, None, (3,)) == ""
    assert plus("", "0") == "0"
    assert plus("a", "b") == "a + b"


def test_scales_start_large_and_are_undone_by_multiplying() -> None:
    step = step_of(product(16, 64, 32), WarpLayout(1, 1, 1))
    step.scale = "s"
    assert scale_start(step)[0] == "float s[1][2];"
    assert "largest_scale()" in "\n".join(scale_start(step))
    text = "\n".join(unscaled_lines(step))
    assert "const float back = 1.0f / s[0][half];" in text
    assert text.count("*= back") == 1


def test_only_what_cannot_be_negative_is_its_own_magnitude() -> None:
    def value(op: str) -> object:
        return planned(block_graph(lambda b: b.save(b.apply(op, b.load(0))), (4, 8))).lowered.saved[0].operand

    assert is_never_negative(value("exp"))  # type: ignore[arg-type]
    assert not is_never_negative(value("silu"))  # type: ignore[arg-type]


def test_zeroed() -> None:
    assert zeroed("acc", "[1][2][4]") == "float acc[1][2][4] = {};"


def test_concatenations_that_meet_are_one_sum(host_cache: Path) -> None:
    """[A B] [C; D] is A C + B D, in the same accumulators."""

    def fill(block: BlockBuilder) -> None:
        left = block.apply("concat", block.load(0), block.load(1), axis=-1)
        right = block.apply("concat", block.load(2), block.load(3), axis=-2)
        block.save(left @ right)

    graph = block_graph(fill, (16, 32), (16, 16), (32, 8), (16, 8))
    assert "x @ z + y @ u" in emit_block(node_of(graph)).body
    check_graph(graph, host_cache)
