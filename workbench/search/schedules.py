"""Grid and loop counts of a sketch: legal ones to start from at the program's sizes, and small ones to check it with.

Which axes a grid may split follows from the sketch: those that every stored tile has and that no operator of the block
graph folds (`instantiate` leaves out one that lies side by side with blocks in one dimension). Invariant: sizes here are
a start for the optimizer, no choice of the search.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from workbench.errors import MemoryLimitError
from workbench.programs.tiling import SHARED_MEMORY_LIMIT, even_parts, factor_tile_bytes, fits
from workbench.search.built_blocks import BuiltBlocks
from workbench.search.enumeration import Sketch
from workbench.search.instantiate import Counts, Instantiation
from workbench.search.palette import Effect
from workbench.search.places import AFTER, LOOP
from workbench.search.problem import Problem
from workbench.search.tile_sizes import TileSizes
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.rule_blocks import parts

MAX_SPLITS = 16
"""Blocks among which a reduced axis is split at first."""

TILE_ROWS, TILE_DEPTH = 64, 128
"""Elements of an axis that one block, or one iteration, takes at first."""


@dataclass(frozen=True, slots=True)
class GridAxes:
    """The axes that the grid of a block graph may split, outermost first.

    Attributes: free; split: the reduced one, if it is among them; batch: those along which a product does the same again,
    in every product of the block graph.
    """

    free: tuple[str, ...]
    split: str | None
    batch: frozenset[str] = frozenset()


def grid_axes(sketch: Sketch, kernel: int) -> GridAxes:
    """Return which axes the grid of a block graph may split."""
    graph, mask = sketch.hypergraph, sketch.hypergraph.algebra.mask
    expressions = graph.expressions
    saved = [
        graph.values[edge.operands[0]]
        for _, edge in sketch.chosen
        if edge.kind == "store" and graph.places[edge.operands[0]].kernel == kernel
    ]
    folded, batch = 0, -1
    for node, edge in sketch.chosen:
        if graph.places[node].kernel == kernel:
            folded |= edge.mask
            if edge.operator is not None and edge.operator.effect in (Effect.CONTRACT, Effect.JOIN):
                for operand in edge.operands:
                    batch &= mask[graph.values[operand]]
    names = [name for start in expressions.problem.starts for dim in start.dims for name in dim]
    free = []
    for name in dict.fromkeys([*(n for goal in expressions.problem.goals for d in goal.dims for n in d), *names]):
        axis = expressions.mask(name)
        whole = all(mask[value] & axis == axis for value in saved)
        if whole and not axis & folded and name != graph.plan.loops[kernel]:
            free.append(name)
    repeated = [name for name in free if batch != -1 and not expressions.mask(name) & ~batch]
    return GridAxes(tuple(free), graph.plan.split if kernel == 0 else None, frozenset(repeated))


def first_instance(sketch: Sketch, blocks: BuiltBlocks | None = None) -> KernelGraph:
    """Return the sketch at the program's sizes, tiles shrinking until every block fits its shared memory.

    A reduced axis is split over fewer blocks where what they leave does not fit together. Where not even tiles of one
    element fit if all of them are kept, those are taken if they fit with only what must lie there.

    blocks: block graphs that sketches share. Raises: MemoryLimitError when no tile is small enough; NotApplicableError
    when it cannot be built.
    """
    extents = sketch.hypergraph.expressions.problem.extents
    axes = [grid_axes(sketch, kernel) for kernel in _kernels(sketch)]
    about_bytes = [_AboutBytes(sketch, kernel) for kernel in _kernels(sketch)]

    def counts_of(tile: _Tiles) -> tuple[Counts, ...]:
        return tuple([_counts(sketch, kernel, axes[kernel], extents, tile) for kernel in _kernels(sketch)])

    attempts = _Attempts(sketch, blocks)
    for tile in _shrinking(is_split=sketch.hypergraph.plan.split is not None):
        counts = counts_of(tile)
        about = max([of(own, tile.splits) for of, own in zip(about_bytes, counts, strict=True)])
        if about <= SHARED_MEMORY_LIMIT and attempts.fits(counts):
            if attempts.may_fit(counts):
                return attempts.build(counts)
            if attempts.is_hopeless(counts_of(_SMALLEST)):
                break
    if attempts.may_fit(counts_of(_SMALLEST)):
        return attempts.build(counts_of(_SMALLEST))
    raise MemoryLimitError(
        f"with tiles of one element a block still needs more than {SHARED_MEMORY_LIMIT:,} B of shared memory",
        sketch.hypergraph.plan.describe(),
        "an axis that no grid or loop may cut is too long",
    )


class _Attempts:
    """A sketch under different counts, built as seldom as that can be: the sizes of tiles follow from one that was built."""

    def __init__(self, sketch: Sketch, blocks: BuiltBlocks | None) -> None:
        self.sketch, self.blocks = sketch, blocks
        self.built: dict[tuple[Counts, ...], KernelGraph] = {}
        self._first: tuple[Instantiation, KernelGraph] | None = None

    @cached_property
    def _sizes(self) -> TileSizes | None:
        return TileSizes.of(*self._first) if self._first is not None else None

    def _sizes_of(self, counts: tuple[Counts, ...]) -> TileSizes | None:
        """Return sizes that tell what the counts would make of the tiles, None where the graph itself has to."""
        return None if counts in self.built or self._first is None else self._sizes

    def build(self, counts: tuple[Counts, ...]) -> KernelGraph:
        """Return the graph with these counts. Raises: NotApplicableError when it cannot be built."""
        if counts not in self.built:
            extents = self.sketch.hypergraph.expressions.problem.extents
            instantiation = Instantiation(self.sketch, extents, counts, self.blocks)
            self.built[counts] = instantiation.build()
            self._first = self._first or (instantiation, self.built[counts])
        return self.built[counts]

    def fits(self, counts: tuple[Counts, ...]) -> bool:
        """Return whether every block holds all its tiles at once."""
        sizes = self._sizes_of(counts)
        return (sizes is None or sizes.fits(counts)) and fits(self.build(counts))

    def may_fit(self, counts: tuple[Counts, ...]) -> bool:
        """Return whether every block holds what must lie in shared memory."""
        sizes = self._sizes_of(counts)
        return (sizes is None or sizes.may_fit(counts)) and all(
            factor_tile_bytes(node.block) <= SHARED_MEMORY_LIMIT for node in self.build(counts).graph_defined
        )

    def is_hopeless(self, counts: tuple[Counts, ...]) -> bool:
        """Return whether some block does not hold what must lie in shared memory, told without building if it can be."""
        sizes = self._sizes_of(counts)
        return not (self.may_fit(counts) if sizes is None else sizes.may_fit(counts))


class _AboutBytes:
    """How many bytes the tiles of a block take together, about, under any counts (see `tiling.shared_bytes_at_most`)."""

    def __init__(self, sketch: Sketch, kernel: int) -> None:
        graph = sketch.hypergraph
        self.extents, self.kernel = graph.expressions.problem.extents, kernel
        self.loop, self.split = graph.plan.loops[kernel], graph.plan.split if kernel == 1 else None
        shares: list[int] = []  # the parts of axes that a tile may have, in the order of `_shares`
        for name in self.extents:
            axis = graph.expressions.mask(name)
            if name == self.loop:
                shares.append(axis & ~graph.loops[kernel] & ~graph.grid)
            elif name == self.split:
                shares += [graph.grid, axis & ~graph.grid]
            else:
                shares.append(axis & ~graph.grid if kernel == 0 else axis)
        # Per kind of tile: its shares, bytes an element while nothing is looped, and how many more in a loop.
        self.tiles = [
            (
                [number for number, axis in enumerate(shares) if axis and own & axis == axis],
                2 * (tiles + wide),
                2 * loaded,
            )
            for own, tiles, wide, loaded in _held(sketch, kernel)
        ]

    def __call__(self, counts: Counts, splits: int) -> int:
        """Return the bytes. splits: the most blocks that share a reduced axis."""
        shares, is_looped = self._shares(counts, splits), counts.loop > 1
        about = 0
        for own, nbytes, looped in self.tiles:
            elements = nbytes + looped if is_looped else nbytes
            for number in own:
                elements *= shares[number]
            about += elements
        return about

    def _shares(self, counts: Counts, splits: int) -> list[int]:
        cuts = dict(counts.grid)
        shares = []
        for name, extent in self.extents.items():
            share = -(-extent // cuts.get(name, 1))
            if name == self.loop:
                shares.append(-(-share // counts.loop))
            elif name == self.split:
                blocks = _splits(extent, splits)
                shares += [blocks, -(-extent // blocks)]
            else:
                shares.append(share)
        return shares


def _held(sketch: Sketch, kernel: int) -> list[tuple[int, int, int, int]]:
    """Return what a block holds, by axes: tiles, those of four bytes an element, those that are loaded in the loop."""
    graph, mask = sketch.hypergraph, sketch.hypergraph.algebra.mask
    counts: dict[int, list[int]] = {}
    for node, edge in sketch.chosen:
        place = graph.places[node]
        if place.kernel == kernel:
            own = counts.setdefault(mask[graph.values[node]], [0, 0, 0])
            is_wide = place.stage == AFTER or place.is_dependent
            own[0] += 1
            own[1] += is_wide
            own[2] += not is_wide and edge.kind == "load" and place.stage == LOOP
    return [(axes, tiles, wide, loaded) for axes, (tiles, wide, loaded) in counts.items()]


@dataclass(frozen=True, slots=True)
class _Tiles:
    """The largest extents of tiles: of axes that the grid splits, and of the looped axis; blocks that share an axis."""

    rows: int = TILE_ROWS
    depth: int = TILE_DEPTH
    splits: int = MAX_SPLITS

    def smaller(self) -> _Tiles | None:
        """Return these with the larger extent halved, None when both are 1."""
        if self.depth > 1 and self.depth >= self.rows:
            return replace(self, depth=self.depth // 2)
        return replace(self, rows=self.rows // 2) if self.rows > 1 else None


_SMALLEST = _Tiles(1, 1, 2)


def _shrinking(*, is_split: bool) -> Iterator[_Tiles]:
    """Yield tiles from the largest to those of one element, then, if an axis is split, the same with fewer blocks."""
    splits = MAX_SPLITS
    while splits > 1:
        tile: _Tiles | None = _Tiles(splits=splits)
        while tile is not None:
            yield tile
            tile = tile.smaller()
        splits = splits // 2 if is_split else 1


def _kernels(sketch: Sketch) -> range:
    return range(len(sketch.hypergraph.plan.loops))


def _counts(sketch: Sketch, kernel: int, axes: GridAxes, extents: Mapping[str, int], tile: _Tiles) -> Counts:
    plan = sketch.hypergraph.plan
    wanted = [(name, parts(extents[name], 1 if name in axes.batch else tile.rows)) for name in axes.free]
    room = 2 if axes.split else 3
    cut = sorted((item for item in wanted if item[1] > 1), key=lambda item: -item[1])[:room]
    grid = [item for item in wanted if item in cut]
    share = 1
    if axes.split:  # the outermost, so that each block's whole result lies together
        share = _splits(extents[axes.split], tile.splits)
        grid.insert(0, (axes.split, share))
    loop = plan.loops[kernel]
    count = 1
    if loop is not None:
        length = extents[loop] if loop != axes.split else -(-extents[loop] // share)
        # A tile that ends early has no place in a concatenation.
        is_joined = any(edge.parts for _, edge in sketch.chosen)
        count = (even_parts if is_joined else parts)(length, tile.depth)
    return Counts(tuple(grid), count)


def _splits(extent: int, most: int) -> int:
    """Return among how many blocks, at most, a reduced axis is split: evenly where its extent allows it."""
    even = max(count for count in range(1, most + 1) if extent % count == 0)
    return even if even > 1 else parts(extent, -(-extent // most))


def small_instance(sketch: Sketch, extents: Mapping[str, int], blocks: BuiltBlocks | None = None) -> KernelGraph:
    """Return the sketch at small extents, every count above 1 where it can be. Raises: NotApplicableError."""
    counts = [_small_counts(sketch, kernel, extents) for kernel in _kernels(sketch)]
    return Instantiation(sketch, extents, counts, blocks).build()


def _small_counts(sketch: Sketch, kernel: int, extents: Mapping[str, int]) -> Counts:
    axes, plan = grid_axes(sketch, kernel), sketch.hypergraph.plan
    room = 2 if axes.split else 3
    grid = [(name, 2) for name in axes.free if extents[name] > 1][:room]
    if axes.split and extents[axes.split] > 1:
        grid.insert(0, (axes.split, 3))
    loop = plan.loops[kernel]
    return Counts(tuple(grid), 2 if loop is not None and extents[loop] > 1 else 1)


def small_extents(problem: Problem) -> dict[str, int]:
    """Return small extents, all different; those that may be looped and split are multiples of 6, others of 2.

    Axes of extent 1 stay so; copies of an axis, and products of axes, follow the axes they are made of.
    """
    result: dict[str, int] = {}
    primes = itertools.cycle([2, 3, 5, 7, 11, 13, 17, 19, 23, 29])
    for name, extent in problem.extents.items():
        if name not in problem.ties:
            base = next(primes)
            result[name] = 1 if extent == 1 else (6 * base if name in problem.reduced else 2 * base)
    return follow_ties(problem, result)


def follow_ties(problem: Problem, extents: Mapping[str, int]) -> dict[str, int]:
    """Return the extents with those of tied axes, in the program's order of axes."""
    result = dict(extents)

    def extent(name: str) -> int:
        if name not in result:
            result[name] = prod(map(extent, problem.ties[name]))
        return result[name]

    return {name: extent(name) for name in problem.extents}
