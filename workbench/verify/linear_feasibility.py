"""Whether strict linear inequalities have a common solution, decided exactly in rational numbers.

Invariant: None means that there is none (the simplex method proves it); a returned point satisfies every inequality.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from fractions import Fraction

from workbench.domains.exact_budget import Meter

Inequality = tuple[Mapping[Hashable, Fraction], Fraction]
"""Coefficients by unknown, and a constant: sum + constant > 0."""


def strictly_feasible(
    inequalities: Sequence[Inequality], meter: Meter | None = None
) -> dict[Hashable, Fraction] | None:
    """Return a point where every inequality holds strictly, None where there is none.

    Maximises t subject to sum_j a_ij x_j + b_i >= t and t <= 1 by the simplex method with Bland's rule, which ends; the
    start x = 0, t = min(b, 0) is feasible, so one phase suffices. It stops as soon as t is positive.
    Raises: BudgetError when the meter runs out. Source: Chvatal, Linear Programming (1983), chapters 2 and 3.
    """
    unknowns = sorted({name for row, _ in inequalities for name in row}, key=repr)
    lowest = min([Fraction(0), *(constant for _, constant in inequalities)])
    # columns: x+ and x- of every unknown, then s with t = lowest + s; rows: s - a x <= b - lowest, and s <= 1 - lowest
    position = {name: 2 * number for number, name in enumerate(unknowns)}
    width = 2 * len(unknowns) + 1
    rows: list[list[Fraction]] = []
    for coefficients, constant in inequalities:
        line = [Fraction(0)] * width
        for name, coefficient in coefficients.items():
            line[position[name]] -= coefficient
            line[position[name] + 1] += coefficient
        line[-1] = Fraction(1)
        rows.append([*line, constant - lowest])
    rows.append([*[Fraction(0)] * (width - 1), Fraction(1), 1 - lowest])
    objective = [*[Fraction(0)] * (width - 1), Fraction(1), Fraction(0)]  # last entry: minus the value of s
    basis: list[int] = [width + number for number in range(len(rows))]  # slack of each row
    nonbasis = list(range(width))
    while -objective[-1] + lowest <= 0:
        if meter is not None:
            meter.spend(len(rows) * width)
        entering = min(
            (column for column in range(width) if objective[column] > 0), key=lambda c: nonbasis[c], default=None
        )
        if entering is None:
            return None
        leaving, best = None, None
        for number, line in enumerate(rows):
            if line[entering] > 0:
                ratio = (line[-1] / line[entering], basis[number])
                if best is None or ratio < best:
                    leaving, best = number, ratio
        assert leaving is not None  # s is bounded by the last row, and x enters only to raise it
        _pivot(rows, objective, leaving, entering)
        basis[leaving], nonbasis[entering] = nonbasis[entering], basis[leaving]
    values = {column: line[-1] for column, line in zip(basis, rows, strict=True)}
    return {
        name: values.get(start, Fraction(0)) - values.get(start + 1, Fraction(0)) for name, start in position.items()
    }


def _pivot(rows: list[list[Fraction]], objective: list[Fraction], leaving: int, entering: int) -> None:
    """Exchange a basic and a nonbasic variable, in place, in the condensed tableau."""
    line = rows[leaving]
    inverse = 1 / line[entering]
    line[entering] = Fraction(1)
    line[:] = [value * inverse for value in line]
    for other in (*(row for number, row in enumerate(rows) if number != leaving), objective):
        factor = other[entering]
        if factor:
            other[entering] = Fraction(0)
            other[:] = [value - factor * by if by else value for value, by in zip(other, line, strict=True)]
