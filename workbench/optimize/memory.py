"""Where in a memory tensors lie, given from when to when each is needed: the least memory that holds them all.

Invariant: tensors that are needed at the same time do not overlap. Up to `EXACT_UP_TO` tensors the plan is a least one, by
branch and bound; beyond, the best of four fits is taken and its gap to the lower bound is stated.

Lower bound: the most bytes that are needed at one time. Source: dynamic storage allocation (Garey and Johnson, SR2); Mirage
OSDI'25, section 6, plans exhaustively; first, best and worst fit are those of its transpiler.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from workbench.errors import MemoryLimitError, UsageError

EXACT_UP_TO = 12
SHARED_ALIGNMENT, DEVICE_ALIGNMENT = 128, 256


class Role(Enum):
    """What a tensor in memory is."""

    INPUT = "input"
    INTERMEDIATE = "intermediate"
    ACCUMULATOR = "accumulator"


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A tensor that needs a place.

    Attributes: name; nbytes, of all its buffers together; first, last: the times between which it is needed, both
    included; role; alignment of its offset, where it needs more than the others (a power of two).
    """

    name: str
    nbytes: int
    first: int
    last: int
    role: Role = Role.INTERMEDIATE
    alignment: int = 1

    def __post_init__(self) -> None:
        if self.nbytes < 0 or self.first > self.last:
            raise UsageError(
                f"tensor {self.name}: {self.nbytes} bytes from time {self.first} to {self.last}; give bytes of at least 0 "
                "and a first time that is not after the last"
            )

    def meets(self, other: Lifetime) -> bool:
        """Return True when both are needed at some time."""
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """Offsets for tensors.

    Attributes: lifetimes; offsets: bytes from the start, per tensor; alignment: of every offset; total: bytes taken;
    lower_bound: bytes that no plan can do without; how: "exact", or the fit that was best.
    """

    lifetimes: tuple[Lifetime, ...]
    offsets: tuple[int, ...]
    alignment: int
    total: int
    lower_bound: int
    how: str

    @property
    def gap(self) -> float:
        """How far the plan may be above the least one, as a share of the lower bound; 0.0 for an exact plan."""
        if self.how == "exact" or self.total == self.lower_bound:
            return 0.0
        return self.total / self.lower_bound - 1

    @property
    def without_reuse(self) -> int:
        """Bytes when no two tensors share a place."""
        return sum(rounded(tensor.nbytes, self.alignment) for tensor in self.lifetimes)

    def bytes_of(self, role: Role) -> int:
        """Return the bytes of all tensors of a role, alignment left out, nothing reused."""
        return sum(tensor.nbytes for tensor in self.lifetimes if tensor.role is role)

    def offset(self, name: str) -> int:
        """Return a tensor's offset; KeyError is a fault of ours."""
        return {tensor.name: offset for tensor, offset in zip(self.lifetimes, self.offsets, strict=True)}[name]

    def check(self, limit: int, where: str) -> None:
        """Raises: MemoryLimitError when the plan takes more bytes than there are."""
        if self.total > limit:
            raise MemoryLimitError(
                f"its tensors take {self.total:,} B of {limit:,} B", where, "use smaller tiles, or fewer stages"
            )

    def describe(self) -> str:
        """Return the plan, one tensor a line."""
        proof = "the least possible" if not self.gap else f"at most {self.gap:.1%} above the least ({self.how})"
        lines = [f"{self.total:,} B, {proof}; {self.without_reuse:,} B without reuse"]
        for tensor, offset in sorted(zip(self.lifetimes, self.offsets, strict=True), key=lambda pair: pair[1]):
            lines.append(
                f"  {offset:>8,} B: {tensor.name}, {tensor.role.value}, {tensor.nbytes:,} B, times {tensor.first} to {tensor.last}"
            )
        return "\n".join(lines)


def rounded(nbytes: int, alignment: int) -> int:
    """Return the least multiple of the alignment that is not smaller."""
    return -(-nbytes // alignment) * alignment


def least_bytes(lifetimes: Sequence[Lifetime], *, alignment: int = 1) -> int:
    """Return the most bytes that are needed at one time: no plan takes fewer."""
    return max(
        (
            sum(rounded(other.nbytes, alignment) for other in lifetimes if other.first <= tensor.first <= other.last)
            for tensor in lifetimes
        ),
        default=0,
    )


def plan_memory(
    lifetimes: Sequence[Lifetime], *, alignment: int = SHARED_ALIGNMENT, exact_up_to: int = EXACT_UP_TO
) -> MemoryPlan:
    """Return a plan of the least total for up to `exact_up_to` tensors, else the best of the fits.

    A fit that reaches the lower bound is exact whatever the number. Raises: UsageError for two tensors of one name.
    """
    if len({tensor.name for tensor in lifetimes}) != len(lifetimes):
        raise UsageError("two tensors to be placed bear one name; names tell them apart")
    sizes = [rounded(tensor.nbytes, alignment) for tensor in lifetimes]
    bound = least_bytes(lifetimes, alignment=alignment)
    how, offsets, total = "exact", [0] * len(sizes), -1
    for name, fit in FITS.items():
        found = fit(lifetimes, sizes)
        taken = max((offset + size for offset, size in zip(found, sizes, strict=True)), default=0)
        if total < 0 or taken < total:
            how, offsets, total = name, found, taken
        if total == bound:
            break
    if total > bound and len(lifetimes) <= exact_up_to:
        offsets, total = _Exact(lifetimes, sizes, bound, offsets, total).run()
        how = "exact"
    if total == bound:
        how = "exact"
    return MemoryPlan(
        lifetimes=tuple(lifetimes), offsets=tuple(offsets), alignment=alignment, total=total, lower_bound=bound, how=how
    )


def without_reuse(lifetimes: Sequence[Lifetime], *, alignment: int = SHARED_ALIGNMENT) -> MemoryPlan:
    """Return the plan in which every tensor has a place of its own: the other side of the ablation."""
    offsets, total = [], 0
    for tensor in lifetimes:
        offsets.append(rounded(total, tensor.alignment))
        total = offsets[-1] + rounded(tensor.nbytes, alignment)
    return MemoryPlan(
        lifetimes=tuple(lifetimes), offsets=tuple(offsets), alignment=alignment, total=total,
        lower_bound=least_bytes(lifetimes, alignment=alignment), how="without reuse",
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------------------ fits
Gap = tuple[int, int | None]
"""A free range, from its first byte to the one after its last; None: no end."""


def _gaps(taken: Sequence[tuple[int, int]], alignment: int) -> list[Gap]:
    """Return the free ranges between ranges that are taken, from their first aligned byte on; the last one has no end."""
    free: list[Gap] = []
    at = 0
    for low, high in sorted(taken):
        start = rounded(at, alignment)
        if low > start:
            free.append((start, low))
        at = max(at, high)
    return [*free, (rounded(at, alignment), None)]


def _in_order_of_time(
    choose: Callable[[Sequence[Gap]], Gap],
) -> Callable[[Sequence[Lifetime], Sequence[int]], list[int]]:
    """Return a fit that goes through time; `choose` picks among the gaps that are large enough."""

    def fit(lifetimes: Sequence[Lifetime], sizes: Sequence[int]) -> list[int]:
        offsets = [0] * len(sizes)
        placed: list[int] = []
        for number in sorted(range(len(sizes)), key=lambda n: (lifetimes[n].first, -sizes[n])):
            taken = [
                (offsets[n], offsets[n] + sizes[n]) for n in placed if lifetimes[n].last >= lifetimes[number].first
            ]
            gaps = _gaps(taken, lifetimes[number].alignment)
            offsets[number] = choose([gap for gap in gaps if _size(gap) >= sizes[number]])[0]
            placed.append(number)
        return offsets

    return fit


def _size(gap: Gap) -> float:
    return float("inf") if gap[1] is None else gap[1] - gap[0]


def _largest_first(lifetimes: Sequence[Lifetime], sizes: Sequence[int]) -> list[int]:
    offsets = [0] * len(sizes)
    placed: list[int] = []
    for number in sorted(range(len(sizes)), key=lambda n: -sizes[n]):
        offsets[number] = _lowest(lifetimes, sizes, offsets, placed, number)
        placed.append(number)
    return offsets


def _lowest(
    lifetimes: Sequence[Lifetime], sizes: Sequence[int], offsets: Sequence[int], placed: Sequence[int], number: int
) -> int:
    """Return the lowest offset at which a tensor meets none that is placed."""
    taken = [(offsets[n], offsets[n] + sizes[n]) for n in placed if lifetimes[n].meets(lifetimes[number])]
    gaps = _gaps(taken, lifetimes[number].alignment)
    return next(gap[0] for gap in gaps if _size(gap) >= sizes[number])


FITS: dict[str, Callable[[Sequence[Lifetime], Sequence[int]], list[int]]] = {
    "largest first": _largest_first,
    "first fit": _in_order_of_time(lambda gaps: gaps[0]),
    "best fit": _in_order_of_time(lambda gaps: min(gaps, key=_size)),
    "worst fit": _in_order_of_time(lambda gaps: max(gaps[:-1], key=_size, default=gaps[-1])),
}


# ----------------------------------------------------------------------------------------------------------- exact
class _Exact:
    """Branch and bound over the order in which tensors are placed, each on top of what is needed with it, offsets never falling.

    Some least plan is found so: take any, sort by offset, push each tensor down as far as those before it allow, and
    repeat until nothing moves; no offset grew, so neither did the total. Bound: what is not placed yet lies at or above
    the last offset, and above all that is placed and needed at the same time. What is placed matters only by how high it
    reaches at each time, so no two ways to the same heights are followed.
    """

    def __init__(
        self, lifetimes: Sequence[Lifetime], sizes: Sequence[int], bound: int, offsets: list[int], total: int
    ) -> None:
        times = sorted({tensor.first for tensor in lifetimes})
        self.sizes, self.bound = sizes, bound
        self.alignments = [tensor.alignment for tensor in lifetimes]
        self.alive = [
            [number for number, time in enumerate(times) if tensor.first <= time <= tensor.last] for tensor in lifetimes
        ]
        self.rest = [0] * len(times)
        for number, alive in enumerate(self.alive):
            for time in alive:
                self.rest[time] += sizes[number]
        self.offsets, self.best, self.total = [0] * len(sizes), list(offsets), total
        self.waiting = sorted(range(len(sizes)), key=lambda n: -sizes[n])
        self.seen: set[tuple[int, tuple[int, ...]]] = set()

    def run(self) -> tuple[list[int], int]:
        """Return offsets of a least plan, and its total."""
        self.extend(0, 0, (0,) * len(self.rest))
        return self.best, self.total

    def extend(self, placed: int, level: int, tops: tuple[int, ...]) -> None:
        """Try every tensor that may come next. placed: a bit per tensor; tops: bytes taken at each time."""
        if placed == (1 << len(self.sizes)) - 1:
            if max(tops) < self.total:
                self.best, self.total = list(self.offsets), max(tops)
            return
        heights = tuple(max(top, level) for top in tops)
        if (placed, heights) in self.seen:
            return
        self.seen.add((placed, heights))
        tried: set[tuple[int, int, tuple[int, ...]]] = set()
        for number in self.waiting:
            kind = (self.sizes[number], self.alignments[number], tuple(self.alive[number]))
            if placed >> number & 1 or kind in tried:  # of equal tensors one is as good as the other
                continue
            tried.add(kind)
            alive = self.alive[number]
            offset = rounded(max(tops[time] for time in alive), self.alignments[number])
            if offset < level:  # it would have come earlier
                continue
            raised = list(tops)
            for time in alive:
                raised[time] = offset + self.sizes[number]
                self.rest[time] -= self.sizes[number]
            needed = max(max(top, offset) + rest if rest else top for top, rest in zip(raised, self.rest, strict=True))
            if needed < self.total:
                self.offsets[number] = offset
                self.extend(placed | 1 << number, offset, tuple(raised))
            for time in alive:
                self.rest[time] += self.sizes[number]
            if self.total == self.bound:
                return
