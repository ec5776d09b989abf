"""Exact scalar expressions of a program's elements: rational numbers, inputs, sums, products, exp, roots, pieces.

Invariant: expressions are hash-consed (equal ones have equal numbers), a part has a smaller number than the whole, and
every simplification holds wherever the original is defined.

`ExactTerms` keeps sums flat (rational coefficients) and products flat (integer powers, exponentials merged), so that many
identities hold by construction; the normal form (`exact_normal_form`) decides the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from math import isqrt

from workbench.domains.exact_polynomial import Rational, as_rational
from workbench.errors import BudgetError

ABSENT = -1
"""The number of what does not exist: a slot beyond the end of a ragged tile, never chosen by a maximum."""

_FLAT = 64  # a longer sum stays a part of its own when it is added to another, or flattening would cost its square


class ExactKind(Enum):
    """What an expression is."""

    NUMBER = "number"  # a rational
    VARIABLE = "variable"  # an element of an input
    LINEAR = "linear"  # constant + sum of coefficient * part
    PRODUCT = "product"  # parts to integer powers
    EXP = "exp"
    SQRT = "sqrt"
    OPAQUE = "opaque"  # an operator without algebraic meaning
    MAX = "max"  # the largest of its parts
    CHOICE = "choice"  # any other piecewise operator


@dataclass(frozen=True, slots=True)
class Piece:
    """One piece of a piecewise operator: its value holds where all guards are at least 0."""

    guards: tuple[int, ...]
    value: int


@dataclass(frozen=True, slots=True)
class ExactNode:
    """One expression. `parts` are the numbers of the expressions it is made of.

    Attributes by kind: NUMBER: number. VARIABLE: variable (position of the input, flat index of the element). LINEAR:
    number (the constant), parts, coefficients. PRODUCT: parts, powers. EXP, SQRT: parts (one). OPAQUE: name, attributes,
    parts. MAX: parts. CHOICE: name, pieces.
    """

    kind: ExactKind
    parts: tuple[int, ...] = ()
    number: Rational = 0
    variable: tuple[int, int] = (0, 0)
    coefficients: tuple[Rational, ...] = ()
    powers: tuple[int, ...] = ()
    name: str = ""
    attributes: tuple[tuple[str, str], ...] = ()
    pieces: tuple[Piece, ...] = ()


class ExactTerms:
    """The store of expressions; each is known by its number.

    limit: how many expressions may be made. Raises: BudgetError beyond.
    """

    def __init__(self, limit: int = 400_000) -> None:
        self.nodes: list[ExactNode] = []
        self.limit = limit
        self._numbers: dict[tuple[object, ...], int] = {}
        self._products: dict[tuple[int, int], int] = {}
        self.zero, self.one = self.number(0), self.number(1)

    def __len__(self) -> int:
        return len(self.nodes)

    def _new(self, key: tuple[object, ...], node: ExactNode) -> int:
        """Store a node that is not there yet. Raises: BudgetError when the store is full."""
        found = self._numbers[key] = len(self.nodes)
        if found >= self.limit:
            raise BudgetError(f"the exact form needs more than {self.limit} expressions; use smaller shapes")
        self.nodes.append(node)
        return found

    # ------------------------------------------------------------------------------------------------------------ making
    def number(self, value: Rational) -> int:
        """Return a rational number."""
        value = as_rational(value)
        key = ("number", value)
        found = self._numbers.get(key)
        return self._new(key, ExactNode(ExactKind.NUMBER, number=value)) if found is None else found

    def variable(self, tensor: int, element: int) -> int:
        """Return an element of an input: position of the input, flat index."""
        key = ("variable", tensor, element)
        found = self._numbers.get(key)
        return self._new(key, ExactNode(ExactKind.VARIABLE, variable=(tensor, element))) if found is None else found

    def linear(self, items: Iterable[tuple[Rational, int]], constant: Rational = 0) -> int:
        """Return constant + sum of coefficient * part, sums of up to 64 parts dissolved into it; ABSENT if a part is."""
        total = constant
        found: dict[int, Rational] = {}
        for coefficient, part in items:
            if part == ABSENT:
                return ABSENT
            node = self.nodes[part]
            if node.kind is ExactKind.NUMBER:
                total += coefficient * node.number
            elif node.kind is ExactKind.LINEAR and len(node.parts) <= _FLAT:
                total += coefficient * node.number
                for inner, by in zip(node.parts, node.coefficients, strict=True):
                    found[inner] = found.get(inner, 0) + coefficient * by
            else:
                found[part] = found.get(part, 0) + coefficient
        kept = sorted((part, as_rational(coefficient)) for part, coefficient in found.items() if coefficient)
        if not kept:
            return self.number(total)
        if len(kept) == 1 and kept[0][1] == 1 and total == 0:
            return kept[0][0]
        parts, coefficients = tuple(zip(*kept, strict=True))
        total = as_rational(total)
        key = ("linear", total, parts, coefficients)
        made = self._numbers.get(key)
        if made is not None:
            return made
        return self._new(key, ExactNode(ExactKind.LINEAR, parts=parts, number=total, coefficients=coefficients))

    def _intern(self, node: ExactNode, *key: object) -> int:
        found = self._numbers.get(key)
        return self._new(key, node) if found is None else found

    def add(self, left: int, right: int) -> int:
        """Return left + right."""
        return self.linear(((1, left), (1, right)))

    def sub(self, left: int, right: int) -> int:
        """Return left - right."""
        return self.linear(((1, left), (-1, right)))

    def scale(self, factor: Rational, part: int) -> int:
        """Return a rational multiple."""
        return self.linear(((factor, part),))

    def split_factor(self, part: int) -> tuple[Rational, int]:
        """Return (c, t) with part = c t and no rational factor left in t; (number, one) for a number."""
        node = self.nodes[part]
        if node.kind is ExactKind.NUMBER:
            return node.number, self.one
        if node.kind is ExactKind.LINEAR and len(node.parts) == 1 and node.number == 0:
            return node.coefficients[0], node.parts[0]
        return 1, part

    def product(self, items: Iterable[tuple[int, int]]) -> int:
        """Return the product of parts to integer powers; a part that cancels is dropped. ABSENT if a part is."""
        factor: Rational = 1
        powers: dict[int, int] = {}
        exponent: list[tuple[int, int]] = []
        pending = list(items)
        while pending:
            part, power = pending.pop()
            if part == ABSENT:
                return ABSENT
            if power == 0:
                continue
            number, base = self.split_factor(part)
            if number == 0 and power < 0:  # a quotient by zero stays what it is: defined nowhere
                powers[part] = powers.get(part, 0) + power
                continue
            if number != 1:
                factor *= number**power if power > 0 else Fraction(number) ** power
            if base == self.one:
                continue
            node = self.nodes[base]
            if node.kind is ExactKind.PRODUCT:
                pending += [(inner, by * power) for inner, by in zip(node.parts, node.powers, strict=True)]
            elif node.kind is ExactKind.EXP:
                exponent.append((power, node.parts[0]))
            else:
                powers[base] = powers.get(base, 0) + power
        if factor == 0:
            return self.zero
        if exponent:
            merged = self.exp(self.linear(exponent))
            if merged != self.one:
                powers[merged] = 1
        kept = sorted((part, power) for part, power in powers.items() if power)
        if not kept:
            return self.number(factor)
        if len(kept) == 1 and kept[0][1] == 1:
            return self.scale(factor, kept[0][0])
        parts, by_power = tuple(zip(*kept, strict=True))
        key = ("product", parts, by_power)
        made = self._numbers.get(key)
        if made is None:
            made = self._new(key, ExactNode(ExactKind.PRODUCT, parts=parts, powers=by_power))
        return made if factor == 1 else self.scale(factor, made)

    def mul(self, left: int, right: int) -> int:
        """Return left * right."""
        key = (left, right) if left < right else (right, left)
        found = self._products.get(key)
        if found is None:
            found = self._products[key] = self.product(((left, 1), (right, 1)))
        return found

    def div(self, left: int, right: int) -> int:
        """Return left / right."""
        return self.product(((left, 1), (right, -1)))

    def power(self, part: int, exponent: int) -> int:
        """Return an integer power."""
        return self.product(((part, exponent),)) if exponent else self.one

    def exp(self, part: int) -> int:
        """Return e^part."""
        if part == ABSENT:
            return ABSENT
        return self.one if part == self.zero else self._intern(ExactNode(ExactKind.EXP, parts=(part,)), "exp", part)

    def sqrt(self, part: int) -> int:
        """Return the square root, a number where the radicand is the square of a rational."""
        if part == ABSENT:
            return ABSENT
        node = self.nodes[part]
        if node.kind is ExactKind.NUMBER and node.number >= 0:
            top, bottom = isqrt(node.number.numerator), isqrt(node.number.denominator)
            if Fraction(top * top, bottom * bottom) == node.number:
                return self.number(Fraction(top, bottom))
        return self._intern(ExactNode(ExactKind.SQRT, parts=(part,)), "sqrt", part)

    def opaque(self, name: str, attributes: Sequence[tuple[str, str]], parts: Sequence[int]) -> int:
        """Return an operator without algebraic meaning: equal to itself on equal arguments, and to nothing else."""
        if ABSENT in parts:
            return ABSENT
        node = ExactNode(ExactKind.OPAQUE, parts=tuple(parts), name=name, attributes=tuple(attributes))
        return self._intern(node, "opaque", node.name, node.attributes, node.parts)

    def maximum(self, parts: Iterable[int]) -> int:
        """Return the largest of the parts, nested maxima dissolved, absent parts left out (ABSENT if all are)."""
        flat: set[int] = set()
        largest: Rational | None = None
        for part in parts:
            if part == ABSENT:
                continue
            node = self.nodes[part]
            if node.kind is ExactKind.NUMBER:
                largest = node.number if largest is None else max(largest, node.number)
            elif node.kind is ExactKind.MAX:
                flat.update(node.parts)
            else:
                flat.add(part)
        numbers = [part for part in flat if self.nodes[part].kind is ExactKind.NUMBER]
        for part in numbers:
            flat.discard(part)
            number = self.nodes[part].number
            largest = number if largest is None else max(largest, number)
        if largest is not None:
            flat.add(self.number(largest))
        if not flat:
            return ABSENT
        if len(flat) == 1:
            return flat.pop()
        node = ExactNode(ExactKind.MAX, parts=tuple(sorted(flat)))
        return self._intern(node, "max", node.parts)

    def choice(self, name: str, pieces: Sequence[Piece]) -> int:
        """Return a piecewise operator; pieces whose value is absent are left out, guards that mention an absent part too.

        Where the guards say that each piece holds where it is the largest (smallest) of all, it becomes a maximum
        (minus the maximum of the negated values): relu(x) = max(x, 0), |x| = max(x, -x).
        """
        kept = [piece for piece in pieces if piece.value != ABSENT]
        kept = [Piece(tuple(guard for guard in piece.guards if guard != ABSENT), piece.value) for piece in kept]
        if not kept:
            return ABSENT
        values = [piece.value for piece in kept]
        if len(set(values)) == 1:
            return values[0]
        for sign in (1, -1):
            if all(self._is_extreme(kept, number, sign) for number in range(len(kept))):
                return self.scale(sign, self.maximum(self.scale(sign, value) for value in values))
        for piece in kept:  # a piece whose guards all hold as numbers holds everywhere
            nodes = [self.nodes[guard] for guard in piece.guards]
            if all(node.kind is ExactKind.NUMBER and node.number >= 0 for node in nodes):
                return piece.value
        node = ExactNode(ExactKind.CHOICE, name=name, pieces=tuple(kept))
        return self._intern(node, "choice", name, node.pieces)

    def _is_extreme(self, pieces: Sequence[Piece], number: int, sign: int) -> bool:
        wanted = set()
        for other, piece in enumerate(pieces):
            if other != number:
                difference = self.sub(pieces[number].value, piece.value)
                factor, direction = self._direction(difference)
                wanted.add((sign if factor >= 0 else -sign, direction))
        found = set()
        for guard in pieces[number].guards:
            factor, direction = self._direction(guard)
            found.add((1 if factor >= 0 else -1, direction))
        return wanted == found

    def _direction(self, part: int) -> tuple[Rational, int]:
        """Return (c, t) with part = c t and the first coefficient of t equal to 1."""
        node = self.nodes[part]
        if node.kind is ExactKind.LINEAR:
            first = node.coefficients[0]
            return first, self.scale(1 / Fraction(first), part)
        return self.split_factor(part)

    # ----------------------------------------------------------------------------------------------------- looking around
    def below(self, part: int) -> tuple[int, ...]:
        """Return the expressions that an expression reads directly, guards included."""
        node = self.nodes[part]
        if node.kind is ExactKind.CHOICE:
            return tuple(number for piece in node.pieces for number in (*piece.guards, piece.value))
        return node.parts

    def cone(self, roots: Iterable[int]) -> list[int]:
        """Return the expressions that these are made of, themselves included, parts before wholes."""
        seen: set[int] = set()
        pending = list(roots)
        while pending:
            part = pending.pop()
            if part != ABSENT and part not in seen:
                seen.add(part)
                pending += self.below(part)
        return sorted(seen)

    def signature(self, roots: Sequence[int]) -> tuple[object, ...]:
        """Return what several expressions are together, up to the names of the variables.

        Equal signatures mean equal expressions after renaming variables, so that one proof serves both.
        """
        numbers: dict[int, int] = {}
        variables: dict[tuple[int, int], int] = {}
        lines: list[object] = []
        stack = [(root, False) for root in reversed(roots) if root != ABSENT]
        while stack:
            part, done = stack.pop()
            if part in numbers:
                continue
            node = self.nodes[part]
            if not done:
                stack.append((part, True))
                stack += [(inner, False) for inner in reversed(self.below(part)) if inner not in numbers]
                continue
            numbers[part] = len(numbers)
            if node.kind is ExactKind.VARIABLE:
                lines.append(variables.setdefault(node.variable, len(variables)))
                continue
            pieces = tuple((tuple(numbers[g] for g in p.guards), numbers[p.value]) for p in node.pieces)
            parts = tuple(numbers[inner] for inner in node.parts)
            extra = (node.number, node.coefficients, node.powers, node.name, node.attributes)
            lines.append((node.kind, parts, extra, pieces))
        return (*lines, tuple(numbers.get(root, ABSENT) for root in roots))
