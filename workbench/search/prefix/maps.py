"""Maps as the paper enumerates them: grid_dims and forloop_range from lists, imap and fmap of every input independently.

Most choices do not fit together: the loop runs along h in X and not in W. An axis that two inputs cut differently is two
axes, because one index would stand for different elements; so such inputs never meet in an operator, and their prefixes
are searched in vain until a pruner drops them. Invariant: what fits together is one choice of axes, so the structures are
those of mapping "axes"; omap is taken from a list as well, and only one entry of it writes every element once.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from itertools import product

from workbench.domains import abstract_expr as expr
from workbench.domains.abstract_expr import Axis
from workbench.errors import NotApplicableError
from workbench.search.enumeration import Sketch
from workbench.search.events import Event
from workbench.search.instantiate import Counts, Instantiation
from workbench.search.plans import Plan
from workbench.search.prefix.one_plan import PrefixSearch
from workbench.search.prefix.options import Setting
from workbench.search.problem import Problem, Start
from workbench.search.schedules import grid_axes
from workbench.search.space import Space
from workbench.search.verdicts import VerdictLike
from workbench.search.work import Known, Outcome
from workbench.ugraph.kernel_graph import KernelGraph

DimMap = tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class Maps:
    """One choice.

    Attributes: grid_dims, forloop_range; imaps: per input, per grid axis, the dimension that it splits or None; fmaps: per
    input the dimension that the loop splits or None.
    """

    grid_dims: tuple[int, ...]
    forloop_range: int
    imaps: tuple[DimMap, ...]
    fmaps: DimMap

    def describe(self) -> str:
        """Return the choice in one line."""
        inputs = [
            f"{'/'.join('-' if d is None else str(d) for d in imap)}:{'-' if fmap is None else fmap}"
            for imap, fmap in zip(self.imaps, self.fmaps, strict=True)
        ]
        return f"grid {self.grid_dims} loop {self.forloop_range} imap:fmap {' '.join(inputs)}"


def maps_of(problem: Problem, space: Space) -> Iterator[Maps]:
    """Yield every choice from the lists of a space, input by input."""
    ranks = [len(tensor.shape) for tensor in problem.program.inputs]
    for grid, loop in product(space.grids, space.loops):
        each = [list(product((None, *range(rank)), repeat=len(grid))) for rank in ranks]
        looped = [(None, *range(rank)) if loop > 1 else (None,) for rank in ranks]
        for imaps in product(*each):
            for fmaps in product(*looped):
                if loop == 1 or any(fmap is not None for fmap in fmaps):
                    yield Maps(grid, loop, imaps, fmaps)


@dataclass(frozen=True, slots=True)
class Reading:
    """What maps mean: the plan, the problem with axes that are cut differently told apart, the axis that each grid axis cuts."""

    plan: Plan
    problem: Problem
    grid: tuple[str | None, ...]
    apart: tuple[str, ...]


def read(problem: Problem, maps: Maps) -> Reading:
    """Return what maps mean. The first input that has an axis says how it is cut; another that differs has its own."""
    cuts: dict[str, frozenset[str]] = {}
    starts: list[Start] = []
    extents, reduced, apart = dict(problem.extents), list(problem.reduced), []
    for start in problem.starts:
        names: dict[str, str] = {}
        for place, dim in enumerate(start.dims):
            for order, name in enumerate(dim):
                cut = _cut(maps, start.position, place) if order == 0 else frozenset()
                if cuts.setdefault(name, cut) == cut:
                    continue
                other = f"{name}_{start.position}"
                names[name] = other
                cuts[other] = cut
                extents[other] = problem.extents[name]
                apart.append(f"{problem.program.inputs[start.position].name} along {name}")
                if name in reduced:
                    reduced.append(other)
        starts.append(_renamed(start, names) if names else start)
    loop = next((name for name, cut in cuts.items() if "loop" in cut), None)
    grid = tuple(next((n for n, cut in cuts.items() if f"grid {g}" in cut), None) for g in range(len(maps.grid_dims)))
    split = next((name for name in grid if name in problem.reduced), None)
    changed = replace(problem, starts=tuple(starts), extents=extents, reduced=tuple(reduced))
    return Reading(Plan((loop,), split), changed, grid, tuple(apart))


def _cut(maps: Maps, position: int, dim: int) -> frozenset[str]:
    by = {f"grid {number}" for number, mapped in enumerate(maps.imaps[position]) if mapped == dim}
    return frozenset(by | ({"loop"} if maps.fmaps[position] == dim else set()))


def _renamed(start: Start, names: dict[str, str]) -> Start:
    pairs = {Axis(old): Axis(new) for old, new in names.items()}
    dims, own = (
        tuple(tuple(names.get(name, name) for name in dim) for dim in listed) for listed in (start.dims, start.own)
    )
    return replace(start, term=expr.rename_axes(start.term, pairs), dims=dims, own=own)


class MapsSearch(PrefixSearch):
    """The prefixes of one choice of maps. Attributes: maps, reading."""

    def __init__(self, setting: Setting, number: int, maps: Maps) -> None:
        """Read the maps."""
        self.maps, self.reading = maps, read(setting.shared.problem, maps)
        super().__init__(setting, number, self.reading.plan, self.reading.problem)
        self.title = maps.describe()

    def instance(self, sketch: Sketch) -> KernelGraph:
        """Return a sketch with these maps. Raises: NotApplicableError where blocks would write the same elements."""
        free = grid_axes(sketch, 0).free
        grid = []
        for count, name in zip(self.maps.grid_dims, self.reading.grid, strict=True):
            if count > 1 and (name is None or name not in free):
                what = "no axis" if name is None else name
                raise NotApplicableError(
                    f"a grid axis of {count} blocks splits {what}: no omap writes every element once"
                )
            if name is not None:
                grid.append((name, count))
        return Instantiation(sketch, self.problem.extents, [Counts(tuple(grid), self.maps.forloop_range)]).build()

    def _verdict(self, sketch: Sketch, graph: KernelGraph) -> VerdictLike:
        if self.setting.verifier is not None:
            return self.setting.verifier(self.shared.program, graph)
        return self.shared.screen.screen_graph(graph)


@dataclass(frozen=True)
class MapsOfPrefixes:
    """A unit: one choice of maps."""

    setting: Setting
    number: int
    maps: Maps
    counts_on = True
    steps = 1
    guess_ms = 1

    @property
    def name(self) -> str:
        """Which maps."""
        return f"prefixes of maps {self.number}: {self.maps.describe()}"

    def events(self, known: Known) -> Generator[Event, None, Outcome]:
        """Yield what the maps have."""
        return (yield from MapsSearch(self.setting, self.number, self.maps).events(known))
