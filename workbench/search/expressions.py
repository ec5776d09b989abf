"""Which expressions may occur in a graph that computes the program, and which operators make them: found backwards.

Every operator that could make a goal is tried, then every operator that could make its operands, as long as what remains
can be afforded. Invariant: an expression of a graph within the limit is here with every operator of the palette that
makes it, as far as A_eq goes (`incomplete` counts where enumeration was cut); nothing is said about kernels or loops.

Long because every kind of node is read by one set of rules.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from workbench.domains.abstract_costs import StepCosts, fewest_operators
from workbench.domains.abstract_decomposition import Decomposition
from workbench.domains.abstract_expr import Axis
from workbench.domains.abstract_goals import Goals
from workbench.domains.abstract_normal_form import ONE, Algebra, Value
from workbench.domains.abstract_tables import Monomial
from workbench.search.palette import Operator, Palette
from workbench.search.plans import AxisParts
from workbench.search.problem import Problem, split_axes
from workbench.search.shallow import Shallow

MANY, WIDE = 6000, 6
"""Expressions that are met, and terms of a sum in a goal, from which it pays to close the inputs forwards first."""

_MINUS = Fraction(-1)
Fold = tuple[str, int]  # an axis ("" for a loop alone) and the mask that one operator folds


@dataclass(frozen=True, slots=True)
class Making:
    """An operator that makes an expression from others.

    Attributes: mask: the axes it folds (0: none); axis: the one it is named for; parts: of a product of concatenations
    [x | y] [w ; z] (operands x, y, w, z), what each half folds.
    """

    operator: Operator
    operands: tuple[Value, ...]
    mask: int = 0
    axis: str = ""
    parts: tuple[Fold, ...] = ()


@dataclass(frozen=True, slots=True)
class Unaffordable:
    """An expression that was met and left out: `above` operators stand over it, and it takes `least` itself."""

    value: Value
    above: int
    least: int


class Expressions:
    """The expressions of one way to cut axes, within a limit of operators.

    Attributes: problem, palette, parts; algebra; goals, starts (values, in the problem's order); folds: what one operator
    may fold; limit; above: per expression the fewest operators over it; makings: per expression the operators that make
    it; left_out: what was met and could not be afforded.
    """

    def __init__(
        self,
        problem: Problem,
        palette: Palette,
        parts: Mapping[str, AxisParts],
        folds: Iterable[tuple[str, tuple[Axis, ...]]],
        *,
        limit: int,
        outer_products: bool = False,
        folds_whole: bool = True,
    ) -> None:
        """Normalise the program's terms with the axes cut into `parts`; folds: what one operator may fold at once.

        folds_whole: False if no kernel of a plan holds an axis whole that is cut elsewhere; bounds are sharper then.
        """
        self.problem, self.palette, self.parts, self.limit = problem, palette, parts, limit
        self.outer_products = outer_products
        self.algebra = Algebra()
        cut = {name: part.all for name, part in parts.items()}
        self.goals = tuple(self.algebra.normalize(split_axes(goal.term, cut)) for goal in problem.goals)
        self.starts = tuple(self.algebra.normalize(split_axes(start.term, cut)) for start in problem.starts)
        self.folds: list[Fold] = sorted({(name, self.algebra.axes_mask(axes)) for name, axes in folds})
        self.decomposition = Decomposition(self.algebra)
        self.costs = replace(step_costs(palette), folds_whole=folds_whole)
        self.is_wide = max(map(self._width, self.goals)) > WIDE
        self.above: dict[Value, int] = {}
        self.makings: dict[Value, tuple[Making, ...]] = {}
        self.left_out: dict[Value, Unaffordable] = {}
        self.shallow: Shallow | None = None
        self._contracted: dict[Value, list[tuple[tuple[Value, Value], Fold]]] = {}
        self._refuted = 0  # operations that were given up because they cannot be what was looked for
        self._masks: dict[str, int] = {}
        self._joined: dict[tuple[int, int], bool] = {}
        self._least: dict[Value, int] = dict.fromkeys(self.starts, 0)

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

    # ------------------------------------------------------------------------------------------------------- closure
    def close(self) -> Expressions:
        """Take the goals apart. Returns itself."""
        if self.is_wide or not self._close(at_most=MANY):
            self.shallow = self._shallow(max(2, self.limit // 2))
            self._close(at_most=None)
        for value, made in self.makings.items():
            self.makings[value] = tuple(m for m in made if all(operand in self.above for operand in m.operands))
        return self

    def _close(self, at_most: int | None) -> bool:
        """Return False when more than `at_most` expressions are met."""
        self.above, self.left_out = dict.fromkeys(self.goals, 0), {}
        queue = deque(self.above.items())
        while queue:
            if at_most is not None and len(self.above) > at_most:
                return False
            value, above = queue.popleft()
            if self.above[value] < above:
                continue
            if value not in self.makings:  # met first with the fewest operators over it
                found = self._makings(value, self.limit - above - 1)
                self.makings[value] = () if value in self.starts else tuple(dict.fromkeys(found))
            for making in self.makings[value]:
                below = above + making.operator.cost
                if self._affords(making.operands, below):
                    for operand in making.operands:
                        if self.above.get(operand, below + 1) > below:
                            self.above[operand] = below
                            queue.append((operand, below))
        return True

    def _affords(self, operands: tuple[Value, ...], above: int) -> bool:
        """Return whether all operands can be made with the operators that are left."""
        each = [self.least(operand) for operand in operands]
        # Two expressions that take equally many operators are not made on the way to each other.
        least = max(each) + (len(each) == 2 and each[0] == each[1] > 0 and operands[0] != operands[1])
        if above + least <= self.limit:
            return True
        for operand, own in zip(operands, each, strict=True):
            known = self.left_out.get(operand)
            if operand not in self.above and (known is None or known.above > above):
                self.left_out[operand] = Unaffordable(operand, above, own)
        return False

    def least(self, value: Value) -> int:
        """Return how many operators make an expression, at least; 0 for an input."""
        if self.shallow is not None:
            return self.shallow.operators.get(value, self.shallow.depth + 1)
        found = self._least.get(value)
        if found is None:
            found = self._least[value] = max(1, fewest_operators(self.algebra, value, self.costs))
        return found

    def _shallow(self, depth: int) -> Shallow:
        whole = {name: self.mask(name) for name in self.problem.reduced}
        return Shallow(
            self.algebra,
            Goals(self.algebra, self.goals, self.costs),
            self.problem,
            self.palette,
            self.folds,
            whole,
            self.starts,
            depth=depth,
            outer_products=self.outer_products,
            may_be_made=self._may_be_made,
        )

    def _width(self, p: int) -> int:
        """Return the most terms of a sum anywhere in a polynomial, under roots and below bars too."""
        algebra = self.algebra
        widest = len(algebra.polynomials[p])
        for m in algebra.polynomials[p]:
            a = algebra.monomials[m]
            inner = [q for q in (a.quotient, a.root) if q != ONE]
            for atom in (*a.num, *a.den):
                kind = algebra.atoms[atom]
                inner += [q for q in kind.refs if kind.kind == "apply"]
                if kind.kind in ("exp", "sum"):
                    inner.append(algebra.polynomial((kind.ref,)))
                if kind.kind == "max":
                    inner += [q for _, q in kind.elements]
            widest = max([widest, *map(self._width, inner)])
        return widest

    def heavier(self, result: Value, operand: Value) -> bool:
        """Return whether a result comes after its operand in the order of building: heavier, or younger (a root)."""
        weight = self.algebra.weight
        return (weight[result], result) > (weight[operand], operand)

    # ------------------------------------------------------------------------------------------------------- makings
    def _makings(self, value: Value, left: int) -> Iterator[Making]:
        """Return every operator of the palette that makes a value of operands that take at most `left` operators."""
        for making in self._every_making(value, left):
            if making.operator.is_offered and all(map(self._may_be_made, making.operands)):
                yield making

    def _every_making(self, value: Value, left: int) -> Iterator[Making]:
        algebra, apart, palette = self.algebra, self.decomposition, self.palette
        for axis, mask in self.folds:
            if not algebra.mask[value] & mask:
                yield from self._folding(value, axis, mask, left)
        shallow = self.shallow
        if shallow is None or left >= shallow.depth + 2:  # of two operands that are not known, one takes one more
            products, quotients, sums = apart.products(value), apart.quotients(value), apart.sums(value)
        elif left > shallow.depth:
            products, quotients, sums = apart.products(value), apart.quotients(value), shallow.sums(value)
        else:
            products, quotients, sums = shallow.products(value), shallow.quotients(value), shallow.sums(value)
        for pair in products:
            if pair[0] == pair[1]:
                yield Making(palette.square, pair[:1])
            elif self._broadcasts(pair):
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
        if palette.join.is_offered and shallow is None and left >= palette.join.cost - 1:
            yield from self._side_by_side(sums)

    def _folding(self, value: Value, axis: str, mask: int, left: int) -> Iterator[Making]:
        """Return sums, products summed over a shared axis, means and maxima over a mask."""
        algebra, apart, palette = self.algebra, self.decomposition, self.palette
        axes = algebra.axes_of(mask)
        known = self.shallow if self.shallow is not None and left <= self.shallow.depth else None
        if known is not None:
            yield from (Making(palette.sum, (operand,), mask, axis) for operand in known.summands(value, mask))
            if axis and palette.matmul.is_offered:
                yield from (Making(palette.matmul, pair, mask, axis) for pair in known.contractions(value, mask))
        else:
            for operand in self._summands(value, mask):
                yield Making(palette.sum, (operand,), mask, axis)
                if axis and palette.matmul.is_offered:
                    for pair in apart.products(operand):
                        if not mask & ~(algebra.mask[pair[0]] & algebra.mask[pair[1]]) and self._contracts(pair):
                            yield Making(palette.matmul, pair, mask, axis)
        if palette.max.is_offered:
            for operand in apart.maximised(value, axes):
                if not mask & ~algebra.mask[operand]:
                    yield Making(palette.max, (operand,), mask, axis)
        number = self.problem.numbers.get(axis)
        if number and mask == self.mask(axis):
            for op in self.palette.counting_folds:
                for operand in self._counted_operands(op, value, axes, number):
                    if self._makes(op, (operand,), value, mask, number) and not mask & ~algebra.mask[operand]:
                        yield Making(op, (operand,), mask, axis)

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
        another there have no axes in common and are not made (`_may_be_made`).
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
        for pair in (*products, *quotients, *sums):
            if not all(map(self._is_tensor, pair)):
                candidates.update(pair)
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

    def _may_be_made(self, value: Value) -> bool:
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


def step_costs(palette: Palette) -> StepCosts:
    """Return what one operator of a palette does at once, for admissible bounds."""
    names = {op.name for op in (*palette.folds, *palette.wholes)}
    crossing = {"exp": 0} if "softmax" in names else {}
    absorbs = {"sqrt": 4} if names & {"rms", "rms_norm", "l2_norm", "layer_norm"} else {}
    if names & {"rms", "rms_norm", "l2_norm", "layer_norm"}:
        crossing = {**crossing, "sqrt": 0}
    return StepCosts(sum_scales=True, absorbs=absorbs, crossing=crossing)
