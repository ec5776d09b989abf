"""Which expressions take few operators: inputs closed forwards, to a small depth.

Invariant: an expression that takes at most `depth` operators, and may occur in a graph that computes the goals, is known
with a number of operators that is never too large; any other takes more. This bounds what a search backwards may still
afford; without it a sum of many terms would be split in all ways (a root of a sum of nine products).
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator
from fractions import Fraction

from workbench.domains.abstract_distance import FAR
from workbench.domains.abstract_goals import Goals
from workbench.domains.abstract_normal_form import ONE, Algebra, Value
from workbench.search.palette import Operator, Palette
from workbench.search.problem import Problem


class Shallow:
    """Expressions of at most `depth` operators.

    Attributes: depth; operators: per expression the fewest operators that make it (a set of expressions shared between
    operands is counted once).
    """

    def __init__(
        self,
        algebra: Algebra,
        goals: Goals,
        problem: Problem,
        palette: Palette,
        folds: list[tuple[str, int]],
        whole: dict[str, int],
        starts: tuple[Value, ...],
        *,
        depth: int,
        outer_products: bool,
        may_be_made: Callable[[Value], bool],
    ) -> None:
        """Close the starts."""
        self.algebra, self.goals, self.problem, self.palette = algebra, goals, problem, palette
        self.folds, self.whole, self.depth, self.outer_products = folds, whole, depth, outer_products
        self.may_be_made = may_be_made
        self.operators: dict[Value, int] = {}
        self._minus = algebra.constant(Fraction(-1))
        self._subtracts = any(op.name == "sub" for op in palette.binary)
        self.constants = [self._minus]
        self.constants += [algebra.constant(op.constant) for op in palette.operators if op.constant is not None]
        self._made: dict[tuple[Value, ...], tuple[Value, ...]] = {}
        self._sums: dict[int, dict[Value, list[Value]]] = {}
        self._contractions: dict[int, dict[Value, list[tuple[Value, Value]]]] = {}
        self._close(starts)

    def _close(self, starts: tuple[Value, ...]) -> None:
        """Keep, per expression, the minimal sets of expressions that make it, as bit masks."""
        sets: dict[Value, list[int]] = {start: [0] for start in starts}
        bits: dict[Value, int] = {}
        queue = deque((start, 0) for start in dict.fromkeys(starts))
        known: list[tuple[Value, int]] = []
        while queue:
            value, made = queue.popleft()
            if made not in sets[value]:
                continue
            known.append((value, made))
            for result in self._unary(value):
                self._offer(result, made, sets, bits, queue)
            for other, others in known:
                if (made | others).bit_count() < self.depth and others in sets[other]:
                    for result in self._binary(*((value, other) if value < other else (other, value))):
                        self._offer(result, made | others, sets, bits, queue)
        self.operators = {value: min(map(int.bit_count, masks)) for value, masks in sets.items()}

    def _offer(
        self,
        result: Value,
        made: int,
        sets: dict[Value, list[int]],
        bits: dict[Value, int],
        queue: deque[tuple[Value, int]],
    ) -> None:
        bit = bits.setdefault(result, 1 << len(bits))
        new = made | bit
        if made & bit or new.bit_count() > self.depth:
            return
        old = sets.setdefault(result, [])
        if any(mask & new == mask for mask in old):
            return
        old[:] = [*(mask for mask in old if new & ~mask), new]
        queue.append((result, new))

    def _unary(self, value: Value) -> tuple[Value, ...]:
        if (value,) not in self._made:
            self._made[value,] = tuple(dict.fromkeys(self._useful(self._apply_one(value))))
        return self._made[value,]

    def _binary(self, left: Value, right: Value) -> tuple[Value, ...]:
        if (left, right) not in self._made:
            self._made[left, right] = tuple(dict.fromkeys(self._useful(self._apply_two(left, right))))
        return self._made[left, right]

    def _useful(self, results: Iterator[Value]) -> Iterator[Value]:
        for result in results:
            if self.goals.fits(result) and self.may_be_made(result) and self.goals.distance(result) < FAR:
                yield result

    def _apply_one(self, value: Value) -> Iterator[Value]:
        algebra, palette = self.algebra, self.palette
        if palette.square.is_offered and self.goals.admits("mul", value, value):
            yield algebra.mul(value, value)
        for op in palette.unary:
            if op is not palette.square:
                yield op.abstract(algebra, (value,))
        for axis, mask in self.folds:
            if mask & ~algebra.mask[value]:
                continue
            for op in (*palette.folds, *palette.wholes):
                number = self._number(op, axis, mask)
                if number:
                    yield op.abstract(algebra, (value,), mask, number)

    def _number(self, op: Operator, axis: str, mask: int) -> int:
        """Return what stands for the extent of the axis, 0 where the operator cannot fold the mask."""
        if op in self.palette.wholes and mask != self.whole.get(axis):
            return 0
        if not op.counts:
            return 2
        return self.problem.numbers.get(axis, 0) if mask == self.whole.get(axis) else 0

    def _apply_two(self, left: Value, right: Value) -> Iterator[Value]:
        algebra, palette, goals = self.algebra, self.palette, self.goals
        one, two = algebra.mask[left], algebra.mask[right]
        if palette.matmul.is_offered and goals.admits("matmul", left, right):
            for axis, mask in self.folds:
                if axis and not mask & ~(one & two):
                    yield algebra.sum_mask(mask, algebra.mul(left, right))
        if one | two not in (one, two) and not self.outer_products:
            return
        for op in palette.binary:
            if goals.admits(op.name, left, right):
                yield op.abstract(algebra, (left, right))
                if not op.spec.commutative:
                    yield op.abstract(algebra, (right, left))

    # ------------------------------------------------------------------------------------------- taking values apart
    def products(self, value: Value) -> list[tuple[Value, Value]]:
        """Return the pairs whose product is the value, both known or constants."""
        found = set()
        for factor in self._candidates(value):
            rest = self.algebra.divide(value, factor)
            if rest >= 0 and self._is_known(Value(rest)):
                found.add((min(factor, Value(rest)), max(factor, Value(rest))))
        return sorted(found)

    def quotients(self, value: Value) -> list[tuple[Value, Value]]:
        """Return the pairs (dividend, divisor) whose quotient is the value, both known or constants."""
        algebra = self.algebra
        found = []
        for divisor in self._candidates(value):
            inverse = algebra.reciprocal(divisor)
            parts = []
            for m in algebra.polynomials[value]:
                part = algebra.divide_monomials(m, inverse)
                if part < 0:
                    break
                parts.append(part)
            else:
                dividend = Value(algebra.polynomial(parts))
                if dividend == ONE or self._is_known(dividend):
                    found.append((dividend, divisor))
        return sorted(found)

    def sums(self, value: Value) -> list[tuple[Value, Value]]:
        """Return the pairs whose sum is the value, at least one of them, or its negative, known."""
        algebra = self.algebra
        found = set()
        negated = (algebra.mul(self._minus, known) for known in self.operators) if self._subtracts else ()
        for part in (*self._candidates(value), *negated):
            terms = _without(algebra.polynomials[value], algebra.polynomials[part])
            if terms:
                rest = Value(algebra.polynomial(terms))
                found.add((min(part, rest), max(part, rest)))
        return sorted(found)

    def summands(self, value: Value, mask: int) -> list[Value]:
        """Return the known operands whose sum over the axes of a mask is the value."""
        if mask not in self._sums:
            made: dict[Value, list[Value]] = {}
            for operand in self.operators:
                if not mask & ~self.algebra.mask[operand]:
                    made.setdefault(self.algebra.sum_mask(mask, operand), []).append(operand)
            self._sums[mask] = made
        return self._sums[mask].get(value, [])

    def contractions(self, value: Value, mask: int) -> list[tuple[Value, Value]]:
        """Return the known pairs whose product, summed over the axes of a mask, is the value.

        Products are made forwards, once for a mask: dividing every value by every known one takes a minute for nTrans.
        """
        if mask not in self._contractions:
            algebra = self.algebra
            made: dict[Value, list[tuple[Value, Value]]] = {}
            known = sorted(operand for operand in self.operators if not mask & ~algebra.mask[operand])
            for left, right in itertools.combinations_with_replacement(known, 2):
                if self.goals.admits("matmul", left, right):
                    result = algebra.sum_mask(mask, algebra.mul(left, right))
                    made.setdefault(result, []).append((left, right))
            self._contractions[mask] = made
        return self._contractions[mask].get(value, [])

    def _is_known(self, value: Value) -> bool:
        return value in self.operators or not self.algebra.mask[value]

    def _candidates(self, value: Value) -> Iterator[Value]:
        """Yield the known values, and constants of the search, that have nothing more often than the value."""
        algebra = self.algebra
        count, guard = algebra.count[value], algebra.guard
        for other in (*self.operators, *self.constants):
            if ((count | guard) - algebra.count[other]) & guard == guard:
                yield other


def _without(terms: tuple[int, ...], some: tuple[int, ...]) -> list[int]:
    """Return the terms of a sum but for some of them, empty if not all of those are among them."""
    rest = list(terms)
    for term in some:
        if term not in rest:
            return []
        rest.remove(term)
    return rest
