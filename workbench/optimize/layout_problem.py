"""The layout problem as data: what may be chosen, which rules must hold, what each choice costs.

In 0/1 form a variable B[t, l] is 1 where tensor t has layout l: exactly one per tensor; a rule forbids sets of choices, a
price is paid for sets of choices (Mirage OSDI'25, section 6). Invariant: costs are whole numbers of at least 0, so that
every solver adds them exactly; a choice is what `Variable.options` lists, in that order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod

import numpy as np
import numpy.typing as npt

from workbench.errors import LayoutConflictError

Costs = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Variable:
    """Something to be chosen: the layout of a tensor, or how threads walk over an operator's elements."""

    name: str
    options: tuple[object, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """Choices that are allowed together: `allowed` has one axis per variable of `scope`. `where`: node or tensor."""

    name: str
    where: str
    scope: tuple[int, ...]
    allowed: Mask


@dataclass(frozen=True, slots=True, eq=False)
class Price:
    """What choices cost together: `costs` has one axis per variable of `scope`."""

    name: str
    where: str
    scope: tuple[int, ...]
    costs: Costs


@dataclass(slots=True)
class LayoutProblem:
    """Variables, rules and prices."""

    variables: list[Variable] = field(default_factory=list)
    rules: list[Rule] = field(default_factory=list)
    prices: list[Price] = field(default_factory=list)

    @property
    def cases(self) -> int:
        """Number of ways to choose, rules left out."""
        return prod(len(variable.options) for variable in self.variables)

    def add(self, name: str, options: Sequence[object]) -> int:
        """Add a variable and return its number."""
        self.variables.append(Variable(name, tuple(options)))
        return len(self.variables) - 1

    def demand(self, name: str, where: str, scope: Sequence[int], holds: Callable[..., bool]) -> None:
        """Add a rule, `holds` of the options of `scope`; one that always holds is left out."""
        options = [self.variables[number].options for number in scope]
        allowed = np.array([holds(*choice) for choice in product(*options)], dtype=np.bool_)
        if not allowed.all():
            self.rules.append(Rule(name, where, tuple(scope), allowed.reshape([len(each) for each in options])))

    def charge(self, name: str, where: str, scope: Sequence[int], cost: Callable[..., int]) -> None:
        """Add a price, `cost` of the options of `scope`; one that is always 0 is left out."""
        options = [self.variables[number].options for number in scope]
        costs = np.array([cost(*choice) for choice in product(*options)], dtype=np.int64)
        if costs.any():
            self.prices.append(Price(name, where, tuple(scope), costs.reshape([len(each) for each in options])))

    def is_allowed(self, choice: Sequence[int]) -> bool:
        """Return True when a choice (an option number per variable) breaks no rule."""
        return all(bool(rule.allowed[tuple(choice[number] for number in rule.scope)]) for rule in self.rules)

    def cost(self, choice: Sequence[int]) -> int:
        """Return what a choice costs."""
        return sum(int(price.costs[tuple(choice[number] for number in price.scope)]) for price in self.prices)

    def cost_by_name(self, choice: Sequence[int]) -> dict[str, int]:
        """Return what a choice costs, by the name of the price."""
        found: dict[str, int] = {}
        for price in self.prices:
            paid = int(price.costs[tuple(choice[number] for number in price.scope)])
            found[price.name] = found.get(price.name, 0) + paid
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """A choice that breaks no rule.

    Attributes: choice: an option number per variable; cost; is_optimal: False where time ran out first; solver: its name.
    """

    choice: tuple[int, ...]
    cost: int
    is_optimal: bool
    solver: str


def smallest_conflict(problem: LayoutProblem, is_feasible: Callable[[LayoutProblem], bool]) -> LayoutConflictError:
    """Return the error that names a set of rules of an infeasible problem, none of which can be left out."""
    kept = list(problem.rules)
    for rule in problem.rules:
        rest = [other for other in kept if other is not rule]
        if not is_feasible(LayoutProblem(problem.variables, rest, [])):
            kept = rest
    return LayoutConflictError(tuple((rule.name, rule.where) for rule in kept))
