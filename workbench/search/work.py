"""How an engine cuts a search into pieces that may run anywhere. Invariant: a piece knows nothing of those before it.

An engine is a `Work`: rounds of units. Units of one round are independent of each other, so they may run in other
processes; what a later round needs of an earlier one are the outcomes. A unit's events count from zero; `driver` adds
what came before, in the order of the units, so that the stream is the same whoever ran them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, cast

from workbench.search.events import Event
from workbench.search.verdicts import VerdictLike

Known = Mapping[int, VerdictLike]
"""Verdicts by structure number that an interrupted run of the same unit had reached; the unit need not ask again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a unit leaves behind, plain enough for a line of JSON.

    Attributes: steps: units of progress done; states, candidates, structures, verified, incomplete: counts as in
    `Finished`; numbers: structure numbers used up; pruned: rule -> count; facts: what later rounds need, plain values.
    """

    steps: int = 0
    states: int = 0
    candidates: int = 0
    structures: int = 0
    verified: int = 0
    incomplete: int = 0
    numbers: int = 0
    pruned: Mapping[str, int] = field(default_factory=dict)
    facts: Mapping[str, object] = field(default_factory=dict)

    def __add__(self, other: Outcome) -> Outcome:
        """Return the counts of both units together, without facts."""
        pruned = Counter(self.pruned)
        pruned.update(other.pruned)
        return Outcome(
            steps=self.steps + other.steps,
            states=self.states + other.states,
            candidates=self.candidates + other.candidates,
            structures=self.structures + other.structures,
            verified=self.verified + other.verified,
            incomplete=self.incomplete + other.incomplete,
            numbers=self.numbers + other.numbers,
            pruned=pruned,
        )


class Unit(Protocol):
    """One piece of work; it pickles, and running it twice gives the same events."""

    @property
    def name(self) -> str:
        """What it is, in words; no two units of a search bear the same name."""
        ...

    @property
    def steps(self) -> int:
        """How many steps of progress it is."""
        ...

    @property
    def guess_ms(self) -> int:
        """How much work it may be, in milliseconds: a guess."""
        ...

    @property
    def counts_on(self) -> bool:
        """True when its structure numbers count from zero, False when they are those of the whole search."""
        ...

    def events(self, known: Known) -> Generator[Event, None, Outcome]:
        """Yield the events; return the outcome."""
        ...


def collected(unit: Unit, known: Known, each: Callable[[Event], object] | None = None) -> tuple[list[Event], Outcome]:
    """Return all events of a unit and its outcome. each: called with every event as it comes."""
    events: list[Event] = []
    run = unit.events(known)
    while True:
        try:
            event = next(run)
        except StopIteration as end:
            return events, cast(Outcome, end.value)
        events.append(event)
        if each is not None:
            each(event)


class Work(Protocol):
    """A whole search."""

    @property
    def total(self) -> int:
        """How many steps its units have together."""
        ...

    def rounds(self) -> Generator[Sequence[Unit], Sequence[Outcome], None]:
        """Yield the units of each round; the outcomes of a round are sent back, in order."""
        ...

    def note(self, event: Event) -> None:
        """Take notice of an event of the merged stream (also of one that was recorded earlier)."""
        ...
