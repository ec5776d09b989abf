"""How much padding the staged operands of products need: rows that nobody sums over are not kept twice.

A tensor core reads 16 rows of the left operand and 8 or 16 columns of the right one; those beyond the tile give rows and
columns of the result that nobody reads. So the last row is read in their place, and the tile has none of them.

Invariant: along the contracted axis, whose products are added up, padding stays, and is zero.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.codegen.cuda.steps import Operand, ProductStep, Section
from workbench.codegen.cuda.tile_storage import SharedTile, matrix_extents, rounded_up

if TYPE_CHECKING:
    from workbench.codegen.cuda.plan import KernelPlan


SWIZZLE_ROWS = 8
"""The pattern of the swizzle repeats after these rows at the latest, so a matrix that starts there is swizzled like the first."""


def is_kept_by_depth(operand: Operand, *, is_left: bool) -> bool:
    """Return True when the rows of an operand's tile run along the contracted axis."""
    assert operand.tile is not None
    return (operand.is_transposed != operand.tile.transposed) == is_left


def trim_operands(plan: KernelPlan) -> None:
    """Take away the padding of staged operands that no product needs."""
    uses: dict[SharedTile, list[tuple[bool, bool, ProductStep]]] = {}
    for section in Section:
        for step in plan.steps[section]:
            for pair in step.operands if isinstance(step, ProductStep) else ():
                assert isinstance(step, ProductStep)
                for operand, is_left in zip(pair, (True, False), strict=True):
                    if operand.tile is not None:
                        by_depth = is_kept_by_depth(operand, is_left=is_left)
                        uses.setdefault(operand.tile, []).append((is_left, by_depth, step))
    for tile in plan.staged.values():
        if tile in uses:
            trim(tile, uses[tile])


def trim(tile: SharedTile, uses: list[tuple[bool, bool, ProductStep]]) -> None:
    """Take away the rows that no product sums over, and the columns that no fragment covers."""
    rows, columns = matrix_extents(tile.shape)
    if tile.transposed:
        rows, columns = columns, rows
    sums_rows = any(by_depth for _, by_depth, _ in uses)
    if not sums_rows:
        tile.rows = rows if tile.matrices == 1 else rounded_up(rows, SWIZZLE_ROWS)
    if all(by_depth and not is_left and step.layout.columns < tile.columns for is_left, by_depth, step in uses):
        tile.columns = tile.stride = rounded_up(columns, 8)
    tile.needs_zero = tile.columns != columns or (sums_rows and tile.rows != rows)
