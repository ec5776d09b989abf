from __future__ import annotations

from fractions import Fraction

import pytest

from workbench.ugraph.exact_number import exact_number, is_number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("3", 3),
        ("-12", -12),
        ("1/3", Fraction(1, 3)),
        ("-2/4", Fraction(-1, 2)),
        ("0.1", Fraction(1, 10)),
        ("1e-6", Fraction(1, 10**6)),
        ("2.5E+2/5", Fraction(50)),
        ("4/2", Fraction(2)),
    ],
)
def test_a_number_is_what_it_says(text: str, number: int | Fraction) -> None:
    found = exact_number(text)
    assert found == number
    assert type(found) is type(number)


@pytest.mark.parametrize(
    "text", ["", "a", "1/", "/2", "1.5/2.5", "--1", "1e", "nan", "inf", "0x10", "1 /2", "1e9999999999"]
)
def test_what_is_no_number_is_refused(text: str) -> None:
    assert not is_number(text)
    with pytest.raises(ValueError, match="it is no number"):
        exact_number(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("1e999999999", "exponent beyond 500"),
        ("1e-501", "exponent beyond 500"),
        ("9" * 2001, "more than 2000"),
        ("1/0", "denominator is 0"),
    ],
)
def test_what_would_fill_the_memory_is_refused(text: str, why: str) -> None:
    assert is_number(text)
    with pytest.raises(ValueError, match=why):
        exact_number(text)
