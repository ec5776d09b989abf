"""Products that four warps do together: Hopper's wgmma with the left factor in registers, the right one in shared memory.

    left fragments of all depth steps (ldmatrix, or the fragments of the product before)
    warpgroup_begin; 64 x columns += left x tile, for each depth step; warpgroup_arrive; warpgroup_end

A warp's share of the result lies as with mma, so that everything around the product stays as it is; elsewhere than on
sm_90a the same text multiplies by mma. Invariant: the tile holds nothing but the product's right factor, its rows are
one swizzled span of 32, 64 or 128 bytes, and it was filled by asynchronous copies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.codegen.cuda.schedule import WarpLayout
from workbench.codegen.cuda.steps import ProductStep, Section
from workbench.codegen.cuda.tile_values import Contracted, Loaded
from workbench.codegen.cuda.value_paths import peeled
from workbench.ugraph.inference import Place

if TYPE_CHECKING:
    from workbench.codegen.cuda.layouts import ProductShape
    from workbench.codegen.cuda.plan import KernelPlan

GROUP = 4
"""Warps of a warpgroup."""

WIDTHS = (16, 32, 64)
"""Columns of a product: elements of 16 bits in one swizzled span."""

MOST_DEPTH = 8
"""Depth steps whose left fragments a thread holds at a time."""


def suits_warpgroups(value: Contracted, c_type: str) -> bool:
    """Return True when a product's right factor is a tile, copied in every iteration, that warpgroups can read."""
    if len(value.pairs) != 1 or c_type not in ("f16", "bf16") or value.place is not Place.LOOP:
        return False
    base, is_transposed = peeled(value.pairs[0][1])
    if not isinstance(base, Loaded) or base.place is not Place.LOOP or base.rank < 2 or is_transposed:
        return False
    depth, width = base.shape[-2:]
    is_row_major = base.tensor.strides[-1] == 1 and base.shape[-1] > 1
    return is_row_major and width in WIDTHS and depth % 16 == 0 and value.shape[-1] == width


def warpgroup_layout(shape: ProductShape, block_warps: int, *, split_depth: bool, most: int) -> WarpLayout | None:
    """Return the layout with the most warps whose groups of four share their columns, None if there is none."""
    found = [
        warps
        for warps in shape.candidates(block_warps, split_depth=split_depth)
        if warps.rows % GROUP == 0 and warps.columns == 1 and shape.accumulators(warps) <= most
        and shape.depths[0] // warps.depth <= MOST_DEPTH
    ]  # fmt: skip
    busiest = max((warps.warps for warps in found), default=0)
    if 2 * busiest <= block_warps:
        return None
    return min((w for w in found if w.warps == busiest), key=lambda warps: warps.depth)


def choose_warpgroups(plan: KernelPlan) -> None:
    """Mark the products that warpgroups do: those whose layout has whole groups, each over all columns."""
    for step in plan.steps[Section.LOOP]:
        if isinstance(step, ProductStep) and not step.is_joined:
            group = [step, *step.joined]
            if all(is_done_by_warpgroups(plan, one) for one in group):
                for one in group:
                    one.is_warpgroup = True


def is_done_by_warpgroups(plan: KernelPlan, step: ProductStep) -> bool:
    """Return True for a product that can be written with `warpgroup_mma`."""
    layout, (left, right) = step.layout, step.operands[0]
    return (
        suits_warpgroups(step.value, step.c_type)
        and len(step.operands) == 1
        and left.prologue is None
        and right.tile is not None
        and right.tile.is_looped
        and right.tile.swizzle
        and not right.tile.transposed
        and right.tile.columns == right.tile.stride == 8 * layout.column_tiles
        and layout.matrices == 1
        and layout.warp_columns == 1
        and layout.warp_rows % GROUP == 0
        and layout.depth_steps <= MOST_DEPTH
        and plan.warps % GROUP == 0
    )


def has_warpgroups(plan: KernelPlan) -> bool:
    """Return True when some product is done by warpgroups, which see copies only behind a fence."""
    return any(isinstance(step, ProductStep) and step.is_warpgroup for step in plan.steps[Section.LOOP])
