"""What is known of max: normal forms of `max_over` and `maximum`, held as one atom with a set of elements.

Invariant: an atom (B_1, p_1), (B_2, p_2), ... stands for the largest of max_{B_i} p_i. Used are only laws that hold for
all reals: maximum is commutative, associative and idempotent; max(i, max(j, x)) = max(i*j, x);
max_a maximum(x, y) = maximum(max_a x, max_a y); max_a x = x if x does not vary along a;
maximum(x + z, y + z) = maximum(x, y) + z; max_a (x + z) = max_a x + z if z does not vary along a; and
maximum(c x, c y) = c maximum(x, y), max_a (c x) = c max_a x for constants c > 0.

Not used, because it does not hold: a factor that may be negative does not pass. Not decided: when two sums of *two*
maxima are equal (max(a,b) + max(c,d) is not multiplied out).
In the paper's form only max(i, max(j, x)) = max(i*j, x), max(i, maximum) and the shift by a summand are used, the last
as table 2 does for sums, without asking what varies.
"""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING

from workbench.domains.abstract_tables import UNIT, Atom, Monomial, UndecidedError

if TYPE_CHECKING:
    from workbench.domains.abstract_normal_form import Algebra

Element = tuple[int, int]  # (bound axes, polynomial)


def maximum(algebra: Algebra, p: int, q: int) -> int:
    """Return the larger of two polynomials."""
    common = Counter(algebra.polynomials[p]) & Counter(algebra.polynomials[q])
    if common and p != q:  # taken out first, so that a maximum that both share stays whole
        rests = [_without(algebra, x, common) for x in (p, q)]
        return algebra.polynomial([*common.elements(), *algebra.polynomials[maximum(algebra, *rests)]])
    return join(algebra, [*flatten(algebra, p), *flatten(algebra, q)])


def max_over(algebra: Algebra, p: int, axis: int) -> int:
    """Return the maximum of a polynomial along an axis."""
    fixed = [m for m in algebra.polynomials[p] if not algebra.monomial_mask[m] & axis]
    varies = [m for m in algebra.polynomials[p] if algebra.monomial_mask[m] & axis]
    if not varies:
        return p
    elements = []
    for bound, body in flatten(algebra, algebra.polynomial(varies)):
        own, q = algebra.element_apart(bound, body, axis)
        elements.append((own | (axis if algebra.mask[q] & axis else 0), q))
    return algebra.polynomial([*fixed, *algebra.polynomials[join(algebra, elements)]])


def max_size(algebra: Algebra, p: int, size: int) -> int:
    """Return the paper's maximum of `size` elements.

    max(i, x + y) = max(i, x) + y makes it a shift that depends on the number alone, one summand per prime of it.
    """
    peaks = [algebra.monomial(Monomial((algebra.atom(Atom("peak", ref=n)),))) for n in prime_factors(size)]
    return algebra.polynomial([*algebra.polynomials[p], *peaks])


def prime_factors(number: int) -> list[int]:
    """Return the primes whose product is the number, smallest first."""
    primes, candidate = [], 2
    while candidate * candidate <= number:
        while number % candidate == 0:
            primes.append(candidate)
            number //= candidate
        candidate += 1
    return [*primes, number] if number > 1 else primes


def flatten(algebra: Algebra, p: int) -> list[Element]:
    """Return elements whose maximum is the polynomial: summands that are maxima are taken apart."""
    plain: list[int] = []
    choices: list[list[Element]] = []
    for m in algebra.polynomials[p]:
        peeled = peel(algebra, m)
        if peeled is None:
            plain.append(m)
        else:
            factor, elements = peeled
            choices.append([(bound, scale_element(algebra, factor, q)) for bound, q in elements])
    result: list[Element] = []
    for choice in itertools.product(*choices):
        taken = algebra.mask[p]
        for own, q in choice:
            taken |= algebra.mask[q] & ~own
        bound, body = 0, list(plain)
        for own, q in choice:
            own, q = algebra.element_apart(own, q, taken | bound)
            bound |= own
            body.extend(m for m in algebra.polynomials[q] if m != zero_monomial(algebra))
        if len(result) >= algebra.max_terms:
            raise UndecidedError(f"a maximum of more than {algebra.max_terms} elements")
        result.append((bound, _sum_or_zero(algebra, body)))
    return result


def scale_element(algebra: Algebra, factor: int, p: int) -> int:
    """Return a positive constant times the polynomial of an element; times 0 it is 0."""
    return p if algebra.polynomials[p] == (zero_monomial(algebra),) else algebra.scale(factor, p)


def peel(algebra: Algebra, m: int) -> tuple[int, tuple[Element, ...]] | None:
    """Return (positive constant, elements) of a monomial that is a constant times one maximum, else None."""
    a = algebra.monomials[m]
    if a.den or a.quotient != UNIT or a.root != UNIT:
        return None
    maxima = [atom for atom in a.num if algebra.atoms[atom].kind == "max"]
    numbers = tuple(atom for atom in a.num if algebra.is_positive_number(atom))
    if len(maxima) != 1 or len(numbers) + 1 != len(a.num):
        return None
    return algebra.monomial(Monomial(numbers)), algebra.atoms[maxima[0]].elements


def join(algebra: Algebra, elements: list[Element]) -> int:
    """Return the polynomial that is the maximum of elements."""
    distinct = sorted({algebra.canonical_element(bound, p) for bound, p in elements})
    if len(distinct) == 1:
        return _join_one(algebra, *distinct[0])
    common = Counter(algebra.polynomials[distinct[0][1]])
    for own, p in distinct:
        common &= Counter(
            {m: n for m, n in Counter(algebra.polynomials[p]).items() if not algebra.monomial_mask[m] & own}
        )
    shared = [m for m in common.elements() if m != zero_monomial(algebra)]
    rests = [(own, _without(algebra, p, Counter(shared))) for own, p in distinct]
    return algebra.polynomial([*shared, _maximum_monomial(algebra, rests)])


def _join_one(algebra: Algebra, bound: int, p: int) -> int:
    """Return max_B p: summands that share no bound axis are maximised apart."""
    result = [m for m in algebra.polynomials[p] if not algebra.monomial_mask[m] & bound]
    groups: list[tuple[int, list[int]]] = []
    for m in algebra.polynomials[p]:
        mask, members = algebra.monomial_mask[m] & bound, [m]
        if not mask:
            continue
        apart = []
        for other, others in groups:
            if other & mask:
                mask, members = mask | other, members + others
            else:
                apart.append((other, others))
        groups = [*apart, (mask, members)]
    result += [_maximum_monomial(algebra, [(mask, algebra.polynomial(members))]) for mask, members in groups]
    return algebra.polynomial(result)


def _maximum_monomial(algebra: Algebra, elements: list[Element]) -> int:
    """Return the atom of the elements, times the positive constants that all of them share."""
    zero = zero_monomial(algebra)
    numbers: Counter[int] | None = None
    for _, p in elements:
        for m in algebra.polynomials[p]:
            if m != zero:
                own = Counter(atom for atom in algebra.monomials[m].num if algebra.is_positive_number(atom))
                numbers = own if numbers is None else numbers & own
    factor = algebra.monomial(Monomial(tuple(sorted((numbers or Counter()).elements(), reverse=True))))
    if factor != UNIT:
        elements = [
            (
                own,
                algebra.polynomial(
                    [m if m == zero else algebra.divide_monomials(m, factor) for m in algebra.polynomials[p]]
                ),
            )
            for own, p in elements
        ]
    atom = algebra.atom(Atom("max", elements=tuple(sorted(algebra.canonical_element(*e) for e in elements))))
    return algebra.multiply_monomials(factor, algebra.monomial(Monomial((atom,))))


def zero_monomial(algebra: Algebra) -> int:
    """Return the monomial of the constant 0, which stands for an empty element."""
    return algebra.monomial(Monomial((algebra.atom(Atom("constant", "0")),)))


def _without(algebra: Algebra, p: int, common: Counter[int]) -> int:
    return _sum_or_zero(algebra, list((Counter(algebra.polynomials[p]) - common).elements()))


def _sum_or_zero(algebra: Algebra, monomials: list[int]) -> int:
    return algebra.polynomial(monomials or [zero_monomial(algebra)])
