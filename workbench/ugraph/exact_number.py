"""Exact numbers in texts. Invariant: a number is read as what it says, and no short text makes a huge number."""

from __future__ import annotations

import re
from fractions import Fraction

LONGEST_NUMBER = 2000
_LARGEST_EXPONENT = 500  # 1e-999999999 must not fill the memory
_NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?(?:[eE](?P<exponent>[+-]?\d{1,9}))?(?:/(?P<denominator>\d+))?")


def is_number(text: str) -> bool:
    """Return whether a text is a number: digits, with a point, an exponent or a denominator if wanted."""
    return _NUMBER.fullmatch(text) is not None


def exact_number(text: str) -> int | Fraction:
    """Return the number that a text spells (`3`, `-1/3`, `0.5`, `1e-6`); an integer unless it has any of `.`, `e`, `/`.

    Raises: ValueError for what is no number, is too long, or has a denominator of 0.
    """
    found = _NUMBER.fullmatch(text)
    if found is None:
        raise ValueError("it is no number")
    if len(text) > LONGEST_NUMBER or abs(int(found["exponent"] or 0)) > _LARGEST_EXPONENT:
        raise ValueError(f"it has more than {LONGEST_NUMBER} digits or an exponent beyond {_LARGEST_EXPONENT}")
    if found["denominator"] is not None and int(found["denominator"]) == 0:
        raise ValueError("its denominator is 0")
    if text.lstrip("+-").isdigit():
        return int(text)
    numerator, _, denominator = text.partition("/")
    return Fraction(numerator) / int(denominator or 1)
