"""From a value backwards: every last operator that could have made it, with its operands.

Invariant: each production, carried out, gives the value; and within the budget every production under A_eq is returned,
because normal forms are never cancelled: a factor of a product divides it, a summand of a sum is contained in it. What
was not completely enumerated is counted.

For goals such as a root of a sum of many products: forwards every partial product of the nine terms of (a + b + c)^2
looks useful; backwards the radicand is known exactly, is a perfect square, and falls into a + b + c at once.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import isqrt

from workbench.domains import abstract_lattice as lattice
from workbench.domains.abstract_expr import Axis
from workbench.domains.abstract_normal_form import Algebra, Value
from workbench.domains.abstract_tables import UNIT, Monomial, bits_of


@dataclass(frozen=True, slots=True)
class Production:
    """One operator whose result is the value asked for.

    Attributes: operator (add, mul, div, exp, sqrt, sum, matmul, max, maximum or a function's name); operands (those of
    commutative operators in ascending order); axes (reduced by sum, matmul and max).
    """

    operator: str
    operands: tuple[Value, ...]
    axes: tuple[Axis, ...] = ()


class Decomposition:
    """Decomposes values of one algebra; answers are remembered.

    Attributes: algebra, max_splits (ways to split a sum, and divisors of a monomial, that are enumerated for one value),
    incomplete (values for which the budget was not enough).
    """

    def __init__(self, algebra: Algebra, *, max_splits: int = 4096) -> None:
        """Keep the algebra and the budget."""
        self.algebra = algebra
        self.max_splits = max_splits
        self.incomplete: set[int] = set()
        self._factors: dict[int, tuple[tuple[int, int], ...]] = {}
        self._roots: dict[int, int] = {}

    def productions(self, value: Value, reductions: Sequence[Sequence[Axis]] = ()) -> tuple[Production, ...]:
        """Return every production of a value, in a fixed order.

        `reductions` are the sets of axes that one operator of the palette reduces at once (a tile, a loop, both).
        """
        found: list[Production] = []
        for axes in reductions:
            names = tuple(sorted(axes, key=str))
            for operand in self.summands(value, names):
                found += [Production("matmul", pair, names) for pair in self._contracted(operand, names)]
                found.append(Production("sum", (operand,), names))
            found += [Production("max", (operand,), names) for operand in self.maximised(value, names)]
        found += [Production("mul", pair) for pair in self.products(value)]
        found += [Production("div", pair) for pair in self.quotients(value)]
        found += [Production("add", pair) for pair in self.sums(value)]
        found += [Production("maximum", pair) for pair in self.maxima(value)]
        found += self.functions(value)
        return tuple(dict.fromkeys(found))

    # ------------------------------------------------------------------------------------------------------ products
    def products(self, value: Value, is_factor: Callable[[int], bool] | None = None) -> list[tuple[Value, Value]]:
        """Return the pairs whose product is the value, neither of them 1.

        is_factor: asked about every monomial of a factor; pairs with one that it denies are left out.
        """
        pairs = self._products(value) if is_factor is None else self._sorted(self._find_products(value, is_factor))
        return [(Value(p), Value(q)) for p, q in pairs]

    def square_root(self, value: Value) -> Value | None:
        """Return the value whose product with itself is the value, None if there is none."""
        root = self._root(value) if value != UNIT else -1
        return Value(root) if root >= 0 else None

    def _root(self, p: int) -> int:
        """Return the polynomial whose square is p, -1 if there is none: as long division, greatest monomials first.

        Like terms are kept apart, so the square of k monomials has k * k; the greatest that the monomials found so far
        leave over is the first of the root times the next.
        """
        found = self._roots.get(p)
        if found is None:
            self._roots[p] = -1  # while it is being computed
            found = self._roots[p] = self._find_root(p)
        return found

    def _find_root(self, p: int) -> int:
        algebra = self.algebra
        ordered = algebra.descending(p)
        terms = isqrt(len(ordered))
        first = self._root_of_monomial(ordered[0]) if terms * terms == len(ordered) else -1
        if first < 0:
            return -1
        rest, root = Counter(ordered), [first]
        rest[ordered[0]] -= 1
        for greatest in ordered:
            while rest[greatest]:
                new = algebra.divide_monomials(greatest, first)
                if new < 0 or len(root) == terms:
                    return -1
                rest.subtract([algebra.multiply_monomials(new, m) for m in root] * 2)
                rest[algebra.multiply_monomials(new, new)] -= 1
                if min(rest.values()) < 0:
                    return -1
                root.append(new)
        return algebra.polynomial(root)

    def _root_of_monomial(self, m: int) -> int:
        a = self.algebra.monomials[m]
        halves = []
        for members in (a.num, a.den):
            counts = Counter(members)
            if any(times % 2 for times in counts.values()):
                return -1
            halves.append(members[::2])  # members are sorted, so that equal ones stand side by side
        inner = [self._root(q) if q != UNIT else UNIT for q in (a.quotient, a.root)]
        if min(inner) < 0:
            return -1
        return self.algebra.monomial(Monomial(halves[0], halves[1], *inner))

    def _products(self, p: int) -> tuple[tuple[int, int], ...]:
        found = self._factors.get(p)
        if found is None:
            self._factors[p] = ()  # while it is being computed: a polynomial does not occur in its own denominator
            found = self._factors[p] = self._sorted(self._find_products(p))
        return found

    def _sorted(self, pairs: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
        ordered = {(min(pair), max(pair)) for pair in pairs}
        return tuple(sorted(pair for pair in ordered if UNIT not in pair))

    def _find_products(self, p: int, is_factor: Callable[[int], bool] | None = None) -> Iterator[tuple[int, int]]:
        """Return pairs of factors, found from the greatest monomial downwards.

        The greatest monomial of a product is the product of the greatest ones; the greatest that the factors found so
        far leave over is the product of one greatest with a new monomial of the other factor.
        """
        algebra = self.algebra
        ordered = algebra.descending(p)
        rest = Counter(ordered)
        rest[ordered[0]] -= 1
        seen: set[int] = set()  # the factors may be exchanged
        for first in self.divisors(ordered[0]):
            second = algebra.divide_monomials(ordered[0], first)
            if second in seen or (is_factor is not None and not (is_factor(first) and is_factor(second))):
                continue
            seen.add(first)
            yield from self._grow(ordered, [first], [second], rest, 0, is_factor)

    def _grow(
        self,
        ordered: list[int],
        left: list[int],
        right: list[int],
        rest: Counter[int],
        start: int,
        is_factor: Callable[[int], bool] | None,
    ) -> Iterator[tuple[int, int]]:
        algebra = self.algebra
        while start < len(ordered) and not rest[ordered[start]]:
            start += 1
        if start == len(ordered):
            yield algebra.polynomial(left), algebra.polynomial(right)
            return
        for grown, other in ((left, right), (right, left)):
            new = algebra.divide_monomials(ordered[start], other[0])
            if new < 0 or (is_factor is not None and not is_factor(new)):
                continue
            taken = []
            for m in other:
                product = algebra.multiply_monomials(new, m)
                if rest[product] <= 0:
                    break
                rest[product] -= 1
                taken.append(product)
            else:
                grown.append(new)
                yield from self._grow(ordered, left, right, rest, start, is_factor)
                grown.pop()
            for product in taken:
                rest[product] += 1

    def divisors(self, m: int) -> list[int]:
        """Return the monomials that divide a monomial, 1 and itself among them."""
        a, algebra = self.algebra.monomials[m], self.algebra
        nums, dens = _submultisets(a.num), _submultisets(a.den)
        quotients, roots = self._polynomial_divisors(a.quotient), self._polynomial_divisors(a.root)
        every = itertools.product(nums, dens, quotients, roots)
        if len(nums) * len(dens) * len(quotients) * len(roots) > self.max_splits:
            self.incomplete.add(m)
        return [algebra.monomial(Monomial(*parts)) for parts in itertools.islice(every, self.max_splits)]

    def _polynomial_divisors(self, p: int) -> list[int]:
        if p == UNIT:
            return [UNIT]
        return sorted({UNIT, p, *(q for pair in self._products(p) for q in pair)})

    # ----------------------------------------------------------------------------------------------------- quotients
    def quotients(self, value: Value) -> list[tuple[Value, Value]]:
        """Return the pairs (dividend, divisor) whose quotient is the value; a divisor is more than a constant."""
        algebra = self.algebra
        a = algebra.monomials[algebra.polynomials[value][0]]
        numbers = tuple(sorted((algebra.inverse(x) for x in a.num if algebra.is_number(x)), reverse=True))
        results = []
        for den in _submultisets(a.den):
            for quotient in self._polynomial_divisors(a.quotient):
                if not den and quotient == UNIT:
                    continue
                for constants in _submultisets(numbers):
                    below = tuple(sorted(den + constants, reverse=True))
                    divisor = algebra.scale(algebra.monomial(Monomial(below)), quotient)
                    inverse = algebra.reciprocal(divisor)
                    parts = [algebra.divide_monomials(m, inverse) for m in algebra.polynomials[value]]
                    if min(parts) >= 0:
                        results.append((Value(algebra.polynomial(parts)), Value(divisor)))
        return sorted(set(results))

    # --------------------------------------------------------------------------------------------------- additions
    def sums(self, value: Value) -> list[tuple[Value, Value]]:
        """Return the pairs whose sum is the value."""
        pairs = set()
        for left, right in self._halves(self.algebra.polynomials[value], value):
            pair = sorted((Value(self.algebra.polynomial(left)), Value(self.algebra.polynomial(right))))
            pairs.add((pair[0], pair[1]))
        return sorted(pairs)

    def _halves(self, members: Sequence[int], value: int) -> Iterator[tuple[list[int], list[int]]]:
        """Return the splits of a multiset into two that are not empty."""
        distinct = Counter(members)
        ways = 1
        for times in distinct.values():
            ways *= times + 1
        if ways > self.max_splits:
            self.incomplete.add(value)
        choices = itertools.product(*(range(times + 1) for times in distinct.values()))
        for choice in itertools.islice(choices, self.max_splits):
            left = [m for m, n in zip(distinct, choice, strict=True) for _ in range(n)]
            if left and len(left) < len(members):
                yield left, list((distinct - Counter(left)).elements())

    # -------------------------------------------------------------------------------------------------- reductions
    def summands(self, value: Value, axes: Sequence[Axis]) -> list[Value]:
        """Return the operands whose sum over all the axes is the value."""
        results = {int(value)}
        for axis in axes:
            bit = self.algebra.axis_bit(axis)
            results = {operand for p in results for operand in self._unsummed(p, bit)}
        return [Value(p) for p in sorted(results)]

    def _unsummed(self, p: int, axis: int) -> Iterator[int]:
        algebra = self.algebra
        if algebra.mask[p] & axis:
            return
        choices = [self._unsummed_monomial(m, axis) for m in algebra.polynomials[p]]
        for parts in itertools.product(*choices):
            operand = algebra.polynomial([m for part in parts for m in algebra.polynomials[part]])
            if algebra.sum_polynomial(operand, axis) == p:
                yield operand

    def _unsummed_monomial(self, m: int, axis: int) -> list[int]:
        """Return the polynomials whose sum over the axis is the monomial: one of its sums over the axis is left open."""
        algebra, results = self.algebra, set()
        for atom in set(algebra.monomials[m].num):
            a = algebra.atoms[atom]
            rest = algebra.divide_monomials(m, algebra.monomial(Monomial((atom,))))
            if a.kind == "extent" and a.refs[0] == axis:
                results.add(algebra.polynomial((rest,)))
            if a.kind != "sum":
                continue
            for bit in bits_of(a.bound):
                if algebra.base(bit) == axis:
                    exchange = ((bit, axis), (axis, bit)) if bit != axis else ()
                    opened = algebra.polynomial((algebra.rename_monomial(a.ref, exchange),))
                    for other in bits_of(a.bound & ~bit):
                        opened = algebra.sum_polynomial(opened, bit if other == axis else other)
                    results.add(algebra.scale(rest, opened))
        return sorted(results)

    def _contracted(self, operand: Value, axes: Sequence[Axis]) -> list[tuple[Value, Value]]:
        mask = self.algebra.axes_mask(axes)
        return [pair for pair in self.products(operand) if all(not mask & ~self.algebra.mask[p] for p in pair)]

    # ------------------------------------------------------------------------------------------ functions and maxima
    def functions(self, value: Value) -> list[Production]:
        """Return the productions by exp, sqrt or an opaque function."""
        algebra = self.algebra
        if len(algebra.polynomials[value]) != 1:
            return []
        a = algebra.monomials[algebra.polynomials[value][0]]
        kinds = {algebra.atoms[atom].kind for atom in a.num}
        if a.den or a.quotient != UNIT or len(kinds) > 1:
            return []
        if kinds == {"exp"} and a.root == UNIT:
            argument = algebra.polynomial([algebra.atoms[atom].ref for atom in a.num])
            return [Production("exp", (Value(argument),))]
        if kinds == {"sqrt"} or (not kinds and a.root != UNIT):
            return [Production("sqrt", (Value(algebra.under_root(a.num, a.root)),))]
        if kinds == {"apply"} and len(a.num) == 1 and a.root == UNIT:
            atom = algebra.atoms[a.num[0]]
            return [Production(atom.name, tuple(Value(p) for p in atom.refs))]
        return []

    def maxima(self, value: Value) -> list[tuple[Value, Value]]:
        """Return the pairs whose larger one is the value."""
        algebra = self.algebra
        elements = lattice.flatten(algebra, value)
        pairs = set()
        for left, right in self._halves(range(len(elements)), value):
            joined = [Value(lattice.join(algebra, [elements[i] for i in half])) for half in (left, right)]
            if algebra.maximum(joined[0], joined[1]) == value:
                pairs.add((min(joined), max(joined)))
        return sorted(pairs)

    def maximised(self, value: Value, axes: Sequence[Axis]) -> list[Value]:
        """Return the operands whose maximum along all the axes is the value."""
        results = {int(value)}
        for axis in axes:
            bit = self.algebra.axis_bit(axis)
            results = {operand for p in results for operand in self._unmaximised(p, bit)}
        return [Value(p) for p in sorted(results)]

    def _unmaximised(self, p: int, axis: int) -> Iterator[int]:
        algebra = self.algebra
        if algebra.mask[p] & axis:
            return
        elements = lattice.flatten(algebra, p)
        choices = [[q, *self._opened_element(q, axis)] for q in elements]
        for chosen in itertools.product(*choices):
            operand = lattice.join(algebra, chosen)
            if operand != p and lattice.max_over(algebra, operand, axis) == p:
                yield operand

    def _opened_element(self, p: int, axis: int) -> list[int]:
        """Return the polynomials in which one reduction over the axis is opened."""
        algebra, results = self.algebra, []
        for place, m in enumerate(algebra.polynomials[p]):
            peeled = lattice.peel(algebra, m)
            if peeled is None:
                continue
            factor, ((bound, q), *_) = peeled
            for bit in bits_of(bound):
                if algebra.base(bit) == axis:
                    exchange = ((bit, axis), (axis, bit)) if bit != axis else ()
                    opened = algebra.rename(q, exchange)
                    for other in bits_of(bound & ~bit):
                        opened = lattice.max_over(algebra, opened, bit if other == axis else other)
                    rest = [n for other, n in enumerate(algebra.polynomials[p]) if other != place]
                    results.append(algebra.polynomial([*rest, *algebra.polynomials[algebra.scale(factor, opened)]]))
        return results


def _submultisets(members: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return the multisets contained in a multiset, in descending order each, the empty one first."""
    distinct = Counter(members)
    choices = itertools.product(*(range(times + 1) for times in distinct.values()))
    return [tuple(m for m, n in zip(distinct, choice, strict=True) for _ in range(n)) for choice in choices]
