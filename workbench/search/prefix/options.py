"""How prefixes are searched, and what all plans of a search read. Invariant: nothing here changes while a search runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from workbench.search.engine import has_products
from workbench.search.palette import Palette, palette_of
from workbench.search.pieces import Pieces, taken_apart
from workbench.search.plans import Plan, plans_of
from workbench.search.prefix.prefixes import Limits
from workbench.search.problem import Problem, problem_of
from workbench.search.pruners.rule import Pruner
from workbench.search.screen import Screen
from workbench.search.space import Space
from workbench.search.verdicts import Verifier
from workbench.ugraph.kernel_graph import KernelGraph


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How prefixes are searched.

    Attributes: pruners; unique: drop a prefix in which a kernel holds two tensors of equal expression; limits: of their
    own, else the space's; keep: a question asked about a prefix (by name) that some rule drops, True to keep it; start: a
    prefix to begin with, by name, all others are left out; quiet: say only what is complete; tests: verify what is
    complete; seconds: of process time, after which every plan ends (`Pruned` with the rule "time").
    """

    pruners: tuple[Pruner, ...] = ()
    unique: bool = True
    limits: Limits | None = None
    keep: Callable[[str], bool] | None = None
    start: str = ""
    quiet: bool = False
    tests: bool = True
    seconds: float | None = None


@dataclass
class Shared:
    """What all plans of a search read; in another process it is made again, once."""

    program: KernelGraph
    space: Space
    seed: int
    verifier: Verifier | None
    options: Options

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle what it is made of."""
        return Shared, (self.program, self.space, self.seed, self.verifier, self.options)

    @cached_property
    def pieces(self) -> Pieces:
        """The program, taken apart where it concatenates or splits."""
        return taken_apart(self.program)

    @cached_property
    def problem(self) -> Problem:
        """The program as expressions."""
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
    def screen(self) -> Screen:
        """The first test of structures."""
        return Screen(self.problem, seed=self.seed)

    def limits(self, plan: Plan) -> Limits:
        """Return the limits in one plan."""
        if self.options.limits is not None:
            return self.options.limits
        kernels = 0
        if self.space.kernel_palette and self.space.mapping == "axes" and has_products(self.problem):
            kernels = max(0, self.space.max_kernel_ops - len(plan.loops))
        return Limits(block=self.space.max_block_ops, kernels=kernels)
