"""Schedules of many structures, the cheapest first, without enumerating those of structures that cannot come so far.

Invariant: rows come in the order that all schedules of all structures would have, sorted by modelled cost; a structure is
left unscored only as long as a bound of every schedule of it is above what was asked for.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from workbench.cost.candidates import ScheduleLimits
from workbench.cost.schedules import ScheduleRow, ScheduleSpace
from workbench.cost.structure_bound import structure_bound
from workbench.errors import MissingRuleError, NotApplicableError
from workbench.pipeline.candidate import Refusal, refused_graph
from workbench.pipeline.tuning import Proposal, Scheduled, Target, priced
from workbench.search.summary import Structure
from workbench.ugraph.kernel_graph import KernelGraph

PER_TILING = 2
"""Schedules of one structure whose longest kernel is tiled alike."""


@dataclass(frozen=True, slots=True)
class StructureRow:
    """One of a structure's best schedules. Attributes: space; rows: all of the best; rank: which of them, from 0."""

    space: ScheduleSpace
    rows: tuple[ScheduleRow, ...]
    rank: int

    @property
    def row(self) -> ScheduleRow:
        """The schedule."""
        return self.rows[self.rank]


def cheapest_rows(
    structures: Sequence[Structure],
    target: Target,
    *,
    per_structure: int,
    limits: ScheduleLimits | None = None,
    tell: Callable[[int], None] = lambda number: None,
    refuse: Callable[[Refusal], None] = lambda refusal: None,
) -> Iterator[StructureRow]:
    """Yield the `per_structure` best schedules of each structure in ascending cost, those of the first structure first.

    tell: called with a count whenever another structure is enumerated; refuse: with each that no schedule fits, where one
    is met.
    """
    waiting: list[tuple[float, int, int, StructureRow | ScheduleSpace | None]] = []
    for number, structure in enumerate(structures):
        waiting.append((_bound(structure.graph, target), number, -2, None))
    heapq.heapify(waiting)
    enumerated = 0
    while waiting:
        _, number, _, item = heapq.heappop(waiting)
        if isinstance(item, StructureRow):
            yield item
            continue
        graph = structures[number].graph
        try:
            if item is None:
                tell(enumerated)
                enumerated += 1
                item = ScheduleSpace(graph, hardware=target.hardware, preset=target.preset, limits=limits)
                heapq.heappush(waiting, (item.least_us, number, -1, item))
            else:
                for one in _best(item, target, per_structure):
                    heapq.heappush(waiting, (one.row.cost_us, number, one.rank, one))
        except (NotApplicableError, MissingRuleError) as fault:
            refuse(refused_graph("schedule", graph, str(fault)))


def _bound(graph: KernelGraph, target: Target) -> float:
    try:
        return structure_bound(graph, target.hardware, target.preset)
    except MissingRuleError:
        return 0.0  # it is refused when it is enumerated


def _best(space: ScheduleSpace, target: Target, per_structure: int) -> list[StructureRow]:
    """Return a structure's best schedules. Raises: NotApplicableError where no schedule is legal."""
    rows = tuple(space.best(per_structure, per_tiling=PER_TILING))
    if not rows:
        why = "; ".join(f"{reason} ({count:,})" for reason, count in space.refused.items())
        raise NotApplicableError(f"no schedule is legal on {target.device}: {why or 'its space is empty'}")
    return [StructureRow(space, rows, rank) for rank in range(len(rows))]


def cheapest_proposals(
    structures: Sequence[Structure],
    target: Target,
    *,
    per_structure: int,
    tell: Callable[[int], None],
    refuse: Callable[[Refusal], None],
) -> Iterator[Proposal]:
    """Yield `cheapest_rows` as proposals."""
    for found in cheapest_rows(structures, target, per_structure=per_structure, tell=tell, refuse=refuse):
        realize = partial(_realized, found.space, found.row, target)
        yield Proposal(found.row.cost_us, realize, found.space.graph.structure_hash)


def _realized(space: ScheduleSpace, row: ScheduleRow, target: Target) -> Scheduled:
    real = space.realize(row)
    return priced(real.graph, real.choices, target, "search")
