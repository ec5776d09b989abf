"""Where normal forms live: every atom, monomial and polynomial exactly once, as small integers.

Invariant: equal ids mean equal normal forms. A polynomial is a multiset of monomials; a monomial is
(num, den, quotient, root): atoms above, atoms below, a primitive polynomial below and one under a square root above;
*primitive* means that no atom divides it. Nothing is ever cancelled, so every leaf of a subexpression is still there to
be counted, and counts of a sum, product or quotient are at least the sums of its operands' counts.

An axis is a bit. An axis that is bound twice in one product, as in (sum_h X)^2, gets further *copies*: the bound names
of a sum are the smallest copies not free in it, which makes equal sums equal ids.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Iterator
from fractions import Fraction
from typing import NamedTuple

from workbench.domains.abstract_expr import Axis, Part

UNIT = 0  # the monomial 1 and the polynomial 1
FIELD_BITS = 16  # of a packed feature count; the top bit of a field is its guard

Renaming = tuple[tuple[int, int], ...]  # pairs (bit, new bit), applied at once


class UndecidedError(Exception):
    """A normal form would exceed the budget, or needs a factorisation that is not attempted."""


class TooLargeError(UndecidedError):
    """A normal form would exceed the budget: it is larger than every one that is known, and so equals none."""


class Atom(NamedTuple):
    """What cannot be taken apart by add, mul and div.

    Kinds: symbol (name, refs = bits of its axes); constant (name = the number); size (ref = a prime of the paper's sum);
    extent (refs = the bit of an axis summed over although nothing depends on it); exp (ref = monomial); sqrt (ref =
    atom); apply (name, refs = polynomials); sum (bound, ref = monomial); max (elements = (bound, polynomial)); peak
    (ref = a prime of the paper's max); frozen (an undecided operation: name, refs = its operands, ref and bound = its
    parameters).
    """

    kind: str
    name: str = ""
    ref: int = 0
    refs: tuple[int, ...] = ()
    bound: int = 0
    elements: tuple[tuple[int, int], ...] = ()


class Monomial(NamedTuple):
    """A product: atoms above and below in descending order, primitive polynomial below, primitive one under a root."""

    num: tuple[int, ...] = ()
    den: tuple[int, ...] = ()
    quotient: int = UNIT
    root: int = UNIT


def bits_of(mask: int) -> Iterator[int]:
    """Return the set bits of a mask, lowest first, each as a mask."""
    while mask:
        bit = mask & -mask
        yield bit
        mask ^= bit


class Tables:
    """The interned atoms, monomials and polynomials of one algebra, with free axes, feature counts and weights.

    Attributes: max_terms, max_weight (the budget: monomials of a polynomial, leaves and operators in it).
    """

    def __init__(self, *, max_terms: int = 512, max_weight: int = 12_000) -> None:
        """Raises: ValueError when a feature count within the budget would not fit its field."""
        largest = (1 << FIELD_BITS - 2) - 1
        if max_weight > largest:
            raise ValueError(f"max_weight {max_weight} does not fit a feature field; at most {largest}")
        self.max_terms, self.max_weight = max_terms, max_weight
        self._copies: dict[Axis, list[int]] = {}
        self.bit_axis: list[tuple[Axis, int]] = []
        self.loop_mask = self.grid_mask = 0
        self.copy_mask = 0  # bits that are a second or later copy
        self._features: dict[Hashable, int] = {}
        self.guard = 0
        self._atom_ids: dict[Atom, int] = {}
        self.atoms: list[Atom] = []
        self.atom_mask: list[int] = []
        self.atom_count: list[int] = []
        self.atom_weight: list[int] = []
        self.atom_frozen: list[bool] = []
        self._monomial_ids: dict[Monomial, int] = {Monomial(): UNIT}
        self.monomials: list[Monomial] = [Monomial()]
        self.monomial_mask = [0]
        self.monomial_count = [0]
        self.monomial_weight = [1]
        self.monomial_frozen = [False]
        self._polynomial_ids: dict[tuple[int, ...], int] = {(UNIT,): UNIT}
        self.polynomials: list[tuple[int, ...]] = [(UNIT,)]
        self.mask = [0]
        self.count = [0]
        self.weight = [1]
        self.frozen = [False]

    # ------------------------------------------------------------------------------------------------------- axes
    def axis_bit(self, axis: Axis, copy: int = 0) -> int:
        """Return the bit of an axis, or of one of its further copies."""
        bits = self._copies.setdefault(axis, [])
        while len(bits) <= copy:
            bit = 1 << len(self.bit_axis)
            self.bit_axis.append((axis, len(bits)))
            if axis.part is Part.LOOP:
                self.loop_mask |= bit
            if axis.part is Part.GRID:
                self.grid_mask |= bit
            if bits:
                self.copy_mask |= bit
            bits.append(bit)
        return bits[copy]

    def axes_mask(self, axes: Iterable[Axis]) -> int:
        """Return the bits of the axes together."""
        mask = 0
        for axis in axes:
            mask |= self.axis_bit(axis)
        return mask

    def axes_of(self, mask: int) -> tuple[Axis, ...]:
        """Return the axes of a mask, copies folded into their axis, by name."""
        return tuple(sorted({self.bit_axis[bit.bit_length() - 1][0] for bit in bits_of(mask)}, key=str))

    def base(self, bit: int) -> int:
        """Return the first copy of the axis a bit belongs to."""
        return self._copies[self.bit_axis[bit.bit_length() - 1][0]][0]

    def base_mask(self, mask: int) -> int:
        """Return the mask with every copy replaced by its axis."""
        if mask & self.copy_mask:
            for bit in bits_of(mask & self.copy_mask):
                mask = mask & ~bit | self.base(bit)
        return mask

    def fresh_copy(self, bit: int, taken: int) -> int:
        """Return the smallest copy of the axis of `bit` that is not in the mask `taken`."""
        axis = self.bit_axis[bit.bit_length() - 1][0]
        return next(found for copy in itertools.count() if not (found := self.axis_bit(axis, copy)) & taken)

    # --------------------------------------------------------------------------------------------------- counting
    def feature(self, key: Hashable) -> int:
        """Return a packed count with 1 in the field of `key`."""
        place = self._features.get(key)
        if place is None:
            place = self._features[key] = len(self._features)
            self.guard |= 1 << FIELD_BITS * place + FIELD_BITS - 1
        return 1 << FIELD_BITS * place

    def feature_counts(self, count: int) -> dict[Hashable, int]:
        """Return a packed count unpacked: what occurs how often."""
        field = (1 << FIELD_BITS) - 1
        return {key: n for key, place in self._features.items() if (n := count >> FIELD_BITS * place & field)}

    def fits(self, count: int, budget: int) -> bool:
        """Return whether every field of a packed count is at most that of the budget."""
        return ((budget | self.guard) - count) & self.guard == self.guard

    # -------------------------------------------------------------------------------------------------- interning
    def atom(self, atom: Atom) -> int:
        """Return the id of an atom."""
        found = self._atom_ids.get(atom)
        return self._new_atom(atom, *self._measure(atom)) if found is None else found

    def frozen_atom(self, name: str, operands: tuple[int, ...], ref: int = 0, bound: int = 0) -> int:
        """Return an atom for an operation whose normal form is undecided.

        The same operation on the same operands is the same atom. Its counts are what the operands have at least, the
        heavier operand's alone when both together would not fit the budget.
        """
        atom = Atom("frozen", name, ref, operands, bound)
        found = self._atom_ids.get(atom)
        if found is not None:
            return found
        mask = 0
        for operand in operands:
            mask |= self.mask[operand]
        weight = sum(self.weight[operand] for operand in operands)
        if weight <= self.max_weight and name != "max":
            count = sum(self.count[operand] for operand in operands)
        else:
            heaviest = max(operands, key=lambda operand: self.weight[operand])
            count, weight = self.count[heaviest], self.weight[heaviest]
        return self._new_atom(atom, mask & ~bound, count, weight, True)

    def _new_atom(self, atom: Atom, mask: int, count: int, weight: int, frozen: bool) -> int:
        new = self._atom_ids[atom] = len(self.atoms)
        self.atoms.append(atom)
        self.atom_mask.append(mask)
        self.atom_count.append(count)
        self.atom_weight.append(weight)
        self.atom_frozen.append(frozen)
        return new

    def _measure(self, atom: Atom) -> tuple[int, int, int, bool]:
        """Return an atom's free axes, feature count, weight, and whether something in it is undecided."""
        ref = atom.ref
        match atom.kind:
            case "symbol":
                bases = tuple(self.base(bit) for bit in atom.refs)
                return sum(atom.refs), self.feature(("symbol", atom.name, bases)), 1, False
            case "constant":  # x / c is held as x * (1/c): both count as the same leaf
                number = Fraction(atom.name)
                if not number:  # stands for an empty element of a maximum too, which must count as nothing
                    return 0, 0, 1, False
                return 0, self.feature(("constant", 1 / number if abs(number) < 1 else number)), 1, False
            case "size" | "extent" | "peak":
                refs = tuple(self.base(bit) for bit in atom.refs)
                return 0, self.feature((atom.kind, ref, refs)), 1, False
            case "exp":
                count = self.monomial_count[ref] + self.feature("exp")
                return self.monomial_mask[ref], count, self.monomial_weight[ref] + 1, self.monomial_frozen[ref]
            case "sqrt":
                count = self.atom_count[ref] + self.feature("sqrt")
                return self.atom_mask[ref], count, self.atom_weight[ref] + 1, self.atom_frozen[ref]
            case "sum":
                count = self.monomial_count[ref] + self._bound_count("sum", atom.bound)
                weight = self.monomial_weight[ref] + atom.bound.bit_count()
                return self.monomial_mask[ref] & ~atom.bound, count, weight, self.monomial_frozen[ref]
        polynomials = [(atom.bound, p) for p in atom.refs] or list(atom.elements)
        mask, count, weight, frozen = 0, 0, 1, False
        if atom.kind == "apply":  # a maximum itself does not count: two that are joined are one
            count = self.feature(("apply", atom.name))
        for bound, p in polynomials:
            mask |= self.mask[p] & ~bound
            count += self.element_count(bound, p)
            weight += self.weight[p] + bound.bit_count()
            frozen = frozen or self.frozen[p]
        return mask, count, weight, frozen

    def element_count(self, bound: int, p: int) -> int:
        """Return the feature count of max_B p."""
        return self.count[p] + self._bound_count("max", bound)

    def _bound_count(self, kind: str, bound: int) -> int:
        return sum(self.feature((kind, self.base(bit))) for bit in bits_of(bound))

    def monomial_id(self, monomial: Monomial) -> int | None:
        """Return the id of a monomial that exists."""
        return self._monomial_ids.get(monomial)

    def new_monomial(self, monomial: Monomial, mask: int, count: int, weight: int, frozen: bool) -> int:
        """Return a new id for a monomial that has been measured. Raises: UndecidedError past the budget."""
        if weight > self.max_weight:
            raise TooLargeError(f"a product of weight {weight}; the budget is {self.max_weight}")
        new = self._monomial_ids[monomial] = len(self.monomials)
        self.monomials.append(monomial)
        self.monomial_mask.append(mask)
        self.monomial_count.append(count)
        self.monomial_weight.append(max(weight, 1))
        self.monomial_frozen.append(frozen)
        return new

    def polynomial(self, monomials: Iterable[int]) -> int:
        """Return the id of the sum of monomials. Raises: UndecidedError past the budget."""
        key = tuple(sorted(monomials))
        found = self._polynomial_ids.get(key)
        if found is not None:
            return found
        mask, count, weight, frozen = 0, 0, 0, False
        for m in key:
            mask |= self.monomial_mask[m]
            count += self.monomial_count[m]
            weight += self.monomial_weight[m]
            frozen = frozen or self.monomial_frozen[m]
        if weight > self.max_weight or len(key) > self.max_terms:
            raise TooLargeError(
                f"a sum of {len(key)} monomials of weight {weight}; the budget is {self.max_terms} and {self.max_weight}"
            )
        new = self._polynomial_ids[key] = len(self.polynomials)
        self.polynomials.append(key)
        self.mask.append(mask)
        self.count.append(count)
        self.weight.append(weight)
        self.frozen.append(frozen)
        return new
