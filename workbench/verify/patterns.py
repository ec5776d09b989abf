"""Forms up to their indices: which parts of two forms are one function at different places.

A pattern is a form with every index replaced by numbered parameters; the places are the indices put there. Invariant: two
forms of one pattern with equal places are one form, whatever the order in which their atoms were made.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import assert_never

from workbench.verify.form_atoms import (
    AnyAtom,
    Call,
    Choice,
    Element,
    Exponential,
    Form,
    Group,
    Monomial,
    Root,
    Sum,
    Unknown,
)
from workbench.verify.indices import Digit, Index, Var

Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Leaf:
    """An input element inside a pattern.

    Attributes: tensor; inner: per dimension the part of the index that runs over sums inside the pattern; parameters: per
    dimension the number of the parameter that is the rest; linear: the pattern is affine in it, all other leaves fixed;
    raised: it stands in an exponent (so its part modulo q is meant).
    """

    tensor: int
    inner: tuple[Index, ...]
    parameters: tuple[int, ...]
    linear: bool
    raised: bool = False

    def is_pure(self, dim: int) -> bool:
        """Return True when a dimension's index is the parameter alone."""
        return not self.inner[dim].digits


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern and the places at which a form has it.

    Attributes: key: equal for forms of one pattern; places: the indices put in for the parameters; leaves: the input
    elements; unclear: an index mixes inner and outer variables in a way that is not taken apart; choices: it contains
    pieces of piecewise operators; calls: random functions; roots: how many roots.
    """

    key: Key
    places: tuple[Index, ...]
    leaves: tuple[Leaf, ...]
    unclear: bool
    choices: bool
    calls: bool
    roots: int

    @property
    def draws(self) -> frozenset[tuple[int, bool]]:
        """The inputs that occur, apart for their parts modulo p and, in exponents (True), modulo q."""
        return frozenset((leaf.tensor, leaf.raised) for leaf in self.leaves)

    @property
    def has_exponents(self) -> bool:
        """Whether some input element stands in an exponent."""
        return any(leaf.raised for leaf in self.leaves)

    @property
    def tensors(self) -> frozenset[int]:
        """The inputs that occur."""
        return frozenset(leaf.tensor for leaf in self.leaves)


def pattern_of(form: Form) -> Pattern:
    """Return the pattern of a form."""
    return _Reader(form.variables).pattern(form)


def pattern_of_monomial(monomial: Monomial) -> Pattern:
    """Return the pattern of a monomial with coefficient 1."""
    variables = frozenset[Var]().union(*(atom.variables for atom, _ in monomial))
    return _Reader(variables).pattern_of_monomial(monomial)


@dataclass(slots=True)
class _Part:
    key: Key
    places: list[Index]
    leaves: list[Leaf]  # parameters counted from the part's first


class _Reader:
    def __init__(self, outer: frozenset[Var]) -> None:
        self.outer = outer
        self.unclear = self.choices = self.calls = False
        self.roots = 0
        self.raised = False

    def pattern(self, form: Form) -> Pattern:
        return self._finished(self.form(form, True))

    def pattern_of_monomial(self, monomial: Monomial) -> Pattern:
        return self._finished(self.monomial(monomial, Fraction(1), True))

    def _finished(self, part: _Part) -> Pattern:
        return Pattern(
            part.key, tuple(part.places), tuple(part.leaves), self.unclear, self.choices, self.calls, self.roots
        )

    def form(self, form: Form, linear: bool) -> _Part:
        return _joined("sum of", [self.monomial(m, c, linear) for m, c in form.terms])

    def monomial(self, monomial: Monomial, coefficient: Fraction, linear: bool) -> _Part:
        part = _joined("product of", [self.atom(atom, power, linear) for atom, power in monomial])
        return _Part((coefficient, *part.key), part.places, part.leaves)

    def atom(self, atom: AnyAtom, power: int, linear: bool) -> _Part:
        linear = linear and power == 1
        match atom:
            case Element():
                inner, places = self.split(atom.index)
                leaf = Leaf(atom.tensor, inner, tuple(range(len(places))), linear, self.raised)
                part = _Part(("element", atom.tensor, inner), places, [leaf])
            case Sum():
                body = self.form(atom.body, linear)
                limits = [index for index, _ in atom.limits]
                inner, places = self.split(tuple(limits))
                below = tuple(below for _, below in atom.limits)
                part = _Part(("sum", atom.var, inner, below, body.key), body.places + places, body.leaves)
            case Root():
                self.roots += 1
                part = self.form(atom.radicand, False)
                part.key = ("root", part.key)
            case Exponential():
                outer, self.raised = self.raised, True
                part = self.form(atom.argument, False)
                self.raised = outer
                part.key = ("exp", part.key)
            case Group():
                part = self.form(atom.form, linear)
            case Call():
                self.calls = True
                part = _in_order([self.form(argument, False) for argument in atom.arguments])
                part.key = ("call", atom.name, part.key)
            case Choice():
                self.choices = True
                part = _in_order([self.form(alternative, False) for alternative in atom.alternatives])
                inner, places = self.split(() if atom.place is None else (atom.place,))
                part = _Part(("choice", atom.name, atom.starts, inner, part.key), part.places + places, part.leaves)
            case Unknown():
                inner, places = self.split(atom.arguments)
                part = _Part(("unknown", atom.name, inner), places, [])
            case _:
                assert_never(atom)
        return _Part((power, part.key), part.places, part.leaves)

    def split(self, index: tuple[Index, ...]) -> tuple[tuple[Index, ...], list[Index]]:
        """Return per dimension the inner part, and the places: the rest, offset included."""
        inner, places = [], []
        for place in index:
            mine = tuple((c, digit) for c, digit in place.digits if not self._is_outer(digit))
            rest = tuple((c, digit) for c, digit in place.digits if self._is_outer(digit))
            if any(Index(0, (pair,)).variables() & self.outer for pair in mine):
                self.unclear = True
            inner.append(Index(0, mine))
            places.append(Index(place.offset, rest))
        return tuple(inner), places

    def _is_outer(self, digit: Digit) -> bool:
        return Index(0, ((1, digit),)).variables() <= self.outer


def _joined(name: str, parts: list[_Part]) -> _Part:
    """Return parts whose order means nothing, sorted by their keys."""
    part = _in_order(sorted(parts, key=lambda p: repr(p.key)))
    part.key = (name, part.key)
    return part


def _in_order(parts: list[_Part]) -> _Part:
    places: list[Index] = []
    leaves: list[Leaf] = []
    for part in parts:
        start = len(places)
        places += part.places
        leaves += [replace(leaf, parameters=tuple(start + p for p in leaf.parameters)) for leaf in part.leaves]
    return _Part(tuple(part.key for part in parts), places, leaves)


def places_of_tensor(pattern: Pattern, tensor: int) -> Iterator[Leaf]:
    """Yield the leaves of a tensor."""
    return (leaf for leaf in pattern.leaves if leaf.tensor == tensor)
