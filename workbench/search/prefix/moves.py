"""Which operators may be applied to one or two tensors next, and which of the results some rule drops at once.

Invariant: the operators on the same operands stand in one order and bear their rank in it, dropped ones too, so that a
prefix has the same name whatever is switched on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from workbench.search.cuts import Cuts
from workbench.search.palette import Operator
from workbench.search.places import AFTER, FIXED, LOOP, Place, inside
from workbench.search.prefix.tensors import Tensor, Tensors

TIMES = (Place.BEFORE, 0, Place.BETWEEN, 1, Place.AFTER)
"""When: device memory before, the first block graph, between, the second block graph, after."""


@dataclass(frozen=True, slots=True, eq=False)
class Move:
    """One operator on operands.

    Attributes: rank: among those on the same operands; kind: as of an `Edge`; operator; operands: in its order; folded,
    axis: what it folds; place: of the result; made: the result, None where the counts alone ruled it out; dropped_by: the
    rule that drops it whatever else is in the prefix, "" for none; distance: from the result to a goal at least.
    """

    rank: int
    kind: str
    operator: Operator
    operands: tuple[Tensor, ...]
    folded: int
    axis: str
    place: Place
    made: Tensor | None
    dropped_by: str = ""
    distance: int = 0

    @property
    def block_cost(self) -> int:
        """How many block operators it counts."""
        return 0 if self.kind == "kernel" else 1

    def label(self) -> str:
        """Return the operator in words, with the axis that it folds."""
        name = f"{self.kind} {self.operator}" if self.kind != "operator" else str(self.operator)
        return f"{name} over {self.axis or 'the loop'}" if self.folded else name


@dataclass(frozen=True, slots=True)
class Batch:
    """The moves on the same operands: every one, those that are kept, and how many each rule drops."""

    every: tuple[Move, ...]
    kept: tuple[Move, ...]
    dropped: Mapping[str, int]


class MoveRule(Protocol):
    """A rule about a move, whatever else is in the prefix."""

    name: str

    def drops_before(self, operator: Operator, operands: tuple[Tensor, ...], folded: int, axis: str) -> bool:
        """Return whether it drops the result before it is made."""
        ...

    def drops_tensor(self, made: Tensor, place: Place) -> bool:
        """Return whether it drops the result."""
        ...

    def distance(self, made: Tensor) -> int:
        """Return how many operators are between the result and a goal at least, 0 if it has no opinion."""
        ...


class Moves:
    """The moves of one plan, remembered by operands and place."""

    def __init__(self, tensors: Tensors, cuts: Cuts, rules: Sequence[MoveRule], *, needed_only: bool) -> None:
        """Keep what decides. needed_only: leave out what another choice does as well (`chains`)."""
        self.tensors, self.cuts, self.rules, self.needed_only = tensors, cuts, tuple(rules), needed_only
        self.palette = tensors.expressions.palette
        self.outer = tensors.expressions.outer_products
        self._folds = self._all_folds()
        self._known: dict[tuple[int, int, int, int], Batch] = {}

    def _all_folds(self) -> list[tuple[str, int]]:
        """Return what an operator may fold: parts of the axes that the program folds, and whole other axes."""
        expressions = self.tensors.expressions
        listed = list(expressions.folds)
        known = {name for name, _ in listed}
        for name in expressions.problem.extents:
            mask = expressions.mask(name)
            if name not in known and any(start.mask & mask for start in self.tensors.starts):
                listed.append((name, mask))
        return listed

    def of(self, one: Tensor, at: Place, two: Tensor | None, other: Place | None) -> Batch:
        """Return the moves on one tensor or two, at places where the same kernel holds them."""
        key = (one.number, at, -1 if two is None else two.number, -1 if other is None else other)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._batch(one, at, two, other)
        return found

    def _batch(self, one: Tensor, at: Place, two: Tensor | None, other: Place | None) -> Batch:
        moves: list[Move] = []
        dropped: Counter[str] = Counter()
        found = self._unary(one, at) if two is None or other is None else self._binary(one, at, two, other)
        for kind, operator, operands, folded, axis, place in found:
            made: Tensor | None = None
            rule, distance = "", 0
            for each in self.rules:
                if each.drops_before(operator, operands, folded, axis):
                    rule = each.name
                    break
            else:
                made = self.tensors.made(operator, operands, folded, axis)
                for each in self.rules:
                    if each.drops_tensor(made, place):
                        rule = each.name
                        break
                    distance = max(distance, each.distance(made))
            if rule:
                dropped[rule] += 1
            moves.append(Move(len(moves), kind, operator, operands, folded, axis, place, made, rule, distance))
        return Batch(tuple(moves), tuple(move for move in moves if not move.dropped_by), dropped)

    # ---------------------------------------------------------------------------------------------------- one operand
    def _unary(self, one: Tensor, at: Place) -> Iterator[_Made]:
        kernel = at.kernel
        if kernel is None:
            return
        if kernel == 1 and self.cuts.has_partial(one.mask):
            yield from self._combined(one, at)
            return
        for operator in self.palette.unary:
            if self.cuts.kind_of(operator, 0, "", kernel, one.mask):
                yield "operator", operator, (one,), 0, "", at
        for operator in (*self.palette.folds, *self.palette.wholes):
            for axis, folded in self._folds:
                if folded & ~one.mask or not folded:
                    continue
                kind = self._fold_kind(operator, folded, axis, kernel, one.mask)
                if kind is None or (operator.counts and axis not in self.tensors.expressions.problem.numbers):
                    continue
                place = at
                if kind == "accumulate":
                    if at.stage != LOOP:
                        continue
                    place = inside(kernel, AFTER, dependent=at.is_dependent)
                looped = self.cuts.plan.loops[kernel] if kind == "accumulate" else axis
                if self.needed_only and kind != "combine" and self.cuts.folds_again(place, looped):
                    continue
                if kind == "combine" and at is not Place.B_FIXED_DEPENDENT:
                    continue
                yield kind, operator, (one,), folded, axis, place

    def _fold_kind(self, operator: Operator, folded: int, axis: str, kernel: int, mask: int) -> str | None:
        if axis and axis not in self.cuts.whole:  # an axis that the program does not fold is never cut
            return "operator" if not operator.counts else None
        return self.cuts.kind_of(operator, folded, axis, kernel, mask)

    def _combined(self, one: Tensor, at: Place) -> Iterator[_Made]:
        """Return the sums of what blocks left; nothing else reads it."""
        if at is not Place.B_FIXED_DEPENDENT:
            return
        for operator in self.palette.folds:
            for axis, folded in self._folds:
                if not folded & ~one.mask and self.cuts.kind_of(operator, folded, axis, 1, one.mask) == "combine":
                    yield "combine", operator, (one,), folded, axis, at

    # --------------------------------------------------------------------------------------------------- two operands
    def _binary(self, one: Tensor, at: Place, two: Tensor, other: Place) -> Iterator[_Made]:
        kernel = at.kernel
        if kernel is None:
            yield from self._kernels(one, at, two, other)
            return
        if kernel == 1 and (self.cuts.has_partial(one.mask) or self.cuts.has_partial(two.mask)):
            return
        place = together(at, other)
        if place is None:
            return
        if self.outer or one.mask | two.mask in (one.mask, two.mask):
            for operator in self.palette.binary:
                if one is two and operator is self.palette.mul and self.palette.square.is_offered:
                    continue
                yield "operator", operator, (one, two), 0, "", place
                if not operator.spec.commutative and one is not two:
                    yield "operator", operator, (two, one), 0, "", place
        if not self.palette.matmul.is_offered or one.mask == two.mask:
            return
        for axis, folded in self._folds:
            if not axis or folded & ~(one.mask & two.mask):
                continue
            if self._fold_kind(self.palette.matmul, folded, axis, kernel, one.mask) != "operator":
                continue
            if not (self.needed_only and self.cuts.folds_again(place, axis)):
                yield "operator", self.palette.matmul, (one, two), folded, axis, place

    def _kernels(self, one: Tensor, at: Place, two: Tensor, other: Place) -> Iterator[_Made]:
        """Return predefined kernels: matrix products over a whole axis."""
        if one.mask == two.mask or self.cuts.has_partial(one.mask) or self.cuts.has_partial(two.mask):
            return
        for axis, folded in self._folds:
            whole = self.cuts.whole.get(axis, folded)
            if axis and folded == whole and not folded & ~(one.mask & two.mask):
                yield "kernel", self.palette.matmul, (one, two), folded, axis, max(at, other)


_Made = tuple[str, Operator, tuple[Tensor, ...], int, str, Place]


def together(one: Place, two: Place) -> Place | None:
    """Return where the result of two operands in one block graph is, None where they cannot meet."""
    kernel = one.kernel
    assert kernel is not None
    stages = {one.stage, two.stage}
    if stages == {LOOP, AFTER}:
        return None
    stage = LOOP if LOOP in stages else AFTER if AFTER in stages else FIXED
    return inside(kernel, stage, dependent=one.is_dependent or two.is_dependent)
