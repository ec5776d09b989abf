"""Which counts a schedule may choose from: tiles of each axis, iterations, splits, clusters, stages, threads.

Invariant: every count leaves no part empty, and parts of unequal length only where the graph may be cut so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from math import ceil

from workbench.cost.hardware import Hardware
from workbench.errors import NotApplicableError, UsageError
from workbench.ugraph.retile import Counts, Retiler, Tiling

LARGEST_GRID = 65535
FRAGMENT = 16
"""Rows or columns of a tensor-core tile; other widths are padded to it."""


@dataclass(frozen=True, slots=True)
class ScheduleLimits:
    """What a schedule space covers.

    Attributes: tiles: extents of an axis that one block takes; depths: of the looped axis that one iteration takes;
    splits: blocks that share a reduced axis; clusters, stages, threads; least_tile: of an axis of a product; least_blocks:
    share of the multiprocessors below which a grid is left out if the axes allow more; max_rows: schedules of a kernel.
    """

    tiles: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256)
    depths: tuple[int, ...] = (16, 32, 64, 128, 256, 512)
    splits: tuple[int, ...] = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
    clusters: tuple[int, ...] = (1, 2, 4, 8)
    stages: tuple[int, ...] = (2, 3, 4, 5, 6, 8)
    threads: tuple[int, ...] = (64, 128, 256, 512)
    least_tile: int = 8
    max_rows: int = 60_000

    def __post_init__(self) -> None:
        """Check the ranges. Raises: UsageError."""
        for name in ("tiles", "depths", "splits", "clusters", "stages", "threads"):
            values = getattr(self, name)
            if not values or any(not isinstance(value, int) or value < 1 for value in values):
                raise UsageError(f"{name} = {values!r}; give at least one positive integer")

    def with_small_tiles(self) -> ScheduleLimits:
        """Return these limits with tiles down to one element, for structures whose other tiles do not fit."""
        tiles = tuple(sorted({1, 2, 4, *self.tiles}))
        depths = tuple(sorted({1, 2, 4, 8, *self.depths}))
        stages, threads = tuple(sorted({2, *self.stages})), tuple(sorted({1024, *self.threads}))
        return replace(self, tiles=tiles, depths=depths, stages=stages, threads=threads, least_tile=1)


def part_count(extent: int, tile: int) -> int:
    """Return into how many parts of at most `tile` an axis is cut, none of them empty."""
    count = ceil(extent / tile)
    return ceil(extent / ceil(extent / count))


def grid_counts(extent: int, limits: ScheduleLimits, hardware: Hardware, *, least: int, even: bool) -> list[int]:
    """Return the numbers of blocks that may share a free axis, 1 (the whole axis) among them."""
    tiles = {min(tile, extent) for tile in limits.tiles if tile >= min(least, extent)} | {extent}
    for share in (1, 2, 4):
        tile = ceil(extent / max(hardware.multiprocessors // share, 1))
        if tile >= least:
            whole = FRAGMENT if least > 1 and extent >= FRAGMENT else 1
            tiles.add(ceil(tile / whole) * whole)
    return _allowed({part_count(extent, tile) for tile in tiles}, extent, even=even)


def loop_counts(extent: int, limits: ScheduleLimits, *, even: bool) -> list[int]:
    """Return the numbers of iterations over what a block has of an axis."""
    depths = {min(depth, extent) for depth in limits.depths}
    return _allowed({part_count(extent, depth) for depth in depths}, extent, even=even)


def split_counts(extent: int, limits: ScheduleLimits, *, even: bool) -> list[int]:
    """Return the numbers of blocks that may share a reduced axis; each keeps at least the least depth."""
    most = max(extent // min(limits.depths), 1)
    counts = {part_count(extent, ceil(extent / split)) for split in limits.splits if split <= most}
    return _allowed(counts, extent, even=even)


def _allowed(counts: set[int], extent: int, *, even: bool) -> list[int]:
    kept = sorted(count for count in counts if count <= LARGEST_GRID and (not even or extent % count == 0))
    return kept or [1]


@dataclass(frozen=True, slots=True)
class Evenness:
    """Which axes of a kernel must be cut into equal parts. Attributes: free: names; loop, split."""

    free: frozenset[str]
    loop: bool
    split: bool


def evenness(retiler: Retiler) -> tuple[Evenness, ...]:
    """Return, per graph-defined operator, which cuts must be even, found by asking for uneven ones.

    Grids and loops of all operators are asked for at once, and one by one only where that is refused: an axis that may be
    cut unevenly beside others may be so alone. Splits are always asked for alone, as later kernels see their number.
    """
    together = {
        tiling.kernel: Counts(_uneven_grid(tiling), _uneven_loop(tiling), tiling.counts.split, 1)
        for tiling in retiler.tilings
    }
    is_free = not _refuses(retiler, together)
    return tuple(
        evenness_alone(retiler, tiling, together[tiling.kernel] if is_free else None) for tiling in retiler.tilings
    )


def evenness_alone(retiler: Retiler, tiling: Tiling, granted: Counts | None = None) -> Evenness:
    """Return which cuts of one operator must be even, asked for one by one. granted: uneven counts known to be legal."""

    def refuses(counts: Counts) -> bool:
        return _refuses(retiler, {tiling.kernel: counts})

    known = granted or Counts()
    uneven = {axis: _uneven(tiling.extents[axis]) for axis in tiling.free if axis not in known.grid}
    free = {axis for axis, count in uneven.items() if count and refuses(Counts({axis: count}, 1, 1, 1))}
    loop = split = False
    if tiling.loop and known.loop == 1:
        count = _uneven(tiling.extents[tiling.loop])
        loop = bool(count) and refuses(Counts({}, count, 1, 1))
    if tiling.split:
        count = _uneven(tiling.extents[tiling.split])
        split = bool(count) and refuses(Counts({}, 1, count, 1))
        if tiling.split == tiling.loop and not (loop or split):
            loop = split = refuses(Counts({}, 2, count, 1)) if count else False
    return Evenness(frozenset(free), loop, split)


def _refuses(retiler: Retiler, counts: Mapping[int, Counts]) -> bool:
    try:
        retiler.build(counts)
    except NotApplicableError:
        return True
    return False


def _uneven_grid(tiling: Tiling) -> dict[str, int]:
    """Return uneven counts of as many free axes as the grid has room for."""
    uneven = {axis: count for axis in tiling.free if (count := _uneven(tiling.extents[axis]))}
    return dict(list(uneven.items())[: tiling.room])


def _uneven_loop(tiling: Tiling) -> int:
    return (_uneven(tiling.extents[tiling.loop]) or 1) if tiling.loop else 1


def _uneven(extent: int) -> int:
    """Return a small count that does not divide an extent and leaves no part empty, 0 if there is none."""
    return next(
        (n for n in (3, 5, 7, 11) if n < extent and extent % n and part_count(extent, ceil(extent / n)) == n), 0
    )


def grids(tiling: Tiling, counts: Mapping[str, list[int]], most: int) -> Iterator[tuple[int, ...]]:
    """Yield the counts of the free axes, in the order of `tiling.free`, with at most `room` of them above 1."""
    for number, choice in enumerate(product(*(counts[axis] for axis in tiling.free))):
        if number >= most:
            return
        if sum(count > 1 for count in choice) <= tiling.room:
            yield choice
