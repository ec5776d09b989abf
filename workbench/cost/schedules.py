"""The schedule space of a structure: every legal tiling and launch choice as columns, scored in one vectorised pass.

A structure is any graph of it: its present tiling does not matter. Kernels are tables of their own; those that a number of
splits ties are joined by it. Invariant: the cost of a row is what `estimate` gives for the graph that it is realised as.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from workbench.cost.candidates import ScheduleLimits, evenness, grid_counts, grids, loop_counts, split_counts
from workbench.cost.estimate import expanded
from workbench.cost.form import Array
from workbench.cost.hardware import Hardware
from workbench.cost.heat_map import HeatMap, heat_map
from workbench.cost.launch import LaunchChoice
from workbench.cost.presets import Preset
from workbench.cost.presets import preset as named_preset
from workbench.cost.structure_bound import predefined_us
from workbench.cost.symbolic import SymbolicKernel, symbolic_kernel
from workbench.cost.time_model import kernel_times, total_of
from workbench.errors import NotApplicableError, UnknownNameError, UsageError
from workbench.ugraph.axes import Names
from workbench.ugraph.block_graph import BlockGraph
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.retile import Counts, Retiler
from workbench.ugraph.rewrite import Launch, Rewriter

Column = np.ndarray[Any, np.dtype[np.int64]]
MOST_HELD = 160.0
"""Floats of accumulators a thread holds; beyond that registers spill (255 registers a thread, addresses beside them)."""

MOST_USEFUL = 6
"""Stages beyond which more are not preferred."""

LAUNCH = ("loop", "split", "cluster", "stages", "threads")


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    """One schedule of a whole program. Attributes: cost_us; rows: per kernel, its row; parameters: per kernel, by name."""

    cost_us: float
    rows: tuple[int, ...]
    parameters: tuple[Mapping[str, int], ...]

    def describe(self) -> str:
        """Return the parameters as words."""
        words = [" ".join(f"{name}={value}" for name, value in kernel.items()) for kernel in self.parameters]
        return f"{self.cost_us:.2f} us: " + " | ".join(words)


@dataclass(frozen=True, slots=True)
class RealizedSchedule:
    """A schedule as a graph. Attributes: graph; choices: per graph-defined operator; cost_us."""

    graph: KernelGraph
    choices: tuple[LaunchChoice, ...]
    cost_us: float


class KernelTable:
    """The schedules of one kernel.

    Attributes: kernel: its number; tiling; names: parameters; all_columns: every combination; fits: those that a block
    can hold; refused: reason -> combinations; tied: kernels whose number of splits this one's sizes follow, as columns
    `split0`, ...
    """

    def __init__(self, symbolic: SymbolicKernel, columns: Mapping[str, Column], space: ScheduleSpace) -> None:
        """Score every combination."""
        self.symbolic, self.tiling, self.kernel = symbolic, symbolic.tiling, symbolic.tiling.kernel
        self.all_columns = dict(columns)
        self.names = tuple(columns)
        counted = symbolic.count(columns, space.hardware)
        self.refused: Counter[str] = Counter()
        shared = counted["shared_at_least"] > space.hardware.shared_bytes_per_block
        held = counted["held"] > MOST_HELD
        self.refused["shared memory"] = int(np.count_nonzero(shared))
        self.refused["registers"] = int(np.count_nonzero(held & ~shared))
        times = kernel_times(counted, space.hardware, space.preset.coefficients, cold=space.cold)
        cost = np.broadcast_to(total_of(times), shared.shape)
        self.fits = ~(shared | held) & np.isfinite(cost)
        self.all_cost_us = np.where(self.fits, cost, np.inf)
        self._legal = np.flatnonzero(self.fits)

    @property
    def size(self) -> int:
        """Legal schedules."""
        return len(self._legal)

    @cached_property
    def columns(self) -> dict[str, Column]:
        """Parameters of the legal schedules."""
        return {name: column[self._legal] for name, column in self.all_columns.items()}

    @cached_property
    def cost_us(self) -> Array:
        """Microseconds of the legal schedules."""
        return self.all_cost_us[self._legal]

    def parameters(self, row: int) -> dict[str, int]:
        """Return one schedule's parameters by name."""
        return {name: int(column[row]) for name, column in self.columns.items()}

    def counts(self, row: int) -> Counts:
        """Return one schedule as counts for `retile`."""
        found = self.parameters(row)
        grid = {axis: found[axis] for axis in self.tiling.free if found[axis] > 1}
        return Counts(
            grid, found["loop"] if self.tiling.loop else 1, found["split"] if self.tiling.split else 1, found["cluster"]
        )

    def choice(self, row: int) -> LaunchChoice:
        """Return one schedule's launch choice."""
        found = self.parameters(row)
        return LaunchChoice(found["threads"], found["stages"], found["cluster"])


class ScheduleSpace:
    """All schedules of a structure on one GPU.

    Attributes: graph; hardware; preset; cold; limits; kernels: tables of graph-defined operators; fixed_us: cost of
    predefined kernels, the same for every schedule.
    Raises: MissingRuleError for an operator without a cost; NotApplicableError where a kernel has no legal schedule.
    """

    def __init__(
        self,
        graph: KernelGraph,
        *,
        hardware: Hardware,
        preset: Preset | None = None,
        limits: ScheduleLimits | None = None,
        names: Names | None = None,
        cold: bool = True,
    ) -> None:
        """Enumerate and score. names: of the inputs' dimensions, as for `analyze_axes`."""
        self.graph, self.hardware, self.cold = graph, hardware, cold
        self.preset = named_preset() if preset is None else preset
        self.limits = ScheduleLimits() if limits is None else limits
        self.retiler = Retiler(graph, names)
        self._even = evenness(self.retiler)
        whole = expanded(graph)
        inner = self.retiler if whole == graph else Retiler(whole, names)
        self.kernels = tuple(
            self._table(symbolic_kernel(inner, tiling.kernel, self.retiler)) for tiling in inner.tilings
        )
        for table in self.kernels:
            if not table.size:
                reasons = ", ".join(f"{reason} {number}" for reason, number in table.refused.items() if number)
                raise NotApplicableError(
                    f"no schedule of kernel {table.kernel} ({table.tiling.label}) is legal: {reasons}"
                )
        self.fixed_us = predefined_us(graph, hardware, self.preset, cold=cold)

    def _table(self, symbolic: SymbolicKernel) -> KernelTable:
        """Return the schedules of one kernel; where none fits, those of small tiles too."""
        table = KernelTable(symbolic, self._columns(symbolic, self.limits), self)
        if table.size:
            return table
        return KernelTable(symbolic, self._columns(symbolic, self.limits.with_small_tiles()), self)

    # ------------------------------------------------------------------------------------------------------- enumeration
    def _columns(self, symbolic: SymbolicKernel, limits: ScheduleLimits) -> dict[str, Column]:
        """Return all combinations of one kernel's parameters."""
        tiling = symbolic.tiling
        even = self._even[tiling.kernel]
        free = {
            axis: grid_counts(
                tiling.extents[axis],
                limits,
                self.hardware,
                least=limits.least_tile if axis in symbolic.product_axes else 1,
                even=axis in even.free,
            )
            for axis in tiling.free
        }
        chosen = list(grids(tiling, free, limits.max_rows))
        cells = np.asarray(chosen, np.int64).reshape(len(chosen), len(tiling.free))
        rest = np.asarray(list(self._launches(symbolic, limits, even.loop, even.split)), np.int64)
        picks = len(cells) * len(rest)
        if picks > limits.max_rows:  # an even share of the launches for every grid
            rest = rest[:: -(-picks // limits.max_rows)]
        where, launch = np.repeat(np.arange(len(cells)), len(rest)), np.tile(np.arange(len(rest)), len(cells))
        columns = {axis: cells[where, number] for number, axis in enumerate(tiling.free)}
        names = [*LAUNCH, *(f"split{kernel}" for kernel in symbolic.tied)]
        columns |= {name: rest[launch, number] for number, name in enumerate(names)}
        return columns

    def _launches(
        self, symbolic: SymbolicKernel, limits: ScheduleLimits, even_loop: bool, even_split: bool
    ) -> Iterator[tuple[int, ...]]:
        tiling = symbolic.tiling
        splits = (
            split_counts(tiling.extents[tiling.split], limits, even=even_split)
            if tiling.split
            else [symbolic.fixed_split]
        )
        others = [self._split_values(kernel) for kernel in symbolic.tied]
        for split in splits:
            loops = [symbolic.fixed_loop]
            if tiling.loop:
                extent = tiling.extents[tiling.loop]
                extent = -(-extent // split) if tiling.loop == tiling.split else extent
                loops = loop_counts(extent, limits, even=even_loop)
            for loop in loops:
                clusters = [
                    c
                    for c in limits.clusters
                    if c == 1 or (tiling.can_cluster and c <= min(loop, self.hardware.max_cluster))
                ]
                for cluster in clusters:
                    deep = symbolic.form.looped and loop > 1
                    useful = [s for s in limits.stages if s <= max(-(-loop // cluster), min(limits.stages))]
                    for stages in useful if deep else [1]:
                        for threads in limits.threads:
                            for tied in product(*others):
                                yield loop, split, cluster, stages, threads, *tied

    def _split_values(self, kernel: int) -> list[int]:
        tiling = self.retiler.tilings[kernel]
        if tiling.split is None:  # its composites are split, it as a whole is not
            raise NotApplicableError(
                f"{tiling.label} has a split that follows from no schedule of it, and others follow it"
            )
        return split_counts(tiling.extents[tiling.split], self.limits, even=self._even[kernel].split)

    # ----------------------------------------------------------------------------------------------------------- answers
    @property
    def size(self) -> int:
        """Legal schedules of all kernels together: rows of the tables, not their combinations."""
        return sum(table.size for table in self.kernels)

    @property
    def least_us(self) -> float:
        """Microseconds that every schedule takes at least: the cheapest of each kernel, whatever splits tie."""
        return sum(float(table.cost_us.min()) for table in self.kernels) + self.fixed_us

    @property
    def refused(self) -> dict[str, int]:
        """Reasons -> combinations left out."""
        total: Counter[str] = Counter()
        for table in self.kernels:
            total.update(table.refused)
        return {reason: number for reason, number in total.items() if number}

    def best(self, k: int = 8, *, per_tiling: int | None = None) -> list[ScheduleRow]:
        """Return the k cheapest schedules that a graph can be built with, the cheapest first.

        per_tiling: at most so many that agree in how the kernel that takes longest is tiled, each with other threads, so
        that what is measured differs more.
        Raises: UsageError for less than one.
        """
        if k < 1 or (per_tiling is not None and per_tiling < 1):
            raise UsageError(f"best({k}, per_tiling={per_tiling}): ask for at least one schedule")
        found: list[ScheduleRow] = []
        alike: Counter[tuple[int, ...]] = Counter()
        launches = len(self.limits.threads) * (len(self.limits.stages) + 1)
        for cost, rows in self._ascending((4 * k + 16) * (launches if per_tiling else 1)):
            parameters = tuple(table.parameters(number) for table, number in zip(self.kernels, rows, strict=True))
            longest = max(range(len(rows)), key=lambda at: float(self.kernels[at].cost_us[rows[at]]), default=0)
            widest = dict(parameters[longest]) if parameters else {}
            threads, _ = widest.pop("threads", 0), widest.pop("stages", 0)
            tiling, warps = (longest, *widest.values()), (longest, *widest.values(), -threads)
            if per_tiling is not None and (alike[tiling] >= per_tiling or alike[warps]):
                continue
            row = ScheduleRow(cost + self.fixed_us, rows, parameters)
            try:
                self.realize(row)
            except NotApplicableError:
                continue
            alike[tiling] += 1
            alike[warps] += 1
            found.append(row)
            if len(found) == k:
                break
        return found

    def _ascending(self, most: int) -> Iterator[tuple[float, tuple[int, ...]]]:
        """Yield combinations of rows whose splits agree, in ascending cost."""
        split = [table for table in self.kernels if table.tiling.split]
        streams = []
        for values in product(*(sorted(set(table.columns["split"].tolist())) for table in split)):
            wanted = {table.kernel: value for table, value in zip(split, values, strict=True)}
            lists = []
            for table in self.kernels:
                keep = np.ones(table.size, bool)
                if table.kernel in wanted:
                    keep &= table.columns["split"] == wanted[table.kernel]
                for kernel in table.symbolic.tied:
                    keep &= table.columns[f"split{kernel}"] == wanted[kernel]
                rows = np.flatnonzero(keep)
                lists.append(rows[_cheapest_first(table, rows)[:most]])
            if all(len(rows) for rows in lists):
                streams.append(self._sums(lists, most))
        yield from heapq.merge(*streams)

    def _sums(self, lists: Sequence[Column], most: int) -> Iterator[tuple[float, tuple[int, ...]]]:
        """Yield sums of one row of each list in ascending order."""

        def item(place: tuple[int, ...]) -> tuple[float, tuple[int, ...], tuple[int, ...]]:
            rows = tuple(int(rows[at]) for rows, at in zip(lists, place, strict=True))
            cost = sum(float(table.cost_us[row]) for table, row in zip(self.kernels, rows, strict=True))
            return cost, rows, place

        start = (0,) * len(lists)
        queue, seen = [item(start)], {start}
        for _ in range(most):
            if not queue:
                return
            cost, rows, place = heapq.heappop(queue)
            yield cost, rows
            for axis in range(len(place)):
                after = (*place[:axis], place[axis] + 1, *place[axis + 1 :])
                if after[axis] < len(lists[axis]) and after not in seen:
                    seen.add(after)
                    heapq.heappush(queue, item(after))

    def realize(self, row: ScheduleRow) -> RealizedSchedule:
        """Return a schedule as a graph with its launch choices. Raises: NotApplicableError when it cannot be built."""
        counts = {table.kernel: table.counts(number) for table, number in zip(self.kernels, row.rows, strict=True)}
        choices = tuple(table.choice(number) for table, number in zip(self.kernels, row.rows, strict=True))
        graph = _Threads([choice.threads for choice in choices]).rewrite(self.retiler.build(counts))
        return RealizedSchedule(graph, choices, row.cost_us)

    def heatmap(self, x: str, y: str, fixed: Mapping[str, int] | None = None, *, kernel: int = 0) -> HeatMap:
        """Return the least cost over two parameters of a kernel, others free or fixed.

        Raises: UnknownNameError for a parameter the kernel does not have, UsageError for a value that no schedule has.
        """
        if not 0 <= kernel < len(self.kernels):
            raise UnknownNameError(f"no kernel {kernel}; there are {len(self.kernels)}")
        table = self.kernels[kernel]
        return heat_map(table.all_columns, table.all_cost_us, table.fits, x, y, fixed or {})


def _cheapest_first(table: KernelTable, rows: Column) -> Column:
    """Return the order of rows by cost; as cheap ones with more stages first, which forgives what the model leaves out.

    On an H200 rms_norm_linear at 16 rows took 11.3 us with 4 stages and 10.6 with 5, which the model tells not apart.
    """
    stages, cost = table.columns["stages"][rows], np.round(table.cost_us[rows], 9)
    return np.lexsort((stages, -np.minimum(stages, MOST_USEFUL), cost))


class _Threads(Rewriter):
    """Gives graph-defined operators their numbers of threads."""

    def __init__(self, threads: Sequence[int]) -> None:
        self.threads = threads

    def launch(self, number: int, block: BlockGraph) -> Launch:
        return Launch(block.grid_dims, block.forloop_range, (self.threads[number], 1, 1), block.cluster_dims)
