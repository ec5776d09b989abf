"""What a search found, gathered from its events. Invariant: everything here follows from the stream, replayed or live."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from workbench.display import Displayed
from workbench.search.events import Completed, Event, Finished, Progress, Pruned, Refused, Verified
from workbench.search.space import Space
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.units import counted

OUT = "out of the space"
"""The rule of a program that has no µGraph in any space."""


@dataclass(frozen=True, slots=True)
class Structure:
    """One verified structure: its graph, operators of its block graphs, kernels."""

    graph: KernelGraph
    operators: int
    kernels: int

    @property
    def structure_hash(self) -> str:
        """The graph's structure hash."""
        return self.graph.structure_hash


@dataclass(slots=True)
class Found(Displayed):
    """The result of a search: the space, what was found, and why the rest was not.

    Attributes: space; structures: verified, each once by structure hash; refused; finished: the counts, None if the
    search was interrupted; misses: candidates that were met and left out for memory or layout; pruned: rule -> what the
    events count; progress: the last that was told.
    """

    space: Space
    structures: list[Structure] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    finished: Finished | None = None
    misses: list[Pruned] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)
    pruned: Counter[str] = field(default_factory=Counter)
    progress: Progress | None = None

    def describe(self) -> str:
        """Return the counts and every structure's text."""
        lines = [self.space.describe(), self.finished.describe() if self.finished else "interrupted"]
        for number, found in enumerate(self.structures):
            lines.append(
                f"structure {number}: {counted(found.operators, 'operator')}, {counted(found.kernels, 'kernel')}"
            )
            lines.append(found.graph.describe())
        return "\n".join(lines)


def collect(events: Iterable[Event], space: Space, watch: Callable[[Event], None] | None = None) -> Found:
    """Return what the events of a search found. watch: sees every event first."""
    result = Found(space)
    gather(events, result, watch)
    return result


def gather(events: Iterable[Event], result: Found, watch: Callable[[Event], None] | None = None) -> None:
    """Add what the events of a search found; when they are interrupted, what came before is there."""
    known = {found.structure_hash for found in result.structures}
    sizes: dict[int, Completed] = {}
    for event in events:
        if watch is not None:
            watch(event)
        match event:
            case Completed():
                sizes[event.number] = event
            case Verified():
                completed = sizes[event.number]
                if event.graph.structure_hash not in known:
                    known.add(event.graph.structure_hash)
                    result.structures.append(Structure(event.graph, completed.operators, completed.kernels))
            case Refused():
                result.refused.append(event)
            case Pruned():
                result.pruned[event.rule] += event.count
                if event.rule in ("memory", "layout"):
                    result.misses.append(event)
                if event.rule == OUT:
                    result.outside.append(event.evidence())
            case Progress():
                result.progress = event
            case Finished():
                result.finished = event
            case _:
                pass


def progress_lines(events: Iterable[Event], tell: Callable[[str], None]) -> Iterator[Event]:
    """Yield the events, telling in words how far the search is."""
    for event in events:
        if isinstance(event, Progress):
            tell(f"plan {event.done} of {event.total}, {counted(event.structures, 'structure')}")
        yield event
