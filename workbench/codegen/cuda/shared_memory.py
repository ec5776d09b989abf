"""Shared memory of a plan: which tiles lie where, how many stages fit, and where barriers must stand.

Invariant: two tiles whose lifetimes meet do not overlap; between two steps of which one writes what the other touches in
shared memory, by bytes and over the end of an iteration too, stands a barrier.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from math import prod

from workbench.codegen.cuda.plan import KernelPlan
from workbench.codegen.cuda.schedule import MAX_STAGES
from workbench.codegen.cuda.steps import (
    FoldSink,
    KeepSink,
    ProductStep,
    RunningSink,
    Section,
    Step,
    StoreSink,
    leaves,
)
from workbench.codegen.cuda.tile_storage import ALIGNMENT, SharedTile
from workbench.codegen.cuda.tile_values import Accumulated, Loaded, MaximumShift, TileValue
from workbench.codegen.cuda.walks import FragmentWalk
from workbench.errors import EmitError
from workbench.optimize.memory import Lifetime, plan_memory, without_reuse

MULTIPROCESSORS, RESIDENT = 132, 2
"""Of an H100 or H200 SXM; blocks beside each other on one of them that a default counts on."""

WARPGROUP_ALIGNMENT = 1024
"""Bytes over which the widest swizzle repeats, as warpgroups read it."""

BYTES_IN_FLIGHT = 62 * 1024
"""Of one multiprocessor, from device memory: fewer leave it idle, more were slower (measured, docs/kernels.md)."""

TOP, FINISH, COMBINE = "top", "finish", "combine"


@dataclass(frozen=True, slots=True)
class Access:
    """What a step touches in shared memory; `key`: the step, or the name of what ends the loop."""

    key: Hashable
    reads: tuple[SharedTile, ...]
    writes: tuple[SharedTile, ...]


def tiles_read(plan: KernelPlan, leaf: TileValue) -> list[SharedTile]:
    """Return the shared tile in which a value is read, and that of what its slices are scaled by; none elsewhere."""
    tile = plan.staged.get(leaf) if isinstance(leaf, Loaded) else plan.shared.get(leaf)
    return [] if tile is None else [tile] if tile.factors is None else [tile, tile.factors]


def access_of(plan: KernelPlan, step: Step) -> Access:
    """Return what a step reads and writes."""
    if isinstance(step, ProductStep):
        tiles = [operand.tile for pair in step.operands for operand in pair if operand.tile is not None]
        written = plan.shared.get(step.value) if step.kept is None else None
        read = [tile for stage in step.prologues for leaf in leaves(stage.roots) for tile in tiles_read(plan, leaf)]
        return Access(id(step), (*tiles, *read), (written,) if written is not None else ())
    reads = [tile for leaf in leaves(step.roots) for tile in tiles_read(plan, leaf)]
    writes: list[SharedTile] = []
    for sink in step.sinks:
        values: list[TileValue] = []
        if isinstance(sink, StoreSink):
            writes.append(sink.tile)
        elif isinstance(sink, FoldSink) and sink.kept is None:
            values = [sink.value]
        elif isinstance(sink, RunningSink):
            values = [sink.value]
            values += [reader for reader in plan.readers.get(sink.value, []) if isinstance(reader, MaximumShift)]
        if isinstance(sink, KeepSink | RunningSink) and sink.tile is not None:
            writes.append(sink.tile)
        writes += [plan.shared[value] for value in values if value in plan.shared]
    return Access(id(step), tuple(reads), tuple(writes))


def finish_access(plan: KernelPlan) -> Access:
    """Return what the end of the loop writes: accumulators that are read from shared memory, maxima of warps."""
    places = {**plan.shared, **plan.own}
    written = [places[step.value] for step in plan.finishes if step.value in places]
    return Access(FINISH, (), tuple(written))


def combine_access(plan: KernelPlan) -> Access:
    """Return the tiles whose slices are added up before the cluster reads them."""
    tiles = combined_tiles(plan)
    return Access(COMBINE, tuple(tiles), tuple(tiles))


def combined_tiles(plan: KernelPlan) -> list[SharedTile]:
    """Return the tiles whose slices are added up."""
    return [tile for value, tile in plan.shared.items() if tile.is_combined and isinstance(value, Accumulated)]


def timeline(plan: KernelPlan) -> Iterator[tuple[int, Access]]:
    """Yield (position, access) of every step; all steps of the loop share one position."""
    position = 1
    for step in plan.steps[Section.BEFORE]:
        yield position, access_of(plan, step)
        position += 1
    for step in plan.steps[Section.LOOP]:
        yield position, access_of(plan, step)
    yield position + 1, finish_access(plan)
    yield position + 2, combine_access(plan)
    for number, step in enumerate(plan.steps[Section.AFTER], position + 3):
        yield number, access_of(plan, step)


def allocate(plan: KernelPlan) -> None:
    """Give every tile its offset, with as many stages as fit. Raises: EmitError when two stages do not."""
    wanted = plan.schedule.stages or default_stages(plan)
    stages = max(2, min(wanted, plan.iterations_each)) if plan.has_ring else 1
    for step in (step for section in Section for step in plan.stages_of(section)):
        for sink in step.sinks:
            if isinstance(sink, StoreSink) and isinstance(step.walk, FragmentWalk):
                sink.tile.needs_zero = False  # fragments cover the padding
    shared = plan.schedule.shared_limit // resident_by_grid(plan) - 1024
    while True:
        for tile in plan.staged.values():
            tile.copies = stages if tile.is_looped else 1
        total = place(plan)
        is_enough = stages <= 2 or plan.schedule.stages is not None or total <= shared
        if total <= plan.schedule.shared_limit and is_enough:
            break
        if stages <= 2 or plan.schedule.stages is not None:
            names = ", ".join(f"{tile.variable} {tile.nbytes:,} B" for tile in plan.tiles)
            raise EmitError(
                f"a block needs {total:,} B of shared memory, {plan.schedule.shared_limit:,} B are allowed ({names})",
                "shared memory",
                "use smaller tiles (more blocks, a larger forloop_range) or fewer stages",
            )
        stages -= 1
    plan.stages, plan.shared_bytes = stages, total


def resident_by_grid(plan: KernelPlan) -> int:
    """Return how many blocks would lie on one multiprocessor, as far as the grid goes, at most `RESIDENT`."""
    blocks = prod(plan.lowered.grid) * plan.cluster * plan.spread
    return max(1, min(RESIDENT, -(-blocks // MULTIPROCESSORS)))


def default_stages(plan: KernelPlan) -> int:
    """Return as many stages as keep `BYTES_IN_FLIGHT` on their way to each multiprocessor, all blocks together, at least 3.

    Tiles that every block reads come from the L2 cache and do not count.
    """
    looped = {value: tile for value, tile in plan.staged.items() if tile.is_looped}
    own = sum(tile.bytes_each for value, tile in looped.items() if is_own(plan, value))
    each = own or sum(tile.bytes_each for tile in looped.values())
    blocks = prod(plan.lowered.grid) * plan.cluster * plan.spread
    share = min(
        RESIDENT, max(0.5, blocks / MULTIPROCESSORS)
    )  # blocks of a multiprocessor; fewer than one take more each
    return min(MAX_STAGES, 1 + max(2, round(BYTES_IN_FLIGHT / (share * max(each, 1)))))


def is_own(plan: KernelPlan, value: Loaded) -> bool:
    """Return True when blocks read different tiles of an input."""
    return any(dim is not None and extent > 1 for dim, extent in zip(value.imap, plan.lowered.grid, strict=False))


def place(plan: KernelPlan) -> int:
    """Place all tiles by their lifetimes in the least memory (`optimize/memory.py`); return the bytes taken."""
    spans: dict[SharedTile, tuple[int, int]] = {}
    last = 0
    for position, access in timeline(plan):
        last = position
        for tile in (*access.reads, *access.writes):
            start, end = spans.get(tile, (position, position))
            spans[tile] = (min(start, position), max(end, position))
    for tile in spans:
        start, end = spans[tile]
        if tile in plan.staged.values() or tile.needs_zero:
            start = 0
        if tile.cluster > 1:
            end = last
        spans[tile] = (start, end)
    for tile in plan.staged.values():
        spans.setdefault(tile, (0, 0))
    tiles = sorted(spans, key=lambda tile: tile.variable)
    lifetimes = [Lifetime(tile.variable, tile.nbytes, *spans[tile], alignment=alignment_of(tile)) for tile in tiles]
    planned = (plan_memory if plan.schedule.choices.reuses_memory else without_reuse)(lifetimes, alignment=ALIGNMENT)
    for tile, offset in zip(tiles, planned.offsets, strict=True):
        tile.offset = offset
    return planned.total


def alignment_of(tile: SharedTile) -> int:
    """Return where a tile may start: one that warpgroups may read, all its buffers, where the swizzle's pattern starts."""
    is_for_warpgroups = tile.swizzle and tile.is_looped and tile.bytes_each % WARPGROUP_ALIGNMENT == 0
    return WARPGROUP_ALIGNMENT if is_for_warpgroups else ALIGNMENT


# ---------------------------------------------------------------------------------------------------------- barriers
def overlaps(some: list[SharedTile], others: tuple[SharedTile, ...]) -> bool:
    """Return True when a tile of one list shares bytes with one of the other."""
    return any(
        a.offset is not None
        and b.offset is not None
        and a.offset < b.offset + b.nbytes
        and b.offset < a.offset + a.nbytes
        for a in some
        for b in others
    )


def arrival(plan: KernelPlan) -> Hashable:
    """Return before what inputs that are copied once must have arrived: a step's key, TOP for the loop, None for nothing.

    Copies of a ring that are waited for are younger, so the loop's own waits include these, if every block enters it.
    """
    once = [tile for tile in plan.staged.values() if not tile.is_looped]
    enters_loop = (plan.cluster - 1) * plan.iterations_each < plan.iterations
    for section in Section:
        for step in plan.steps[section]:
            access = access_of(plan, step)
            if overlaps(once, access.reads):
                if section is Section.LOOP:
                    return None if plan.has_ring else TOP
                is_waited_for = section is Section.AFTER and plan.has_ring and enters_loop
                return None if is_waited_for else access.key
    return None


def derive_barriers(plan: KernelPlan) -> None:
    """Decide before which steps a block barrier stands."""
    if not plan.schedule.choices.fewest_barriers:
        plan.barriers |= {id(step) for section in Section for step in plan.steps[section]}
    own = {
        sink.tile
        for stage in plan.stages_of(Section.LOOP)
        for sink in stage.sinks
        if isinstance(sink, KeepSink | RunningSink) and sink.tile is not None
    }
    loop = [access_of(plan, step) for step in plan.steps[Section.LOOP]]
    rounds = 2 if plan.iterations > 1 else 1
    top = Access(TOP, (), ())
    arrived_before = arrival(plan)
    sequence = [access_of(plan, step) for step in plan.steps[Section.BEFORE]]
    sequence += [top, *loop] * rounds
    meeting = Access("cluster", (), ())
    sequence += [finish_access(plan), combine_access(plan), meeting]
    sequence += [access_of(plan, step) for step in plan.steps[Section.AFTER]]
    while True:
        before = len(plan.barriers)
        reads: list[SharedTile] = []
        writes: list[SharedTile] = []
        is_in_loop = True
        for access in sequence:
            if access.key == FINISH:
                is_in_loop = False
            mine = [tile for tile in access.writes if not (is_in_loop and tile in own)]
            needed = (
                (access is top and (plan.has_ring or arrived_before == TOP))
                or (access.key == arrived_before and access is not top)
                or overlaps(writes, access.reads)
                or overlaps(writes, tuple(mine))
                or overlaps(reads, tuple(mine))
            )
            if needed and access is not top:
                plan.barriers.add(access.key)
            meets = access is meeting and any(tile.cluster > 1 for tile in plan.shared.values())
            if needed or meets or access.key in plan.barriers:
                reads, writes = [], []
            reads += access.reads
            writes += mine
        if len(plan.barriers) == before:
            return
