from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

from workbench.domains.exact_budget import Budget, Meter
from workbench.domains.exact_expression import ExactTerms, Piece
from workbench.domains.exact_normal_form import NormalForm
from workbench.errors import NowhereDefinedError
from workbench.verify.cells import Decision, Region, decide
from workbench.verify.exact_points import Difference
from workbench.verify.nonlinear_feasibility import ask_z3


@pytest.fixture
def terms() -> ExactTerms:
    return ExactTerms()


def decided(terms: ExactTerms, left: int, right: int) -> Decision:
    return decide(terms, left, right, Meter(Budget()), np.random.default_rng(0), lambda difference: True)


def test_every_order_of_four_is_looked_at(terms: ExactTerms) -> None:
    """A step that is 1 in one order of four variables only: each order must be found."""
    variables = [terms.variable(0, number) for number in range(4)]

    def step(order: tuple[int, ...]) -> int:
        """relu of the smallest gap between neighbours: positive where the variables are in this order."""
        gaps = [terms.sub(variables[b], variables[a]) for a, b in itertools.pairwise(order)]
        smallest = terms.scale(-1, terms.maximum(terms.scale(-1, gap) for gap in gaps))
        return terms.maximum((smallest, terms.zero))

    for order in itertools.permutations(range(4)):
        assert decided(terms, step(order), terms.zero).kind == "different"
    assert decided(terms, step((0, 1, 2, 3)), step((0, 1, 2, 3))).kind == "equal"


def test_both_signs_of_a_root_of_a_square_are_looked_at(terms: ExactTerms) -> None:
    x = terms.add(terms.variable(0, 0), terms.number(10**12))  # no random point is as far as where they differ
    root = terms.sqrt(terms.mul(x, x))
    found = decided(terms, root, x)
    assert found.kind == "different"
    assert found.difference is not None
    assert found.difference.point[0, 0] < -(10**12)
    assert decided(terms, root, terms.maximum((x, terms.scale(-1, x)))).kind == "equal"


def test_a_region_without_a_point_is_dropped_and_one_with_a_point_is_not(terms: ExactTerms) -> None:
    x, y = terms.variable(0, 0), terms.variable(0, 1)
    e = terms.exp(x)
    square = terms.mul(x, x)

    def dropped(*known: int) -> bool:
        try:
            form = NormalForm(terms, known, Meter(Budget()), known)
        except NowhereDefinedError:  # the signs contradict each other
            return True
        region = Region(form, Meter(Budget()))
        by_line = region.is_linearly_infeasible()
        answer, _ = ask_z3(form.ring, region.positive, seconds=5)
        if by_line:
            assert answer != "feasible"
        return by_line or answer == "infeasible"

    def minus(number: Fraction | int, part: int) -> int:
        return terms.linear(((-1, part),), number)

    assert dropped(terms.sub(x, y), terms.sub(y, x), minus(-1, x))
    assert dropped(terms.sub(x, e))  # e^x > x
    assert dropped(terms.linear(((1, x), (-1, e)), 1))  # e^x > 1 + x
    assert not dropped(terms.linear(((1, x), (-1, e)), Fraction(3, 2)))  # at 0: 3/2 - 1
    assert not dropped(terms.linear(((1, x), (-1, e)), Fraction(10001, 10000)))
    assert dropped(minus(2, terms.exp(terms.one)))  # e > 2
    assert not dropped(minus(3, terms.exp(terms.one)))
    assert dropped(minus(Fraction(14142, 10000), terms.sqrt(terms.number(2))))
    assert dropped(minus(-1, square))  # x^2 > -1
    assert dropped(terms.sub(terms.scale(2, terms.mul(x, y)), terms.add(square, terms.mul(y, y))))
    assert not dropped(terms.sub(terms.scale(3, terms.mul(x, y)), terms.add(square, terms.mul(y, y))))
    assert dropped(terms.mul(x, y), terms.scale(-1, x), y)
    assert not dropped(terms.mul(x, y), terms.scale(-1, x), terms.scale(-1, y))
    assert dropped(terms.div(terms.scale(-1, x), y), x, y)  # odd denominators keep their sign
    assert not dropped(terms.div(terms.scale(-1, x), y), x)
    assert dropped(terms.scale(-1, terms.sqrt(x)))


def test_z3_gives_a_point_of_a_nonlinear_cell(terms: ExactTerms) -> None:
    """Between two circles and above a line: no random point of the usual scales is there."""
    x, y = terms.variable(0, 0), terms.variable(0, 1)
    radius = terms.add(terms.mul(x, x), terms.mul(y, y))
    inside = terms.linear(((-1, radius),), 10**8 + 1)
    outside = terms.linear(((1, radius),), -(10**8))
    above = terms.linear(((1, y), (-2, x)), 0)
    bump = terms.scale(-1, terms.maximum(terms.scale(-1, part) for part in (inside, outside, above)))
    found = decided(terms, terms.maximum((bump, terms.zero)), terms.zero)
    assert found.kind == "different"
    assert found.difference is not None
    point = found.difference.point
    assert 10**8 < point[0, 0] ** 2 + point[0, 1] ** 2 < 10**8 + 1


def test_a_difference_that_is_not_accepted_is_no_difference(terms: ExactTerms) -> None:
    x = terms.variable(0, 0)
    refused: list[Difference] = []

    def accept(difference: Difference) -> bool:
        refused.append(difference)
        return False

    found = decide(terms, x, terms.scale(2, x), Meter(Budget()), np.random.default_rng(0), accept)
    assert found.kind == "undecided"
    assert refused


def test_a_piecewise_operator_that_is_no_maximum(terms: ExactTerms) -> None:
    """A step of three pieces, against its mirror image and against a step with one bound moved."""
    x = terms.variable(0, 0)

    def step(part: int, low: int, high: int, values: tuple[int, int, int]) -> int:
        below, above = terms.linear(((-1, part),), low), terms.linear(((1, part),), -high)
        inner = (terms.linear(((1, part),), -low), terms.linear(((-1, part),), high))
        numbers = [terms.number(value) for value in values]
        return terms.choice(
            "step", [Piece((below,), numbers[0]), Piece(inner, numbers[1]), Piece((above,), numbers[2])]
        )

    mirrored = step(terms.scale(-1, x), -500, 300, (3, 2, 1))
    assert decided(terms, step(x, -300, 500, (1, 2, 3)), mirrored).kind == "equal"
    assert decided(terms, step(x, -300, 501, (1, 2, 3)), mirrored).kind == "different"
