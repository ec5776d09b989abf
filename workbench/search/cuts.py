"""What a plan makes of axes: which part a block of each kernel holds, its loop's part, the part split over blocks.

Invariant: everything follows from the axes along which a tensor varies (a mask); two tensors with the same axes are
treated alike.
"""

from __future__ import annotations

from workbench.search.expressions import Expressions
from workbench.search.palette import Effect, Operator
from workbench.search.places import Place
from workbench.search.plans import Plan, axis_parts


class Cuts:
    """The parts of axes in one plan.

    Attributes: expressions, plan; grid: the part split over blocks, as a mask; loops: per kernel the loop's part; whole:
    per reduced axis all its parts; tiles: per kernel and reduced axis what a block holds at once.
    """

    def __init__(self, expressions: Expressions, plan: Plan) -> None:
        """Cut the axes."""
        self.expressions, self.plan = expressions, plan
        self.algebra = expressions.algebra
        parts = axis_parts(plan)
        split = parts[plan.split] if plan.split else None
        self.grid = expressions.axis_mask(split.grid) if split else 0
        self.loops = [expressions.axis_mask(parts[loop].loop) if loop else 0 for loop in plan.loops]
        self.whole = {name: expressions.mask(name) for name in expressions.problem.reduced}
        self.tiles = [
            {name: mask & ~loop & ~(self.grid if kernel == 0 else 0) for name, mask in self.whole.items()}
            for kernel, loop in enumerate(self.loops)
        ]

    def has_partial(self, mask: int) -> bool:
        """Return whether what varies along some axes is what one of several blocks along the split axis left."""
        return bool(self.plan.split and mask & self.grid and self.whole[self.plan.split] & ~mask)

    def has_loop(self, mask: int, kernel: int) -> bool:
        """Return whether what varies along some axes changes with the iteration of a kernel."""
        return bool(mask & self.loops[kernel])

    def is_open(self, mask: int, kernel: int) -> bool:
        """Return whether a tile cannot be stored: it changes with the iteration, or a split axis is folded in part."""
        if self.has_loop(mask, kernel):
            return True
        if not self.has_partial(mask):
            return False
        return kernel == 1 or mask & self.whole[self.plan.split or ""] != self.grid

    def kind_of(self, operator: Operator, mask: int, axis: str, kernel: int, operand_mask: int) -> str | None:
        """Return how a block of a kernel folds a mask ("operator", "accumulate", "combine"), None if it cannot."""
        if not mask:
            return "operator" if self._completes(operator, kernel) else None
        effect, tile, loop = operator.effect, self.tiles[kernel].get(axis, 0), self.loops[kernel]
        if effect is Effect.WHOLE or (effect is Effect.FOLD and operator.counts):
            if mask == tile:
                return "operator"
            folds = effect is Effect.FOLD and operator.folds_with_loop
            return "accumulate" if folds and loop and mask == tile | loop else None
        if axis and mask == tile:
            return "operator"
        if effect is Effect.CONTRACT:
            return None
        if loop and mask in (loop, tile | loop) and mask & loop and operator.folds_with_loop:
            # a loop alone is listed once, under no axis
            return "accumulate" if (mask == loop) == (not axis) else None
        if kernel == 1 and self.grid and mask == self.grid:
            return "combine" if self.has_partial(operand_mask) else None
        return None

    def _completes(self, operator: Operator, kernel: int) -> bool:
        """Return False for the scale that completes a mean over a split axis, elsewhere than after the split."""
        return not operator.completes or (kernel == 1 and operator.completes == self.plan.split)

    def folds_again(self, place: Place, axis: str | None) -> bool:
        """Return whether the second block graph folds an axis that the first loops over, where one of them can do both.

        Inputs alone are folded early; and a block graph without a loop holds the axis whole, for all that is folded.
        """
        if place.kernel != 1 or axis is None or axis != self.plan.loops[0]:
            return False
        return not place.is_dependent or self.plan.loops[1] is None
