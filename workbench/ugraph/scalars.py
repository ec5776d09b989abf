"""Constant factors that move through operators: exact rationals and their roots.

Invariant: a scalar is sign * radicand^(1/root) with the smallest root that is possible, so equal numbers compare equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import isqrt

_PRIMES = (2, 3, 5, 7)


@dataclass(frozen=True, slots=True)
class Scalar:
    """A real number other than 0. Attributes: sign (1 or -1); radicand: positive; root: at least 1."""

    sign: int = 1
    radicand: Fraction = Fraction(1)
    root: int = 1

    def __mul__(self, other: Scalar) -> Scalar:
        if other is ONE or self is ONE:  # most of all
            return self if other is ONE else other
        radicand = self.radicand**other.root * other.radicand**self.root
        return _reduced(self.sign * other.sign, radicand, self.root * other.root)

    def __truediv__(self, other: Scalar) -> Scalar:
        return self * Scalar(other.sign, 1 / other.radicand, other.root)

    def power(self, exponent: Fraction | int) -> Scalar:
        """Return the scalar to a rational power. Raises: ValueError for a fractional power of a negative number."""
        if self is ONE:
            return self
        if self.sign < 0 and exponent.denominator > 1:
            raise ValueError(f"{self} has no real power {exponent}")
        sign = self.sign if exponent.numerator % 2 else 1
        return _reduced(sign, self.radicand**exponent.numerator, self.root * exponent.denominator)

    @property
    def magnitude(self) -> Scalar:
        """The absolute value."""
        return Scalar(1, self.radicand, self.root)

    @property
    def is_one(self) -> bool:
        """True for 1."""
        return self is ONE or self == ONE

    def __str__(self) -> str:
        minus = "-" if self.sign < 0 else ""
        return f"{minus}{self.radicand}" if self.root == 1 else f"{minus}({self.radicand})^(1/{self.root})"


ONE = Scalar()


def scalar(value: Fraction) -> Scalar:
    """Return a number other than 0 as a scalar. Raises: ValueError for 0, through which nothing can be divided."""
    if value == 0:
        raise ValueError("0 is no factor that moves")
    return Scalar(1 if value > 0 else -1, abs(value))


def exact_root(value: Fraction, root: int) -> Fraction | None:
    """Return the rational root of a positive rational, None if it has none."""
    numerator, denominator = _integer_root(value.numerator, root), _integer_root(value.denominator, root)
    return None if numerator is None or denominator is None else Fraction(numerator, denominator)


def _integer_root(value: int, root: int) -> int | None:
    if root == 2:
        guess = isqrt(value)
    else:
        low, high = 0, 1 << (value.bit_length() // root + 1)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if middle**root <= value else (low, middle - 1)
        guess = low
    return guess if guess**root == value else None


def _reduced(sign: int, radicand: Fraction, root: int) -> Scalar:
    for prime in _PRIMES:
        while root % prime == 0 and (smaller := exact_root(radicand, prime)) is not None:
            radicand, root = smaller, root // prime
    return Scalar(sign, radicand, root)
