"""Degrees and heights of the polynomials behind a form: numerator over powers of factors that are kept as symbols.

A form is written N * product of factor^power. A denominator that several terms, both programs, or all elements along a
summed axis share is one factor and counts once; where denominators differ along a summed axis of extent n, the common one
is their product, of n times the degree. Invariant: degrees, weights and heights are upper bounds at the extents given.

Long because the three are bounded by one set of rules for sums, products and quotients, which must be read together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import reduce
from math import ceil, gcd, lcm, log2
from typing import Protocol, assert_never

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
    children,
)
from workbench.verify.forms import Forms
from workbench.verify.indices import Index, Var

COUNT_BITS = 31.0  # how many elements a ragged tile has is below 2^31
NOTHING = float("-inf")


@dataclass(frozen=True, slots=True)
class Size:
    """Bounds on a polynomial in input elements u, exponentials y and roots, times `content` a polynomial over the integers.

    Attributes:
        degree: total degree in u, a root counting half the degree of its radicand.
        plus, minus: positive and negative exponents of y in a monomial, added up.
        terms: different monomials in y.
        height: log2 of the largest coefficient of content * polynomial.
        norm: log2 of the sum of the absolute coefficients, each root weighing the square root of its radicand's norm.
        content: a common denominator of the coefficients.
        names: input tensors, roots and random functions that occur ("exp" for exponentials).
        grades: the degree in the variables of each name, where all monomials have the same; None where they may not.
    """

    degree: Fraction = Fraction(0)
    plus: int = 0
    minus: int = 0
    terms: float = 1.0
    height: float = 0.0
    norm: float = 0.0
    content: int = 1
    names: frozenset[object] = frozenset()
    grades: frozenset[tuple[object, int]] | None = frozenset()

    def times(self, other: Size, *, apart: bool = False) -> Size:
        """Return bounds on the product; coefficients of polynomials without common variables only multiply.

        apart: they have none although names in common: elements of different rows of one input. Where a root may meet
        itself its square multiplies coefficients too, and only norms bound that.
        """
        if self.names & other.names and not apart and self.has_root and other.has_root:
            height = self.norm + other.norm
        elif self.names & other.names and not apart:
            height = min(self.height + other.norm, self.norm + other.height)
        else:
            height = self.height + other.height
        return Size(
            self.degree + other.degree,
            self.plus + other.plus,
            self.minus + other.minus,
            self.terms * other.terms,
            height,
            self.norm + other.norm,
            self.content * other.content,
            self.names | other.names,
            _joined_grades(self.grades, other.grades),
        )

    def to_power(self, exponent: int, *, apart: bool = False) -> Size:
        """Return bounds on a power of at least 0, or on a product of so many polynomials of this size.

        apart: no two of them have a variable in common, so that coefficients only multiply.
        """
        if exponent == 0:
            return Size()
        if apart or exponent == 1:
            height = self.height * exponent
        else:
            height = self.norm * exponent if self.has_root else self.height + self.norm * (exponent - 1)
        return Size(
            self.degree * exponent,
            self.plus * exponent,
            self.minus * exponent,
            _to_power(self.terms, exponent),
            height,
            self.norm * exponent,
            self.content**exponent,
            self.names,
            None if self.grades is None else frozenset((name, degree * exponent) for name, degree in self.grades),
        )

    @property
    def has_root(self) -> bool:
        """Whether a root occurs."""
        return any(isinstance(name, tuple) and name[0] == "root" for name in self.names)

    def scaled(self, factor: Fraction) -> Size:
        """Return bounds on the polynomial times a number; common factors with the content cancel."""
        if factor == 0:
            return ZERO
        shared = gcd(self.content, factor.numerator)
        bits = log2(abs(factor.numerator // shared)) if abs(factor.numerator) != shared else 0.0
        return replace(
            self, height=self.height + bits, norm=self.norm + bits, content=self.content // shared * factor.denominator
        )

    def brought_to(self, content: int) -> Size:
        """Return the same polynomial with a multiple of its content."""
        bits = log2(content // self.content)
        return replace(self, height=self.height + bits, norm=self.norm + bits, content=content)


def _joined_grades(
    left: frozenset[tuple[object, int]] | None, right: frozenset[tuple[object, int]] | None
) -> frozenset[tuple[object, int]] | None:
    if left is None or right is None:
        return None
    degrees = dict(left)
    for name, degree in right:
        degrees[name] = degrees.get(name, 0) + degree
    return frozenset((name, degree) for name, degree in degrees.items() if degree)


ZERO = Size(terms=0.0, height=NOTHING, norm=NOTHING)


def _to_power(value: float, exponent: int) -> float:
    try:
        return float(value**exponent)
    except OverflowError:
        return float("inf")


def _log_sum(values: Iterable[float]) -> float:
    found = [value for value in values if value != NOTHING]
    if not found:
        return NOTHING
    top = max(found)
    return top + log2(sum(2.0 ** (value - top) for value in found))


def _alike(sizes: list[Size]) -> tuple[Size, list[Size]]:
    """Return what sums and alternatives share (height and norm left open), and the sizes brought to one content."""
    content = reduce(lcm, (size.content for size in sizes), 1)
    alike = [size.brought_to(content) for size in sizes]
    grades = {size.grades for size in alike if size.height != NOTHING}
    shared = Size(
        max((size.degree for size in alike), default=Fraction(0)),
        max((size.plus for size in alike), default=0),
        max((size.minus for size in alike), default=0),
        content=content,
        names=frozenset[object]().union(*(size.names for size in alike)),
        grades=grades.pop() if len(grades) == 1 else None,
    )
    return shared, alike


def added(sizes: list[Size]) -> Size:
    """Return bounds on a sum; where grades differ no monomial is in two of the summands."""
    shared, alike = _alike(sizes)
    graded: dict[object, list[float]] = {}
    for size in alike:
        graded.setdefault(size.grades, []).append(size.height)
    anywhere = _log_sum(graded.pop(None, []))
    return replace(
        shared,
        terms=sum(size.terms for size in alike),
        height=_log_sum([anywhere, max((_log_sum(heights) for heights in graded.values()), default=NOTHING)]),
        norm=_log_sum(size.norm for size in alike),
    )


def one_of(sizes: list[Size]) -> Size:
    """Return bounds that hold for each of several polynomials."""
    shared, alike = _alike(sizes)
    return replace(
        shared,
        terms=max(size.terms for size in alike),
        height=max(size.height for size in alike),
        norm=max(size.norm for size in alike),
    )


@dataclass(frozen=True, slots=True)
class Factor:
    """A polynomial kept as a symbol. Attributes: name; variables it mentions; size; atom: what it comes from, if it is one."""

    name: object
    variables: frozenset[Var]
    size: Size = field(compare=False)
    atom: AnyAtom | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Ratio:
    """A form as numerator times powers of factors (negative ones are the denominator)."""

    size: Size
    factors: Mapping[Factor, int] = field(default_factory=dict)

    def times(self, other: Ratio) -> Ratio:
        """Return the product."""
        factors = dict(self.factors)
        for factor, power in other.factors.items():
            factors[factor] = factors.get(factor, 0) + power
        return Ratio(self.size.times(other.size), {f: e for f, e in factors.items() if e})

    def to_power(self, exponent: int) -> Ratio:
        """Return a power of at least 0."""
        return Ratio(self.size.to_power(exponent), {f: e * exponent for f, e in self.factors.items()})

    @property
    def numerator(self) -> Size:
        """The size of everything that is not below the fraction line; coefficients as of the part that is no factor.

        A product is zero where one of its parts is, and not zero modulo a prime where none of its parts is.
        """
        size = self.size
        for factor, power in self.factors.items():
            if power > 0:
                size = size.times(factor.size.to_power(power))
        return replace(size, height=self.size.height, norm=self.size.norm, content=self.size.content)

    @property
    def poles(self) -> Size:
        """The size of the denominator."""
        size = Size()
        for factor, power in self.factors.items():
            if power < 0:
                size = size.times(factor.size.to_power(-power))
        return size


def over_common_factors(ratios: list[Ratio]) -> tuple[list[Size], dict[Factor, int]]:
    """Return numerators over one common product of factors, and that product."""
    names = {factor for ratio in ratios for factor in ratio.factors}
    common = {f: min(ratio.factors.get(f, 0) for ratio in ratios) for f in names}
    sizes = []
    for ratio in ratios:
        size = ratio.size
        for f in sorted(names, key=lambda factor: repr(factor.name)):
            lift = ratio.factors.get(f, 0) - common[f]
            if lift:
                size = size.times(f.size.to_power(lift))
        sizes.append(size)
    return sizes, {f: e for f, e in common.items() if e}


class Exponents(Protocol):
    """What the exponentials of a form are in terms of independent atoms (`exponents.Basis`)."""

    def weights(self, argument: Form) -> tuple[int, int]:
        """Return how much of positive and of negative exponents an exponential brings."""
        ...

    def total(self, argument: Form) -> int | None:
        """Return the sum of the exponents that an exponential brings, None where it depends on a piece."""
        ...

    def separates(self, argument: Form, var: Var) -> bool:
        """Return True when different values of a variable give different exponents."""
        ...


class Degrees:
    """Computes ratios of forms.

    exponents: of the exponentials; counted: the tensors whose elements have degree 1, None for all.
    """

    def __init__(self, forms: Forms, exponents: Exponents | None, counted: frozenset[int] | None = None) -> None:
        self.forms, self.exponents, self.counted = forms, exponents, counted
        self._known: dict[int, Ratio] = {}

    def difference(self, left: Form, right: Form) -> Size:
        """Return bounds on the numerator of left - right over the common denominator."""
        sizes, common = over_common_factors([self.of(left), self.of(right)])
        return Ratio(added(sizes), common).numerator

    def of(self, form: Form) -> Ratio:
        """Return the ratio of a form."""
        if form.number not in self._known:
            if not form.terms:
                self._known[form.number] = Ratio(ZERO)
            else:
                parts = [self.of_monomial(m, c) for m, c in form.terms]
                sizes, common = over_common_factors(parts)
                self._known[form.number] = Ratio(added(sizes), common)
        return self._known[form.number]

    def of_monomial(self, monomial: Monomial, coefficient: Fraction = Fraction(1)) -> Ratio:
        """Return the ratio of coefficient * monomial."""
        ratio = Ratio(Size().scaled(coefficient))
        for atom, power in monomial:
            ratio = ratio.times(self.of_atom(atom, power))
        return ratio

    def of_atom(self, atom: AnyAtom, power: int) -> Ratio:
        """Return the ratio of a power of an atom; what is divided by becomes a factor."""
        if isinstance(atom, Root):
            base, extra = self._root(atom)
            return Ratio(Size(), {base: power, **{f: e * power for f, e in extra.items()}})
        ratio = self._atom(atom)
        if power > 0:
            return ratio.to_power(power)
        base = Factor(("divisor", atom.number), atom.variables, ratio.size, atom)
        return Ratio(Size(), {base: power, **{f: e * power for f, e in ratio.factors.items()}})

    def _atom(self, atom: AnyAtom) -> Ratio:
        match atom:
            case Element():
                degree = Fraction(self.counted is None or atom.tensor in self.counted)
                return Ratio(_variable(atom.tensor, degree))
            case Unknown():
                return Ratio(Size(height=COUNT_BITS, norm=COUNT_BITS))
            case Call():
                return Ratio(_variable(("call", atom.number), Fraction(self.counted is None)))
            case Exponential():
                plus, minus = self.exponents.weights(atom.argument) if self.exponents else (0, 0)
                total = self.exponents.total(atom.argument) if self.exponents else None
                grades = None if total is None else frozenset({("exp", total)} if total else ())
                return Ratio(Size(plus=plus, minus=minus, names=frozenset({"exp"}), grades=grades))
            case Group():
                return self.of(atom.form)
            case Choice():
                sizes, common = over_common_factors([self.of(form) for form in atom.alternatives])
                return Ratio(one_of(sizes), common)
            case Sum():
                return self._sum(atom)
            case Root():
                base, extra = self._root(atom)
                return Ratio(base.size, dict(extra))
            case _:
                assert_never(atom)

    def _root(self, atom: Root) -> tuple[Factor, dict[Factor, int]]:
        """Return the root times a product of factors that makes its square a polynomial, and what that was divided by."""
        ratio = self.of(atom.radicand)
        squared, extra = ratio.size, dict[Factor, int]()
        for factor, power in ratio.factors.items():
            below = ceil(-power / 2) if power < 0 else 0
            squared = squared.times(factor.size.to_power(power + 2 * below))
            if below:
                extra[factor] = -below
        bits = log2(squared.content)
        size = Size(
            squared.degree / 2,
            ceil(squared.plus / 2),
            ceil(squared.minus / 2),
            squared.terms,
            0.0,
            max(0.0, (squared.norm + bits) / 2),
            squared.content,
            squared.names | {("root", atom.number)},
            frozenset({(("root", atom.number), 1)}),
        )
        return Factor(("root", atom.number), atom.variables, size, atom), extra

    def _sum(self, atom: Sum) -> Ratio:
        """Return the ratio of a sum: what differs along the variable is multiplied out."""
        ((monomial, coefficient),) = atom.body.terms
        ratio, extent = self.of_monomial(monomial, coefficient), atom.var.extent
        size, factors, distinct = ratio.size, dict[Factor, int](), self._is_distinct(monomial, atom.var)
        rows = self._rows([a for a, _ in monomial], atom.var)
        for factor, power in ratio.factors.items():
            if atom.var not in factor.variables:
                factors[factor] = power
            elif power > 0:
                size, distinct = size.times(factor.size.to_power(power)), False
            else:
                own = None if factor.atom is None else self._rows([factor.atom], atom.var)
                whole = factor.size.to_power(extent, apart=own is not None)
                name = ("all", atom.var, atom.limits, factor.name)
                factors[Factor(name, factor.variables - {atom.var}, whole)] = power
                others = factor.size.to_power(-power).to_power(extent - 1, apart=own is not None)
                shared = {name for name in size.names & factor.size.names if not isinstance(name, tuple)}
                apart = own is not None and rows is not None and all(own.get(n) == rows.get(n) for n in shared)
                size = size.times(others, apart=apart)
        bits = log2(extent)
        terms = size.terms * extent
        if not distinct:
            size = replace(size, height=size.height + bits)
        return Ratio(replace(size, norm=size.norm + bits, terms=terms), factors)

    def _rows(self, atoms: list[AnyAtom], var: Var) -> dict[object, tuple[int, Index]] | None:
        """Return, per input, along which dimension and how different values of a variable use different elements.

        Where this is a dictionary, what the atoms are at two values of the variable has no variable in common: not an
        input element, not an exponential ("exp" stands for those), not a root. None where it may.
        """
        found: dict[object, tuple[int, Index]] = {}
        stack: list[AnyAtom] = list(atoms)
        while stack:
            atom = stack.pop()
            match atom:
                case Element():
                    options = [
                        (dim, index) for dim, index in enumerate(atom.index) if _moves(index, var) and _is_outer(index)
                    ]
                    known = found.setdefault(atom.tensor, options[0]) if options else None
                    if known is None or known not in options:
                        return None
                case Exponential():
                    if self.exponents is None or not self.exponents.separates(atom.argument, var):
                        return None
                    found["exp"] = (0, Index())
                case Call() | Unknown():
                    return None
                case _:
                    stack += [inner for form in children(atom) for inner in form.atoms()]
        return found

    def _is_distinct(self, monomial: Monomial, var: Var) -> bool:
        """Return True when no monomial of the summand at one value of the variable is one at another value.

        So it is if the summand is divisible by an input element that differs from value to value and occurs in no other
        factor, or by an exponential whose exponents differ from value to value and no other factor has exponentials.
        """
        for atom, power in monomial:
            if power < 1 or not isinstance(atom, Element | Exponential):
                continue
            ratios = [self.of_atom(other, e) for other, e in monomial if other is not atom]
            others = frozenset[object]().union(*(ratio.size.names | _names(ratio) for ratio in ratios))
            if isinstance(atom, Element):
                if atom.tensor not in others and any(_moves(index, var) for index in atom.index):
                    return True
            elif "exp" not in others and self.exponents and self.exponents.separates(atom.argument, var):
                return True
        return False


def _moves(index: Index, var: Var) -> bool:
    """Return True when an index changes with the variable: it occurs by itself, and in no other digit."""
    rest = Index(0, tuple((c, digit) for c, digit in index.digits if digit != var))
    return index.coefficient(var) != 0 and var not in rest.variables()


def _variable(name: object, degree: Fraction) -> Size:
    return Size(degree, names=frozenset({name}), grades=frozenset({(name, 1)}))


def _is_outer(index: Index) -> bool:
    """Return True when an index runs over at most one bound variable: no inner sum moves it."""
    return sum(var.kind in ("bound", "open") for var in index.variables()) <= 1


def _names(ratio: Ratio) -> frozenset[object]:
    return frozenset[object]().union(*(factor.size.names for factor in ratio.factors))
