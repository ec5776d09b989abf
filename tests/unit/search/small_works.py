"""Works of a few units, for tests of who runs them; a module of its own, so that worker processes can import it."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

import workbench as wb
from workbench.search.event_lines import LineWriter
from workbench.search.events import Completed, Event, Finished, Progress, Pruned, Said, Started, Verified
from workbench.search.verdicts import RecordedVerdict, Screening
from workbench.search.work import Known, Outcome, Unit
from workbench.ugraph.kernel_graph import KernelGraph


def lines_of(events: Sequence[Event]) -> list[str]:
    """Return the events as lines, without wall times."""
    writer = LineWriter()
    return [line for event in events for line in writer.lines(without_times(event))]


def without_times(event: Event) -> Event:
    """Return an event without wall times."""
    match event:
        case Finished():
            return Finished(
                event.states, event.candidates, event.structures, event.verified, event.pruned, event.incomplete, 0.0
            )
        case Verified() if not isinstance(event.verdict, Screening):
            return Verified(event.number, event.graph, RecordedVerdict(event.verdict.kind, event.verdict.reason))
    return event


def small_graph(columns: int = 3) -> KernelGraph:
    """Return X @ W with so many columns."""
    return wb.trace(lambda X, W: X @ W, X=(2, 4), W=(4, columns))


@dataclass(frozen=True)
class Numbered:
    """What small units have in common: they differ in their numbers."""

    number: int
    counts_on = True
    steps = 1
    guess_ms = 1

    @property
    def name(self) -> str:
        return f"unit {self.number}"


@dataclass(frozen=True)
class Small(Numbered):
    """A unit with one structure. kills: the file that counts how often it ended its process, and how often it may."""

    kills: tuple[Path, int] | None = None
    fails: bool = False
    asked: Path | None = None

    def events(self, known: Known) -> Generator[Event, None, Outcome]:
        yield Started(self.name)
        if self.kills is not None:
            file, limit = self.kills
            done = len(file.read_text()) if file.exists() else 0
            if done < limit:
                file.write_text("x" * (done + 1))
                os.kill(os.getpid(), signal.SIGKILL)
        if self.fails:
            raise ArithmeticError(f"planned in {self.name}")
        yield Pruned(self.name, "too far", Said("a value"), Said(f"evidence of {self.number}"))
        graph = small_graph(self.number + 1)
        yield Completed(self.name, 0, graph, 1, 1)
        if 0 not in known and self.asked is not None:
            with self.asked.open("a") as file_asked:
                file_asked.write(f"{self.number} ")
        yield Verified(0, graph, known.get(0, Screening("equal", f"by unit {self.number}")))
        yield Progress(1, 0, 10, 1)
        return Outcome(
            steps=1, states=10, candidates=1, structures=1, verified=1, incomplete=2, numbers=1, pruned={"too far": 1},
            facts={"number": self.number},
        )  # fmt: skip


@dataclass
class SmallWork:
    """Two rounds; the second has as many units as the outcomes of the first say."""

    units: Sequence[Small]

    @property
    def total(self) -> int:
        return 2 * len(self.units)

    def rounds(self) -> Generator[Sequence[Unit], Sequence[Outcome], None]:
        outcomes = yield list(self.units)
        numbers = [int(str(outcome.facts.get("number", -1))) for outcome in outcomes]
        yield [Small(100 + number) for number in numbers if number >= 0]

    def note(self, event: Event) -> None:
        pass
