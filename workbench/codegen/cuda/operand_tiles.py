"""How much padding the staged operands of products need: rows that nobody sums over are not kept twice.

A tensor core reads 16 rows of the left operand and 8 or 16 columns of the right one; those beyond the tile give rows and
columns of the result that nobody reads. So the last row is read in their place, and the tile has none of them.

Invariant: along the contracted axis, whose products are added up, padding stays, and is zero.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.codegen.cuda.emitted import C_TYPES
from workbench.codegen.cuda.steps import Operand, ProductStep, Section
from workbench.codegen.cuda.tile_storage import SharedTile, input_tile, matrix_extents, operand_tile, rounded_up
from workbench.codegen.cuda.tile_values import Loaded
from workbench.core.layouts import SharedLayout

if TYPE_CHECKING:
    from workbench.codegen.cuda.plan import KernelPlan


SWIZZLE_ROWS = 8
"""The pattern of the swizzle repeats after these rows at the latest, so a matrix that starts there is swizzled like the first."""


def is_kept_by_depth(operand: Operand, *, is_left: bool) -> bool:
    """Return True when the rows of an operand's tile run along the contracted axis."""
    assert operand.tile is not None
    return (operand.is_transposed != operand.tile.transposed) == is_left


def staged_tile(value: Loaded, variable: str, *, is_operand: bool, layout: SharedLayout | None = None) -> SharedTile:
    """Return the shared tile of an input: its rows run as chosen, else along the axis that is contiguous in device memory."""
    strides, shape = value.tensor.strides, value.shape
    by_columns = value.rank >= 2 and strides[-2] == 1 and shape[-2] > 1 and (strides[-1] != 1 or shape[-1] == 1)
    if layout is not None and value.rank >= 2 and min(shape[-2:]) > 1:
        by_columns = layout.innermost == -2
    build = operand_tile if is_operand else input_tile
    return build(variable, C_TYPES[value.dtype], shape, transposed=by_columns)


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
