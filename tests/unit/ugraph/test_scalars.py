from __future__ import annotations

import math
from fractions import Fraction
from math import isclose

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.ugraph.scalars import ONE, Scalar, exact_root, scalar

RATIONALS = st.fractions(max_denominator=60).filter(lambda value: 0 < abs(value) < 100)
EXPONENTS = st.sampled_from([Fraction(n, d) for n in (-3, -1, 1, 2) for d in (1, 2, 3, 4)])


def as_float(number: Scalar) -> float:
    return number.sign * math.pow(float(number.radicand), 1 / number.root)


@given(RATIONALS, RATIONALS, EXPONENTS, EXPONENTS)
def test_products_and_powers(a: Fraction, b: Fraction, p: Fraction, q: Fraction) -> None:
    left, right = scalar(abs(a)).power(p), scalar(abs(b)).power(q)
    assert isclose(as_float(left * right), float(abs(a)) ** float(p) * float(abs(b)) ** float(q), rel_tol=1e-9)
    assert left / left == ONE
    assert left * right == right * left


@given(RATIONALS, EXPONENTS)
def test_a_power_is_undone_by_its_inverse(a: Fraction, p: Fraction) -> None:
    assert scalar(abs(a)).power(p).power(1 / p) == scalar(abs(a))


def test_roots_are_taken_where_they_can_be() -> None:
    assert scalar(Fraction(4, 9)).power(Fraction(1, 2)) == scalar(Fraction(2, 3))
    assert scalar(Fraction(8)).power(Fraction(1, 2)).root == 2
    assert scalar(Fraction(4)).power(Fraction(1, 4)) == scalar(Fraction(2)).power(Fraction(1, 2))
    assert exact_root(Fraction(27, 8), 3) == Fraction(3, 2)
    assert exact_root(Fraction(10**40), 2) == 10**20
    assert exact_root(Fraction(10**40 + 1), 2) is None


def test_signs() -> None:
    assert scalar(Fraction(-2)) * scalar(Fraction(-3)) == scalar(Fraction(6))
    assert scalar(Fraction(-2)).power(Fraction(2)) == scalar(Fraction(4))
    assert scalar(Fraction(-2)).power(Fraction(3)).sign == -1
    assert scalar(Fraction(-2)).magnitude == scalar(Fraction(2))
    with pytest.raises(ValueError, match="no real power"):
        scalar(Fraction(-2)).power(Fraction(1, 2))
    with pytest.raises(ValueError, match="0 is no factor"):
        scalar(Fraction(0))


def test_text() -> None:
    assert [str(scalar(Fraction(n, 3))) for n in (1, -2)] == ["1/3", "-2/3"]
    assert str(scalar(Fraction(2)).power(Fraction(-1, 2))) == "(1/2)^(1/2)"
