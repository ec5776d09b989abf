"""Rational points at which exact expressions differ: drawn at random, or given, and confirmed with many digits.

Invariant: a point is returned only where both sides have a value, and the values differ by far more than the digits carried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

import numpy as np

from workbench.domains.exact_expression import ExactKind, ExactTerms
from workbench.domains.exact_numbers import Floats, as_float, decimal_values, float_values
from workbench.interpret.exact import opaque_value

Variable = tuple[int, int]
Point = Mapping[Variable, Fraction]
_GRID = 64  # drawn coordinates are multiples of 1/64, which float64 holds exactly
_DIGITS = 40
_SMALL, _TINY = Decimal("1e-20"), Decimal("1e-280")
"""Below the first a value may be what cancellation leaves of larger ones, and is computed with `_MANY_DIGITS` too."""
_MANY_DIGITS = 320
_BEST, _OTHERS = 6, 18  # points that are looked at with many digits: those that differ most, and others at random


@dataclass(frozen=True, slots=True)
class Difference:
    """A point at which two expressions differ: the values of the variables, both values, how computed, left - right."""

    point: Point
    left: float
    right: float
    how: str
    gap: float


Accept = Callable[[Difference], bool]
"""Says whether a difference of expressions is one of the programs: expressions may be defined where a program is not."""


def variables_of(terms: ExactTerms, roots: Iterable[int]) -> list[Variable]:
    """Return the variables that expressions are made of."""
    return [terms.nodes[part].variable for part in terms.cone(roots) if terms.nodes[part].kind is ExactKind.VARIABLE]


def draw_points(
    terms: ExactTerms, roots: Sequence[int], rng: np.random.Generator, count: int
) -> dict[Variable, Floats]:
    """Return random values for every variable, shape (count,): of several scales and signs, and of the constants' sizes."""
    constants = sorted({abs(as_float(terms.nodes[part].number)) for part in terms.cone(roots)} - {0.0})
    scales = [1.0, 1.0, 2.0, 4.0, 0.25, *(c for c in constants[:: max(1, len(constants) // 6)] if 1e-6 < c < 1e6)]
    names = variables_of(terms, roots)
    scale = np.asarray([scales[number % len(scales)] for number in range(count)])
    positive = np.arange(count) % 3 == 1
    values: dict[Variable, Floats] = {}
    for name in names:
        drawn = rng.standard_normal(count) * scale
        drawn = np.where(positive, np.abs(drawn) + 1 / _GRID, drawn)
        values[name] = np.round(drawn * _GRID) / _GRID
    return values


def most_different(
    left: Sequence[Floats], right: Sequence[Floats], *, above: float = 1e-7
) -> list[tuple[int, int, float]]:
    """Return (pair, point, relative difference) where both are finite and differ by more than `above`, largest first."""
    found = []
    with np.errstate(all="ignore"):
        for number, (a, b) in enumerate(zip(left, right, strict=True)):
            relative = np.abs(a - b) / np.maximum(np.maximum(np.abs(a), np.abs(b)), 1e-300)
            relative = np.where(np.isfinite(a) & np.isfinite(b), relative, 0.0)
            best = int(np.argmax(relative))
            if relative[best] > above:
                found.append((number, best, float(relative[best])))
    return sorted(found, key=lambda entry: -entry[2])


def confirm(terms: ExactTerms, left: int, right: int, point: Point) -> Difference | None:
    """Return the difference at a rational point if it is certain, None where a side is undefined or they agree."""
    kinds = {terms.nodes[part].kind for part in terms.cone((left, right))}
    rational = not kinds & {ExactKind.EXP, ExactKind.SQRT, ExactKind.OPAQUE}
    first = decimal_values(terms, (left, right), point, opaque_value, _DIGITS)
    if first is None:
        return None
    (a, b), precise = first
    size = max(abs(a), abs(b))
    gap = a - b
    if abs(gap) <= size * Decimal(10) ** (10 - _DIGITS if precise else -9):
        return None
    if precise:
        if not rational and size < _TINY:
            return None  # what is left of 1 - 1 in any number of digits; no such value is needed to tell programs apart
        for digits in (2 * _DIGITS,) if rational or size > _SMALL else (2 * _DIGITS, _MANY_DIGITS):
            again = decimal_values(terms, (left, right), point, opaque_value, digits)
            if again is None or abs((again[0][0] - again[0][1]) - gap) > abs(gap) / 1000:
                return None
    how = "rational" if rational else f"decimal, {_DIGITS} digits" if precise else "float64"
    return Difference(dict(point), as_float(a), as_float(b), how, float(gap))


def search_pair(
    terms: ExactTerms, left: int, right: int, rng: np.random.Generator, accept: Accept, count: int = 256
) -> Difference | None:
    """Return an accepted point where two expressions differ, None if none of `count` random ones shows it."""
    drawn = draw_points(terms, (left, right), rng, count)
    values = float_values(terms, (left, right), drawn, opaque_value)
    with np.errstate(all="ignore"):
        a, b = np.broadcast_to(values[left], (count,)), np.broadcast_to(values[right], (count,))
        relative = np.abs(a - b) / np.maximum(np.maximum(np.abs(a), np.abs(b)), 1e-300)
    relative = np.where(np.isfinite(relative), relative, -1.0)
    order = np.argsort(-relative)
    worth = int((relative >= 0).sum())
    others = rng.permutation(order[_BEST:worth])[:_OTHERS]  # where the best are not accepted, others may be
    for position in (*order[: min(_BEST, worth)], *others):
        found = confirm(terms, left, right, point_at(drawn, int(position)))
        if found and accept(found):
            return found
    return None


def around(point: Point, rng: np.random.Generator, count: int = 12) -> Iterable[Point]:
    """Yield a point and points close to it, rounded to multiples of 2^-20 (which float64 holds)."""
    step = Fraction(1, 1 << 20)
    for number in range(count):
        reach = 0 if number == 0 else 1 << (4 + number)
        yield {
            name: Fraction(round(value / step) + int(rng.integers(-reach, reach + 1))) * step
            for name, value in point.items()
        }


def point_at(drawn: Mapping[Variable, Floats], position: int) -> dict[Variable, Fraction]:
    """Return one of the drawn points exactly."""
    return {name: Fraction(float(values[position])) for name, values in drawn.items()}
