"""Whether strict polynomial inequalities have a common solution, asked of Z3 where it is installed.

Invariant: "infeasible" is Z3's proof over the reals with exponentials (of which it knows e^a > 0 and e^a >= 1 + a) and opaque
values taken as free unknowns, so it holds a fortiori; "feasible" brings values for the unknowns that may belong to no real
point.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Literal

from workbench.domains.exact_polynomial import Polynomial, monomial, unpack
from workbench.domains.exact_ring import Ring

ENCLOSURE = Fraction(1, 10**12)
"""Relative width of the intervals that stand for constants such as e and sqrt 2; their float64 values are far closer."""

Answer = Literal["feasible", "infeasible", "unknown"]


def ask_z3(ring: Ring, positive: Sequence[Polynomial], *, seconds: float) -> tuple[Answer, dict[int, Fraction]]:
    """Return whether all polynomials (without reciprocals) can be positive at once, and values of generators if so."""
    if importlib.util.find_spec("z3") is None:
        return "unknown", {}
    return _Question(ring, importlib.import_module("z3")).ask(positive, seconds)


class _Question:
    def __init__(self, ring: Ring, z3: Any) -> None:
        self.ring, self.z3 = ring, z3
        self.generators: dict[int, Any] = {}
        self.exponentials: dict[int, Any] = {}
        self.roots: dict[int, Any] = {}
        self.conditions: list[Any] = []

    def ask(self, positive: Sequence[Polynomial], seconds: float) -> tuple[Answer, dict[int, Fraction]]:
        solver = self.z3.SolverFor("QF_NRA")
        solver.set("timeout", max(1, int(1000 * seconds)))
        inequalities = [self._sum(polynomial) > 0 for polynomial in positive]
        solver.add(*inequalities, *self.conditions)
        answer = solver.check()
        if answer == self.z3.unsat:
            return "infeasible", {}
        if answer != self.z3.sat:
            return "unknown", {}
        model = solver.model()
        values = {}
        for index, unknown in self.generators.items():
            value = model.eval(unknown, model_completion=True)
            if self.z3.is_algebraic_value(value):
                value = value.approx(20)
            values[index] = Fraction(value.numerator_as_long(), value.denominator_as_long())
        return "feasible", values

    def _sum(self, polynomial: Polynomial) -> Any:
        total = self.z3.RealVal(0)
        for (powers, roots, exponent), coefficient in polynomial.terms.items():
            fraction = Fraction(coefficient)
            term = self.z3.Q(fraction.numerator, fraction.denominator)
            for index, power in unpack(powers):
                for _ in range(abs(power)):
                    unknown = self._generator(index)
                    term = term * unknown if power > 0 else term / unknown
            if exponent:
                term = term * self._exponential(exponent)
            factor = 0
            while roots:
                if roots & 1:
                    term = term * self._root(factor)
                if roots & 2:
                    absolute = self._root(factor) * self._root(factor)
                    term = term * self._sum(self.ring.factors[factor].polynomial) / absolute
                roots >>= 2
                factor += 1
            total = total + term
        return total

    def _generator(self, index: int) -> Any:
        if index not in self.generators:
            unknown = self.generators[index] = self.z3.Real(f"g{index}")
            if self.ring.generators[index].positive:
                self.conditions.append(unknown >= 0)
        return self.generators[index]

    def _exponential(self, exponent: int) -> Any:
        if exponent not in self.exponentials:
            unknown = self.exponentials[exponent] = self.z3.Real(f"e{exponent}")
            self.conditions.append(unknown > 0)
            self.conditions.append(unknown >= 1 + self._sum(self.ring.exponents[exponent]))
            if self.ring.is_constant(self.ring.exponents[exponent]):  # such as e: enclosed by its float64 value
                value = Fraction(self.ring.value(monomial(exponent=exponent)))
                for bound, sign in ((1 - ENCLOSURE, 1), (1 + ENCLOSURE, -1)):
                    limit = value * bound
                    self.conditions.append(sign * (unknown - self.z3.Q(limit.numerator, limit.denominator)) > 0)
        return self.exponentials[exponent]

    def _root(self, factor: int) -> Any:
        if factor not in self.roots:
            unknown = self.roots[factor] = self.z3.Real(f"r{factor}")
            inner = self._sum(self.ring.factors[factor].polynomial)
            square = unknown * unknown
            self.conditions += [unknown > 0, self.z3.Or(square == inner, square == -inner)]
        return self.roots[factor]
