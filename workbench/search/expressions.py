"""Which expressions may occur in a graph that computes the program, and which operators make them: found backwards.

Every operator that could make a goal is tried, then every operator that could make its operands, as long as what remains
can be afforded. Invariant: an expression of a graph within the limit is here with every operator of the palette that
makes it, as far as A_eq goes (`incomplete` counts where enumeration was cut); nothing is said about kernels or loops.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from workbench.domains.abstract_costs import StepCosts, fewest_operators
from workbench.domains.abstract_expr import Axis
from workbench.domains.abstract_goals import Goals
from workbench.domains.abstract_normal_form import ONE, Algebra, Value
from workbench.search.makings import Fold, Making, Makings
from workbench.search.palette import Palette
from workbench.search.plans import AxisParts
from workbench.search.problem import Problem, split_axes
from workbench.search.shallow import Shallow
from workbench.search.space import NEVER
from workbench.search.uncut import Image, Uncut

MANY, WIDE = 6000, 6
"""Expressions that are met, and terms of a sum in a goal, from which it pays to close the inputs forwards first."""


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
    it; left_out: what was met and could not be afforded; operators: once trimmed, per expression the fewest that make it;
    all_makings: those, and what only stands for operators where more axes are cut; incomplete: how many expressions were
    not taken apart in every way.
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
        images: Sequence[tuple[Expressions, Mapping[Axis, Axis | None]]] = (),
    ) -> None:
        """Normalise the program's terms with the axes cut into `parts`; folds: what one operator may fold at once.

        folds_whole: False if no kernel of a plan holds an axis whole that is cut elsewhere; bounds are sharper then.
        images: expressions where fewer parts are cut, trimmed, with the names of the parts there (see `uncut`).
        """
        self.problem, self.palette, self.parts, self.limit = problem, palette, parts, limit
        self.outer_products = outer_products
        self.algebra = Algebra()
        cut = {Axis(name): part.all for name, part in parts.items()}
        self.goals = tuple(self.algebra.normalize(split_axes(goal.term, cut)) for goal in problem.goals)
        self.starts = tuple(self.algebra.normalize(split_axes(start.term, cut)) for start in problem.starts)
        self.folds: list[Fold] = sorted({(name, self.algebra.axes_mask(axes)) for name, axes in folds})
        self.rules = Makings(
            self.algebra, problem, palette, parts, self.folds, self.starts, outer_products=outer_products
        )
        self.costs = replace(step_costs(palette), folds_whole=folds_whole)
        self.is_wide = max(map(self._width, self.goals)) > WIDE
        self.above: dict[Value, int] = {}
        self.makings: dict[Value, tuple[Making, ...]] = {}
        self.left_out: dict[Value, Unaffordable] = {}
        self.shallow: Shallow | None = None
        self._least: dict[Value, int] = dict.fromkeys(self.starts, 0)
        self.operators: dict[Value, int] = {}
        self.all_makings: dict[Value, tuple[Making, ...]] = {}
        self.incomplete = 0
        uncut = Uncut([Image(others, self, names) for others, names in images]) if images else None
        self._uncut = self.rules.uncut = uncut

    # ---------------------------------------------------------------------------------------------------------- axes
    def mask(self, name: str) -> int:
        """Return the parts of an axis as a mask."""
        return self.rules.mask(name)

    def axis_mask(self, axis: Axis | None) -> int:
        """Return one axis as a mask, 0 for none."""
        return self.rules.axis_mask(axis)

    # ------------------------------------------------------------------------------------------------------- closure
    def close(self) -> Expressions:
        """Take the goals apart. Returns itself."""
        if self._uncut is not None:
            self._close(at_most=None)
        elif self.is_wide or not self._close(at_most=MANY):
            self.shallow = self.rules.shallow = self._shallow(max(2, self.limit // 2))
            self._close(at_most=None)
        for value, made in self.all_makings.items():
            self.all_makings[value] = tuple(m for m in made if all(operand in self.above for operand in m.operands))
        self.left_out = {value: left for value, left in self.left_out.items() if value not in self.above}
        self.makings = _in_graphs(self.all_makings)
        self.incomplete = self.rules.incomplete
        return self

    def _close(self, at_most: int | None) -> bool:
        """Return False when more than `at_most` expressions are met."""
        self.above, self.left_out = dict.fromkeys(self.goals, 0), {}
        queue = [(above, value) for value, above in self.above.items()]
        heapq.heapify(queue)
        while queue:
            if at_most is not None and len(self.above) > at_most:
                return False
            above, value = heapq.heappop(queue)
            if self.above[value] < above:
                continue
            if value not in self.all_makings:  # met first with the fewest operators over it
                found = self.rules.of(value, self.limit - above - 1)
                self.all_makings[value] = () if value in self.starts else tuple(dict.fromkeys(found))
            for making in self.all_makings[value]:
                below = above + making.operator.cost
                if self._affords(making.operands, below):
                    for operand in making.operands:
                        if self.above.get(operand, below + 1) > below:
                            self.above[operand] = below
                            heapq.heappush(queue, (below, operand))
        return True

    def _affords(self, operands: tuple[Value, ...], above: int) -> bool:
        """Return whether all operands can be made with the operators that are left."""
        each = [self.least(operand) for operand in operands]
        over = [max(above, self._over(operand)) for operand in operands]
        if above + joint(each, operands) <= self.limit and all(
            own + stand <= self.limit for own, stand in zip(each, over, strict=True)
        ):
            return True
        for operand, own, stand in zip(operands, each, over, strict=True):
            known = self.left_out.get(operand)
            if operand not in self.above and (known is None or known.above > stand):
                self.left_out[operand] = Unaffordable(operand, stand, own)
        return False

    def _over(self, value: Value) -> int:
        """Return how many operators stand over an expression, at least."""
        return 0 if self._uncut is None else self._uncut.bounds(value)[1]

    def trim(self) -> Expressions:
        """Keep what can be made of the inputs and lead to the goals within the limit. Returns itself."""
        self.operators = self._fewest()
        above: dict[Value, int] = {}
        kept: dict[Value, tuple[Making, ...]] = {}
        queue = [(0, goal) for goal in set(self.goals) if self.operators.get(goal, NEVER) <= self.limit]
        heapq.heapify(queue)
        while queue:
            over, value = heapq.heappop(queue)
            if value in above:
                continue
            above[value] = over
            found = []
            for making in self.all_makings.get(value, ()):
                each = [self.operators.get(operand, NEVER) for operand in making.operands]
                below = over + making.operator.cost
                if below + joint(each, making.operands) <= self.limit:
                    found.append(making)
                    for operand in making.operands:
                        if operand not in above:
                            heapq.heappush(queue, (below, operand))
            kept[value] = tuple(found)
        self.above, self.all_makings = above, kept
        self.makings = _in_graphs(kept)
        return self

    def _fewest(self) -> dict[Value, int]:
        """Return the fewest operators that make each expression, at least (what operands share is counted once)."""
        users: dict[Value, list[tuple[Value, Making]]] = {}
        waiting: dict[int, int] = {}
        for value, makings in self.all_makings.items():
            for making in makings:
                operands = set(making.operands)
                waiting[id(making)] = len(operands)
                for operand in operands:
                    users.setdefault(operand, []).append((value, making))
        fewest: dict[Value, int] = {}
        queue = [(0, start) for start in set(self.starts)]
        heapq.heapify(queue)
        while queue:
            count, value = heapq.heappop(queue)
            if value in fewest:
                continue
            fewest[value] = count
            for made, making in users.get(value, ()):
                waiting[id(making)] -= 1
                if not waiting[id(making)] and made not in fewest:
                    each = [fewest[operand] for operand in making.operands]
                    heapq.heappush(queue, (making.operator.cost + joint(each, making.operands), made))
        return fewest

    def least(self, value: Value) -> int:
        """Return how many operators make an expression, at least; 0 for an input."""
        if self.shallow is not None:
            return self.shallow.operators.get(value, self.shallow.depth + 1)
        found = self._least.get(value)
        if found is None:
            found = max(1, fewest_operators(self.algebra, value, self.costs))
            if self._uncut is not None:
                found = max(found, self._uncut.bounds(value)[0])
            self._least[value] = found
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
            may_be_made=self.rules.may_be_made,
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


def _in_graphs(makings: Mapping[Value, tuple[Making, ...]]) -> dict[Value, tuple[Making, ...]]:
    return {value: tuple(making for making in made if not making.is_image) for value, made in makings.items()}


def joint(each: Sequence[int], operands: tuple[Value, ...]) -> int:
    """Return how many operators make all operands of one operator, at least, if each takes so many.

    Two expressions that take equally many operators are not made on the way to each other.
    """
    return max(each) + (len(each) == 2 and each[0] == each[1] > 0 and operands[0] != operands[1])


def step_costs(palette: Palette) -> StepCosts:
    """Return what one operator of a palette does at once, for admissible bounds."""
    names = {op.name for op in (*palette.folds, *palette.wholes)}
    crossing = {"exp": 0} if "softmax" in names else {}
    absorbs = {"sqrt": 4} if names & {"rms", "rms_norm", "l2_norm", "layer_norm"} else {}
    if names & {"rms", "rms_norm", "l2_norm", "layer_norm"}:
        crossing = {**crossing, "sqrt": 0}
    return StepCosts(sum_scales=True, absorbs=absorbs, crossing=crossing)
