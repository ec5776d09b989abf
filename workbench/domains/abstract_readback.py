"""From values back to terms: the normal form written out, and a goal rewritten so that a part of it stands there literally.

Invariant: the term of a value normalises to that value; what is written does not depend on the order in which values
were made. A further copy of an axis is written with a prime, `h'`, and read back as that copy.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from workbench.domains import abstract_expr as expr
from workbench.domains.abstract_embedding import Context
from workbench.domains.abstract_expr import Axis, Kind, Term
from workbench.domains.abstract_goals import Goals, Judgement
from workbench.domains.abstract_normal_form import Algebra, Value
from workbench.domains.abstract_tables import UNIT, Atom, Monomial, bits_of

Part = Mapping[tuple[str, int], Term]  # what to write instead of an argument, by the crossing's label and the argument


@dataclass(slots=True)
class Factors:
    """A product being written: factors above and below the bar, and the size it is summed over (paper's form)."""

    above: list[Term] = field(default_factory=list)
    below: list[Term] = field(default_factory=list)
    size: int = 1

    def product(self) -> Term:
        """Return the term."""
        result = multiply_all(self.above)
        result = expr.div(result, multiply_all(self.below)) if self.below else result
        return expr.sum_over(self.size, result) if self.size > 1 else result


class Readback:
    """Writes values of one algebra as terms."""

    def __init__(self, algebra: Algebra) -> None:
        """Keep the algebra."""
        self.algebra = algebra
        self._terms: dict[int, Term] = {}

    def term(self, value: Value) -> Term:
        """Return a term whose normal form is the value."""
        return self._polynomial(value)

    # -------------------------------------------------------------------------------------------------- normal forms
    def _polynomial(self, p: int) -> Term:
        found = self._terms.get(p)
        if found is None:
            peaks, rest = 1, []
            for m in self.algebra.polynomials[p]:
                a = self.algebra.monomials[m]
                atom = self.algebra.atoms[a.num[0]] if len(a.num) == 1 else Atom("")
                if atom.kind == "peak" and a == Monomial(a.num):
                    peaks *= atom.ref
                else:
                    rest.append(m)
            found = add_all(self._monomial(m) for m in rest)
            found = self._terms[p] = expr.max_over(peaks, found) if peaks > 1 else found
        return found

    def _monomial(self, m: int, instead: Part | None = None) -> Term:
        """Return a product; `instead` replaces the argument of exp, sqrt or a function, or what is below the bar."""
        algebra, a = self.algebra, self.algebra.monomials[m]
        num, instead = a.num, instead or {}
        bottom: list[Term] = []
        below = next((term for (label, _), term in instead.items() if label == "div"), None)
        if below is not None:  # it has the constants that may have been below, so they must not stand above as well
            num = tuple(atom for atom in num if not algebra.is_number(atom))
            bottom.append(below)
        elif a.den or a.quotient != UNIT:
            # sqrt(c) above is written as 1/c under the root below, where it came from
            keeps = any(label == "sqrt" for label, _ in instead)  # the radicand above is written out already
            roots = [x for x in num if algebra.atoms[x].kind == "sqrt" and algebra.is_number(x) and not keeps]
            num = tuple(atom for atom in num if atom not in roots)
            den = tuple(sorted([*a.den, *map(algebra.inverse, roots)], reverse=True))
            if len(algebra.polynomials[a.quotient]) == 1:
                bottom.append(self._polynomial(algebra.scale(algebra.monomial(Monomial(den)), a.quotient)))
            else:
                bottom += [self._factors(den, UNIT, {}).product()] if den else []
                bottom.append(self._polynomial(a.quotient))
        top = self._factors(num, a.root, instead)
        top.below = [*bottom, *top.below]
        return top.product()

    def _factors(self, num: Iterable[int], root: int, instead: Part) -> Factors:
        """Return the factors that atoms stand for: exps joined, roots joined, sizes joined, 1/n written below."""
        algebra = self.algebra
        factors, exps, roots = Factors(), [], []
        for atom in num:
            a = algebra.atoms[atom]
            if a.kind == "exp":
                exps.append(self._monomial(a.ref))
            elif a.kind == "sqrt":
                roots.append(a.ref)
            elif a.kind == "size":
                factors.size *= a.ref
            elif a.kind == "constant" and (number := Fraction(a.name)).numerator == 1 and number.denominator > 1:
                factors.below.append(expr.constant(number.denominator))
            else:
                factors.above.append(self._atom(atom, instead))
        if exps:
            replaced = next((term for (label, _), term in instead.items() if label == "exp"), None)
            factors.above.append(expr.exp(replaced or add_all(exps)))
        if roots or root != UNIT:
            radicand = self._factors(roots, UNIT, {})
            if root != UNIT:
                radicand.above.append(self._polynomial(root))
            replaced = next((term for (label, _), term in instead.items() if label == "sqrt"), None)
            factors.above.append(expr.sqrt(replaced or radicand.product()))
        return factors

    def _atom(self, atom: int, instead: Part) -> Term:
        algebra = self.algebra
        a = algebra.atoms[atom]
        match a.kind:
            case "symbol":
                return expr.symbol(a.name, [self._axis(bit) for bit in a.refs])
            case "constant":
                return expr.constant(a.name)
            case "peak":
                return expr.max_over(a.ref, expr.constant(0))
            case "extent":
                return expr.sum_over(self._axis(a.refs[0]), expr.constant(1))
            case "sum":
                return expr.sum_over([self._axis(bit) for bit in bits_of(a.bound)], self._monomial(a.ref))
            case "apply":
                arguments = [instead.get((a.name, p)) or self._polynomial(p) for p in a.refs]
                return expr.apply(a.name, *arguments)
            case "max":
                elements = [self._element(bound, p) for bound, p in a.elements]
                return functools.reduce(expr.maximum, sorted(elements, key=expr.to_prefix))
        arguments = [self._polynomial(p) for p in a.refs]  # undecided: written as the operation that was asked for
        return expr.apply(f"undecided {a.name}", *arguments)

    def _element(self, bound: int, p: int) -> Term:
        return expr.max_over([self._axis(bit) for bit in bits_of(bound)], self._polynomial(p))

    def _axis(self, bit: int) -> Axis:
        axis, copy = self.algebra.bit_axis[bit.bit_length() - 1]
        return Axis(axis.name + "'" * copy, axis.part)

    # ------------------------------------------------------------------------------------------------ highlighting
    def goal_with_part(self, goals: Goals, judgement: Judgement) -> Term:
        """Return a form of the goal in which the judged value stands marked; the goal alone where nothing lies in it."""
        goal = goals.values[max(judgement.goal, 0)]
        if judgement.rule == "goal":
            return expr.mark(self.term(goal))
        if judgement.rule != "embeds":
            return self.term(goal)
        return self._region(judgement, 0, goal)

    def _region(self, judgement: Judgement, depth: int, p: int) -> Term:
        algebra = self.algebra
        if depth < len(judgement.places):
            place = judgement.places[depth]
            child = place.child.opened.polynomial
            if child < 0:  # within maxima only counts were compared
                return self._polynomial(p)
            view = place.view
            owner = list(Counter(algebra.polynomials[p]))[view.owner]
            inside = self._region(judgement, depth + 1, child)
            if place.label == "max":
                inner = expr.apply("max", inside)
                rest = self._others(p, [owner])
                return add_all([inner, *rest])
            opened = self._monomial(view.body, {(place.label, child): inside})
            closed = expr.sum_over([self._axis(bit) for bit in bits_of(view.bound)], opened)
            return add_all([closed, *self._others(p, [owner])])
        context = judgement.context
        if context is None:  # the value is this part, or only counts were compared and nothing can be marked
            return expr.mark(self._polynomial(p)) if p == judgement.value else self._polynomial(p)
        part = expr.mark(self.term(judgement.value))
        if context.cofactor != UNIT or context.own:
            part = self._times(self.cofactor(context), part)
        part = expr.sum_over([self._axis(bit) for bit in bits_of(context.left)], part)
        return add_all([part, *self._others(p, algebra.polynomials[algebra.normalize(part)])])

    def cofactor(self, context: Context) -> Term:
        """Return what the value is multiplied with in a context."""
        return expr.sum_over([self._axis(bit) for bit in bits_of(context.own)], self._monomial(context.cofactor))

    def _times(self, factor: Term, part: Term) -> Term:
        """Return the product of a factor and a term, as one fraction."""
        size = 1
        if factor.kind is Kind.SUM and factor.size:
            size, factor = factor.size, factor.args[0]
        top, bottom = factor.args if factor.kind is Kind.DIV else (factor, None)
        result = expr.mul(part, *factors_of(top))
        result = result if bottom is None else expr.div(result, bottom)
        return expr.sum_over(size, result) if size > 1 else result

    def _others(self, p: int, used: Iterable[int]) -> list[Term]:
        rest = Counter(self.algebra.polynomials[p]) - Counter(used)
        return [self._monomial(m) for m in rest.elements()]


def add_all(terms: Iterable[Term]) -> Term:
    """Return the sum in a fixed order, 0 for nothing."""
    ordered = sorted(terms, key=expr.to_prefix)
    return expr.add(*ordered) if ordered else expr.constant(0)


def multiply_all(terms: Iterable[Term]) -> Term:
    """Return the product in a fixed order, 1 for nothing."""
    ordered = sorted(terms, key=lambda term: (term.kind not in (Kind.CONSTANT, Kind.SYMBOL), expr.to_prefix(term)))
    return expr.mul(*ordered) if ordered else expr.constant(1)


def factors_of(term: Term) -> list[Term]:
    """Return the factors of a product, none for 1."""
    if term.kind is Kind.MUL:
        return [factor for arg in term.args for factor in factors_of(arg)]
    return [] if term is expr.constant(1) else [term]
