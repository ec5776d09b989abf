"""Runs the units of a search, here or elsewhere, and merges what they say into one stream.

Invariant: the stream depends on the work alone: units are merged in their order, whoever ran them and in whatever order
they ended, and what a record holds of an interrupted run is said again rather than done again.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Protocol, runtime_checkable

from workbench.search.events import Completed, Event, Finished, Progress, Refused, Verified
from workbench.search.work import Known, Outcome, Unit, Work


@runtime_checkable
class Runner(Protocol):
    """Runs the units of a round."""

    def run(self, units: Sequence[Unit], known: Known) -> Generator[Generator[Event, None, Outcome], None, None]:
        """Yield per unit, in order, its events and outcome. known: verdicts for the first unit."""
        ...

    def close(self) -> None:
        """End what was started to run them."""
        ...


class Journal(Protocol):
    """Keeps the stream while it goes by, and has what an earlier, interrupted run left of it."""

    elapsed_s: float
    """Wall time of earlier runs, in seconds."""

    def past_unit(self, name: str) -> tuple[Iterator[Event], Outcome] | None:
        """Return the merged events and the outcome of the next unit if an earlier run finished it. Raises: FormatError."""
        ...

    def past_events(self, name: str) -> Sequence[Event]:
        """Return the merged events of the next unit that an interrupted run kept; the next `keep`s write after them."""
        ...

    def keep(self, event: Event) -> None:
        """Write an event."""
        ...

    def end_unit(self, name: str, outcome: Outcome, elapsed_s: float) -> None:
        """Write that a unit is finished."""
        ...

    def close(self, *, finished: bool) -> None:
        """Write what is still to be written."""
        ...


class InProcess:
    """Runs every unit here, when its events are asked for."""

    def run(self, units: Sequence[Unit], known: Known) -> Generator[Generator[Event, None, Outcome], None, None]:
        """Yield per unit its events and outcome."""
        for number, unit in enumerate(units):
            yield unit.events({} if number else known)

    def close(self) -> None:
        """Nothing was started."""


def drive(work: Work, *, runner: Runner | None = None, journal: Journal | None = None) -> Generator[Event, None, None]:
    """Yield the events of a whole search, those of an interrupted run first; the last is `Finished`."""
    return _Drive(work, runner or InProcess(), journal).events()


class _Drive:
    def __init__(self, work: Work, runner: Runner, journal: Journal | None) -> None:
        self.work, self.runner, self.journal = work, runner, journal
        self.start = time.perf_counter() - (journal.elapsed_s if journal else 0.0)
        self.totals = Outcome()

    def events(self) -> Generator[Event, None, None]:
        finished = False
        try:
            rounds = self.work.rounds()
            units = next(rounds, None)
            while units is not None:
                outcomes = yield from self._round(units)
                try:
                    units = rounds.send(outcomes)
                except StopIteration:
                    units = None
            event = self._finished()
            if self.journal is not None:
                self.journal.keep(event)
            finished = True
            yield event
        finally:
            self.runner.close()
            if self.journal is not None:
                self.journal.close(finished=finished)

    def _round(self, units: Sequence[Unit]) -> Generator[Event, None, list[Outcome]]:
        outcomes: list[Outcome] = []
        pending = list(units)
        while self.journal is not None and pending:
            past = self.journal.past_unit(pending[0].name)
            if past is None:
                break
            events, outcome = past
            for event in events:
                self.work.note(event)
                yield event
            outcomes.append(outcome)
            self.totals += outcome
            pending.pop(0)
        if not pending:
            return outcomes
        past_events = self.journal.past_events(pending[0].name) if self.journal is not None else ()
        known = self._known(pending[0], past_events)
        with closing(self.runner.run(pending, known)) as runs:
            for unit, run in zip(pending, runs, strict=True):
                outcome = yield from self._unit(unit, run, past_events)
                past_events = ()
                outcomes.append(outcome)
                self.totals += outcome
                if self.journal is not None:
                    self.journal.end_unit(unit.name, outcome, time.perf_counter() - self.start)
        return outcomes

    def _unit(
        self, unit: Unit, run: Generator[Event, None, Outcome], past: Sequence[Event]
    ) -> Generator[Event, None, Outcome]:
        """Yield the merged events of a unit; those that an interrupted run kept are said again, not kept again."""
        for event in past:
            self.work.note(event)
            yield event
        said = 0
        with closing(run):
            while True:
                try:
                    event = next(run)
                except StopIteration as end:
                    outcome: Outcome = end.value
                    return outcome
                said += 1
                if said > len(past):
                    merged = self._merged(unit, event)
                    self.work.note(merged)
                    if self.journal is not None:
                        self.journal.keep(merged)
                    yield merged

    def _merged(self, unit: Unit, event: Event) -> Event:
        """Return an event with what came before the unit added."""
        match event:
            case Progress():
                return replace(
                    event,
                    done=self.totals.steps + event.done,
                    total=self.work.total,
                    states=self.totals.states + event.states,
                    structures=self.totals.numbers + event.structures,
                )
            case Completed() | Verified() | Refused() if unit.counts_on:
                return replace(event, number=self.totals.numbers + event.number)
        return event

    def _known(self, unit: Unit, past: Sequence[Event]) -> Known:
        shift = self.totals.numbers if unit.counts_on else 0
        return {event.number - shift: event.verdict for event in past if isinstance(event, Verified | Refused)}

    def _finished(self) -> Finished:
        totals = self.totals
        return Finished(
            totals.states,
            totals.candidates,
            totals.structures,
            totals.verified,
            dict(totals.pruned),
            totals.incomplete,
            time.perf_counter() - self.start,
        )
