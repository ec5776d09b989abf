"""What all units of a search read of a program. Invariant: in another process it is made once, not once a unit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from workbench.search.expressions import Expressions
from workbench.search.palette import Palette, palette_of
from workbench.search.pieces import Pieces, taken_apart
from workbench.search.plans import AxisParts, PartsKey, Plan, folds_of_parts, plans_of
from workbench.search.problem import Problem, problem_of
from workbench.search.screen import Screen
from workbench.search.space import Space
from workbench.search.uncut import fewer_parts
from workbench.ugraph.kernel_graph import KernelGraph


@dataclass
class Shared:
    """A program and the space it is searched in; either engine's units read it."""

    program: KernelGraph
    space: Space
    seed: int
    _expressions: dict[PartsKey, Expressions] = field(default_factory=dict, repr=False, compare=False)

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

    def kernels_beside(self, block_graphs: int) -> int:
        """Return how many predefined kernels may stand beside so many block graphs."""
        if not self.space.kernel_palette or not self.has_products:
            return 0
        return max(0, self.space.max_kernel_ops - block_graphs)

    def expressions(self, parts: Mapping[str, AxisParts]) -> Expressions:
        """Return the expressions of all plans that cut the same axes into the same parts, closed and trimmed."""
        key = tuple(parts.items())
        if key not in self._expressions:
            images = [(self.expressions(fewer), names) for fewer, names in fewer_parts(parts)]
            images.sort(key=lambda image: len(image[0].makings))
            block_graphs = 2 if len(parts) > 1 or any(part.grid for part in parts.values()) else 1
            self._expressions[key] = (
                Expressions(
                    self.problem,
                    self.palette,
                    parts,
                    folds_of_parts(self.problem, parts),
                    limit=self.space.max_block_ops + self.kernels_beside(block_graphs),
                    outer_products=self.space.outer_products or self.problem.has_outer_products,
                    images=images,
                )
                .close()
                .trim()
            )
        return self._expressions[key]

    @cached_property
    def screen(self) -> Screen:
        """The first test of structures."""
        return Screen(self.problem, seed=self.seed)


@lru_cache(maxsize=1)
def _once(program: KernelGraph, space: Space, seed: int) -> Shared:
    return Shared(program, space, seed)
