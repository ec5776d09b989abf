"""How much an exact computation may take. Invariant: it stops with `BudgetError` soon after a limit, it never hangs."""

from __future__ import annotations

import time
from dataclasses import dataclass

from workbench.errors import BudgetError


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of one proof.

    Attributes: terms: of one polynomial; seconds: wall time of the whole proof; cells: of all piecewise operators;
    expressions: distinct scalar expressions of both programs together.
    """

    terms: int = 40_000
    seconds: float = 10.0
    cells: int = 20_000
    expressions: int = 400_000


class Meter:
    """Counts what is used of a budget, from the moment it is made."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self._start = time.perf_counter()
        self._steps = 0

    @property
    def seconds(self) -> float:
        """Wall time used so far."""
        return time.perf_counter() - self._start

    @property
    def left_s(self) -> float:
        """Wall time left, at least 0."""
        return max(0.0, self.budget.seconds - self.seconds)

    def spend(self, steps: int = 1) -> None:
        """Count steps (products of terms) and look at the clock now and then. Raises: BudgetError when time is up."""
        self._steps += steps
        if self._steps >= 20_000:
            self._steps = 0
            self.check()

    def check(self) -> None:
        """Raises: BudgetError when time is up."""
        if self.seconds > self.budget.seconds:
            raise BudgetError(f"the time of {self.budget.seconds:g} s is used up; give a larger `Budget(seconds=...)`")

    def hold(self, terms: int) -> None:
        """Raises: BudgetError when a polynomial has more terms than the budget allows."""
        if terms > self.budget.terms:
            raise BudgetError(
                f"a polynomial of {terms} terms exceeds the budget of {self.budget.terms}; give a larger `Budget(terms=...)`"
            )
