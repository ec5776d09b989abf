"""The value of a form at one random point modulo a prime: how premises are checked at true extents, one element's cone at a time.

Invariant: inputs are a fixed random function of the seed, so two forms are seen at the same point, and changing one input
element changes nothing else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import prod
from typing import assert_never

import numpy as np
import numpy.typing as npt

from workbench.domains.power_table import PowerTable
from workbench.domains.random_function import random_function
from workbench.domains.residues import Modulus, Residues
from workbench.errors import NotApplicableError
from workbench.verify.form_atoms import AnyAtom, Call, Choice, Element, Exponential, Form, Group, Root, Sum, Unknown
from workbench.verify.indices import Chosen, Digit, Index, Quotient, Remainder, Var

MAX_VALUES = 1 << 23  # values that one nest of sums may take
Integers = npt.NDArray[np.int64]


class NoMeaningError(NotApplicableError):
    """A denominator is zero or a radicand is no square at this point; take another seed."""


@dataclass(slots=True)
class Point:
    """A random point modulo a prime.

    Attributes: modulus; seed; fixed: values of variables that no sum binds (others get a value drawn from the seed); changed:
    input elements (tensor, index) that are given a value; exponents, powers: the point modulo q in which exponents are
    computed and the table of powers of the root of unity, None where exponentials have no value.
    """

    modulus: Modulus
    seed: int
    fixed: dict[Var, int] = field(default_factory=dict)
    changed: dict[tuple[int, tuple[int, ...]], int] = field(default_factory=dict)
    exponents: Point | None = None
    powers: PowerTable | None = None
    _known: dict[AnyAtom, Residues] = field(default_factory=dict)

    def value(self, form: Form) -> int:
        """Return the value. Raises: NoMeaningError; NotApplicableError for exponentials, pieces, and too large sums."""
        return int(self._form(form, {}, 0).ravel()[0])

    def with_element(self, tensor: int, index: tuple[int, ...], value: int) -> Point:
        """Return the point that differs in one input element."""
        changed = {**self.changed, (tensor, index): value}
        return Point(self.modulus, self.seed, dict(self.fixed), changed, self.exponents, self.powers)

    def place(self, index: Index) -> int:
        """Return the value of an index without bound variables."""
        return int(self._index(index, {}, 0).ravel()[0])

    # --------------------------------------------------------------------------------------------------------- arithmetic
    def _number(self, value: Fraction) -> Residues:
        m = self.modulus.m
        return np.asarray([value.numerator * pow(value.denominator, -1, m) % m], dtype=np.int64)

    def _form(self, form: Form, bound: Mapping[Var, Integers], rank: int) -> Residues:
        """Return the values over the axes of the bound variables; `rank` axes, or fewer leading ones of extent 1."""
        total = np.zeros((1,) * max(rank, 1), dtype=np.int64)
        for monomial, coefficient in form.terms:
            product = self._number(coefficient).reshape((1,) * max(rank, 1))
            for atom, power in monomial:
                product = self.modulus.multiply(product, self._power(atom, power, bound, rank))
            total = self.modulus.add(total, product)
        return total

    def _power(self, atom: AnyAtom, power: int, bound: Mapping[Var, Integers], rank: int) -> Residues:
        value = self._atom(atom, bound, rank)
        if power < 0:
            value, zero = self.modulus.inverse(value)
            if zero.any():
                raise NoMeaningError("a denominator is zero")
        return value if abs(power) == 1 else self.modulus.power(value, abs(power))

    def _atom(self, atom: AnyAtom, bound: Mapping[Var, Integers], rank: int) -> Residues:
        if not atom.variables & bound.keys():
            if atom not in self._known:
                self._known[atom] = self._computed(atom, {}, 0)
            return self._known[atom].reshape((1,) * max(rank, 1))
        return self._computed(atom, bound, rank)

    def _computed(self, atom: AnyAtom, bound: Mapping[Var, Integers], rank: int) -> Residues:
        match atom:
            case Element():
                return self._element(atom, bound, rank)
            case Sum():
                inner = {var: values[..., None] for var, values in bound.items()}
                inner[atom.var] = np.arange(atom.var.extent).reshape((1,) * rank + (-1,))
                if prod(max(values.shape) for values in inner.values()) > MAX_VALUES:
                    raise NotApplicableError("the sums are too long to evaluate one element")
                body = self._form(atom.body, inner, rank + 1)
                shape = np.broadcast_shapes(body.shape, inner[atom.var].shape)
                valid = np.ones(shape, dtype=bool)
                for index, below in atom.limits:
                    valid = valid & (self._index(index, inner, rank + 1) < below)
                total = self.modulus.sum(np.where(valid, np.broadcast_to(body, valid.shape), 0), -1, keepdims=False)
                return total.reshape(total.shape or (1,))
            case Root():
                value, bad = self.modulus.square_root(self._form(atom.radicand, bound, rank))
                if bad.any():
                    raise NoMeaningError("a radicand is no square")
                return value
            case Group():
                return self._form(atom.form, bound, rank)
            case Call():
                arguments = [self._form(argument, bound, rank) for argument in atom.arguments]
                return random_function(arguments, self._key(atom.name), self.modulus)
            case Choice() if atom.place is not None:
                place = self._index(atom.place, bound, rank)
                values = [self._form(alternative, bound, rank) for alternative in atom.alternatives]
                chosen = values[0]
                for start, value in zip(atom.starts[1:], values[1:], strict=True):
                    chosen = np.where(place >= start, value, chosen)
                return chosen
            case Unknown():
                places = [self._index(index, bound, rank) for index in atom.arguments]
                return random_function([*places, np.zeros(1, dtype=np.int64)], self._key(atom.name), self.modulus)
            case Exponential() if self.exponents is not None and self.powers is not None:
                return self.powers(self.exponents._form(atom.argument, bound, rank))
            case Choice() | Exponential():
                raise NotApplicableError(f"a {type(atom).__name__.lower()} has no value at a point of one field")
            case _:
                assert_never(atom)

    def _element(self, atom: Element, bound: Mapping[Var, Integers], rank: int) -> Residues:
        return self._values(atom.tensor, [self._index(index, bound, rank) for index in atom.index])

    def _values(self, number: int, places: list[Integers]) -> Residues:
        values = random_function([*places, np.zeros(1, dtype=np.int64)], self._key(f"input {number}"), self.modulus)
        for (tensor, index), value in self.changed.items():
            if tensor == number:
                here = np.ones(values.shape, dtype=bool)
                for place, wanted in zip(places, index, strict=True):
                    here = here & (place == wanted)
                values = np.where(here, value, values)
        return values

    def _key(self, name: str) -> int:
        return int.from_bytes(hashlib.sha256(f"{self.seed}|{name}".encode()).digest()[:7], "little")

    # ------------------------------------------------------------------------------------------------------------ indices
    def _index(self, index: Index, bound: Mapping[Var, Integers], rank: int) -> Integers:
        total = np.full((1,) * max(rank, 1), index.offset, dtype=np.int64)
        for coefficient, digit in index.digits:
            total = total + coefficient * self._digit(digit, bound, rank)
        return total

    def _digit(self, digit: Digit, bound: Mapping[Var, Integers], rank: int) -> Integers:
        match digit:
            case Var():
                if digit in bound:
                    return bound[digit]
                if digit not in self.fixed:
                    self.fixed[digit] = self._key(repr(digit)) % digit.extent
                return np.full((1,) * max(rank, 1), self.fixed[digit], dtype=np.int64)
            case Quotient():
                return self._index(digit.index, bound, rank) // digit.divisor
            case Remainder():
                return self._index(digit.index, bound, rank) % digit.divisor
            case Chosen():
                places = [self._index(argument, bound, rank) for argument in digit.arguments]
                chosen = random_function([*places, np.zeros(1, dtype=np.int64)], self._key(digit.name), self.modulus)
                return chosen % digit.extent
            case _:
                assert_never(digit)
