"""Indices of tensor elements as whole-number forms over variables: what tiles, reshapes and slices do to an index.

Invariant: an index is offset + sum of coefficient * digit, where each digit runs over 0 .. extent - 1; cutting an index
into quotient and remainder and putting them together again gives the index back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Var:
    """A variable over 0 .. extent - 1. kind: "free" (of an output), "cell" (grid or loop), "open", "bound"."""

    kind: str
    number: int
    extent: int


@dataclass(frozen=True, slots=True)
class Quotient:
    """The index divided by a number, rounded down."""

    index: Index
    divisor: int
    extent: int


@dataclass(frozen=True, slots=True)
class Remainder:
    """What is left of the index after dividing by a number."""

    index: Index
    divisor: int

    @property
    def extent(self) -> int:
        """The divisor."""
        return self.divisor


@dataclass(frozen=True, slots=True)
class Chosen:
    """The position of a maximum, a fixed function of the arguments at each test; equal names mean equal functions."""

    name: str
    arguments: tuple[Index, ...]
    extent: int


Digit = Var | Quotient | Remainder | Chosen


@dataclass(frozen=True, slots=True)
class Index:
    """offset + sum of coefficient * digit; digits in a canonical order, none with coefficient 0."""

    offset: int = 0
    digits: tuple[tuple[int, Digit], ...] = ()

    @property
    def low(self) -> int:
        """The smallest value."""
        return self.offset + sum(min(0, c * (d.extent - 1)) for c, d in self.digits)

    @property
    def high(self) -> int:
        """The largest value."""
        return self.offset + sum(max(0, c * (d.extent - 1)) for c, d in self.digits)

    def variables(self) -> frozenset[Var]:
        """Return the variables that occur."""
        found: set[Var] = set()
        for _, digit in self.digits:
            match digit:
                case Var():
                    found.add(digit)
                case Quotient() | Remainder():
                    found |= digit.index.variables()
                case Chosen():
                    for argument in digit.arguments:
                        found |= argument.variables()
        return frozenset(found)

    def coefficient(self, digit: Digit) -> int:
        """Return the coefficient of a digit, 0 if it does not occur by itself."""
        return next((c for c, d in self.digits if d == digit), 0)


def constant(value: int) -> Index:
    """Return an index that is a number."""
    return Index(value)


def variable(var: Var) -> Index:
    """Return the index that is a variable; one of extent 1 is 0."""
    return Index(0, ((1, var),)) if var.extent > 1 else Index()


def combine(parts: Sequence[tuple[int, Index]], offset: int = 0) -> Index:
    """Return offset + the sum of coefficient * index, quotients and remainders of one index put together."""
    sums: dict[Digit, int] = {}
    for coefficient, index in parts:
        offset += coefficient * index.offset
        for c, digit in index.digits:
            sums[digit] = sums.get(digit, 0) + coefficient * c
    while True:
        joined = _joined(sums)
        if joined is None:
            break
        offset += joined
    digits = tuple(sorted(((c, d) for d, c in sums.items() if c and d.extent > 1), key=lambda pair: repr(pair[1])))
    return Index(offset, digits)


def _joined(sums: dict[Digit, int]) -> int | None:
    """Replace c * remainder + c * m * quotient of one index by c * index; return the offset, None if there is none."""
    for digit, c in list(sums.items()):
        if not isinstance(digit, Remainder) or not c:
            continue
        for other, d in list(sums.items()):
            if isinstance(other, Quotient) and (other.index, other.divisor) == (digit.index, digit.divisor):
                if d != c * digit.divisor:
                    continue
                del sums[digit], sums[other]
                for inner, digit_inside in digit.index.digits:
                    sums[digit_inside] = sums.get(digit_inside, 0) + c * inner
                return c * digit.index.offset
    return None


def shift(index: Index, by: int) -> Index:
    """Return the index plus a number."""
    return Index(index.offset + by, index.digits)


def divide(index: Index, divisor: int, extent: int) -> tuple[Index, Index]:
    """Return quotient (over 0 .. extent - 1) and remainder of a nonnegative index."""
    if divisor == 1:
        return index, Index()
    outer = [(c // divisor, d) for c, d in index.digits if c % divisor == 0]
    inner = [(c, d) for c, d in index.digits if c % divisor]
    rest = Index(index.offset % divisor, tuple(inner))
    if rest.low >= 0 and rest.high < divisor:
        return Index(index.offset // divisor, tuple(outer)), rest
    quotient = Index(0, ((1, Quotient(index, divisor, extent)),)) if extent > 1 else Index()
    return quotient, Index(0, ((1, Remainder(index, divisor)),))


def substitute(index: Index, values: Mapping[Var, Index]) -> Index:
    """Return the index with variables replaced, everywhere inside digits too."""
    if not index.variables() & values.keys():
        return index
    parts: list[tuple[int, Index]] = []
    for c, digit in index.digits:
        match digit:
            case Var():
                parts.append((c, values.get(digit, variable(digit))))
            case Quotient(index=inner, divisor=divisor, extent=extent):
                parts.append((c, divide(substitute(inner, values), divisor, extent)[0]))
            case Remainder(index=inner, divisor=divisor):
                changed = substitute(inner, values)
                parts.append((c, divide(changed, divisor, changed.high // divisor + 1)[1]))
            case Chosen(name=name, arguments=arguments, extent=extent):
                replaced = tuple(substitute(argument, values) for argument in arguments)
                parts.append((c, Index(0, ((1, Chosen(name, replaced, extent)),))))
    return combine(parts, index.offset)


def is_injective(index: Index, varying: frozenset[Var], held: Callable[[Digit], bool]) -> bool:
    """Return True when different values of the varying variables give different indices, the held digits being fixed.

    The varying digits must be variables whose coefficients form a mixed-radix system: each is larger than what the
    smaller ones can add up to.
    """
    moving = sorted(((abs(c), d) for c, d in index.digits if not held(d)), key=lambda pair: pair[0])
    if {d for _, d in moving} != set(varying):
        return False
    reach = 0
    for c, digit in moving:
        if c <= reach:
            return False
        reach += c * (digit.extent - 1)
    return True
