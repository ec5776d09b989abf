"""Are two expressions equal? Decided by normal form, cell by cell where piecewise operators or unknown signs are involved.

A cell is a choice of pieces (and of signs of what stands under roots squared). The tree of cells is walked from its root,
where every piecewise operator is an opaque value of its arguments: equality there covers all cells below. A node whose
sides agree as expressions is decided; one whose sides differ is dropped if its inequalities have no common solution,
else split at the innermost piece that matters, else a real point is sought in it.

Invariant: pieces are continuous, so cells without interior need not be looked at; "equal" means every other cell agreed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal

import numpy as np

from workbench.domains.exact_budget import Meter
from workbench.domains.exact_expression import ExactKind, ExactNode, ExactTerms
from workbench.domains.exact_normal_form import NormalForm
from workbench.domains.exact_polynomial import (
    Monomial,
    Polynomial,
    Rational,
    common_powers,
    generator,
    unpack,
)
from workbench.errors import BudgetError, NowhereDefinedError
from workbench.verify.exact_points import Accept, Difference, Point, around, confirm, search_pair, variables_of
from workbench.verify.linear_feasibility import Inequality, strictly_feasible
from workbench.verify.nonlinear_feasibility import ENCLOSURE, ask_z3

_PRODUCTS = 10  # this many inequalities are multiplied in pairs before Z3 is asked


@dataclass(slots=True)
class Decision:
    """What became of one pair of expressions.

    Attributes: kind; reason: why it is undecided; cells: decided by equal expressions; infeasible: dropped for want of a
    point; ways: how often each way decided; difference: a point where they differ.
    """

    kind: Literal["equal", "different", "undecided"]
    reason: str = ""
    cells: int = 0
    infeasible: int = 0
    ways: Counter[str] = field(default_factory=Counter)
    difference: Difference | None = None


@dataclass(frozen=True, slots=True)
class _Cell:
    known: tuple[int, ...] = ()  # expressions that are not negative
    chosen: tuple[tuple[int, int], ...] = ()  # piecewise expression -> piece


def decide(
    terms: ExactTerms, left: int, right: int, meter: Meter, rng: np.random.Generator, accept: Accept
) -> Decision:
    """Return whether two expressions are equal wherever both are defined; a budget that ends is a reason, no error."""
    decision = Decision("equal")
    try:
        return _Tree(terms, left, right, meter, rng, accept, decision).walk()
    except BudgetError as error:
        decision.kind, decision.reason = "undecided", f"budget: {error}"
    except NowhereDefinedError as error:
        decision.kind, decision.reason = "undecided", str(error)
    return decision


class _Tree:
    def __init__(
        self,
        terms: ExactTerms,
        left: int,
        right: int,
        meter: Meter,
        rng: np.random.Generator,
        accept: Accept,
        decision: Decision,
    ) -> None:
        self.terms, self.left, self.right, self.meter, self.rng = terms, left, right, meter, rng
        self.accept, self.decision = accept, decision

    def walk(self) -> Decision:
        """Return the decision, cells visited depth first."""
        decision = self.decision
        piecewise = any(node.kind in (ExactKind.MAX, ExactKind.CHOICE) for node in self._nodes())
        doubt = ""
        pending = [_Cell()]
        searched = False
        while pending:
            cell = pending.pop()
            self.meter.check()
            if decision.cells + decision.infeasible >= self.meter.budget.cells:
                raise BudgetError(f"more than {self.meter.budget.cells} cells; give a larger `Budget(cells=...)`")
            try:
                form = NormalForm(self.terms, (self.left, self.right), self.meter, cell.known, dict(cell.chosen))
                difference = form.difference(self.left, self.right)
            except NowhereDefinedError:
                if not cell.known:
                    raise
                self._drop("signs")
                continue
            if not difference:
                decision.cells += 1
                way = "expressions" if cell.known else ("all pieces at once" if piecewise else "expressions")
                decision.ways[way] += 1
                continue
            if not searched:  # before many cells are looked at: most differences show at a random point
                searched = True
                found = search_pair(self.terms, self.left, self.right, self.rng, self.accept)
                if found:
                    return self._differ(found)
            region = Region(form, self.meter)
            if cell.known and region.is_linearly_infeasible():
                self._drop("linear program")
                continue
            children = list(self._split(cell, form, difference))
            if children:
                pending += children
                continue
            found_here, why = self._leaf(form, region)
            if isinstance(found_here, Difference):
                return self._differ(found_here)
            if why:
                doubt = why
                break
            self._drop("Z3")
        if doubt:
            decision.kind, decision.reason = "undecided", doubt
        return decision

    def _nodes(self) -> list[ExactNode]:
        return [self.terms.nodes[part] for part in self.terms.cone((self.left, self.right))]

    def _drop(self, way: str) -> None:
        self.decision.infeasible += 1
        self.decision.ways[f"infeasible by {way}"] += 1

    def _differ(self, difference: Difference) -> Decision:
        self.decision.kind, self.decision.difference = "different", difference
        return self.decision

    def _split(self, cell: _Cell, form: NormalForm, difference: Polynomial) -> Iterator[_Cell]:
        """Yield the cells below, by the innermost piecewise expression that matters, or by a sign."""
        undecided = form.undecided(difference)
        chosen = dict(cell.chosen)
        pieces = [part for part in undecided.pieces if part not in chosen]
        if pieces:
            part = pieces[0]
            node = self.terms.nodes[part]
            if node.kind is ExactKind.MAX:
                options = [
                    tuple(self.terms.sub(best, other) for other in node.parts if other != best) for best in node.parts
                ]
            else:
                options = [piece.guards for piece in node.pieces]
            for number, guards in enumerate(options):
                yield _Cell((*cell.known, *guards), (*cell.chosen, (part, number)))
        elif undecided.signs:
            inner = undecided.signs[0]
            for sign in (1, -1):
                yield _Cell((*cell.known, self.terms.scale(sign, inner)), cell.chosen)

    def _leaf(self, form: NormalForm, region: Region) -> tuple[Difference | None, str]:
        """Return a difference in the cell, or ("", None) if it has no point, or why neither is known."""
        guided: list[Point] = []
        if region.point is not None:
            guided.append(region.point)
        answer, values = ask_z3(form.ring, region.positive, seconds=min(2.0, self.meter.left_s))
        if answer == "infeasible":
            return None, ""
        if answer == "feasible":
            guided.append(region.variables(values))
        names = variables_of(self.terms, (self.left, self.right))
        for guide in guided:
            for point in around({name: guide.get(name, Fraction(1, 2)) for name in names}, self.rng):
                found = confirm(self.terms, self.left, self.right, point)
                if found and self.accept(found):
                    return found, ""
        found = search_pair(self.terms, self.left, self.right, self.rng, self.accept, 2048)
        if found:
            return found, ""
        where = " in a cell of which no real point was found" if form.known else ""
        opaque = {node.name for node in self._nodes() if node.kind is ExactKind.OPAQUE}
        if opaque:
            return None, f"the normal forms differ{where}, and {', '.join(sorted(opaque))} is opaque to them"
        return None, f"the normal forms differ{where}, and no real point shows it"


class Region:
    """The inequalities of a cell as polynomials: strict, because a cell without interior need not be looked at."""

    def __init__(self, form: NormalForm, meter: Meter) -> None:
        self.form, self.ring, self.meter = form, form.ring, meter
        self.positive: list[Polynomial] = []
        self.point: dict[tuple[int, int], Fraction] | None = None
        for part in dict.fromkeys((*form.known, *form.radicands)):
            polynomial = self._cleared(form.polynomial(part))
            if polynomial and not self.ring.is_positive(polynomial):
                self.positive.append(polynomial)

    def _cleared(self, polynomial: Polynomial) -> Polynomial:
        """Return a polynomial without reciprocals and of the same sign: odd denominators become factors."""
        ring = self.ring
        numerator, denominator = ring.without_reciprocals(polynomial)
        for factor, power in denominator.items():
            if power % 2 and not ring.factors[factor].positive:
                numerator = ring.mul(numerator, ring.factors[factor].polynomial)
        if not numerator:
            return numerator
        shared = common_powers(numerator)
        down = -sum(generator(index, power - power % 2) for index, power in unpack(shared))
        lowest = ring.exponent_multiple(ring.trailing(numerator)[2], Fraction(-1))
        terms: dict[Monomial, Rational] = {
            (powers + down, roots, ring.exponent_sum(exponent, lowest)): coefficient
            for (powers, roots, exponent), coefficient in numerator.terms.items()
        }
        return Polynomial(terms, 2 * numerator.bound)

    def is_linearly_infeasible(self) -> bool:
        """Return whether the inequalities have no solution even with every monomial as an unknown of its own.

        Monomials that cannot be negative are positive unknowns; where some are not linear, products of two inequalities
        are inequalities as well. Where all are linear in the inputs, a solution is a point of the cell.
        """
        rows = list(self.positive)
        solution = self._solve(rows)
        if solution is None:
            return True
        monomials = {key for row in rows for key in row.terms}
        if all(self._is_variable(key) for key in monomials if key != (0, 0, 0)):
            self.point = {self._variable(key): value for key, value in solution.items()}
            return False
        if len(rows) <= _PRODUCTS:
            products = [
                self.ring.mul(a, b) for position, a in enumerate(rows) for b in rows[:position] if len(a) * len(b) <= 64
            ]
            return self._solve(rows + products) is None
        return False

    def _solve(self, rows: list[Polynomial]) -> dict[Monomial, Fraction] | None:
        inequalities: list[Inequality] = []
        signed: set[Monomial] = set()
        for row in rows:
            coefficients = {key: Fraction(value) for key, value in row.terms.items() if key != (0, 0, 0)}
            inequalities.append((dict[Hashable, Fraction](coefficients.items()), Fraction(row.terms.get((0, 0, 0), 0))))
            signed.update(key for key in coefficients if self.ring.is_positive(Polynomial({key: 1}, 0)))
        for key in sorted(signed):
            one: dict[Hashable, Fraction] = {key: Fraction(1)}
            alone = Polynomial({key: 1}, 0)
            if self.ring.is_constant(alone):  # such as e or sqrt 2: enclosed by its float64 value
                value = Fraction(self.ring.value(alone))
                inequalities.append((one, -value * (1 - ENCLOSURE)))
                inequalities.append(({key: Fraction(-1)}, value * (1 + ENCLOSURE)))
            else:
                inequalities.append((one, Fraction(0)))
                inequalities += self._tangent(key)
        found = strictly_feasible(inequalities, self.meter)
        return None if found is None else {key: value for key, value in found.items() if isinstance(key, tuple)}

    def _tangent(self, key: Monomial) -> list[Inequality]:
        """Return e^a > 1 + a for a monomial that is one exponential (equal only where a = 0, which is no region)."""
        powers, roots, exponent = key
        if powers or roots or not exponent:
            return []
        below = {other: -Fraction(by) for other, by in self.ring.exponents[exponent].terms.items()}
        constant = below.pop((0, 0, 0), Fraction(0)) - 1
        row: dict[Hashable, Fraction] = {key: Fraction(1)}
        for other, by in below.items():
            row[other] = row.get(other, Fraction(0)) + by
        return [(row, constant)]

    def _is_variable(self, key: Monomial) -> bool:
        powers, roots, exponent = key
        if roots or exponent:
            return False
        found = list(unpack(powers))
        return len(found) == 1 and found[0][1] == 1 and self._name(found[0][0]) is not None

    def _variable(self, key: Monomial) -> tuple[int, int]:
        name = self._name(next(unpack(key[0]))[0])
        assert name is not None
        return name

    def _name(self, index: int) -> tuple[int, int] | None:
        part = self.ring.generators[index].node
        if part < 0 or self.form.terms.nodes[part].kind is not ExactKind.VARIABLE:
            return None
        return self.form.terms.nodes[part].variable

    def variables(self, values: dict[int, Fraction]) -> dict[tuple[int, int], Fraction]:
        """Return the values of inputs among values of generators."""
        named = ((self._name(index), value) for index, value in values.items())
        return {name: value for name, value in named if name is not None}
