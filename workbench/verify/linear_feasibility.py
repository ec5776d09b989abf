"""Whether strict linear inequalities have a common solution, decided exactly in rational numbers.

Invariant: None means that there is none (the simplex method proves it); a returned point satisfies every inequality.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from fractions import Fraction
from math import lcm

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
    # columns: x+ and x- of every unknown, then s with t = lowest + s, then the right-hand side;
    # rows: s - a x <= b - lowest, and s <= 1 - lowest, each multiplied by its denominators
    position = {name: 2 * number for number, name in enumerate(unknowns)}
    width = 2 * len(unknowns) + 1
    rows: list[list[int]] = []
    for coefficients, constant in inequalities:
        line = [Fraction(0)] * width
        for name, coefficient in coefficients.items():
            line[position[name]] -= coefficient
            line[position[name] + 1] += coefficient
        line[-1] = Fraction(1)
        rows.append(_whole([*line, constant - lowest]))
    rows.append(_whole([*[Fraction(0)] * (width - 1), Fraction(1), 1 - lowest]))
    objective = [*[0] * (width - 1), 1, 0]  # last entry: minus the value of s
    divisor = 1  # of every entry: the determinant of the basis, so that all entries stay whole
    basis: list[int] = [width + number for number in range(len(rows))]  # slack of each row
    nonbasis = list(range(width))
    while lowest * divisor - objective[-1] <= 0:
        if meter is not None:
            meter.spend(len(rows) * width)
        raising = [column for column in range(width) if objective[column] > 0]
        if not raising:
            return None
        entering = min(raising, key=nonbasis.__getitem__)
        leaving = -1
        for number, line_now in enumerate(rows):
            if line_now[entering] > 0:
                if leaving < 0:
                    leaving = number
                    continue
                best = rows[leaving]
                gap = line_now[-1] * best[entering] - best[-1] * line_now[entering]
                if gap < 0 or (gap == 0 and basis[number] < basis[leaving]):
                    leaving = number
        assert leaving >= 0  # s is bounded by the last row, and x enters only to raise it
        divisor = _pivot(rows, objective, leaving, entering, divisor)
        basis[leaving], nonbasis[entering] = nonbasis[entering], basis[leaving]
    values = {column: Fraction(line[-1], divisor) for column, line in zip(basis, rows, strict=True)}
    return {
        name: values.get(start, Fraction(0)) - values.get(start + 1, Fraction(0)) for name, start in position.items()
    }


def _whole(line: list[Fraction]) -> list[int]:
    """Return a row multiplied by its common denominator."""
    common = lcm(*(value.denominator for value in line))
    return [int(value * common) for value in line]


def _pivot(rows: list[list[int]], objective: list[int], leaving: int, entering: int, divisor: int) -> int:
    """Exchange a basic and a nonbasic variable in the condensed tableau, in place; return the new common divisor.

    Fraction-free: every division is exact, because entries are minors of the original matrix (Edmonds; Bareiss 1968).
    """
    line = rows[leaving]
    pivot = line[entering]
    for other in (*(row for number, row in enumerate(rows) if number != leaving), objective):
        factor = other[entering]
        if factor:
            other[:] = [(value * pivot - factor * by) // divisor for value, by in zip(other, line, strict=True)]
            other[entering] = -factor
        elif pivot != divisor:
            other[:] = [value * pivot // divisor for value in other]
    line[entering] = divisor
    return pivot
