"""Prefixes: µGraphs in the making, one operator longer than their parent, in the one canonical order.

An operator's rank is (time, largest operand, other operand, operator), a tensor's index its position; operators are added
in increasing rank. Invariant: every graph is met once. Within one kernel a tensor that is new has a larger index than
every other, so what becomes possible only now ranks behind all that was possible before; compared with the first
operand first, as the paper writes it, graphs are lost (X / square(Y): square has rank (1), div (0, 2)).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from workbench.errors import UsageError
from workbench.search.cuts import Cuts
from workbench.search.places import LOOP, Place
from workbench.search.prefix.frame import loaded
from workbench.search.prefix.moves import TIMES, Batch, Move, Moves
from workbench.search.prefix.tensors import Tensor

Step = tuple[int, int, int, int]  # time, larger operand, other operand (-1 for none), rank of the operator on them


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How large graphs may get.

    Attributes: block: operators of all block graphs; kernels: predefined kernels; loop, after: operators in loops and
    after them, None for no limit of their own; accumulators: "counted" as operators, or "implied" (the lecture's: what
    the loop leaves unread is accumulated when the loop is closed, once).
    """

    block: int
    kernels: int = 0
    loop: int | None = None
    after: int | None = None
    accumulators: Literal["counted", "implied"] = "counted"


@dataclass(slots=True)
class Prefix:
    """A prefix. It does not change.

    Attributes: plan: number of its plan; parent, step, move: how it was extended last, None for the empty one; tensors,
    places: by position, inputs first; used: positions that something reads, as bits; inside: what is held where,
    (kernel or device place, tensor) -> position; dangling: results and needed inputs that nothing reads; waiting: those of
    them that change with an iteration; count: their packed feature counts; left, kernels_left, loop_left, after_left:
    operators that may still come.
    """

    plan: int
    parent: Prefix | None
    step: Step
    move: Move | None
    operands: tuple[int, ...]
    tensors: tuple[Tensor, ...]
    places: tuple[Place, ...]
    used: int
    inside: Mapping[tuple[int, int], int]
    dangling: int
    waiting: int
    count: int
    left: int
    kernels_left: int
    loop_left: int
    after_left: int

    @property
    def name(self) -> str:
        """The name: plan and steps, `1/1.3.-.0/1.4.1.2`; its parent's name is a part of it."""
        if self.parent is None:
            return str(self.plan)
        return extended_name(self.parent.name, self.step)

    @property
    def operators(self) -> int:
        """How many operators it has."""
        return 0 if self.parent is None else self.parent.operators + 1

    def line(self) -> list[Prefix]:
        """Return the prefixes from the first operator to this one."""
        made: list[Prefix] = []
        at: Prefix | None = self
        while at is not None and at.parent is not None:
            made.append(at)
            at = at.parent
        return made[::-1]


def extended_name(parent: str, step: Step) -> str:
    """Return the name of a prefix extended by a step."""
    time, high, low, rank = step
    return f"{parent}/{time}.{high}.{low if low >= 0 else '-'}.{rank}"


def parse_name(name: str) -> tuple[int, list[Step]]:
    """Return plan number and steps of a prefix's name. Raises: UsageError."""
    try:
        plan, *rest = name.split("/")
        steps: list[Step] = []
        for text in rest:
            time, high, low, rank = text.split(".")
            steps.append((int(time), int(high), -1 if low == "-" else int(low), int(rank)))
        return int(plan), steps
    except ValueError as error:
        raise UsageError(f"prefix {name!r}: expected a name such as 0/1.3.-.0, as events give it") from error


class Order:
    """Which operand pairs come after a prefix's last operator, in order, and where operands are for them."""

    def __init__(self, cuts: Cuts) -> None:
        """Keep the cuts."""
        self.cuts = cuts
        self.last_time = 2 * len(cuts.plan.loops)

    def pairs(self, prefix: Prefix) -> Iterator[tuple[int, int, Place, int, Place | None]]:
        """Yield (time, larger operand, its place, other operand or -1, its place)."""
        first, last_high, last_low, _ = prefix.step
        for time in range(first, self.last_time + 1):
            where = TIMES[time]
            is_device = isinstance(where, Place)
            if (prefix.kernels_left if is_device else prefix.left) <= 0:
                continue
            seen = [self.seen(prefix, position, time) for position in range(len(prefix.tensors))]
            same = time == first
            for high in range(last_high if same else 0, len(seen)):
                at = seen[high]
                if at is None:
                    continue
                behind = same and high == last_high
                if not is_device and (not behind or last_low < 0):
                    yield time, high, at, -1, None
                for low in range(max(last_low, 0) if behind else 0, high + 1):
                    other = seen[low]
                    if other is not None and (not is_device or max(at, other) == where):
                        yield time, high, at, low, other

    def seen(self, prefix: Prefix, position: int, time: int) -> Place | None:
        """Return where a tensor is for a kernel at a time, None if it is not to be had there."""
        place, mask = prefix.places[position], prefix.tensors[position].mask
        where = TIMES[time]
        if isinstance(where, Place):  # device memory
            device = self._stored(place, mask)
            return device if device is not None and device <= where else None
        if place.kernel == where:
            return place
        device = self._stored(place, mask)
        earlier = Place.BEFORE if where == 0 else Place.BETWEEN
        return loaded(self.cuts, mask, device, where) if device is not None and device <= earlier else None

    def _stored(self, place: Place, mask: int) -> Place | None:
        kernel = place.kernel
        if kernel is None:
            return place
        if place.stage == LOOP or self.cuts.is_open(mask, kernel):
            return None
        return Place.AFTER if kernel else Place.BETWEEN


class Growth:
    """Extends prefixes within limits."""

    def __init__(self, moves: Moves, order: Order, limits: Limits, *, unique: bool) -> None:
        """Keep the rules. unique: no kernel holds the same tensor twice."""
        self.moves, self.order, self.limits, self.unique = moves, order, limits, unique
        self.algebra = moves.tensors.algebra
        self._fitting: dict[tuple[int, bool, bool], Batch] = {}
        self.starts_of = moves.tensors.starts
        self.starts = frozenset(tensor.number for tensor in moves.tensors.starts)

    def empty(self, plan: int, needed: frozenset[int]) -> Prefix:
        """Return the prefix without operators. needed: inputs that the goals mention."""
        starts = self.moves.tensors.starts
        count = sum(self.algebra.count[self.moves.tensors.value(t)] for p, t in enumerate(starts) if p in needed)
        limits = self.limits
        none = 10**6
        return Prefix(
            plan, None, (0, 0, -1, -1), None, (), starts, (Place.BEFORE,) * len(starts), 0, {}, len(needed), 0, count,
            limits.block, limits.kernels,
            none if limits.loop is None else limits.loop, none if limits.after is None else limits.after,
        )  # fmt: skip

    def cost(self, move: Move) -> int:
        """Return how many block operators a move counts."""
        if move.kind == "kernel" or (move.kind == "accumulate" and self.limits.accumulators == "implied"):
            return 0
        return 1

    def fits(self, prefix: Prefix, move: Move) -> bool:
        """Return whether a move is within the limits."""
        if move.kind == "kernel":
            return prefix.kernels_left > 0
        if self.limits.accumulators == "implied" and move.kind == "accumulate":
            return False
        if prefix.left < 1:
            return False
        if self.limits.loop is None and self.limits.after is None:
            return True
        return (prefix.loop_left if self._is_in_loop(move) else prefix.after_left) > 0

    def fitting(self, prefix: Prefix, batch: Batch) -> Batch:
        """Return the moves of a batch that are within the limits."""
        key = (id(batch), prefix.loop_left > 0, prefix.after_left > 0)
        found = self._fitting.get(key)
        if found is None:
            every = tuple(move for move in batch.every if self.fits(prefix, move))
            dropped = Counter(move.dropped_by for move in every if move.dropped_by)
            found = Batch(every, tuple(move for move in every if not move.dropped_by), dropped)
            self._fitting[key] = batch if len(every) == len(batch.every) else found
        return self._fitting[key]

    def may_grow(self, prefix: Prefix) -> bool:
        """Return whether the limits allow another operator."""
        return prefix.kernels_left > 0 or (prefix.left > 0 and (prefix.loop_left > 0 or prefix.after_left > 0))

    def is_last(self, prefix: Prefix) -> bool:
        """Return whether a prefix can be extended once more at most."""
        if self.limits.accumulators == "implied":
            return prefix.loop_left == 0 and min(prefix.left, prefix.after_left) == 1
        return prefix.left + prefix.kernels_left == 1

    def unread(self, prefix: Prefix, high: int, low: int) -> int:
        """Return how many results are read by nothing, once an operator reads two positions."""
        used = prefix.used | 1 << high | (1 << low if low >= 0 else 0)
        return len(prefix.tensors) - len(self.starts_of) - (used >> len(self.starts_of)).bit_count()

    def _is_in_loop(self, move: Move) -> bool:
        """Return whether a move counts to the loop: there, or on tiles loaded before it."""
        return move.kind != "accumulate" and move.place.kernel is not None and move.place.stage <= LOOP

    def repeats(self, prefix: Prefix, move: Move, high: int, low: int) -> bool:
        """Return whether a move makes what its kernel, or device memory, has already, or is an input."""
        made = move.made
        if made is None or not self.unique:
            return False
        if made.number in self.starts or (_group(move.place), made.number) in prefix.inside:
            return True
        return any(
            prefix.inside.get(key, position) != position
            for position in (high, low)
            if position >= 0
            for key in self._carried(prefix, position, move.place)
        )

    def _carried(self, prefix: Prefix, position: int, place: Place) -> list[tuple[int, int]]:
        """Return where a tensor is held besides, once an operator at a place reads it: stored, and loaded."""
        origin, number = prefix.places[position], prefix.tensors[position].number
        if _group(origin) == _group(place):
            return []
        held = [] if origin.kernel is None else [(_group(Place.AFTER if origin.kernel else Place.BETWEEN), number)]
        return held if place.kernel is None else [*held, (_group(place), number)]

    def extend(self, prefix: Prefix, time: int, high: int, low: int, move: Move, needed: frozenset[int]) -> Prefix:
        """Return the prefix with one operator more."""
        made = move.made
        assert made is not None
        tensors, places = prefix.tensors, prefix.places
        bits = 1 << high | (1 << low if low >= 0 else 0)
        dangling, waiting, count = prefix.dangling + 1, prefix.waiting, prefix.count
        for position in (high, low) if low != high else (high,):
            if (
                position >= 0
                and not prefix.used >> position & 1
                and (position >= len(self.starts) or position in needed)
            ):
                dangling -= 1
                tensor = tensors[position]
                if tensor.value is not None:
                    count -= self.algebra.count[tensor.value]
                waiting -= (
                    position >= len(self.starts)
                    and places[position].kernel is not None
                    and (places[position].stage == LOOP)
                )
        if made.value is not None:
            count += self.algebra.count[made.value]
        if move.place.kernel is not None and move.place.stage == LOOP:
            waiting += 1
        inside = prefix.inside
        if self.unique:
            inside = {**inside, (_group(move.place), made.number): len(tensors)}
            for position in (high, low):
                if position >= 0:
                    inside.update(dict.fromkeys(self._carried(prefix, position, move.place), position))
        cost = self.cost(move)
        in_loop = cost and self._is_in_loop(move)
        return Prefix(
            prefix.plan, prefix, (time, high, low, move.rank), move, self._operands(prefix, move, high, low),
            (*tensors, made), (*places, move.place), prefix.used | bits, inside, dangling, waiting, count,
            prefix.left - cost, prefix.kernels_left - (move.kind == "kernel"),
            prefix.loop_left - (1 if in_loop else 0), prefix.after_left - (1 if cost and not in_loop else 0),
        )  # fmt: skip

    def _operands(self, prefix: Prefix, move: Move, high: int, low: int) -> tuple[int, ...]:
        """Return the positions of a move's operands in the operator's order."""
        if low < 0:
            return (high,)
        return (high, low) if move.operands[0] is prefix.tensors[high] else (low, high)


def _group(place: Place) -> int:
    """Return what shares memory: a kernel (0, 1), or device memory at a time (2, 3, 4)."""
    if place.kernel is not None:
        return place.kernel
    return {Place.BEFORE: 2, Place.BETWEEN: 3, Place.AFTER: 4}[place]
