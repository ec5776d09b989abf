"""How many elements each part of an axis has, for pruners that count elements. Invariant: the parts' product is the axis.

Structures do not depend on extents; the paper's form of expressions does, so one way to cut is taken: the first schedule.
"""

from __future__ import annotations

from workbench.search.expressions import Expressions
from workbench.search.plans import Plan, axis_parts
from workbench.search.schedules import TILE_DEPTH


def part_extents(expressions: Expressions, plan: Plan) -> dict[int, int]:
    """Return the extent of every part, by its mask. A loop has the fewest even iterations whose tile is small enough."""
    result: dict[int, int] = {}
    cut = axis_parts(plan)
    for name, extent in expressions.problem.extents.items():
        parts = cut.get(name)
        if parts is None:
            result[expressions.mask(name)] = extent
            continue
        left = extent
        for axis in (parts.grid, parts.loop):
            if axis is not None:
                count = iterations(left)
                result[expressions.axis_mask(axis)] = count
                left //= count
        result[expressions.axis_mask(parts.tile)] = left
    return result


def iterations(extent: int) -> int:
    """Return the smallest divisor from 2 on that leaves at most `TILE_DEPTH` elements, the extent itself at worst."""
    for count in range(2, extent):
        if extent % count == 0 and extent // count <= TILE_DEPTH:
            return count
    return extent
