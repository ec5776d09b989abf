"""The parts of a form: atoms, monomials of atoms, sums of monomials.

Invariant: atoms and forms are made by `forms.Forms` alone, which makes equal ones one object; they are compared by identity.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import assert_never

from workbench.verify.indices import Index, Var

Limits = tuple[tuple[Index, int], ...]  # of a ragged tile: only where each index is below its bound


# ---------------------------------------------------------------------------------------------------------------- atoms
@dataclass(frozen=True, slots=True, eq=False)
class Atom:
    """What monomials are made of. number: order of creation; variables: those it mentions; height: nesting of sums."""

    number: int
    variables: frozenset[Var]
    height: int


@dataclass(frozen=True, slots=True, eq=False)
class Element(Atom):
    """An element of a program input."""

    tensor: int
    index: tuple[Index, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Sum(Atom):
    """The sum of one monomial over a bound variable. limits: only where these indices are below their bounds."""

    var: Var
    body: Form
    limits: Limits


@dataclass(frozen=True, slots=True, eq=False)
class Root(Atom):
    """The square root of a form."""

    radicand: Form


@dataclass(frozen=True, slots=True, eq=False)
class Exponential(Atom):
    """e to a form without exponentials."""

    argument: Form


@dataclass(frozen=True, slots=True, eq=False)
class Group(Atom):
    """A sum of several monomials taken as one factor; its first coefficient is 1."""

    form: Form


@dataclass(frozen=True, slots=True, eq=False)
class Call(Atom):
    """A random function (of that name, attributes included) of the arguments."""

    name: str
    arguments: tuple[Form, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Choice(Atom):
    """One of several forms: the piece of a piecewise operator, chosen at each test, or the part of a concatenation.

    starts: of a concatenation along `place`, where each part begins; place None and no starts otherwise.
    """

    name: str
    alternatives: tuple[Form, ...]
    place: Index | None
    starts: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Unknown(Atom):
    """A nonzero whole number, a function of indices (how many elements a ragged tile has)."""

    name: str
    arguments: tuple[Index, ...]


AnyAtom = Element | Sum | Root | Exponential | Group | Call | Choice | Unknown
Monomial = tuple[tuple[AnyAtom, int], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """A sum of coefficient * monomial, in canonical order. Equal forms made by one `Forms` are one object."""

    number: int
    terms: tuple[tuple[Monomial, Fraction], ...]
    variables: frozenset[Var]
    height: int

    @property
    def constant(self) -> Fraction | None:
        """The number that the form is, None if it is none."""
        if not self.terms:
            return Fraction(0)
        if len(self.terms) == 1 and not self.terms[0][0]:
            return self.terms[0][1]
        return None

    def atoms(self) -> Iterator[AnyAtom]:
        """Yield the atoms of the monomials (not those inside them)."""
        for monomial, _ in self.terms:
            for atom, _ in monomial:
                yield atom


def children(atom: AnyAtom) -> tuple[Form, ...]:
    """Return the forms that an atom is made of."""
    match atom:
        case Element() | Unknown():
            return ()
        case Sum():
            return (atom.body,)
        case Root():
            return (atom.radicand,)
        case Exponential():
            return (atom.argument,)
        case Group():
            return (atom.form,)
        case Call():
            return atom.arguments
        case Choice():
            return atom.alternatives
        case _:
            assert_never(atom)


def atoms_outside_exponents(forms: Sequence[Form]) -> Iterator[AnyAtom]:
    """Yield every atom, inside other atoms too, but not inside exponents; each once."""
    seen: set[int] = set()
    stack = list(forms)
    while stack:
        for atom in stack.pop().atoms():
            if atom.number not in seen:
                seen.add(atom.number)
                yield atom
                if not isinstance(atom, Exponential):
                    stack += children(atom)
