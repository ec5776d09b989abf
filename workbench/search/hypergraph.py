"""The values of a plan and what can make each of them: an AND-OR hypergraph over (expression, place).

Invariant: every graph of the plan within the limits is a choice of one edge per needed node; an edge's operands come
before its result in one order, so a choice has no cycle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from workbench.domains.abstract_normal_form import Value
from workbench.search.cuts import Cuts
from workbench.search.expressions import Expressions
from workbench.search.makings import Fold, Making
from workbench.search.palette import Effect, Operator
from workbench.search.places import AFTER, FIXED, LOOP, Place, inside, operand_places
from workbench.search.plans import Plan
from workbench.search.space import NEVER


@dataclass(frozen=True, slots=True)
class Edge:
    """One way to make a node.

    Attributes: kind: "operator", "accumulate", "combine" (sums what blocks left), "kernel" (a predefined kernel), "load"
    or "store"; operator (None for load and store); operands: nodes; axis: what is folded; mask: its parts; parts: see
    `Making`.
    """

    kind: str
    operator: Operator | None
    operands: tuple[int, ...]
    axis: str = ""
    mask: int = 0
    parts: tuple[Fold, ...] = ()

    @property
    def block_cost(self) -> int:
        """How many block operators it counts."""
        if self.operator is None or self.kind not in ("operator", "accumulate", "combine"):
            return 0
        return self.operator.cost

    @property
    def kernel_cost(self) -> int:
        """How many predefined kernels it counts."""
        return 1 if self.kind == "kernel" else 0

    @property
    def is_fold(self) -> bool:
        """Whether it reduces an axis or contracts."""
        return self.operator is not None and self.operator.effect in (Effect.FOLD, Effect.CONTRACT, Effect.JOIN)


class Hypergraph(Cuts):
    """The nodes and edges of one plan.

    Attributes: plan; expressions; values, places: per node; edges: per node; goals: per program output the nodes that may
    be it; least: block operators that make a node, at least; order: per node its rank, operands first; left_out: rule of
    `chains` -> ways to make a value that it leaves out.
    """

    def __init__(
        self, expressions: Expressions, plan: Plan, *, block_limit: int, kernel_limit: int, needed_only: bool = True
    ) -> None:
        """Build the hypergraph.

        kernel_limit: predefined kernels beside the block graphs; needed_only: see `chains` ("folded early").
        """
        self.needed_only = needed_only
        super().__init__(expressions, plan)
        self.block_limit, self.kernel_limit = block_limit, kernel_limit
        self.values: list[Value] = []
        self.places: list[Place] = []
        self.edges: list[list[Edge]] = []
        self.left_out: Counter[str] = Counter()
        self._ids: dict[tuple[Value, Place], int] = {}
        self._starts = frozenset(expressions.starts)
        self._build()
        self._order()
        self._bound()

    def is_partial(self, value: Value) -> bool:
        """Return whether a value is what one of several blocks along the split axis left."""
        return self.has_partial(self.algebra.mask[value])

    def varies(self, value: Value, kernel: int) -> bool:
        """Return whether a value changes with the iteration of a kernel."""
        return self.has_loop(self.algebra.mask[value], kernel)

    # ------------------------------------------------------------------------------------------------------ building
    def node(self, value: Value, place: Place) -> int:
        """Return the node of a value at a place."""
        key = (value, place)
        if key not in self._ids:
            self._ids[key] = len(self.values)
            self.values.append(value)
            self.places.append(place)
            self.edges.append([])
        return self._ids[key]

    def _build(self) -> None:
        last = [Place.BEFORE, Place.BETWEEN, Place.AFTER][: len(self.plan.loops) + 1]
        made = [goal for goal in self.expressions.goals if goal not in self._starts]
        self.has_one_output = len(set(made)) == 1
        if self.has_one_output:
            last = last[-1:]  # the only output comes last
        elif not self.kernel_limit:
            last = last[1:]
        self.goals = [
            [self.node(goal, place) for place in (last if goal in made else [Place.BEFORE])]
            for goal in self.expressions.goals
        ]
        done = 0
        while done < len(self.values):
            value, place = self.values[done], self.places[done]
            kernel = place.kernel
            edges = self._device(value, place) if kernel is None else self._block(value, place, kernel)
            self.edges[done] = list(dict.fromkeys(edges))
            done += 1

    def _device(self, value: Value, place: Place) -> Iterator[Edge]:
        if value in self._starts:
            return  # an input; it is not made later again
        if place is not Place.BEFORE and not self._leaves_open(value, place):
            kernel = 0 if place is Place.BETWEEN else 1
            for stage in (FIXED, AFTER):
                if stage == AFTER and not self.loops[kernel]:
                    continue
                for dependent in self._dependences(kernel):
                    yield Edge("store", None, (self.node(value, inside(kernel, stage, dependent=dependent)),))
        if self.kernel_limit and not self.is_partial(value):
            yield from self._kernels(value, place)

    def _dependences(self, kernel: int) -> tuple[bool, ...]:
        """Return whether a stored value depends on an earlier kernel: of the second it must, for a single output."""
        if kernel == 0:
            return (False,)
        return (True,) if self.has_one_output and not self.kernel_limit else (False, True)

    def _leaves_open(self, value: Value, place: Place) -> bool:
        """Return whether a value cannot be stored from the block graph before a place."""
        return self.is_open(self.algebra.mask[value], 0 if place is Place.BETWEEN else 1)

    def _kernels(self, value: Value, place: Place) -> Iterator[Edge]:
        earlier = [Place.BEFORE, Place.BETWEEN, Place.AFTER]
        upto = [where for where in earlier if where <= place]
        for making in self.expressions.makings.get(value, ()):
            if making.operator.effect is not Effect.CONTRACT or making.mask != self.whole.get(making.axis):
                continue
            for left in upto:
                for right in upto:
                    if max(left, right) == place and self._exists(making.operands, (left, right)):
                        operands = tuple(
                            self.node(operand, where)
                            for operand, where in zip(making.operands, (left, right), strict=True)
                        )
                        yield Edge("kernel", making.operator, operands, making.axis, making.mask)

    def _exists(self, operands: tuple[Value, ...], places: tuple[Place, ...]) -> bool:
        return all(
            (operand in self._starts) <= (place is Place.BEFORE) and not self.is_partial(operand)
            for operand, place in zip(operands, places, strict=True)
        )

    def _block(self, value: Value, place: Place, kernel: int) -> Iterator[Edge]:
        if self.varies(value, kernel) != (place.stage == LOOP):
            return
        yield from self._loads(value, place, kernel)
        if value in self._starts or (kernel == 1 and self.is_partial(value)):
            return
        for making in self.expressions.makings.get(value, ()):
            kind = self._kind(making, kernel)
            if kind is None:
                continue
            if kind == "accumulate":
                if place.stage == AFTER and not self._folds_again(place, self.plan.loops[kernel]):
                    operand = self.node(making.operands[0], inside(kernel, LOOP, dependent=place.is_dependent))
                    yield Edge(kind, making.operator, (operand,), making.axis, making.mask)
                continue
            if kind == "combine":
                if place is Place.B_FIXED_DEPENDENT:
                    operand = self.node(making.operands[0], place)
                    yield Edge(kind, making.operator, (operand,), making.axis, making.mask)
                continue
            if any(kernel == 1 and self.is_partial(operand) for operand in making.operands):
                continue
            if making.mask and self._folds_again(place, making.axis):
                continue
            if making.parts and place.stage != LOOP:
                continue  # elsewhere two products and their sum do the same; in a loop one accumulator serves both
            varies = tuple(self.varies(operand, kernel) for operand in making.operands)
            for places in operand_places(place, varies):
                operands = tuple(self.node(o, where) for o, where in zip(making.operands, places, strict=True))
                yield Edge(kind, making.operator, operands, making.axis, making.mask, making.parts)

    def _folds_again(self, place: Place, axis: str | None) -> bool:
        again = self.needed_only and self.folds_again(place, axis)
        if again:
            self.left_out["held whole" if place.is_dependent else "folded early"] += 1
        return again

    def _loads(self, value: Value, place: Place, kernel: int) -> Iterator[Edge]:
        if place.stage == AFTER:
            return
        if not place.is_dependent:
            if value in self._starts or self.kernel_limit:
                yield Edge("load", None, (self.node(value, Place.BEFORE),))
        elif value not in self._starts:
            yield Edge("load", None, (self.node(value, Place.BETWEEN),))

    def _kind(self, making: Making, kernel: int) -> str | None:
        """Return how a block of a kernel carries an operator out, None if it cannot."""
        if making.parts:
            fits = all(mask == self.tiles[kernel].get(axis) for axis, mask in making.parts)
            return "operator" if fits else None
        operand_mask = self.algebra.mask[making.operands[0]]
        return self.kind_of(making.operator, making.mask, making.axis, kernel, operand_mask)

    # -------------------------------------------------------------------------------------------------- order, bounds
    def _order(self) -> None:
        weight = self.algebra.weight
        keys = [(weight[value], value, place) for value, place in zip(self.values, self.places, strict=True)]
        ranked = sorted(range(len(keys)), key=keys.__getitem__)
        self.order = [0] * len(keys)
        for rank, node in enumerate(ranked):
            self.order[node] = rank
        for node, edges in enumerate(self.edges):
            self.edges[node] = [e for e in edges if all(self.order[o] < self.order[node] for o in e.operands)]
        self._ranked = ranked

    def _bound(self) -> None:
        """Keep the edges that lead to inputs and to goals within the limit."""
        count = len(self.values)
        self.least = [NEVER] * count
        for node in self._ranked:
            if self.places[node] is Place.BEFORE and self.values[node] in self._starts:
                self.least[node] = 0
                continue
            for edge in self.edges[node]:
                self.least[node] = min(self.least[node], edge.block_cost + self._joint(edge.operands))
        above = [NEVER] * count
        for goals in self.goals:
            for goal in goals:
                above[goal] = 0
        for node in reversed(self._ranked):
            kept = []
            for edge in self.edges[node]:
                below = above[node] + edge.block_cost
                if below + self._joint(edge.operands) <= self.block_limit:
                    kept.append(edge)
                    for operand in edge.operands:
                        above[operand] = min(above[operand], below)
            self.edges[node] = kept
        self.above = above

    def _joint(self, operands: tuple[int, ...]) -> int:
        """Return how many block operators make all the operands, at least."""
        each = [self.least[operand] for operand in operands]
        if len(each) == 2 and operands[0] != operands[1] and each[0] == each[1] > 0:
            return each[0] + 1  # neither is made on the way to the other
        return max(each)

    @property
    def kept(self) -> list[int]:
        """The nodes that some graph may need, operands first."""
        return [node for node in self._ranked if self.above[node] + self.least[node] <= self.block_limit]
