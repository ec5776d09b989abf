"""What is known of max: normal forms of `max_over` and `maximum`.

Invariant: a *reduction* atom (one element (B, p), B not empty) is max_B p, with p split into what shares bound axes; a
*choice* atom (elements (0, p_1), (0, p_2), ...) is the largest of several polynomials that share no summand. Used are
only laws that hold for all reals: maximum is commutative, associative and idempotent; max(i, max(j, x)) = max(i*j, x);
max_a maximum(x, y) = maximum(max_a x, max_a y); max_a x = x if x does not vary along a;
maximum(x + z, y + z) = maximum(x, y) + z; max_a (x + z) = max_a x + z if z does not vary along a; and
maximum(c x, c y) = c maximum(x, y), max_a (c x) = c max_a x for constants c > 0.

Not used, because it does not hold: a factor that may be negative does not pass. Not decided: whether two sums of *two*
choices are equal (maximum(a, b) + maximum(c, d) is not multiplied out). In the paper's form max(i, .) shifts by a
summand as sum(i, .) passes by a factor, without asking what varies.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from workbench.domains.abstract_tables import UNIT, Atom, Monomial, UndecidedError

if TYPE_CHECKING:
    from workbench.domains.abstract_normal_form import Algebra

Element = tuple[int, int]  # (bound axes, polynomial)


def maximum(algebra: Algebra, p: int, q: int) -> int:
    """Return the larger of two polynomials."""
    common = Counter(algebra.polynomials[p]) & Counter(algebra.polynomials[q])
    if common and p != q:  # taken out first, so that a choice that both share stays whole
        rests = [_without(algebra, x, common) for x in (p, q)]
        return algebra.polynomial([*common.elements(), *algebra.polynomials[maximum(algebra, *rests)]])
    return join(algebra, [*flatten(algebra, p), *flatten(algebra, q)])


def max_over(algebra: Algebra, p: int, axis: int) -> int:
    """Return the maximum of a polynomial along an axis."""
    fixed = [m for m in algebra.polynomials[p] if not algebra.monomial_mask[m] & axis]
    varies = [m for m in algebra.polynomials[p] if algebra.monomial_mask[m] & axis]
    if not varies:
        return p
    elements = [_reduce(algebra, q, axis) for q in flatten(algebra, algebra.polynomial(varies))]
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


# ------------------------------------------------------------------------------------------------------------ choices
def flatten(algebra: Algebra, p: int) -> list[int]:
    """Return polynomials whose maximum is the polynomial: summands that are choices are taken apart."""
    plain: list[int] = []
    choices: list[list[int]] = []
    for m in algebra.polynomials[p]:
        peeled = peel(algebra, m)
        if peeled is None or peeled[1][0][0]:
            plain.append(m)
        else:
            factor, elements = peeled
            choices.append([scale_element(algebra, factor, q) for _, q in elements])
    zero = zero_monomial(algebra)
    result: list[int] = []
    for choice in itertools.product(*choices):
        if len(result) >= algebra.max_terms:
            raise UndecidedError(f"a maximum of more than {algebra.max_terms} elements")
        chosen = [m for q in choice for m in algebra.polynomials[q] if m != zero]
        result.append(_sum_or_zero(algebra, [*plain, *chosen]))
    return result


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


def join(algebra: Algebra, elements: Sequence[int]) -> int:
    """Return the maximum of polynomials that are no choices themselves."""
    distinct = sorted(set(elements))
    if len(distinct) == 1:
        return distinct[0]
    common = Counter(algebra.polynomials[distinct[0]])
    for p in distinct[1:]:
        common &= Counter(algebra.polynomials[p])
    rests = [(0, _without(algebra, p, common)) for p in distinct]
    return algebra.polynomial([*common.elements(), _maximum_monomial(algebra, rests)])


def scale_element(algebra: Algebra, factor: int, p: int) -> int:
    """Return a positive constant times the polynomial of an element; times 0 it is 0."""
    return p if algebra.polynomials[p] == (zero_monomial(algebra),) else algebra.scale(factor, p)


def zero_monomial(algebra: Algebra) -> int:
    """Return the monomial of the constant 0, which stands for an empty element."""
    return algebra.monomial(Monomial((algebra.atom(Atom("constant", "0")),)))


# --------------------------------------------------------------------------------------------------------- reductions
def _reduce(algebra: Algebra, p: int, axis: int) -> int:
    """Return max over the axis of a polynomial without choices; reductions that vary along it are joined."""
    result: list[int] = []
    bound, body = axis, []
    taken = algebra.mask[p] | axis
    for m in algebra.polynomials[p]:
        peeled = peel(algebra, m)
        if peeled is None:
            body.append(m)
            continue
        factor, ((own, q),) = peeled
        own, q = algebra.element_apart(own, q, taken | bound)
        bound |= own
        body.extend(algebra.polynomials[algebra.scale(factor, q)])
    for mask, members in _components(algebra, body, bound):
        result.append(_maximum_monomial(algebra, [(mask, algebra.polynomial(members))]) if mask else members[0])
    return _sum_or_zero(algebra, result)


def _components(algebra: Algebra, monomials: Sequence[int], bound: int) -> list[tuple[int, list[int]]]:
    """Return the monomials grouped by the bound axes they share; alone with 0 those without any."""
    groups: list[tuple[int, list[int]]] = []
    for m in monomials:
        mask, members, apart = algebra.monomial_mask[m] & bound, [m], []
        for other, others in groups:
            if other & mask:
                mask, members = mask | other, members + others
            else:
                apart.append((other, others))
        groups = [*apart, (mask, members)]
    return groups


def _maximum_monomial(algebra: Algebra, elements: Sequence[Element]) -> int:
    """Return the atom of the elements, times the positive constants that all of them share."""
    zero = zero_monomial(algebra)
    numbers: Counter[int] | None = None
    for _, p in elements:
        for m in algebra.polynomials[p]:
            if m != zero:
                own = Counter(atom for atom in algebra.monomials[m].num if algebra.is_positive_number(atom))
                numbers = own if numbers is None else numbers & own
    factor = algebra.monomial(Monomial(tuple(sorted((numbers or Counter()).elements(), reverse=True))))
    reduced = [(own, _divided(algebra, p, factor)) for own, p in elements]
    canonical = sorted(algebra.canonical_element(own, p) for own, p in reduced)
    atom = algebra.atom(Atom("max", elements=tuple(canonical)))
    return algebra.multiply_monomials(factor, algebra.monomial(Monomial((atom,))))


def _divided(algebra: Algebra, p: int, factor: int) -> int:
    zero = zero_monomial(algebra)
    return algebra.polynomial([m if m == zero else algebra.divide_monomials(m, factor) for m in algebra.polynomials[p]])


def _without(algebra: Algebra, p: int, common: Counter[int]) -> int:
    return _sum_or_zero(algebra, list((Counter(algebra.polynomials[p]) - common).elements()))


def _sum_or_zero(algebra: Algebra, monomials: Sequence[int]) -> int:
    return algebra.polynomial(monomials or [zero_monomial(algebra)])
