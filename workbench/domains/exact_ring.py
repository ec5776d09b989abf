"""The ring in which normal forms live: polynomials in inputs, reciprocals, opaque values, roots, signs and exponentials.

A factor f is a polynomial that is divided by or whose root is taken. Its reciprocal is a generator; its root r = sqrt|f|
and its sign s (1 or -1, f = s |f|) are bits of a monomial, with r^2 = s f and s^2 = 1. So sqrt(a) sqrt(b) = sqrt(ab) and
sqrt(x^2) = |x| = s x hold by construction, on the whole domain. What is known of signs (a radicand is not negative; the
guards of a cell) is a system of equations over the signs.

Invariant: every rule used holds pointwise wherever the original expression is defined, so a difference that reduces to 0
is 0 there; the converse is not promised (factors are not proved irreducible).
"""

from __future__ import annotations

import math
import random
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from fractions import Fraction

from workbench.domains.exact_budget import Meter
from workbench.domains.exact_polynomial import (
    ONE,
    ZERO,
    Monomial,
    Polynomial,
    Rational,
    add,
    bits,
    constant,
    generator,
    monomial,
    power_of,
    scale,
    unpack,
)
from workbench.domains.exact_signs import SignEquations, root_bit, sign_bit

_CLOSE = 1e-7  # relative distance at which two values at the ring's random point may belong to equal expressions


@dataclass(slots=True)
class Generator:
    """A generator: its name, its value at the ring's random point, an expression that is it (ABSENT if none was given).

    Attributes: reciprocal: the factor it is the reciprocal of; pieces: the number of the piecewise expression it stands
    for; arguments: what an opaque or piecewise value depends on; positive: it is never negative.
    """

    name: Hashable
    value: float
    node: int = -1
    reciprocal: int | None = None
    pieces: int | None = None
    arguments: tuple[Polynomial, ...] = ()
    positive: bool = False


@dataclass(slots=True)
class Factor:
    """A polynomial without rational content and common monomial.

    Attributes: value: at the ring's random point; positive: it is evidently never negative; generator: the one it
    consists of (None: it is no single generator); reciprocal: the generator of its reciprocal (None: not needed yet).
    """

    polynomial: Polynomial
    value: float
    positive: bool
    generator: int | None = None
    reciprocal: int | None = None


class Ring:
    """Arithmetic and the tables of generators, factors, exponents, classes of equal arguments, and known signs."""

    def __init__(self, meter: Meter) -> None:
        self.meter = meter
        self.generators: list[Generator] = []
        self.factors: list[Factor] = []
        self.exponents: list[Polynomial] = [ZERO]
        self.exponent_values: list[float] = [0.0]
        self._generator_numbers: dict[Hashable, int] = {}
        self._factor_numbers: dict[frozenset[tuple[Monomial, Rational]], int] = {}
        self._exponent_numbers: dict[frozenset[tuple[Monomial, Rational]], int] = {frozenset(): 0}
        self._sums: dict[tuple[int, int], int] = {}
        self._classes: list[tuple[Polynomial, float]] = []
        self._class_numbers: dict[frozenset[tuple[Monomial, Rational]], int] = {}
        self.signs = SignEquations()

    # -------------------------------------------------------------------------------------------------------- generators
    def generator(self, name: Hashable, *, node: int = -1, pieces: int | None = None, positive: bool = False,
                  arguments: tuple[Polynomial, ...] = (), value: float | None = None,
                  reciprocal: int | None = None) -> int:  # fmt: skip
        """Return the number of the generator of this name, made where it is new."""
        found = self._generator_numbers.get(name)
        if found is None:
            found = self._generator_numbers[name] = len(self.generators)
            if value is None:
                value = random.Random(f"{name!r}").uniform(0.3, 1.7)
            self.generators.append(Generator(name, value, node, reciprocal, pieces, arguments, positive))
        return found

    def gen(self, index: int, power: int = 1) -> Polynomial:
        """Return a generator to a power."""
        return monomial(powers=generator(index, power), bound=abs(power))

    # -------------------------------------------------------------------------------------------------------- arithmetic
    def mul(self, a: Polynomial, b: Polynomial) -> Polynomial:
        """Return a * b, squares of roots and signs replaced. Raises: BudgetError."""
        if not a.terms or not b.terms:
            return ZERO
        if len(a.terms) > len(b.terms):
            a, b = b, a
        self.meter.hold(len(b.terms))
        terms: dict[Monomial, Rational] = {}
        squares: dict[int, dict[Monomial, Rational]] = {}
        get, exponent_sum, settle = terms.get, self.exponent_sum, self.signs.settle if self.signs else None
        for (powers, roots, exponent), by in a.terms.items():
            self.meter.spend(len(b.terms))
            for (powers2, roots2, exponent2), by2 in b.terms.items():
                if not exponent:
                    sum_of_exponents = exponent2
                elif not exponent2:
                    sum_of_exponents = exponent
                else:
                    sum_of_exponents = exponent_sum(exponent, exponent2)
                coefficient = by * by2
                common = roots & roots2
                joined = roots ^ roots2
                if joined and settle:
                    joined, sign = settle(joined)
                    coefficient *= sign
                key = (powers + powers2, joined, sum_of_exponents)
                if common:
                    part = squares.setdefault(common, {})
                    part[key] = part.get(key, 0) + coefficient
                else:
                    terms[key] = get(key, 0) + coefficient
            self.meter.hold(len(terms) // 4)  # terms may still cancel
        product = Polynomial({key: value for key, value in terms.items() if value}, a.bound + b.bound)
        for common, part in squares.items():
            rest = Polynomial({key: value for key, value in part.items() if value}, a.bound + b.bound)
            product = add(product, self.mul(self._squared(common), rest))
        self.meter.hold(len(product.terms))
        return product

    def power(self, a: Polynomial, exponent: int) -> Polynomial:
        """Return a to a power of at least 0."""
        result = ONE
        while exponent:
            if exponent & 1:
                result = self.mul(result, a)
            exponent >>= 1
            if exponent:
                a = self.mul(a, a)
        return result

    def _squared(self, roots: int) -> Polynomial:
        """Return the square of a set of roots and signs: |f| for each root, 1 for each sign."""
        product = ONE
        for factor, is_sign in bits(roots):
            if not is_sign:
                product = self.mul(product, self.absolute_power(factor, 1))
        return product

    # --------------------------------------------------------------------------------------------------- roots and signs
    def absolute_power(self, factor: int, half: int) -> Polynomial:
        """Return |f|^half for an integer `half`."""
        plain = self.factor_power(factor, half)
        if half % 2 == 0 or self.factors[factor].positive:
            return plain
        roots, sign = self.signs.settle(sign_bit(factor))
        return self.mul(scale(monomial(roots=roots), sign), plain)

    def root_power(self, factor: int, power: int) -> Polynomial:
        """Return sqrt|f| to an integer power."""
        half, odd = divmod(power, 2)
        whole = self.absolute_power(factor, half)
        return self.mul(whole, monomial(roots=root_bit(factor))) if odd else whole

    def factor_power(self, factor: int, power: int) -> Polynomial:
        """Return f^power; a negative power is one of the reciprocal."""
        record = self.factors[factor]
        if record.generator is not None:
            return self.gen(record.generator, power)
        if power >= 0:
            return self.power(record.polynomial, power)
        number = record.polynomial.number()
        if number is not None:
            return constant(number**power)
        if len(record.polynomial) == 1:  # a root as a factor: 1/r = r / |f|
            ((_, roots, _),) = record.polynomial.terms
            return self.root_power(roots.bit_length() // 2, power)
        if record.reciprocal is None:
            value = 1 / record.value if record.value else math.nan
            record.reciprocal = self.generator(
                ("reciprocal", factor), value=value, reciprocal=factor, positive=record.positive
            )
        return self.gen(record.reciprocal, -power)

    # -------------------------------------------------------------------------------------------------------- exponentials
    def exponent_sum(self, left: int, right: int) -> int:
        """Return the number of the sum of two exponents."""
        key = (left, right) if left < right else (right, left)
        found = self._sums.get(key)
        if found is None:
            found = self._sums[key] = self.exponent(add(self.exponents[left], self.exponents[right]))
        return found

    def exponent_multiple(self, number: int, factor: Fraction) -> int:
        """Return the number of a rational multiple of an exponent."""
        return self.exponent(scale(self.exponents[number], factor)) if number else 0

    def exponent(self, argument: Polynomial) -> int:
        """Return the number of an exponent, the same for arguments that are equal."""
        key = argument.key
        found = self._exponent_numbers.get(key)
        if found is None:
            value = self.value(argument)
            found = self._equal(argument, value, zip(self.exponents, self.exponent_values, strict=True))
            if found is None:
                found = len(self.exponents)
                self.exponents.append(argument)
                self.exponent_values.append(value)
            self._exponent_numbers[key] = found
        return found

    def class_of(self, argument: Polynomial) -> int:
        """Return a number that equal arguments (of opaque and piecewise operators) share."""
        key = argument.key
        found = self._class_numbers.get(key)
        if found is None:
            value = self.value(argument)
            found = self._equal(argument, value, self._classes)
            if found is None:
                found = len(self._classes)
                self._classes.append((argument, value))
            self._class_numbers[key] = found
        return found

    def factor(self, polynomial: Polynomial, index: int | None = None) -> int:
        """Return the number of a factor (primitive; `index`: the generator it consists of), made where it is new."""
        key = polynomial.key
        found = self._factor_numbers.get(key)
        if found is None:
            found = self._factor_numbers[key] = len(self.factors)
            self.factors.append(Factor(polynomial, self.value(polynomial), self.is_positive(polynomial), index))
        return found

    def generator_factor(self, index: int) -> int:
        """Return the factor that is one generator."""
        return self.factor(self.gen(index), index)

    def _equal(self, a: Polynomial, value: float, known: Iterable[tuple[Polynomial, float]]) -> int | None:
        """Return the position of an equal polynomial; values at the random point say which are worth a proof."""
        for position, (other, other_value) in enumerate(known):
            near = abs(value - other_value) <= _CLOSE * (1 + abs(value))
            if (near or value != value or other_value != other_value) and self.is_zero(add(a, other, -1)):
                return position
        return None

    # ------------------------------------------------------------------------------------------------------------ deciding
    def without_reciprocals(self, a: Polynomial) -> tuple[Polynomial, dict[int, int]]:
        """Return (n, {factor: power}) with a = n / product of the factors to their powers."""
        denominator: dict[int, int] = {}
        while True:
            index = self._a_reciprocal(a)
            if index is None:
                return a, denominator
            factor = self.generators[index].reciprocal
            assert factor is not None
            groups: dict[int, dict[Monomial, Rational]] = {}
            unit = generator(index)
            for (powers, roots, exponent), coefficient in a.terms.items():
                power = power_of(powers, index)
                groups.setdefault(power, {})[(powers - power * unit, roots, exponent)] = coefficient
            largest = max(groups)
            result = ZERO
            for power in sorted(groups):  # Horner's rule from the lowest power of the reciprocal
                result = add(result, Polynomial(groups[power], a.bound))
                following = min((other for other in groups if other > power), default=power)
                if following > power:
                    result = self.mul(result, self.power(self.factors[factor].polynomial, following - power))
            denominator[factor] = denominator.get(factor, 0) + largest
            a = result

    def _a_reciprocal(self, a: Polynomial) -> int | None:
        for powers, _, _ in a.terms:
            if powers:
                for index, _ in unpack(powers):
                    if self.generators[index].reciprocal is not None:
                        return index
        return None

    def is_zero(self, a: Polynomial) -> bool:
        """Return whether the polynomial is 0 after multiplication by all denominators. Raises: BudgetError."""
        return not a.terms or not self.without_reciprocals(a)[0].terms

    def is_positive(self, a: Polynomial) -> bool:
        """Return whether the polynomial is evidently never negative: positive coefficients, squares, roots, exponentials."""
        for (powers, roots, _), coefficient in a.terms.items():
            if coefficient < 0 or any(is_sign for _, is_sign in bits(roots)):
                return False
            for index, power in unpack(powers):
                if power % 2 and not self.generators[index].positive:
                    return False
        return True

    def is_constant(self, a: Polynomial) -> bool:
        """Return whether a polynomial has no generator: numbers, roots of numbers, exponentials of such."""
        pending = [a]
        while pending:
            for powers, roots, exponent in pending.pop().terms:
                if powers:
                    return False
                pending += [self.factors[factor].polynomial for factor, _ in bits(roots)]
                if exponent:
                    pending.append(self.exponents[exponent])
        return True

    def sign_of_constant(self, a: Polynomial) -> int | None:
        """Return the sign of a constant whose float64 value is clear of rounding, None otherwise."""
        if not self.is_constant(a):
            return None
        sizes = [abs(self.value(Polynomial({key: coefficient}, a.bound))) for key, coefficient in a.terms.items()]
        value = self.value(a)
        if not abs(value) > 1e-9 * sum(sizes):
            return None
        return 1 if value > 0 else -1

    def generators_in(self, a: Polynomial, signs: set[int] | None = None) -> list[Generator]:
        """Return every generator a polynomial depends on, through exponents, roots, reciprocals and arguments.

        signs: gets the factors whose signs occur.
        """
        found: list[Generator] = []
        seen: set[tuple[str, int]] = set()
        pending = [a]
        while pending:
            for powers, roots, exponent in pending.pop().terms:
                if exponent and ("exponent", exponent) not in seen:
                    seen.add(("exponent", exponent))
                    pending.append(self.exponents[exponent])
                factors = []
                for number, is_sign in bits(roots):
                    factors.append(number)
                    if is_sign and signs is not None:
                        signs.add(number)
                for index, _ in unpack(powers):
                    if ("generator", index) in seen:
                        continue
                    seen.add(("generator", index))
                    record = self.generators[index]
                    found.append(record)
                    pending += record.arguments
                    if record.reciprocal is not None:
                        factors.append(record.reciprocal)
                for factor in factors:
                    if ("factor", factor) not in seen:
                        seen.add(("factor", factor))
                        pending.append(self.factors[factor].polynomial)
        return found

    def may_vanish(self, a: Polynomial) -> bool:
        """Return whether a polynomial that is not zero may be zero on a region: pieces, or opaque values, are in it."""
        return any(record.arguments for record in self.generators_in(a))

    def value(self, a: Polynomial) -> float:
        """Return the polynomial at the ring's random point (roots of absolute values, so that all are real)."""
        total = 0.0
        try:
            for (powers, roots, exponent), coefficient in a.terms.items():
                term = float(coefficient) * math.exp(self.exponent_values[exponent])
                for index, power in unpack(powers):
                    term *= self.generators[index].value ** power
                for number, is_sign in bits(roots):
                    factor = self.factors[number].value
                    term *= math.copysign(1.0, factor) if is_sign else math.sqrt(abs(factor))
                total += term
        except (OverflowError, ZeroDivisionError):
            return math.nan
        return total

    def order(self, key: Monomial) -> tuple[float, int, int]:
        """Return the place of a monomial in an order that multiplication respects."""
        return self.exponent_values[key[2]], key[0], key[1]

    def leading(self, a: Polynomial) -> Monomial:
        """Return the largest monomial."""
        return max(a.terms, key=self.order)

    def trailing(self, a: Polynomial) -> Monomial:
        """Return the smallest monomial."""
        return min(a.terms, key=self.order)
