"""Factors of polynomials of a ring: exact division, square roots of polynomials, and products of powers.

Invariant: a `Factored` is the polynomial it was made from, for all values of the generators; factors that are found are
true factors, but a factor that is kept whole need not be irreducible.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from math import isqrt

from workbench.domains.exact_polynomial import (
    WIDTH,
    ZERO,
    Monomial,
    Polynomial,
    add,
    as_rational,
    bits,
    common_powers,
    constant,
    monomial,
    rational_content,
    scale,
    unpack,
)
from workbench.domains.exact_ring import Ring
from workbench.domains.exact_signs import root_bit, sign_bit
from workbench.errors import NowhereDefinedError

_SMALL_PRIMES = 10_000  # trial division of numbers under a root stops here; what is left stays under the root


@dataclass(slots=True)
class Factored:
    """A rational number times powers of generators, roots, one exponential, and factors.

    Attributes: coefficient; generators, factors: powers by number; roots: powers of square roots by factor; signs: set
    of factors whose sign is a factor; exponent: number of an exponent.
    """

    coefficient: Fraction = Fraction(1)
    generators: dict[int, int] = field(default_factory=dict)
    factors: dict[int, int] = field(default_factory=dict)
    roots: dict[int, int] = field(default_factory=dict)
    signs: frozenset[int] = frozenset()
    exponent: int = 0


def multiplied(ring: Ring, left: Factored, right: Factored, power: int = 1) -> Factored:
    """Return left * right^power. Raises: NowhereDefinedError where 0 is divided by."""
    if right.coefficient == 0 and power < 0:
        raise NowhereDefinedError("the expression divides by zero everywhere")

    def merged(a: dict[int, int], b: dict[int, int]) -> dict[int, int]:
        total = dict(a)
        for number, by in b.items():
            total[number] = total.get(number, 0) + by * power
        return {number: by for number, by in total.items() if by}

    return Factored(
        left.coefficient * right.coefficient**power,
        merged(left.generators, right.generators),
        merged(left.factors, right.factors),
        merged(left.roots, right.roots),
        left.signs ^ right.signs if power % 2 else left.signs,
        ring.exponent_sum(left.exponent, ring.exponent_multiple(right.exponent, Fraction(power))),
    )


def expanded(ring: Ring, factored: Factored) -> Polynomial:
    """Return the product as a polynomial of the ring (negative powers of factors as reciprocals)."""
    if factored.coefficient == 0:
        return ZERO
    bound = max((abs(power) for power in factored.generators.values()), default=0)
    powers = sum(power * (1 << shift) for power, shift in _shifted(factored.generators))
    signs = 0
    for factor in factored.signs:
        signs |= sign_bit(factor)
    roots, sign = ring.signs.settle(signs)
    result = scale(monomial(powers, roots, factored.exponent, bound), factored.coefficient * sign)
    for factor, power in factored.roots.items():
        result = ring.mul(ring.root_power(factor, power), result)
    for factor, power in factored.factors.items():
        result = ring.mul(ring.factor_power(factor, power), result)
    return result


def _shifted(powers: dict[int, int]) -> Iterator[tuple[int, int]]:
    return ((power, WIDTH * index) for index, power in powers.items())


def factorise(ring: Ring, polynomial: Polynomial) -> Factored:
    """Return a polynomial as a product: content, common monomial, known factors, a perfect square, and the rest."""
    numerator, denominator = ring.without_reciprocals(polynomial)
    if not numerator:
        return Factored(Fraction(0))
    return _primitive(ring, numerator, denominator)


def _primitive(ring: Ring, numerator: Polynomial, denominator: dict[int, int]) -> Factored:
    content = rational_content(numerator)
    common = -1
    for _, roots, _ in numerator.terms:
        common &= roots
    smallest = ring.trailing(numerator)
    down = ring.exponent_multiple(smallest[2], Fraction(-1))
    powers = common_powers(numerator)
    if numerator.terms[ring.leading(numerator)] < 0:
        content = -content
    by = 1 / content
    terms = {
        (m - powers, roots ^ common, ring.exponent_sum(exponent, down)): as_rational(Fraction(by * coefficient))
        for (m, roots, exponent), coefficient in numerator.terms.items()
    }
    bound = numerator.bound * 2
    result = Factored(
        content,
        dict(unpack(powers)),
        {factor: -power for factor, power in denominator.items()},
        {number: 1 for number, sign in bits(common) if not sign},
        frozenset(number for number, sign in bits(common) if sign),
        smallest[2],
    )
    rest = Polynomial(terms, bound)
    return result if len(rest) == 1 else multiplied(ring, result, _factors(ring, rest))


def _factors(ring: Ring, rest: Polynomial) -> Factored:
    """Return the factors of a primitive polynomial of several terms."""
    for number, known in enumerate(ring.factors):
        if 1 < len(known.polynomial) <= len(rest) * 4:
            if known.polynomial.terms == rest.terms:
                return Factored(factors={number: 1})
            quotient = divide(ring, rest, known.polynomial)
            if quotient is not None:
                return multiplied(ring, factorise(ring, quotient), Factored(factors={number: 1}))
    root = square_root(ring, rest)
    if root is not None:
        half = factorise(ring, root)
        return multiplied(ring, Factored(), half, 2)
    number = ring.factor(rest)
    _relate_sign(ring, number)
    return Factored(factors={number: 1})


def _relate_sign(ring: Ring, number: int) -> None:
    """Teach the ring that exp and sqrt grow: sign(e^a - e^b) = sign(a - b), sign(sqrt a - sqrt b) = sign(a - b)."""
    polynomial = ring.factors[number].polynomial
    if len(polynomial) != 2 or ring.may_vanish(polynomial):
        return
    plus, minus = sorted(polynomial.terms, key=lambda key: -polynomial.terms[key])
    by_plus, by_minus = polynomial.terms[plus], -polynomial.terms[minus]
    sides = [Polynomial({key: by}, polynomial.bound) for key, by in ((plus, by_plus), (minus, by_minus))]
    if by_minus < 0 or not all(ring.is_positive(side) for side in sides):
        return
    if plus[:2] == minus[:2] and by_plus == by_minus:
        gap = add(ring.exponents[plus[2]], ring.exponents[minus[2]], -1)
    elif plus[1] or minus[1]:
        gap = add(ring.mul(sides[0], sides[0]), ring.mul(sides[1], sides[1]), -1)
    else:
        return
    factored = factorise(ring, gap)
    involved = sign_factors(ring, factored)
    if len(involved) == 1:
        ring.signs.learn((number, *involved), 1 if factored.coefficient > 0 else -1)


def divide(ring: Ring, dividend: Polynomial, divisor: Polynomial) -> Polynomial | None:
    """Return the quotient where the division leaves nothing, else None; None too where the divisor has roots.

    Both have no common monomial, so that the quotient has no negative power.
    """
    if any(roots for _, roots, _ in divisor.terms):
        return None
    groups: dict[int, dict[Monomial, int | Fraction]] = {}
    for (powers, roots, exponent), coefficient in dividend.terms.items():
        groups.setdefault(roots, {})[(powers, 0, exponent)] = coefficient
    lead, trail = ring.leading(divisor), ring.trailing(divisor)
    by = divisor.terms[lead]
    quotient: dict[Monomial, int | Fraction] = {}
    for roots, terms in groups.items():
        rest = Polynomial(terms, dividend.bound)
        if len(rest) == 1:
            return None
        lowest = ring.exponent_values[ring.trailing(rest)[2]] - ring.exponent_values[trail[2]] - 1e-9
        steps = 0
        while rest:
            steps += 1
            top = ring.leading(rest)
            powers = top[0] - lead[0]
            exponent = ring.exponent_sum(top[2], ring.exponent_multiple(lead[2], Fraction(-1)))
            if (
                ring.exponent_values[exponent] < lowest
                or steps > 4 * len(dividend) + 8
                or any(power < 0 for _, power in unpack(powers))
            ):
                return None
            coefficient = as_rational(Fraction(rest.terms[top]) / by)
            quotient[powers, roots, exponent] = coefficient
            part = Polynomial({(powers, 0, exponent): coefficient}, dividend.bound + divisor.bound)
            rest = add(rest, ring.mul(part, divisor), -1)
            if top in rest.terms:  # only where two exponents are equal and were not recognised as such
                return None
    return Polynomial(quotient, dividend.bound + divisor.bound)


def square_root(ring: Ring, polynomial: Polynomial) -> Polynomial | None:
    """Return q with q^2 = the polynomial, or None. Polynomials with roots are not tried."""
    if len(polynomial) < 3 or any(roots for _, roots, _ in polynomial.terms):
        return None
    first, last = _root_of_term(ring, polynomial, True), _root_of_term(ring, polynomial, False)
    if first is None or last is None:
        return None
    lead = ring.leading(first)
    by = 2 * first.terms[lead]
    root, rest = first, add(polynomial, ring.mul(first, first), -1)
    down = ring.exponent_multiple(lead[2], Fraction(-1))
    for _ in range(len(polynomial)):
        if not rest:
            return root
        top = ring.leading(rest)
        powers = top[0] - lead[0]
        if any(power < 0 for _, power in unpack(powers)):
            return None
        term = Polynomial(
            {(powers, 0, ring.exponent_sum(top[2], down)): as_rational(Fraction(rest.terms[top]) / by)},
            polynomial.bound * 2,
        )
        rest = add(rest, ring.mul(term, add(scale(root, 2), term)), -1)
        root = add(root, term)
        if top in rest.terms:
            return None
    return root if not rest else None


def _root_of_term(ring: Ring, polynomial: Polynomial, largest: bool) -> Polynomial | None:
    """Return the square root of the leading or the trailing term, None where it has none."""
    key = ring.leading(polynomial) if largest else ring.trailing(polynomial)
    coefficient = Fraction(polynomial.terms[key])
    if coefficient < 0:
        return None
    top, bottom = isqrt(coefficient.numerator), isqrt(coefficient.denominator)
    if Fraction(top * top, bottom * bottom) != coefficient or any(power % 2 for _, power in unpack(key[0])):
        return None
    half = sum(power // 2 * (1 << shift) for power, shift in _shifted(dict(unpack(key[0]))))
    exponent = ring.exponent_multiple(key[2], Fraction(1, 2))
    return scale(monomial(half, 0, exponent, polynomial.bound), Fraction(top, bottom))


def square_root_of_product(ring: Ring, factored: Factored) -> tuple[Polynomial, frozenset[int]]:
    """Return the square root of a product that is not negative, and the factors whose signs have the product +1.

    sqrt(R) = sqrt|R|: |g|^(k/2) for every power g^k. The factors returned are those of odd power that can be negative;
    a negative coefficient is counted in their product by the caller (`radicand_signs`).
    Raises: NowhereDefinedError for the root of a negative number.
    """
    if factored.coefficient == 0:
        return ZERO, frozenset()
    powers: dict[int, int] = dict(factored.factors)
    for index, power in factored.generators.items():
        number = ring.generator_factor(index)
        powers[number] = powers.get(number, 0) + power
    for number, power in factored.roots.items():
        inner = ring.factor(monomial(roots=root_bit(number)))
        powers[inner] = powers.get(inner, 0) + power
    signs = factored.signs
    result = _root_of_number(ring, abs(factored.coefficient))
    if factored.exponent:
        result = ring.mul(monomial(exponent=ring.exponent_multiple(factored.exponent, Fraction(1, 2))), result)
    for number, power in powers.items():
        if power % 2 and not ring.factors[number].positive:
            signs ^= {number}
        result = ring.mul(ring.root_power(number, power), result)
    return result, signs


def product_sign(ring: Ring, factored: Factored) -> int | None:
    """Return 1 or -1 where the product is known to be of that sign or zero, 0 where it is zero, else None."""
    if factored.coefficient == 0:
        return 0
    signs = 0
    for number in sign_factors(ring, factored):
        signs ^= sign_bit(number)
    left, sign = ring.signs.settle(signs)
    return None if left else (sign if factored.coefficient > 0 else -sign)


def sign_factors(ring: Ring, factored: Factored) -> frozenset[int]:
    """Return the factors whose signs multiply to the sign of the product (besides that of the coefficient)."""
    signs = factored.signs
    odd = [number for number, power in factored.factors.items() if power % 2]
    odd += [ring.generator_factor(index) for index, power in factored.generators.items() if power % 2]
    for number in odd:
        if not ring.factors[number].positive:
            signs ^= {number}
    return signs


def _root_of_number(ring: Ring, number: Fraction) -> Polynomial:
    """Return the square root of a positive rational: a rational times roots of distinct primes."""
    whole = number.numerator * number.denominator
    outside, result = Fraction(1, number.denominator), constant(1)
    prime = 2
    while prime * prime <= whole and prime < _SMALL_PRIMES:
        while whole % (prime * prime) == 0:
            whole //= prime * prime
            outside *= prime
        if whole % prime == 0:
            whole //= prime
            result = ring.mul(result, ring.root_power(ring.factor(constant(prime)), 1))
        prime += 1 if prime == 2 else 2
    root = isqrt(whole)
    if root * root == whole:
        outside, whole = outside * root, 1
    if whole > 1:
        result = ring.mul(result, ring.root_power(ring.factor(constant(whole)), 1))
    return scale(result, outside)
