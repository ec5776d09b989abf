"""Which operators make an expression, of which operands: the rules by which an expression is taken apart.

Invariant: every operator of the palette that makes an expression under A_eq is listed with its operands, as far as normal
forms were enumerated (`Decomposition` counts where they were not), except those that the bounds of `uncut` or of `shallow`
rule out; every operator that is listed, carried out, makes the expression.

Long because every kind of node is read by one set of rules.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from workbench.domains.abstract_decomposition import Decomposition
from workbench.domains.abstract_expr import Axis
from workbench.domains.abstract_normal_form import ONE, Algebra, Value
from workbench.domains.abstract_tables import Monomial
from workbench.search.palette import Operator, Palette
from workbench.search.plans import AxisParts
from workbench.search.problem import Problem
from workbench.search.shallow import Shallow
from workbench.search.uncut import FREE, Guide, Uncut

_MINUS = Fraction(-1)
Fold = tuple[str, int]  # an axis ("" for a loop alone) and the mask that one operator folds


@dataclass(frozen=True, slots=True)
class Making:
    """An operator that makes an expression from others.

    Attributes: mask: the axes it folds (0: none); axis: the one it is named for; parts: of a product of concatenations
    [x | y] [w ; z] (operands x, y, w, z), what each half folds; is_image: whether no graph has it as it is (a contraction of
    operands with the same axes), but it may be what a contraction looks like where fewer axes are cut (`uncut`).
    """

    operator: Operator
    operands: tuple[Value, ...]
    mask: int = 0
    axis: str = ""
    parts: tuple[Fold, ...] = ()
    is_image: bool = False


class Makings:
    """The rules of one way to cut axes.

    Attributes: algebra, decomposition, problem, palette, parts; starts; folds; outer_products; shallow: what is known of
    expressions that take few operators, once that was asked for; uncut: what is known where axes are whole.
    """

    def __init__(
        self,
        algebra: Algebra,
        problem: Problem,
        palette: Palette,
        parts: Mapping[str, AxisParts],
        folds: Sequence[Fold],
        starts: tuple[Value, ...],
        *,
        outer_products: bool,
    ) -> None:
        """Keep what is asked about. folds: what one operator may fold at once."""
        self.algebra, self.problem, self.palette, self.parts = algebra, problem, palette, parts
        self.folds, self.starts, self.outer_products = folds, starts, outer_products
        self.decomposition = Decomposition(algebra)
        self.shallow: Shallow | None = None
        self.uncut: Uncut | None = None
        self._contracted: dict[Value, list[tuple[tuple[Value, Value], Fold]]] = {}
        self._refuted = 0  # operations that were given up because they cannot be what was looked for
        self._masks: dict[str, int] = {}
        self._joined: dict[tuple[int, int], bool] = {}

    @property
    def incomplete(self) -> int:
        """How many expressions were not taken apart in every way."""
        return len(self.decomposition.incomplete) + self.algebra.undecided - self._refuted

    # ---------------------------------------------------------------------------------------------------------- axes
    def mask(self, name: str) -> int:
        """Return the parts of an axis as a mask."""
        found = self._masks.get(name)
        if found is None:
            part = self.parts.get(name)
            found = self._masks[name] = self.algebra.axes_mask(part.all if part else [Axis(name)])
        return found

    def axis_mask(self, axis: Axis | None) -> int:
        """Return one axis as a mask, 0 for none."""
        return self.algebra.axes_mask([axis]) if axis is not None else 0

    # ------------------------------------------------------------------------------------------------------- makings
    def of(self, value: Value, left: int) -> Iterator[Making]:
        """Return every operator of the palette that makes a value of operands that take at most `left` operators."""
        for making in self._every_making(value, left):
            if making.operator.is_offered and all(map(self.may_be_made, making.operands)):
                yield making

    def _every_making(self, value: Value, left: int) -> Iterator[Making]:
        algebra, apart, palette = self.algebra, self.decomposition, self.palette
        guide = FREE if self.uncut is None else self.uncut.guide(value)
        for axis, mask in self.folds:
            if not algebra.mask[value] & mask:
                yield from self._folding(value, axis, mask, left, guide)
        products = self._products(value, left, guide) if guide.multiplies else []
        quotients = self._quotients(value, left) if guide.divides else []
        sums = self._sums(value, left) if guide.adds else []
        for pair in products:
            if pair[0] == pair[1]:
                yield Making(palette.square, pair[:1])
            if self._broadcasts(pair) and (pair[0] != pair[1] or not palette.square.is_offered):
                yield Making(palette.mul, pair)
        yield from (Making(palette.div, pair) for pair in quotients if self._broadcasts(pair))
        yield from (Making(palette.add, pair) for pair in sums if self._broadcasts(pair))
        if palette.maximum.is_offered:
            yield from (Making(palette.maximum, pair) for pair in apart.maxima(value) if self._broadcasts(pair))
        functions = apart.functions(value)
        for made in functions:
            if made.operator in ("exp", "sqrt"):
                yield Making(palette.exp if made.operator == "exp" else palette.sqrt, made.operands)
        yield from self._by_one_operand(value, products, quotients, sums)
        yield from self._by_two_operands(value, sums)
        yield from self._composites(value, quotients)
        if palette.join.is_offered and self.shallow is None and left >= palette.join.cost - 1 and guide.joins:
            yield from self._side_by_side(sums)

    def _products(self, value: Value, left: int, guide: Guide) -> list[tuple[Value, Value]]:
        if self.shallow is not None and left <= self.shallow.depth:
            return self.shallow.products(value)
        return self.decomposition.products(value, guide.is_factor)

    def _quotients(self, value: Value, left: int) -> list[tuple[Value, Value]]:
        if self.shallow is not None and left <= self.shallow.depth:
            return self.shallow.quotients(value)
        return self.decomposition.quotients(value)

    def _sums(self, value: Value, left: int) -> list[tuple[Value, Value]]:
        if self.shallow is not None and left < self.shallow.depth + 2:
            return self.shallow.sums(value)  # of two operands that are not known, one takes one more
        return self.decomposition.sums(value)

    def _folding(self, value: Value, axis: str, mask: int, left: int, guide: Guide) -> Iterator[Making]:
        """Return sums, products summed over a shared axis, means and maxima over a mask."""
        algebra, apart, palette = self.algebra, self.decomposition, self.palette
        axes = algebra.axes_of(mask)
        known = self.shallow if self.shallow is not None and left <= self.shallow.depth else None
        holds_tile = bool(mask & self._tile(axis))  # what a block contracts, or sums where axes are whole
        contracts = holds_tile and palette.matmul.is_offered and guide.allows(palette.matmul, axis)
        sums = not holds_tile or guide.allows(palette.sum, axis)
        if known is not None:
            yield from (Making(palette.sum, (operand,), mask, axis) for operand in known.summands(value, mask))
            if contracts:
                for pair in known.contractions(value, mask):
                    yield from self._contraction(pair, mask, axis)
        elif contracts or sums:
            is_factor = guide.is_factor_over(axis)
            for operand in self._summands(value, mask):
                if sums:
                    yield Making(palette.sum, (operand,), mask, axis)
                for pair in apart.products(operand, is_factor) if contracts else ():
                    if not mask & ~(algebra.mask[pair[0]] & algebra.mask[pair[1]]):
                        yield from self._contraction(pair, mask, axis)
        if palette.max.is_offered:
            for operand in apart.maximised(value, axes):
                if not mask & ~algebra.mask[operand]:
                    yield Making(palette.max, (operand,), mask, axis)
        number = self.problem.numbers.get(axis)
        if number and mask == self.mask(axis):
            for op in self.palette.counting_folds:
                for operand in self._counted_operands(op, value, axes, number) if guide.allows(op, axis) else ():
                    if self._makes(op, (operand,), value, mask, number) and not mask & ~algebra.mask[operand]:
                        yield Making(op, (operand,), mask, axis)

    def _contraction(self, pair: tuple[Value, Value], mask: int, axis: str) -> Iterator[Making]:
        """Return the product of a pair summed over a mask, or what only stands for one.

        Operands with the same axes may be images of operands with different ones: where another axis is cut, one of them
        may be folded over its tile and still change from iteration to iteration.
        """
        if self._contracts(pair):
            yield Making(self.palette.matmul, pair, mask, axis)
        elif any(map(self._folds, pair)):
            yield Making(self.palette.matmul, pair, mask, axis, is_image=True)

    def _folds(self, value: Value) -> bool:
        """Return whether something in a value is folded."""
        counts = self.algebra.feature_counts(self.algebra.count[value])
        return any(isinstance(key, tuple) and key[0] in ("sum", "max", "extent") for key in counts)

    def _tile(self, axis: str) -> int:
        """Return the part of an axis that a block always holds, 0 for no axis."""
        part = self.parts.get(axis)
        return self.axis_mask(part.tile if part else Axis(axis)) if axis else 0

    def _side_by_side(self, sums: Sequence[tuple[Value, Value]]) -> Iterator[Making]:
        """Return products of concatenations for sums of two products: the lighter product's operands come first."""
        algebra = self.algebra
        outer = 0  # one half may stay the same from iteration to iteration, or from block to block
        for part in self.parts.values():
            outer |= self.axis_mask(part.loop) | self.axis_mask(part.grid)
        for pair in sums:
            first, second = sorted(pair, key=lambda value: (algebra.weight[value], value))
            for (x, w), one in self._contractions(first):
                for both, two in self._contractions(second):
                    for y, z in (both, both[::-1]):
                        rows = (algebra.mask[x] & ~one[1] ^ algebra.mask[y] & ~two[1]) & ~outer == 0
                        columns = (algebra.mask[w] & ~one[1] ^ algebra.mask[z] & ~two[1]) & ~outer == 0
                        if rows and columns and x != y and w != z:
                            axes = f"{one[0]} | {two[0]}"
                            yield Making(self.palette.join, (x, y, w, z), one[1] | two[1], axes, (one, two))

    def _contractions(self, value: Value) -> list[tuple[tuple[Value, Value], Fold]]:
        """Return the pairs whose matrix product over some axis is the value."""
        found = self._contracted.get(value)
        if found is None:
            algebra, apart = self.algebra, self.decomposition
            found = self._contracted[value] = [
                (pair, (axis, mask))
                for axis, mask in self.folds
                if axis and not algebra.mask[value] & mask
                for operand in self._summands(value, mask)
                for pair in apart.products(operand)
                if not mask & ~(algebra.mask[pair[0]] & algebra.mask[pair[1]]) and self._contracts(pair)
            ]
        return found

    def _summands(self, value: Value, mask: int) -> list[Value]:
        """Return the operands that vary along all axes of a mask and whose sum over them is the value.

        One sum of every monomial is opened along the whole mask: operands that vary along one of the axes here and along
        another there have no axes in common and are not made (`may_be_made`).
        """
        algebra, apart = self.algebra, self.decomposition
        atoms = {atom for m in algebra.polynomials[value] for atom in algebra.monomials[m].num}
        plain = not any(
            algebra.atoms[atom].kind == "extent" or algebra.atoms[atom].bound & algebra.copy_mask for atom in atoms
        )
        if mask.bit_count() == 1 or self.outer_products or not plain or algebra.mask[value] & algebra.copy_mask:
            found = apart.summands(value, algebra.axes_of(mask))
            return [operand for operand in found if not mask & ~algebra.mask[operand]]
        choices = [self._opened(m, mask) for m in algebra.polynomials[value]]
        operands = {
            Value(algebra.polynomial([m for part in parts for m in algebra.polynomials[part]]))
            for parts in itertools.product(*choices)
        }
        return sorted(operand for operand in operands if algebra.sum_mask(mask, operand) == value)

    def _opened(self, m: int, mask: int) -> list[int]:
        """Return the polynomials that are a monomial with one of its sums opened along a mask."""
        algebra = self.algebra
        results = set()
        for number in set(algebra.monomials[m].num):
            atom = algebra.atoms[number]
            if atom.kind == "sum" and not mask & ~atom.bound:
                rest = algebra.divide_monomials(m, algebra.monomial(Monomial((number,))))
                inner = algebra.polynomial((atom.ref,))
                opened = algebra.sum_mask(atom.bound & ~mask, Value(inner))
                results.add(algebra.scale(rest, opened))
        return sorted(results)

    def _counted_operands(self, op: Operator, value: Value, axes: Sequence[Axis], number: int) -> Iterator[Value]:
        """Return the operands that a mean or rms over the axes may have had."""
        apart = self.decomposition
        if op.name == "mean":
            yield from self._mean_operands(value, axes, number)
            return
        for made in apart.functions(value):
            if made.operator == "sqrt":
                radicands = {made.operands[0], *(part for pair in apart.sums(made.operands[0]) for part in pair)}
                for radicand in sorted(radicands):
                    for squares in self._mean_operands(radicand, axes, number):
                        root = apart.square_root(squares)
                        if root is not None:
                            yield root

    def _mean_operands(self, value: Value, axes: Sequence[Axis], number: int) -> Iterator[Value]:
        inverse = self.algebra.constant(Fraction(1, number))
        total = self.algebra.divide(value, inverse)
        if total >= 0 and total != ONE:
            yield from self._summands(Value(total), self.algebra.axes_mask(axes))

    def _by_one_operand(
        self,
        value: Value,
        products: Sequence[tuple[Value, Value]],
        quotients: Sequence[tuple[Value, Value]],
        sums: Sequence[tuple[Value, Value]],
    ) -> Iterator[Making]:
        """Return functions, and operators of which one operand is a constant."""
        if not self.palette.forward_unary:
            return
        candidates = {operand for made in self.decomposition.functions(value) for operand in made.operands}
        minus = self.algebra.constant(_MINUS)
        for pair in (*products, *quotients, *sums):
            if not all(map(self._is_tensor, pair)):
                candidates.update(pair)
                candidates.update(
                    Value(p) for p in (self.algebra.divide(one, minus) for one in pair) if p >= 0
                )  # 1 - x
        for dividend, divisor in quotients:
            if dividend == ONE:
                candidates.update(o for made in self.decomposition.functions(divisor) for o in made.operands)
        for operand in sorted(candidates):
            for op in self.palette.forward_unary:
                if self._is_tensor(operand) and self._makes(op, (operand,), value):
                    yield Making(op, (operand,))

    def _by_two_operands(self, value: Value, sums: Sequence[tuple[Value, Value]]) -> Iterator[Making]:
        """Return differences, and opaque functions of two operands."""
        algebra = self.algebra
        candidates = [made.operands for made in self.decomposition.functions(value) if len(made.operands) == 2]
        minus = algebra.constant(_MINUS)
        for pair in sums:
            for left, right in (pair, pair[::-1]):
                negated = algebra.divide(right, minus)
                if negated >= 0:
                    candidates.append((left, Value(negated)))
        for op in self.palette.forward_binary:
            for left, right in candidates:
                for pair in ((left, right), (right, left)):
                    if self._broadcasts(pair) and self._makes(op, pair, value):
                        yield Making(op, pair)

    def _composites(self, value: Value, quotients: Sequence[tuple[Value, Value]]) -> Iterator[Making]:
        """Return softmaxes and norms: x over something of x, so x is in a dividend."""
        if not self.palette.wholes:
            return
        apart = self.decomposition
        candidates: set[Value] = set()
        for dividend, _ in quotients:
            candidates.add(dividend)
            candidates.update(o for made in apart.functions(dividend) for o in made.operands)
            candidates.update(part for pair in apart.sums(dividend) for part in pair)
        for name in self.problem.reduced:
            mask = self.mask(name)
            if mask & ~self.algebra.mask[value]:
                continue
            number = self.problem.numbers.get(name)
            for op in self.palette.wholes:
                if op.counts and not number:
                    continue
                for operand in sorted(candidates):
                    has_axis = self._is_tensor(operand) and not mask & ~self.algebra.mask[operand]
                    if has_axis and self._makes(op, (operand,), value, mask, number or 2):
                        yield Making(op, (operand,), mask, name)

    def _makes(self, op: Operator, operands: tuple[Value, ...], value: Value, mask: int = 0, number: int = 1) -> bool:
        """Return whether an operator makes a value of operands; what grows beyond the budget is not the value."""
        undecided, too_large = self.algebra.undecided, self.algebra.too_large
        made = op.abstract(self.algebra, operands, mask, number) == value
        if self.algebra.too_large > too_large:
            self._refuted += self.algebra.undecided - undecided
        return made

    def _broadcasts(self, pair: tuple[Value, Value]) -> bool:
        """Return whether one operand has all the axes of the other."""
        left, right = self.algebra.mask[pair[0]], self.algebra.mask[pair[1]]
        return self.outer_products or left | right in (left, right)

    def _contracts(self, pair: tuple[Value, Value]) -> bool:
        """Return whether a contraction is more than a product that is summed: some operand has an axis of its own."""
        left, right = self.algebra.mask[pair[0]], self.algebra.mask[pair[1]]
        return left != right

    def may_be_made(self, value: Value) -> bool:
        """Return whether an input occurs in a value, and its axes are joined.

        Elementwise operators broadcast one operand only, so what varies along several axes has an input or a sum in it
        that varies along all of them: the product of a row's and a column's factor is not made.
        """
        return self._is_tensor(value) and (self.outer_products or self._joins(value, self.algebra.mask[value]))

    def _joins(self, p: int, mask: int) -> bool:
        """Return whether an input, a sum or a maximum somewhere in a polynomial varies along all axes of a mask."""
        key = (p, mask)
        found = self._joined.get(key)
        if found is None:
            found = self._joined[key] = any(self._joins_in_monomial(m, mask) for m in self.algebra.polynomials[p])
        return found

    def _joins_in_monomial(self, m: int, mask: int) -> bool:
        algebra = self.algebra
        if mask & ~algebra.monomial_mask[m]:
            return False
        a = algebra.monomials[m]
        if any(self._joins(p, mask) for p in (a.quotient, a.root) if p != ONE):
            return True
        for number in (*a.num, *a.den):
            if mask & ~algebra.atom_mask[number]:
                continue
            atom = algebra.atoms[number]
            match atom.kind:
                case "exp":
                    joins = self._joins_in_monomial(atom.ref, mask)
                case "sqrt":
                    joins = self._joins(algebra.atom_polynomial(atom.ref), mask)
                case "apply":
                    joins = any(self._joins(p, mask) for p in atom.refs)
                case _:
                    joins = True
            if joins:
                return True
        return False

    def _is_tensor(self, value: Value) -> bool:
        """Return whether an input occurs in a value: it is no constant."""
        if self.algebra.mask[value] or value in self.starts:
            return True
        counts = self.algebra.feature_counts(self.algebra.count[value])
        return any(isinstance(key, tuple) and key[0] == "symbol" for key in counts)
