from __future__ import annotations

import itertools
import random
from collections.abc import Hashable
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.domains.exact_budget import Budget, Meter
from workbench.errors import BudgetError
from workbench.verify.linear_feasibility import Inequality, strictly_feasible

F = Fraction


def row(constant: int, **coefficients: int) -> Inequality:
    named: dict[Hashable, Fraction] = {name: F(value) for name, value in coefficients.items()}
    return named, F(constant)


def holds(rows: list[Inequality], point: dict[Hashable, Fraction]) -> bool:
    return all(sum((c * point[name] for name, c in line.items()), constant) > 0 for line, constant in rows)


def test_contradictions_and_consequences() -> None:
    assert strictly_feasible([row(0, x=1), row(0, x=-1)]) is None
    assert strictly_feasible([row(-1, x=1), row(1, x=-1)]) is None  # x > 1 and x < 1
    assert strictly_feasible([row(0, x=1, y=-1), row(0, y=1, z=-1), row(0, z=1, x=-1)]) is None  # a circle
    assert strictly_feasible([row(0)]) is None  # 0 > 0
    assert strictly_feasible([]) == {}
    assert strictly_feasible([row(3)]) == {}


def test_a_thin_region_is_found() -> None:
    billion = 10**9
    rows = [row(1, x=billion, y=-billion), row(1, x=-billion, y=billion), row(-1000, x=1)]
    point = strictly_feasible(rows)
    assert point is not None
    assert holds(rows, point)


def by_vertices(rows: list[tuple[int, int, int]]) -> bool:
    """Two unknowns, |x|, |y| < 8: an open polygon is empty exactly if no average of three vertices is inside it."""
    box = [*rows, (1, 0, 8), (-1, 0, 8), (0, 1, 8), (0, -1, 8)]
    vertices = []
    for (a, b, c), (d, e, f) in itertools.combinations(box, 2):
        determinant = a * e - b * d
        if determinant:
            x, y = F(-c * e + b * f, determinant), F(-a * f + c * d, determinant)
            if all(p * x + q * y + r >= 0 for p, q, r in box):
                vertices.append((x, y))
    count = len(vertices)
    if not count:
        return False
    middle = (sum(x for x, _ in vertices) / F(count), sum(y for _, y in vertices) / F(count))
    return all(p * middle[0] + q * middle[1] + r > 0 for p, q, r in box)


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3), st.integers(-4, 4)), min_size=1, max_size=6))
def test_two_unknowns_against_the_vertices_of_the_polygon(rows: list[tuple[int, int, int]]) -> None:
    inequalities = [row(c, x=a, y=b) for a, b, c in (*rows, (1, 0, 8), (-1, 0, 8), (0, 1, 8), (0, -1, 8))]
    point = strictly_feasible(inequalities)
    assert (point is not None) == by_vertices(rows)
    if point is not None:
        assert holds(inequalities, point)


def test_many_unknowns_around_a_planted_point() -> None:
    chooser = random.Random(7)
    for _ in range(20):
        planted = {f"x{n}": F(chooser.randint(-9, 9), chooser.randint(1, 5)) for n in range(8)}
        rows: list[Inequality] = []
        for _ in range(20):
            line: dict[Hashable, Fraction] = {name: F(chooser.randint(-5, 5)) for name in planted}
            value = sum((line[name] * planted[name] for name in planted), F(0))
            rows.append((line, F(1, 100) - value))  # the planted point satisfies it narrowly
        point = strictly_feasible(rows)
        assert point is not None
        assert holds(rows, point)
        first, constant = rows[0]
        rows.append(({name: -value for name, value in first.items()}, -constant))
        assert strictly_feasible(rows) is None


def test_a_meter_that_runs_out_stops_it() -> None:
    rows = [row(-(m % 5), **{f"x{n}": (n * m) % 7 - 3 for n in range(30)}) for m in range(1, 40)]
    meter = Meter(Budget(seconds=0.0))

    def solve_again_and_again() -> None:
        while True:  # the clock is looked at after some ten thousand steps
            strictly_feasible(rows, meter)

    with pytest.raises(BudgetError, match="time"):
        solve_again_and_again()
