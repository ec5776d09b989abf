"""How warps share a product by default: the split of rows, columns and depth that makes a warp's work least.

Invariant: a layout divides the product's tensor-core tiles evenly, so no warp computes beside the padded result.
"""

from __future__ import annotations

from collections.abc import Iterator

from workbench.codegen.cuda.schedule import WarpLayout
from workbench.codegen.cuda.tile_storage import rounded_up
from workbench.codegen.cuda.walks import ProductLayout
from workbench.errors import EmitError

MAX_ACCUMULATORS = 128
"""Floats of one product that a thread holds by choice."""

MOST_HELD = 160
"""Floats of all products together that a thread can hold beside its addresses; beyond that registers spill."""


def divisors(number: int, most: int) -> list[int]:
    """Return the divisors of a number up to `most`."""
    return [d for d in range(1, min(number, most) + 1) if number % d == 0]


class ProductShape:
    """Extents of a product in tensor-core tiles.

    Attributes: matrices; rows, columns: tiles of 16 rows, and of 16 columns, or of 8 where an odd number of those is
    enough and `is_narrow` allows it; column_tiles: of 8 columns in one of `columns`; depths: steps of each pair's depth.
    """

    def __init__(
        self, matrices: int, rows: int, columns: int, depths: tuple[int, ...], c_type: str, *, is_narrow: bool = False
    ) -> None:
        self.matrices = matrices
        self.depth_step = 8 if c_type == "float" else 16
        self.column_tiles = 1 if is_narrow and rounded_up(columns, 8) % 16 else 2
        self.rows, self.columns = rounded_up(rows, 16) // 16, -(-columns // (8 * self.column_tiles))
        self.depths = tuple(rounded_up(depth, 16) // self.depth_step for depth in depths)

    def layout(self, warps: WarpLayout, block_warps: int) -> ProductLayout:
        """Return the layout of these warp counts, which divide the tiles."""
        return ProductLayout(
            matrices=self.matrices,
            row_tiles=self.rows // warps.rows,
            column_tiles=self.column_tiles * self.columns // warps.columns,
            depth_steps=self.depths[0] // warps.depth,
            depth_step=self.depth_step,
            warp_rows=warps.rows,
            warp_columns=warps.columns,
            warp_depth=warps.depth,
            warps=block_warps,
        )

    def fits(self, warps: WarpLayout, block_warps: int) -> bool:
        """Return True when the counts divide the tiles and the block has the warps."""
        return (
            warps.warps <= block_warps
            and self.rows % warps.rows == 0
            and self.columns % warps.columns == 0
            and all(depth % warps.depth == 0 for depth in self.depths)
        )

    def candidates(self, block_warps: int, *, split_depth: bool) -> Iterator[WarpLayout]:
        """Yield the warp layouts that fit."""
        for rows in divisors(self.rows, block_warps):
            for columns in divisors(self.columns, block_warps // rows):
                most = block_warps // (rows * columns) if split_depth else 1
                for depth in divisors(self.depths[0], most):
                    if self.fits(WarpLayout(rows, columns, depth), block_warps):
                        yield WarpLayout(rows, columns, depth)

    def accumulators(self, warps: WarpLayout) -> int:
        """Return the floats a thread holds."""
        return 4 * self.matrices * (self.rows // warps.rows) * self.column_tiles * (self.columns // warps.columns)

    def work(self, warps: WarpLayout, iterations: int) -> float:
        """Return the instructions of one warp, loads counted double, and its share of adding up slices after the loop."""
        rows, columns = self.rows // warps.rows, self.columns // warps.columns * self.column_tiles / 2
        steps = sum(self.depths) / warps.depth
        inner = self.matrices * steps * (2 * rows + 2 * columns + 2 * rows * columns)
        slices = 16 * self.matrices * rows * columns * (warps.depth - 1) / max(iterations, 1)
        return inner + slices


def default_layout(
    shape: ProductShape, block_warps: int, iterations: int, *, most: int, whole_rows: bool = False
) -> WarpLayout:
    """Return the layout with the least work of a warp whose accumulators fit; the fewest accumulators if none does.

    whole_rows: with no warps side by side along the columns, where that fits, so that each left fragment is one warp's.
    """
    found = list(shape.candidates(block_warps, split_depth=True))
    fitting = [warps for warps in found if shape.accumulators(warps) <= most]
    if whole_rows:
        alone = [warps for warps in fitting if warps.columns == 1]
        busiest = max((warps.warps for warps in alone), default=0)
        if 2 * busiest > block_warps:
            fitting = [warps for warps in alone if warps.warps == busiest]
    if fitting:
        return min(fitting, key=lambda warps: (shape.work(warps, iterations), shape.accumulators(warps), warps.depth))
    return min(found, key=lambda warps: (shape.accumulators(warps), shape.work(warps, iterations)))


def fragment_layout(shape: ProductShape, block_warps: int, *, whole_rows: bool = True) -> WarpLayout:
    """Return the layout for a result that is worked on in registers: whole rows of as many warps as there are.

    whole_rows: False where nothing is folded along the rows before the loop ends; warps then share rows where that makes
    a warp's tile squarer, so that it reads fewer fragments for a multiplication.
    """
    if not whole_rows:
        found = list(shape.candidates(block_warps, split_depth=False))
        most = max(warps.warps for warps in found)
        busy = [w for w in found if w.warps == most and (shape.rows // w.rows <= 2 or w.rows == block_warps)]
        if busy:
            return min(busy, key=lambda warps: (shape.work(warps, 1), warps.columns))
    rows = divisors(shape.rows, block_warps)[-1]
    columns = divisors(shape.columns, block_warps // rows)[-1]
    return WarpLayout(rows, columns, 1)


def check_layout(shape: ProductShape, warps: WarpLayout, block_warps: int, name: str) -> None:
    """Raises: EmitError when a schedule's layout does not divide the product."""
    if not shape.fits(warps, block_warps):
        raise EmitError(
            f"warp layout {warps.rows} x {warps.columns} x {warps.depth} does not divide {shape.rows} x {shape.columns} x "
            f"{shape.depths} tensor-core tiles of {block_warps} warps",
            name,
            "choose divisors, or leave the layout to the plan",
        )
