"""What all units of a search read of a program. Invariant: in another process it is made once, not once a unit."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

from workbench.search.palette import Palette, palette_of
from workbench.search.pieces import Pieces, taken_apart
from workbench.search.plans import Plan, plans_of
from workbench.search.problem import Problem, problem_of
from workbench.search.screen import Screen
from workbench.search.space import Space
from workbench.ugraph.kernel_graph import KernelGraph


@dataclass
class Shared:
    """A program and the space it is searched in; either engine's units read it."""

    program: KernelGraph
    space: Space
    seed: int

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle what it is made of."""
        return _once, (self.program, self.space, self.seed)

    @cached_property
    def pieces(self) -> Pieces:
        """The program, taken apart where it concatenates or splits."""
        return taken_apart(self.program)

    @cached_property
    def problem(self) -> Problem:
        """The program as expressions. Raises: NotApplicableError for a program that has none."""
        return problem_of(self.pieces.core)

    @cached_property
    def plans(self) -> tuple[Plan, ...]:
        """What is chosen first."""
        return tuple(plans_of(self.problem, self.space))

    @cached_property
    def palette(self) -> Palette:
        """The operators."""
        return palette_of(self.problem, self.space)

    @cached_property
    def has_products(self) -> bool:
        """True if a matrix product can occur: two inputs share an axis that is folded, and one has another besides."""
        axes = [frozenset(name for dim in start.dims for name in dim) for start in self.problem.starts]
        return any(
            one != two and name in one and name in two for one in axes for two in axes for name in self.problem.reduced
        )

    @cached_property
    def screen(self) -> Screen:
        """The first test of structures."""
        return Screen(self.problem, seed=self.seed)


@lru_cache(maxsize=1)
def _once(program: KernelGraph, space: Space, seed: int) -> Shared:
    return Shared(program, space, seed)
