"""The normal form of exact expressions in one cell: what an element is as a polynomial of a ring.

A cell is a set of expressions known not to be negative (guards of chosen pieces) and a choice of pieces. Outside any
cell a piecewise operator is an opaque value of its normalised arguments, with relu(-u) = relu(u) - u and
max(a + c, b + c) = max(a, b) + c built in; where the known signs decide which piece holds, it is that piece.

Invariant: two expressions whose difference is zero here are equal wherever both are defined and the cell's conditions
hold. Signs that follow from the roots in the cone (a radicand is not negative) are learnt first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from workbench.domains.exact_budget import Meter
from workbench.domains.exact_expression import ExactKind, ExactTerms
from workbench.domains.exact_factors import (
    Factored,
    expanded,
    factorise,
    multiplied,
    product_sign,
    sign_factors,
    square_root_of_product,
)
from workbench.domains.exact_polynomial import (
    Polynomial,
    Rational,
    add,
    as_rational,
    bits,
    constant,
    rational_content,
    scale,
    unpack,
)
from workbench.domains.exact_ring import Ring
from workbench.errors import NowhereDefinedError


@dataclass(frozen=True, slots=True)
class Undecided:
    """What keeps an expression from being decided: piecewise expressions, and factors of unknown sign (as expressions)."""

    pieces: tuple[int, ...]
    signs: tuple[int, ...]


class NormalForm:
    """Normal forms of expressions of a store, in one cell.

    known: expressions that are not negative; chosen: the piece taken, by the number of the piecewise expression (position
    among the parts of a maximum or among the pieces of another). Raises: BudgetError, NowhereDefinedError.
    """

    def __init__(
        self,
        terms: ExactTerms,
        roots: Sequence[int],
        meter: Meter,
        known: Iterable[int] = (),
        chosen: Mapping[int, int] | None = None,
    ) -> None:
        self.terms, self.meter = terms, meter
        self.ring = Ring(meter)
        self.known = tuple(known)
        self.chosen = dict(chosen or {})
        self._made: dict[int, Polynomial] = {}
        self.radicands = [
            terms.nodes[part].parts[0] for part in terms.cone(roots) if terms.nodes[part].kind is ExactKind.SQRT
        ]
        self._learn()

    def _learn(self) -> None:
        """Take in the signs of radicands and of known expressions, again as long as one teaches something new."""
        for _ in range(8):
            before = self.ring.signs.learnt
            for part in (*self.radicands, *self.known):
                self.meter.check()
                self._learn_from(self.factored(part))
            if self.ring.signs.learnt == before:
                return
            self._made.clear()  # what was made before the signs were known may be simpler now

    def _learn_from(self, factored: Factored) -> None:
        """Take in that a product is not negative.

        A factor with pieces (or an opaque value) may vanish on a whole region, such as relu(x): a product with it says
        nothing of the signs of the other factors there, and a contradiction only says that it vanishes.
        """
        if factored.coefficient == 0:
            return
        count = len(factored.factors) + len(factored.generators) + len(factored.roots) + len(factored.signs)
        vanishing = any(
            self.ring.may_vanish(self.ring.factors[number].polynomial) for number in self._factors_of(factored)
        )
        if vanishing and count > 1:
            return
        try:
            self.ring.signs.learn(sign_factors(self.ring, factored), 1 if factored.coefficient > 0 else -1)
        except NowhereDefinedError:
            if not vanishing:
                raise

    def _factors_of(self, factored: Factored) -> list[int]:
        generators = [self.ring.generator_factor(index) for index in factored.generators]
        return [*factored.factors, *factored.roots, *factored.signs, *generators]

    # ------------------------------------------------------------------------------------------------------------ forms
    def polynomial(self, part: int) -> Polynomial:
        """Return the normal form of an expression."""
        made = self._made
        if part in made:
            return made[part]
        for inner in self.terms.cone([part]):  # parts before wholes: no recursion, whatever the depth
            if inner not in made:
                made[inner] = self._form(inner)
        return made[part]

    def _form(self, part: int) -> Polynomial:
        node, ring, made = self.terms.nodes[part], self.ring, self._made
        self.meter.spend(20)
        match node.kind:
            case ExactKind.NUMBER:
                return constant(node.number)
            case ExactKind.VARIABLE:
                return ring.gen(ring.generator(("variable", node.variable), node=part))
            case ExactKind.LINEAR:
                return self._sum(node.number, node.coefficients, [made[inner] for inner in node.parts])
            case ExactKind.PRODUCT:
                return self._product(node.parts, node.powers)
            case ExactKind.EXP:
                exponent = ring.exponent(made[node.parts[0]])
                return Polynomial({(0, 0, exponent): 1}, 0)
            case ExactKind.SQRT:
                return square_root_of_product(ring, self.factored(node.parts[0]))[0]
            case ExactKind.OPAQUE:
                arguments = tuple(made[inner] for inner in node.parts)
                name = ("opaque", node.name, node.attributes, tuple(ring.class_of(each) for each in arguments))
                return ring.gen(ring.generator(name, node=part, arguments=arguments))
            case ExactKind.MAX:
                return self._maximum(part, [made[inner] for inner in node.parts])
            case ExactKind.CHOICE:
                return self._choice(part)

    def _sum(self, number: Rational, by: Sequence[Rational], parts: Sequence[Polynomial]) -> Polynomial:
        total = constant(number)
        terms = dict(total.terms)
        bound = 0
        for coefficient, part in zip(by, parts, strict=True):
            bound = max(bound, part.bound)
            for key, value in part.terms.items():
                terms[key] = terms.get(key, 0) + coefficient * value
        self.meter.spend(len(terms))
        self.meter.hold(len(terms))
        return Polynomial({key: value for key, value in terms.items() if value}, bound)

    def _product(self, parts: Sequence[int], powers: Sequence[int]) -> Polynomial:
        ring = self.ring
        divisor = Factored()
        for part, power in zip(parts, powers, strict=True):
            if power < 0:
                divisor = multiplied(ring, divisor, self.factored(part), power)
        result = expanded(ring, divisor)
        for part, power in zip(parts, powers, strict=True):
            if power > 0:
                result = ring.mul(result, ring.power(self._made[part], power))
        return result

    def factored(self, part: int) -> Factored:
        """Return an expression as a product, following products of the expression itself before the polynomial's."""
        node = self.terms.nodes[part]
        factor, base = self.terms.split_factor(part)
        if node.kind is ExactKind.NUMBER:
            return Factored(Fraction(node.number))
        if base != part:
            return multiplied(self.ring, Factored(Fraction(factor)), self.factored(base))
        if node.kind is ExactKind.PRODUCT:
            result = Factored()
            for inner, power in zip(node.parts, node.powers, strict=True):
                result = multiplied(self.ring, result, self.factored(inner), power)
            return result
        return factorise(self.ring, self.polynomial(part))

    # ----------------------------------------------------------------------------------------------------------- pieces
    def sign(self, value: Polynomial) -> int | None:
        """Return 1 or -1 where a polynomial is known to be >= 0 or <= 0, 0 where it is zero, else None."""
        if self.ring.is_positive(value):
            return 1 if value else 0
        constant_sign = self.ring.sign_of_constant(value)
        if constant_sign is not None:
            return constant_sign
        return product_sign(self.ring, factorise(self.ring, value))

    def _maximum(self, part: int, values: list[Polynomial]) -> Polynomial:
        ring = self.ring
        if part in self.chosen:
            return values[self.chosen[part]]
        kept: list[Polynomial] = []
        for value in values:  # a value that another is known to reach is left out
            signs = [self.sign(add(other, value, -1)) for other in kept]
            if any(sign in (0, 1) for sign in signs):
                continue
            kept = [other for other, sign in zip(kept, signs, strict=True) if sign != -1]
            kept.append(value)
        if len(kept) == 1:
            return kept[0]
        if len(kept) == 2:
            gap = add(kept[1], kept[0], -1)
            content = rational_content(gap)
            negative = gap.terms[ring.leading(gap)] < 0
            unit = scale(gap, -1 / content if negative else 1 / content)
            index = ring.generator(("relu", ring.class_of(unit)), pieces=part, arguments=(unit,), positive=True)
            made = add(ring.gen(index), unit, -1) if negative else ring.gen(index)  # relu(-u) = relu(u) - u
            return add(kept[0], made, as_rational(content))
        kept.sort(key=ring.value)  # an order that a common summand and a common factor do not change
        above = [add(value, kept[0], -1) for value in kept[1:]]
        content = rational_content(above[0])
        units = tuple(scale(value, 1 / content) for value in above)
        classes = tuple(sorted(ring.class_of(unit) for unit in units))
        index = ring.generator(("max", classes), pieces=part, arguments=units, positive=True)
        return add(kept[0], ring.gen(index), as_rational(content))

    def _choice(self, part: int) -> Polynomial:
        node, made = self.terms.nodes[part], self._made
        if part in self.chosen:
            return made[node.pieces[self.chosen[part]].value]
        possible = []
        for piece in node.pieces:
            signs = [self.sign(made[guard]) for guard in piece.guards]
            if all(sign in (0, 1) for sign in signs):
                return made[piece.value]
            if -1 not in signs:
                possible.append(piece)
        if len(possible) == 1:
            return made[possible[0].value]
        arguments: list[Polynomial] = []
        shape: list[int] = []
        for piece in node.pieces:
            arguments += [*(made[guard] for guard in piece.guards), made[piece.value]]
            shape.append(len(piece.guards))
        classes = tuple(self.ring.class_of(each) for each in arguments)
        name = ("choice", node.name, tuple(shape), classes)
        index = self.ring.generator(name, pieces=part, arguments=tuple(arguments))
        return self.ring.gen(index)

    # --------------------------------------------------------------------------------------------------------- deciding
    def difference(self, left: int, right: int) -> Polynomial:
        """Return left - right; it has no term if they are equal (and may have some although they are)."""
        while True:
            before = self.ring.signs.learnt
            difference = add(self.polynomial(left), self.polynomial(right), -1)
            if difference:
                difference = self.ring.without_reciprocals(difference)[0]
            if not difference or self.ring.signs.learnt == before:
                return difference
            self._made.clear()

    def undecided(self, value: Polynomial) -> Undecided:
        """Return the piecewise expressions and the unknown signs that a polynomial depends on, innermost first."""
        ring = self.ring
        signs: set[int] = set()
        records = ring.generators_in(value, signs)
        pieces = sorted({record.pieces for record in records if record.pieces is not None})
        return Undecided(tuple(pieces), tuple(self.expression(ring.factors[each].polynomial) for each in sorted(signs)))

    def expression(self, value: Polynomial) -> int:
        """Return a polynomial of the ring as an expression of the store."""
        terms, ring = self.terms, self.ring
        items: list[tuple[Fraction, int]] = []
        for (powers, roots, exponent), coefficient in value.terms.items():
            factors = [(self._generator_expression(index), power) for index, power in unpack(powers)]
            if exponent:
                factors.append((terms.exp(self.expression(ring.exponents[exponent])), 1))
            for number, is_sign in bits(roots):
                inner = self.expression(ring.factors[number].polynomial)
                absolute = terms.maximum((inner, terms.scale(-1, inner)))
                factors.append((terms.div(inner, absolute) if is_sign else terms.sqrt(absolute), 1))
            items.append((Fraction(coefficient), terms.product(factors)))
        return terms.linear(items)

    def _generator_expression(self, index: int) -> int:
        record = self.ring.generators[index]
        if record.reciprocal is not None:
            return self.terms.product(((self.expression(self.ring.factors[record.reciprocal].polynomial), -1),))
        if record.pieces is None:
            return record.node
        node = self.terms.nodes[record.pieces]
        if node.kind is ExactKind.MAX:
            return self.terms.maximum((self.terms.zero, *(self.expression(each) for each in record.arguments)))
        return record.pieces
