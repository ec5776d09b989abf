from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest

from workbench.domains.exact_expression import ExactTerms, Piece
from workbench.domains.exact_numbers import decimal_values, float_values

X, Y = (0, 0), (0, 1)


def no_opaque(
    name: str, attributes: tuple[tuple[str, str], ...], arguments: tuple[npt.NDArray[np.float64], ...]
) -> npt.NDArray[np.float64]:
    raise AssertionError(name)


def tripled(
    name: str, attributes: tuple[tuple[str, str], ...], arguments: tuple[npt.NDArray[np.float64], ...]
) -> npt.NDArray[np.float64]:
    return 3 * arguments[0]


@pytest.fixture
def terms() -> ExactTerms:
    return ExactTerms()


@pytest.mark.parametrize(
    ("name", "arguments", "digits"),
    [
        # 50 digits from the literature: ln 2, sqrt(2)^sqrt(2), erf(1), erf(5)
        ("log", (2,), "0.69314718055994530941723212145817656807550013436026"),
        ("erf", (1,), "0.84270079294971486934122063508260925929606699796630"),
        ("erf", (-1,), "-0.84270079294971486934122063508260925929606699796630"),
        ("erf", (40,), "1"),
        ("pow", (-2, 3), "-8"),
        ("pow", (2, Fraction(1, 2)), "1.4142135623730950488016887242096980785696718753769"),
    ],
)
def test_opaque_functions_to_forty_digits(
    terms: ExactTerms, name: str, arguments: tuple[Fraction | int, ...], digits: str
) -> None:
    part = terms.opaque(name, (), [terms.number(each) for each in arguments])
    found = decimal_values(terms, (part,), {}, no_opaque, 40)
    assert found is not None
    (value,), precise = found
    assert precise
    with localcontext(prec=60):
        assert abs(value - Decimal(digits)) <= Decimal(10) ** -40


def test_e_and_roots_to_forty_digits(terms: ExactTerms) -> None:
    made = terms.add(terms.exp(terms.one), terms.sqrt(terms.number(2)))
    found = decimal_values(terms, (made,), {}, no_opaque, 40)
    assert found is not None
    expected = Decimal("4.13249539083214028416197619556236057632691896907689")  # both by hand, to 50 digits
    with localcontext(prec=60):
        assert abs(found[0][0] - expected) < Decimal(10) ** -40


def test_a_difference_below_float64_is_seen(terms: ExactTerms) -> None:
    x = terms.variable(0, 0)
    close = terms.add(x, terms.number(Fraction(1, 10**30)))
    found = decimal_values(terms, (x, close), {X: Fraction(1, 3)}, no_opaque, 40)
    assert found is not None
    (a, b), _ = found
    with localcontext(prec=60):
        assert abs(b - a - Decimal("1E-30")) < Decimal("1E-45")


def test_what_is_not_real_has_no_value(terms: ExactTerms) -> None:
    x = terms.variable(0, 0)
    for part in (
        terms.sqrt(x),
        terms.opaque("log", (), (x,)),
        terms.div(terms.one, terms.add(x, terms.one)),
        terms.opaque("pow", (), (x, terms.number(Fraction(1, 2)))),
    ):
        assert decimal_values(terms, (part,), {X: Fraction(-1)}, no_opaque, 40) is None


def test_an_opaque_function_without_digits_says_so(terms: ExactTerms) -> None:
    part = terms.opaque("unheard of", (), (terms.variable(0, 0),))
    found = decimal_values(terms, (part,), {X: Fraction(1, 4)}, tripled, 40)
    assert found == ([Decimal("0.75")], False)


def test_float_values_are_numpys(terms: ExactTerms, rng: np.random.Generator) -> None:
    x, y = terms.variable(0, 0), terms.variable(0, 1)
    a, b = rng.standard_normal((2, 50))
    step = terms.choice("clip", [Piece((terms.sub(terms.zero, x),), terms.zero), Piece((x,), terms.mul(x, y))])
    parts = {
        terms.div(terms.exp(x), terms.add(terms.one, terms.exp(y))): np.exp(a) / (1 + np.exp(b)),
        terms.sqrt(terms.add(terms.mul(x, x), terms.mul(y, y))): np.hypot(a, b),
        terms.maximum((x, y, terms.zero)): np.maximum(np.maximum(a, b), 0),
        step: np.where(a > 0, a * b, 0),
        terms.linear(((Fraction(1, 3), x), (-2, y)), Fraction(1, 7)): a / 3 - 2 * b + 1 / 7,
    }
    values = float_values(terms, list(parts), {X: a, Y: b}, no_opaque)
    for part, expected in parts.items():
        np.testing.assert_allclose(values[part], expected, rtol=1e-12)


def test_float_values_are_nan_where_a_root_is_not_real(terms: ExactTerms) -> None:
    part = terms.maximum((terms.sqrt(terms.variable(0, 0)), terms.zero))
    values = float_values(terms, (part,), {X: np.array([-1.0, 4.0])}, no_opaque)[part]
    assert math.isnan(values[0])
    assert values[1] == 2.0
