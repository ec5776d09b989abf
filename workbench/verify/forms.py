"""One element of a tensor as a formula over input elements: sums of monomials of atoms, kept as small as they are written.

Invariant: a form denotes, at every random point where the program has a meaning, the residue that the program computes
there; identities used are those of a commutative field, exp(a) exp(b) = exp(a + b), sqrt(a)^2 = a and no other. Equal
forms are one object, so a denominator or an exponent that occurs in two places, or in two programs, is seen to be one.

Long because atoms and the arithmetic that builds them refer to each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeVar, assert_never

from workbench.verify.indices import Chosen, Index, Var, combine, constant, shift, substitute, variable

A = TypeVar("A", bound="Atom")
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


# Numbers of open variables: below these, how deep a sum is nested when it is built (`elements`).
_JOINED, _REOPENED = 1 << 20, 1 << 21


# ----------------------------------------------------------------------------------------------------------- arithmetic
class Forms:
    """Makes forms; two forms can be compared only if one `Forms` made them."""

    def __init__(self) -> None:
        self._atoms: dict[tuple[object, ...], AnyAtom] = {}
        self._forms: dict[tuple[object, ...], Form] = {}
        self._substituted: dict[tuple[int, frozenset[tuple[Var, Index]]], Form] = {}
        self.zero = self.form({})
        self.one = self.number(1)

    # ------------------------------------------------------------------------------------------------- making one object
    def form(self, terms: Mapping[Monomial, Fraction]) -> Form:
        """Return the sum of these terms."""
        kept = [(monomial, c) for monomial, c in terms.items() if c]
        kept.sort(key=lambda term: tuple((atom.number, power) for atom, power in term[0]))
        key = tuple((tuple((atom.number, power) for atom, power in monomial), c) for monomial, c in kept)
        if key not in self._forms:
            variables: frozenset[Var] = frozenset()
            height = 0
            for monomial, _ in kept:
                for atom, _ in monomial:
                    variables |= atom.variables
                    height = max(height, atom.height)
            self._forms[key] = Form(len(self._forms), tuple(kept), variables, height)
        return self._forms[key]

    def _atom(self, key: tuple[object, ...], make: Callable[[int], A]) -> A:
        if key not in self._atoms:
            self._atoms[key] = make(len(self._atoms))  # type: ignore[assignment]
        return self._atoms[key]  # type: ignore[return-value]

    def of(self, atom: AnyAtom, power: int = 1) -> Form:
        """Return a power of an atom as a form."""
        return self.form({((atom, power),): Fraction(1)})

    def number(self, value: Fraction | int) -> Form:
        """Return a number."""
        return self.form({(): Fraction(value)})

    def element(self, tensor: int, index: tuple[Index, ...]) -> Form:
        """Return an element of an input."""
        variables = frozenset[Var]().union(*(i.variables() for i in index))
        return self.of(self._atom(("element", tensor, index), lambda n: Element(n, variables, 0, tensor, index)))

    def unknown(self, name: str, arguments: tuple[Index, ...]) -> Form:
        """Return a nonzero whole number without a value, a function of indices; equal names mean equal functions."""
        variables = frozenset[Var]().union(*(i.variables() for i in arguments))
        key = ("unknown", name, arguments)
        return self.of(self._atom(key, lambda n: Unknown(n, variables, 0, name, arguments)))

    def call(self, name: str, arguments: tuple[Form, ...]) -> Form:
        """Return a random function of forms."""
        key = ("call", name, tuple(a.number for a in arguments))
        return self.of(self._atom(key, lambda n: Call(n, *_span(arguments), name, arguments)))

    def choice(
        self, name: str, alternatives: tuple[Form, ...], place: Index | None = None, starts: tuple[int, ...] = ()
    ) -> Form:
        """Return one of several forms; a concatenation is the part that the place lies in, where that is known."""
        if len({alternative.number for alternative in alternatives}) == 1 and place is None:
            return alternatives[0]
        if place is not None:
            for number, start in enumerate(starts):
                end = starts[number + 1] if number + 1 < len(starts) else None
                if place.low >= start and (end is None or place.high < end):
                    return alternatives[number]
        key = ("choice", name, tuple(a.number for a in alternatives), place, starts)
        variables, height = _span(alternatives)
        if place is not None:
            variables |= place.variables()
        return self.of(self._atom(key, lambda n: Choice(n, variables, height, name, alternatives, place, starts)))

    # ------------------------------------------------------------------------------------------------------- operations
    def add(self, *forms: Form) -> Form:
        """Return the sum."""
        terms: dict[Monomial, Fraction] = {}
        for form in forms:
            for monomial, c in form.terms:
                terms[monomial] = terms.get(monomial, Fraction(0)) + c
        return self.form(terms)

    def scale(self, form: Form, factor: Fraction) -> Form:
        """Return the form times a number."""
        return self.form({monomial: c * factor for monomial, c in form.terms})

    def sub(self, left: Form, right: Form) -> Form:
        """Return left - right."""
        return self.add(left, self.scale(right, Fraction(-1)))

    def mul(self, left: Form, right: Form) -> Form:
        """Return the product; sums of several monomials become factors, they are not multiplied out."""
        for a, b in ((left, right), (right, left)):
            number = a.constant
            if number is not None:
                return self.scale(b, number)
        c, first = self._factor(left)
        d, second = self._factor(right)
        return self.scale(self._joined(first + second), c * d)

    def power(self, form: Form, exponent: int) -> Form:
        """Return a whole power; a negative one of 0 is 0, as in the field's arithmetic."""
        if exponent == 0:
            return self.one
        if not form.terms:
            return self.zero
        c, monomial = self._factor(form)
        return self.scale(self._joined(tuple((atom, power * exponent) for atom, power in monomial)), c**exponent)

    def div(self, left: Form, right: Form) -> Form:
        """Return the quotient."""
        return self.mul(left, self.power(right, -1))

    def exp(self, argument: Form) -> Form:
        """Return e to a form without exponentials."""
        if not argument.terms:
            return self.one
        key = ("exp", argument.number)
        return self.of(self._atom(key, lambda n: Exponential(n, argument.variables, argument.height, argument)))

    def sqrt(self, radicand: Form) -> Form:
        """Return the square root; of 0 and 1 that is the number itself."""
        if radicand.constant in (0, 1):
            return radicand
        key = ("root", radicand.number)
        return self.of(self._atom(key, lambda n: Root(n, radicand.variables, radicand.height, radicand)))

    def _factor(self, form: Form) -> tuple[Fraction, Monomial]:
        """Return number and monomial whose product the form is."""
        if len(form.terms) == 1:
            return form.terms[0][1], form.terms[0][0]
        content = form.terms[0][1]
        primitive = self.scale(form, 1 / content)
        key = ("group", primitive.number)
        group: AnyAtom = self._atom(key, lambda n: Group(n, form.variables, form.height, primitive))
        return content, ((group, 1),)

    def _joined(self, factors: Monomial) -> Form:
        """Return the product of factors: powers added, squares of roots undone, exponentials made one."""
        powers: dict[AnyAtom, int] = {}
        for atom, power in factors:
            powers[atom] = powers.get(atom, 0) + power
        argument, extra = self.zero, self.one
        for atom, power in list(powers.items()):
            if isinstance(atom, Exponential):
                argument = self.add(argument, self.scale(atom.argument, Fraction(power)))
                del powers[atom]
            elif isinstance(atom, Root) and abs(power) > 1:
                whole = abs(power) // 2 * (1 if power > 0 else -1)
                extra = self.mul(extra, self.power(atom.radicand, whole))
                powers[atom] = power - 2 * whole
        if argument.terms:
            powers[next(iter(self.exp(argument).atoms()))] = 1
        kept = tuple(sorted(((a, e) for a, e in powers.items() if e), key=lambda pair: pair[0].number))
        if len(kept) == 1 and isinstance(kept[0][0], Group) and kept[0][1] == 1:
            product = kept[0][0].form
        else:
            product = self.form({kept: Fraction(1)})
        return product if extra is self.one else self.mul(product, extra)

    # -------------------------------------------------------------------------------------------------------------- sums
    def sum_over(self, var: Var, form: Form, limits: Limits = ()) -> Form:
        """Return the sum over a variable, only where the limits hold.

        What does not mention the variable comes out of the sum, sums over the loop and within a tile become one, and a
        sum along a concatenation is the sum of the parts' sums.
        """
        limits = tuple(limit for limit in limits if limit[0].high >= limit[1])
        if var.extent == 1 and not limits:
            return self.substitute(form, {var: constant(0)})
        cuts = [] if limits else self._cuts(var, form)
        if cuts:
            ends = [*cuts[1:], var.extent]
            parts = []
            for start, end in zip(cuts, ends, strict=True):
                part = Var(var.kind, var.number, end - start)
                parts.append(self.sum_over(part, self.substitute(form, {var: shift(variable(part), start)})))
            return self.add(*parts)
        return self.add(*(self.scale(self._sum_of(var, monomial, limits), c) for monomial, c in form.terms))

    def _cuts(self, var: Var, form: Form) -> list[int]:
        """Return where concatenations along exactly this variable begin their parts, [] if there are none."""
        found: set[int] = set()
        for atom in self.inside(form):
            if isinstance(atom, Choice) and atom.place is not None and atom.place.digits == ((1, var),):
                found |= {start - atom.place.offset for start in atom.starts}
        cuts = sorted(start for start in found if 0 < start < var.extent)
        return [0, *cuts] if cuts else []

    def _sum_of(self, var: Var, monomial: Monomial, limits: Limits) -> Form:
        outside: list[tuple[AnyAtom, int]] = []
        inside: list[tuple[AnyAtom, int]] = []
        for atom, power in monomial:
            if var not in atom.variables:
                outside.append((atom, power))
            elif isinstance(atom, Exponential):
                free = {m: c for m, c in atom.argument.terms if not any(var in a.variables for a, _ in m)}
                held = {m: c for m, c in atom.argument.terms if m not in free}
                if free:
                    outside += self.exp(self.form(free)).terms[0][0]
                inside += self.exp(self.form(held)).terms[0][0]
            else:
                inside.append((atom, power))
        body = self._joined(tuple(inside))
        if len(body.terms) > 1:
            total = self.sum_over(var, body, limits)
        elif not inside and not limits:
            total = self.number(var.extent)
        else:
            total = self._merged(var, body, limits)
        return self.mul(self._joined(tuple(outside)), total)

    def _merged(self, var: Var, body: Form, limits: Limits) -> Form:
        """Return the sum of one monomial that depends on the variable, joined with a sum that it is where possible."""
        ((monomial, c),) = body.terms
        if len(monomial) == 1 and isinstance(monomial[0][0], Sum) and monomial[0][1] == 1:
            joined = self._loop_and_tile(var, monomial[0][0], limits)
            if joined is not None:
                return self.scale(joined, c)
        return self.scale(self._closed(var, self.form({monomial: Fraction(1)}), limits), c)

    def _closed(self, var: Var, body: Form, limits: Limits) -> Form:
        bound = Var("bound", body.height + 1, var.extent)
        values = {var: variable(bound)}
        inner = self.substitute(body, values)
        limits = tuple((substitute(index, values), below) for index, below in limits)
        variables = inner.variables.union(*(index.variables() for index, _ in limits)) - {bound}
        key = ("sum", bound, inner.number, limits)
        return self.of(self._atom(key, lambda n: Sum(n, variables, bound.number, bound, inner, limits)))

    def _loop_and_tile(self, outer: Var, inner: Sum, outer_limits: Limits) -> Form | None:
        """Return sum over outer and inner of f(tile * outer + inner) as one sum, None where f does not have that form."""
        tile, extent = inner.var.extent, outer.extent * inner.var.extent
        kept: list[tuple[Index, int]] = []
        for index, below in (*outer_limits, *inner.limits):
            if not _together(index, outer, inner.var, tile):
                return None
            if index.digits == combine([(tile, variable(outer)), (1, variable(inner.var))]).digits:
                extent = min(extent, below - index.offset)
            else:
                kept.append((index, below))
        whole = Var("open", _JOINED, extent)
        # tile * outer + inner -> whole is the same as outer -> 0, inner -> whole, as they occur only together
        if not all(_together(index, outer, inner.var, tile) for index in self.indices(inner.body)):
            return None
        values = {outer: constant(0), inner.var: variable(whole)}
        limits = tuple((substitute(index, values), below) for index, below in kept)
        return self.sum_over(whole, self.substitute(inner.body, values), limits)

    # --------------------------------------------------------------------------------------------------- substitution
    def substitute(self, form: Form, values: Mapping[Var, Index]) -> Form:
        """Return the form with variables replaced by indices, everywhere."""
        relevant = {var: index for var, index in values.items() if var in form.variables}
        if not relevant:
            return form
        key = (form.number, frozenset(relevant.items()))
        if key not in self._substituted:
            parts = []
            for monomial, c in form.terms:
                product = self.number(c)
                for atom, power in monomial:
                    product = self.mul(product, self.power(self._replaced(atom, relevant), power))
                parts.append(product)
            self._substituted[key] = self.add(*parts)
        return self._substituted[key]

    def _replaced(self, atom: AnyAtom, values: Mapping[Var, Index]) -> Form:
        if not atom.variables & values.keys():
            return self.of(atom)
        match atom:
            case Element():
                return self.element(atom.tensor, tuple(substitute(index, values) for index in atom.index))
            case Sum():
                # the bound variable is given another name, so that nothing put in is captured by it
                opened = Var("open", _REOPENED + atom.var.number, atom.var.extent)
                inner = {**values, atom.var: variable(opened)}
                limits = tuple((substitute(index, inner), below) for index, below in atom.limits)
                return self.sum_over(opened, self.substitute(atom.body, inner), limits)
            case Root():
                return self.sqrt(self.substitute(atom.radicand, values))
            case Exponential():
                return self.exp(self.substitute(atom.argument, values))
            case Group():
                return self.substitute(atom.form, values)
            case Call():
                return self.call(atom.name, tuple(self.substitute(a, values) for a in atom.arguments))
            case Choice():
                place = None if atom.place is None else substitute(atom.place, values)
                return self.choice(
                    atom.name, tuple(self.substitute(a, values) for a in atom.alternatives), place, atom.starts
                )
            case Unknown():
                return self.unknown(atom.name, tuple(substitute(index, values) for index in atom.arguments))
            case _:
                assert_never(atom)

    def largest(self, name: str, var: Var, form: Form) -> Form:
        """Return the largest value of a form over a variable: the value at a position that is chosen at each test."""
        if var not in form.variables:
            return form
        bound = Var("bound", form.height + 1, var.extent)
        same = self.substitute(form, {var: variable(bound)})
        free = sorted(same.variables - {bound}, key=repr)
        chosen = Chosen(f"{name} of {same.number}", tuple(variable(v) for v in free), var.extent)
        return self.substitute(form, {var: Index(0, ((1, chosen),))})

    # ------------------------------------------------------------------------------------------------- looking around
    def inside(self, form: Form) -> Iterator[AnyAtom]:
        """Yield every atom of a form, those inside atoms too, each once."""
        seen: set[int] = set()
        stack = [form]
        while stack:
            for atom in stack.pop().atoms():
                if atom.number in seen:
                    continue
                seen.add(atom.number)
                yield atom
                stack += children(atom)

    def indices(self, form: Form) -> Iterator[Index]:
        """Yield every index in a form, those of limits, places and arguments too."""
        for atom in self.inside(form):
            match atom:
                case Element():
                    yield from atom.index
                case Choice() if atom.place is not None:
                    yield atom.place
                case Sum():
                    yield from (index for index, _ in atom.limits)
                case Unknown():
                    yield from atom.arguments
                case _:
                    pass


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


def _span(forms: tuple[Form, ...]) -> tuple[frozenset[Var], int]:
    variables = frozenset[Var]().union(*(form.variables for form in forms))
    return variables, max((form.height for form in forms), default=0)


def _together(index: Index, outer: Var, inner: Var, tile: int) -> bool:
    """Return True when outer and inner occur in an index only as a multiple of tile * outer + inner."""
    a, b = index.coefficient(outer), index.coefficient(inner)
    rest = [Index(0, ((c, d),)) for c, d in index.digits if d not in (outer, inner)]
    return a == tile * b and not any({outer, inner} & r.variables() for r in rest)
