"""Sparse Laurent polynomials with rational coefficients, as dictionaries from packed monomials to coefficients.

A monomial is a triple (powers, roots, exponent): `powers` packs the integer exponent of every generator (inputs,
reciprocals, opaque values) into one integer, WIDTH bits each, so that monomials multiply by one addition; `roots` is a
bit set of square roots and signs, each to the power 0 or 1; `exponent` is the number of the argument of one
exponential, 0 for none.

Invariant: no coefficient is 0; |exponent of a generator| <= bound < 2^(WIDTH - 2), so packing is one to one.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import gcd

from workbench.errors import BudgetError

Rational = int | Fraction
"""An exact number; whole ones are kept as int, which is many times faster."""
Monomial = tuple[int, int, int]
UNIT: Monomial = (0, 0, 0)
WIDTH = 32
_MASK = (1 << WIDTH) - 1
_HALF = 1 << (WIDTH - 1)
_LARGEST = 1 << (WIDTH - 2)


class Polynomial:
    """Terms by monomial, and a bound on the size of every generator's exponent. Never changed once made."""

    __slots__ = ("bound", "terms")

    def __init__(self, terms: dict[Monomial, Rational], bound: int) -> None:
        if bound >= _LARGEST:
            raise BudgetError(f"an exponent may reach {bound}, more than {_LARGEST - 1}; the power is too high")
        self.terms, self.bound = terms, bound

    def __len__(self) -> int:
        return len(self.terms)

    def __bool__(self) -> bool:
        return bool(self.terms)

    @property
    def key(self) -> frozenset[tuple[Monomial, Rational]]:
        """What identifies the polynomial as written."""
        return frozenset(self.terms.items())

    def number(self) -> Fraction | None:
        """Return the polynomial as a number, None where it is none."""
        if not self.terms:
            return Fraction(0)
        return Fraction(self.terms[UNIT]) if len(self.terms) == 1 and UNIT in self.terms else None


ZERO = Polynomial({}, 0)
ONE = Polynomial({UNIT: 1}, 0)


def constant(value: Fraction | int) -> Polynomial:
    """Return a number."""
    return Polynomial({UNIT: as_rational(value)}, 0) if value else ZERO


def monomial(powers: int = 0, roots: int = 0, exponent: int = 0, bound: int = 0) -> Polynomial:
    """Return a monomial with coefficient 1."""
    return Polynomial({(powers, roots, exponent): 1}, bound)


def as_rational(value: Rational) -> Rational:
    """Return a rational as an int where it is whole: integers are far faster."""
    return value.numerator if value.denominator == 1 else Fraction(value)


def add(a: Polynomial, b: Polynomial, factor: Rational = 1) -> Polynomial:
    """Return a + factor * b."""
    if not b.terms or not factor:
        return a
    terms = dict(a.terms)
    for key, coefficient in b.terms.items():
        total = terms.get(key, 0) + factor * coefficient
        if total:
            terms[key] = total
        else:
            terms.pop(key, None)
    return Polynomial(terms, max(a.bound, b.bound))


def scale(a: Polynomial, factor: Fraction | int) -> Polynomial:
    """Return factor * a."""
    if factor == 1:
        return a
    by = as_rational(factor)
    return Polynomial({key: by * coefficient for key, coefficient in a.terms.items()}, a.bound) if by else ZERO


def generator(index: int, power: int = 1) -> int:
    """Return the packed powers of one generator to a power."""
    return power * (1 << (WIDTH * index))


def unpack(powers: int) -> Iterator[tuple[int, int]]:
    """Yield (generator, exponent) of packed powers, exponents of 0 left out."""
    index = 0
    while powers:
        low = powers & _MASK
        if low >= _HALF:
            low -= 1 << WIDTH
        if low:
            yield index, low
        powers = (powers - low) >> WIDTH
        index += 1


def power_of(powers: int, index: int) -> int:
    """Return one generator's exponent in packed powers."""
    if index:  # half a unit is added first, so that what lies below rounds away whatever its sign
        powers = (powers + (1 << (WIDTH * index - 1))) >> (WIDTH * index)
    low = powers & _MASK
    return low - (1 << WIDTH) if low >= _HALF else low


def rational_content(a: Polynomial) -> Fraction:
    """Return the largest positive rational c such that a / c has coprime integer coefficients; 1 for zero."""
    top, bottom = 0, 1
    for coefficient in a.terms.values():
        top = gcd(top, coefficient.numerator)
        bottom = bottom * coefficient.denominator // gcd(bottom, coefficient.denominator)
    return Fraction(top, bottom) if top else Fraction(1)


def common_powers(a: Polynomial) -> int:
    """Return the packed powers of the largest monomial that divides every term (smallest exponent per generator)."""
    smallest: dict[int, int] = {}
    for position, (powers, _, _) in enumerate(a.terms):
        found = dict(unpack(powers))
        if position == 0:
            smallest = found
            continue
        for index in list(smallest):
            smallest[index] = min(smallest[index], found.get(index, 0))
        for index, power in found.items():
            if power < 0 and index not in smallest:
                smallest[index] = power
    return sum(generator(index, power) for index, power in smallest.items())


def bits(roots: int) -> Iterator[tuple[int, bool]]:
    """Yield (factor, is it the sign) of a set of roots and signs: bit 2 f is the root of factor f, bit 2 f + 1 its sign."""
    position = 0
    while roots:
        if roots & 1:
            yield position // 2, bool(position % 2)
        roots >>= 1
        position += 1
