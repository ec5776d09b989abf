"""What is chosen before values are closed: how many block graphs, the axis each loops over, the axis split over blocks.

Invariant: a structure belongs to one plan, so plans are searched one after the other and share nothing but expressions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

from workbench.domains.abstract_expr import Axis, Part
from workbench.search.problem import Problem
from workbench.search.space import Space


@dataclass(frozen=True, slots=True)
class Plan:
    """One choice of loops and split.

    Attributes: loops: per block graph the axis it loops over, None for no loop; split: the reduced axis whose blocks of
    the first block graph leave partial results that the second sums, None if there is none.
    """

    loops: tuple[str | None, ...]
    split: str | None = None

    def describe(self) -> str:
        """Return the choice in a few words."""
        loops = ", ".join(loop or "none" for loop in self.loops)
        return f"loops {loops or 'none'}" + (f", {self.split} split over blocks" if self.split else "")

    __str__ = describe


@dataclass(frozen=True, slots=True)
class AxisParts:
    """The parts a plan cuts an axis into; `all` in order, outermost first."""

    grid: Axis | None
    loop: Axis | None
    tile: Axis

    @property
    def all(self) -> tuple[Axis, ...]:
        """Every part."""
        return tuple(axis for axis in (self.grid, self.loop, self.tile) if axis is not None)


PartsKey = tuple[tuple[str, AxisParts], ...]
"""The axes that are cut and their parts, as a key."""


def plans_of(problem: Problem, space: Space) -> Iterator[Plan]:
    """Yield the plans: one block graph first, then two; loops and splits over the axes that the program folds.

    Of two block graphs the first always loops (`chains` says why the others are left out), or, with all chains, need not.
    """
    axes = problem.reduced
    kept = set.intersection(*({name for dim in goal.dims for name in dim} for goal in problem.goals))
    if space.max_block_graphs >= 1:
        for loop in (None, *(axis for axis in axes if axis not in kept)):
            yield Plan((loop,))
    if space.max_block_graphs < 2:
        return
    free = {name for goal in problem.goals for dim in goal.dims for name in dim}
    every: tuple[str | None, ...] = (None, *axes)
    last = tuple(axis for axis in every if axis not in kept)  # what the last one loops over it cannot store
    for first in axes if space.chains == "needed" else every:
        for second in last:
            if space.chains == "all" or second is not None or first in free or len(problem.goals) > 1:
                yield Plan((first, second))
    for split in axes:
        for first in (split,) if space.chains == "needed" else every:
            for second in last:
                yield Plan((first, second), split)


def axis_parts(plan: Plan) -> dict[str, AxisParts]:
    """Return the parts of every axis that a plan cuts."""
    result = {}
    for name in sorted({loop for loop in (*plan.loops, plan.split) if loop is not None}):
        loop = Axis(name, Part.LOOP) if name in plan.loops else None
        grid = Axis(name, Part.GRID) if plan.split == name else None
        result[name] = AxisParts(grid, loop, Axis(name, Part.TILE))
    return result


def folds_of(problem: Problem, plans: list[Plan]) -> Iterator[tuple[str, tuple[Axis, ...]]]:
    """Yield what one operator of some block graph, or a predefined kernel, may fold at once: (axis, its parts).

    "" stands for a loop alone, which an accumulator folds whatever its axis.
    """
    for plan in plans:
        parts = axis_parts(plan)
        for name in problem.reduced:
            part = parts.get(name)
            every = part.all if part else (Axis(name),)
            yield name, every
            for kernel, looped in enumerate(plan.loops):
                loop = parts[looped].loop if looped else None
                held = tuple(a for a in every if a != loop and not (part and kernel == 0 and a == part.grid))
                yield name, held
                if loop is not None:
                    yield name, (*held, loop)
                    yield "", (loop,)
            if part and part.grid:
                yield name, (part.grid,)


def folds_of_parts(problem: Problem, parts: Mapping[str, AxisParts]) -> Iterator[tuple[str, tuple[Axis, ...]]]:
    """Yield what one operator may fold at once in any plan that cuts axes into these parts, as `folds_of`.

    What a block holds of an axis, alone or together with the iterations of a loop over any axis.
    """
    loops = [part.loop for part in parts.values() if part.loop]
    for name in problem.reduced:
        part = parts.get(name)
        every: list[tuple[Axis, ...]] = [(Axis(name),)]
        if part is not None:
            outer = [axis for axis in (part.grid, part.loop) if axis]
            every = [(*chosen, part.tile) for n in range(len(outer) + 1) for chosen in combinations(outer, n)]
            if part.grid:
                yield name, (part.grid,)
        for held in every:
            yield name, held
            for loop in loops:
                if loop not in held:
                    yield name, (*held, loop)
    for loop in loops:
        yield "", (loop,)
