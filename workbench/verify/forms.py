"""One element of a tensor as a formula over input elements: sums of monomials of atoms, kept as small as they are written.

Invariant: a form denotes, at every random point where the program has a meaning, the residue that the program computes
there; identities used are those of a commutative field, exp(a) exp(b) = exp(a + b), sqrt(a)^2 = a and no other. Equal
forms are one object, so a denominator or an exponent that occurs in two places, or in two programs, is seen to be one.

Long because the operations on forms call each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from itertools import count, pairwise, permutations
from typing import TypeVar, assert_never

from workbench.errors import NotApplicableError
from workbench.verify.form_atoms import (
    AnyAtom,
    Atom,
    Call,
    Choice,
    Element,
    Exponential,
    Form,
    Group,
    Limits,
    Monomial,
    Root,
    Sum,
    Unknown,
    children,
)
from workbench.verify.indices import (
    Chosen,
    Index,
    Quotient,
    Remainder,
    Var,
    combine,
    constant,
    shift,
    substitute,
    variable,
)
from workbench.verify.patterns import pattern_of

A = TypeVar("A", bound=Atom)

MAX_ORDERED = 4  # sums of one product that are brought to a canonical order
# Numbers of open variables: below these, how deep a sum is nested when it is built (`elements`); a bound variable that is
# opened keeps its number, which those of the sums inside it are below; then fresh ones.
_REOPENED, _FRESH = 1 << 20, 1 << 21


# ----------------------------------------------------------------------------------------------------------- arithmetic
class Forms:
    """Makes forms; two forms can be compared only if one `Forms` made them."""

    def __init__(self) -> None:
        self._atoms: dict[tuple[object, ...], AnyAtom] = {}
        self._forms: dict[tuple[object, ...], Form] = {}
        self._substituted: dict[tuple[int, frozenset[tuple[Var, Index]]], Form] = {}
        self._fresh = count(_FRESH)
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
        if len({alternative.number for alternative in alternatives}) == 1:
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
        length = 0 if limits else self._part(var, form)
        if length:
            inner, outer = self._open(length), self._open(var.extent // length)
            place = combine([(length, variable(outer)), (1, variable(inner))])
            return self.sum_over(outer, self.sum_over(inner, self.substitute(form, {var: place})))
        return self.add(*(self.scale(self._sum_of(var, monomial, limits), c) for monomial, c in form.terms))

    def _part(self, var: Var, form: Form) -> int:
        """Return by how many consecutive values a variable is divided in some index (strided sums do), 0 if it is not."""
        found = {
            digit.divisor
            for index in self.indices(form)
            for _, digit in index.digits
            if isinstance(digit, Quotient | Remainder) and digit.index.coefficient(var) == 1
        }
        return next((d for d in sorted(found) if 1 < d < var.extent and var.extent % d == 0), 0)

    def _cuts(self, var: Var, form: Form) -> list[int]:
        """Return where concatenations along exactly this variable begin their parts, [] if there are none."""
        found: set[int] = set()
        for atom in self.inside(form):
            if isinstance(atom, Choice) and atom.place is not None and atom.place.digits == ((1, var),):
                found |= {start - atom.place.offset for start in atom.starts}
        cuts = sorted(start for start in found if 0 < start < var.extent)
        return [0, *cuts] if cuts else []

    def _open(self, extent: int) -> Var:
        return Var("open", next(self._fresh), extent)

    def _sum_of(self, var: Var, monomial: Monomial, limits: Limits) -> Form:
        outside, inside = self._parted(var, monomial)
        body = self._joined(inside)
        if len(body.terms) > 1:
            total = self.sum_over(var, body, limits)
        elif not inside and not limits:
            total = self.number(var.extent)
        else:
            total = self._merged(var, body, limits)
        return self.mul(self._joined(outside), total)

    def _parted(self, var: Var, monomial: Monomial) -> tuple[Monomial, Monomial]:
        """Return the factors that do not depend on a variable, and those that do; exponentials are taken apart."""
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
        return tuple(outside), tuple(inside)

    def _merged(self, var: Var, body: Form, limits: Limits) -> Form:
        """Return the sum of one monomial that depends on the variable, in canonical order with the sums inside it."""
        ((monomial, c),) = body.terms
        sums = [atom for atom, power in monomial if isinstance(atom, Sum) and power == 1]
        found: Form | None = None
        if len(monomial) == len(sums) == 1:
            found = self._loop_and_tile(var, sums[0], limits) or self._exchanged(var, sums[0], limits)
        if found is None and len(sums) == 1 and not limits:
            found = self._reordered(var, monomial, sums[0])
        if found is None:
            found = self._closed(var, self.form({monomial: Fraction(1)}), limits)
        return self.scale(found, c)

    def _closed(self, var: Var, body: Form, limits: Limits) -> Form:
        bound = Var("bound", body.height + 1, var.extent)
        values = {var: variable(bound)}
        inner = self.substitute(body, values)
        limits = tuple((substitute(index, values), below) for index, below in limits)
        variables = inner.variables.union(*(index.variables() for index, _ in limits)) - {bound}
        key = ("sum", bound, inner.number, limits)
        return self.of(self._atom(key, lambda n: Sum(n, variables, bound.number, bound, inner, limits)))

    def _loop_and_tile(self, outer: Var, inner: Sum, outer_limits: Limits) -> Form | None:
        """Return a sum of f(n * v + w) over v and w, w over 0 .. n - 1, as one sum, None where f does not have that form.

        Either variable may be the outer one.
        """
        limits = (*outer_limits, *inner.limits)
        places = [*self.indices(inner.body), *(index for index, _ in limits)]
        for high, low in ((outer, inner.var), (inner.var, outer)):
            if not all(_together(index, high, low) for index in places):
                continue
            extent, kept = high.extent * low.extent, list[tuple[Index, int]]()
            for index, below in limits:
                if index.digits == combine([(low.extent, variable(high)), (1, variable(low))]).digits:
                    extent = min(extent, below - index.offset)
                else:
                    kept.append((index, below))
            # n * high + low -> whole is the same as high -> 0, low -> whole, as they occur only together
            whole = self._open(extent)
            values = {high: constant(0), low: variable(whole)}
            new_limits = tuple((substitute(index, values), below) for index, below in kept)
            return self.sum_over(whole, self.substitute(inner.body, values), new_limits)
        return None

    def _exchanged(self, outer: Var, inner: Sum, outer_limits: Limits) -> Form | None:
        """Return a double sum with limits with the outer one inside, where a factor does not depend on it, else None.

        sum over v, w of f(w) g(v, w) -> sum over w of f(w) * sum over v of g(v, w)
        """
        ((monomial, c),) = inner.body.terms
        outside = tuple((atom, power) for atom, power in monomial if outer not in atom.variables)
        limits = (*outer_limits, *inner.limits)
        if not limits or not outside or any({outer, inner.var} <= index.variables() for index, _ in limits):
            return None
        opened = Var("open", _REOPENED + inner.var.number, inner.var.extent)
        values = {inner.var: variable(opened)}
        within = tuple((atom, power) for atom, power in monomial if outer in atom.variables)
        inner_limits = tuple((substitute(index, values), below) for index, below in inner.limits)
        mine = (*outer_limits, *(limit for limit in inner_limits if outer in limit[0].variables()))
        theirs = tuple(limit for limit in inner_limits if outer not in limit[0].variables())
        summed = self.sum_over(outer, self.substitute(self._joined(within), values), mine)
        product = self.mul(self.substitute(self._joined(outside), values), summed)
        return self.scale(self.sum_over(opened, product, theirs), c)

    def _reordered(self, var: Var, monomial: Monomial, inner: Sum) -> Form | None:
        """Return a sum of a product with one sum in it, in the canonical order of all its sums: products of matrices.

        sum over k of b_k * sum over j of a_j c_jk is multiplied out to one sum over j and k; then the longest sum is
        outermost, of equally long ones the order whose pattern comes first, and factors stand as far out as they can.
        None where sums have limits, or are too many to be ordered.
        """
        variables, factors, coefficient = [var], [pair for pair in monomial if pair[0] is not inner], Fraction(1)
        current: Sum | None = inner
        while current is not None:
            if current.limits or len(variables) == MAX_ORDERED:
                return None
            opened = self._open(current.var.extent)
            body = self.substitute(current.body, {current.var: variable(opened)})
            if len(body.terms) != 1:
                return None
            variables.append(opened)
            more, c = body.terms[0]
            coefficient *= c
            sums = [atom for atom, power in more if isinstance(atom, Sum) and power == 1]
            current = sums[0] if len(sums) == 1 else None
            factors += [pair for pair in more if pair[0] is not current]
        product = self._joined(tuple(factors))
        found: list[Form] = []
        for order in permutations(variables):
            if any(first.extent < second.extent for first, second in pairwise(order)):
                continue
            form = product
            for each in reversed(order):
                form = self._plainly(each, form)
            found.append(form)
        best = found[0] if len(found) == 1 else min(found, key=lambda form: repr(pattern_of(form).key))
        return self.scale(best, coefficient)

    def _plainly(self, var: Var, form: Form) -> Form:
        """Return a sum with the factors that do not depend on the variable outside, no sums put together."""
        parts = []
        for monomial, c in form.terms:
            outside, inside = self._parted(var, monomial)
            body = self._joined(inside)
            if not inside:
                total = self.number(var.extent)
            else:
                total = self._closed(var, body, ()) if len(body.terms) == 1 else self._plainly(var, body)
            parts.append(self.scale(self.mul(self._joined(outside), total), c))
        return self.add(*parts)

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

    def largest(self, name: str, var: Var, form: Form, limits: Limits = ()) -> Form:
        """Return the largest value of a form over a variable, only where the limits hold: that at a `chosen` position."""
        bound = Var("bound", form.height + 1, var.extent)
        values = {var: variable(bound)}
        limits = tuple((substitute(index, values), below) for index, below in limits)
        return self.chosen(f"{name} of", self.substitute(form, values), {bound: "element"}, limits)

    def chosen(
        self, name: str, form: Form, over: Mapping[Var, str], limits: Limits, arguments: tuple[Index, ...] = ()
    ) -> Form:
        """Return a form with variables replaced by positions, only where the limits hold, that are chosen at each test.

        over: the variables, and what each is. Positions are the same where form, limits and arguments are.
        Raises: NotApplicableError where there may be no position, and the form has none that could tell it.
        """
        name, given = f"{name} {form.number}", [variable(var) for var in sorted(form.variables - over.keys(), key=repr)]
        for index, below in limits:
            if index.high >= below:  # its coefficients are part of the name, where the tile begins is an argument
                inside = [(index.coefficient(var), variable(var)) for var in over]
                given.append(combine([(1, index), *((-c, place) for c, place in inside)]))
                name += f", {[c for c, _ in inside]} below {below}"
        found = {var: Chosen(f"{name}, {what}", (*given, *arguments), var.extent) for var, what in over.items()}
        positions = {var: Index(0, ((1, at),)) for var, at in found.items() if var in form.variables}
        first = {var: constant(0) for var in over}
        if not positions and any(substitute(index, first).high >= below for index, below in limits):
            raise NotApplicableError("the largest element of a tile is asked for that may have none")
        return self.substitute(form, positions)

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


def _span(forms: tuple[Form, ...]) -> tuple[frozenset[Var], int]:
    variables = frozenset[Var]().union(*(form.variables for form in forms))
    return variables, max((form.height for form in forms), default=0)


def _together(index: Index, high: Var, low: Var) -> bool:
    """Return True when high and low occur in an index only as a multiple of n * high + low, n the extent of low."""
    a, b = index.coefficient(high), index.coefficient(low)
    rest = [Index(0, ((c, d),)) for c, d in index.digits if d not in (high, low)]
    return a == low.extent * b and not any({high, low} & r.variables() for r in rest)
