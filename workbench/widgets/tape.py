"""The events of one run, live or recorded, as a sequence that may still grow; with the tree that is read from them.

Invariant: a tape is read by number; it never loses an event, and says whether more may come. A search that was interrupted
inside an event goes on at that event: its generator is dead then, so another one runs up to there, and events repeat.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from workbench.errors import UsageError, WorkbenchError
from workbench.search.event_lines import settled
from workbench.search.events import Event, Extended, Pruned
from workbench.search.prefix.engine import search as search_prefixes
from workbench.search.prefix.views import Looked
from workbench.search.pruners.rule import Pruner
from workbench.search.replay import Replay
from workbench.search.searching import search
from workbench.search.space import Space
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.views.prefix_graph import PrefixDesk
from workbench.views.search_event import EventView, named, view_event
from workbench.views.search_panels import RunSummary
from workbench.views.search_tree import SearchTree

SLICE = 500
"""Events that the tree reads at once."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What decides a run.

    Attributes: program, space, pruners, engine, seed; start: a prefix to begin with; keep: dropped prefixes that are kept
    on purpose.
    """

    program: KernelGraph
    space: Space
    engine: str
    pruners: tuple[str | Pruner, ...] | None = None
    seed: int = 0
    start: str = ""
    keep: tuple[str, ...] = ()

    def events(self) -> Iterator[Event]:
        """Return the events of the run; nothing is searched before they are asked for. Raises: UsageError."""
        if self.engine == "prefix":
            kept = frozenset(self.keep)
            more: dict[str, Any] = {"start": self.start} if self.start else {}
            if kept:
                more["keep"] = kept.__contains__
            return search_prefixes(self.program, space=self.space, pruners=self.pruners, seed=self.seed, **more)
        if self.start or self.keep:
            raise UsageError("only the prefix engine continues from a prefix; give engine='prefix'")
        return search(self.program, space=self.space, engine="values", pruners=self.pruners, seed=self.seed)

    def describe(self) -> str:
        """Return the settings in one line."""
        pruners = "default pruners" if self.pruners is None else ", ".join(map(_name, self.pruners)) or "no pruner"
        parts = [f"{self.engine} engine", f"up to {self.space.max_block_ops} block operators", pruners]
        parts += [f"from {self.start}"] if self.start else []
        parts += [f"keeps {', '.join(self.keep)}"] if self.keep else []
        return "; ".join(parts)


def _name(pruner: str | Pruner) -> str:
    return pruner if isinstance(pruner, str) else pruner.name


@dataclass
class Tape:
    """One run.

    Attributes: settings; source: "live", or the record's path; events; more: what still yields events, None once it ended;
    tree; message: what is wrong with it, "" if nothing.
    """

    settings: Settings
    source: str
    events: Sequence[Event]
    more: Iterator[Event] | None = None
    tree: SearchTree = field(default_factory=SearchTree)
    message: str = ""
    _desk: PrefixDesk | None = None
    _no_desk: str = ""

    @classmethod
    def live(cls, settings: Settings) -> Tape:
        """Return a run that is searched as it is asked for. Raises: UsageError."""
        return cls(settings, "live", [], settings.events())

    @classmethod
    def recorded(cls, record: str | Path | Replay) -> Tape:
        """Return a recorded run; no event is read yet. Raises: FormatError, OSError."""
        run = record if isinstance(record, Replay) else Replay(record)
        header = run.header
        listed = header.options.get("pruners")
        pruners = tuple(map(str, listed)) if isinstance(listed, list | tuple) else None
        settings = Settings(
            program=header.program, space=run.space, engine=header.engine, pruners=pruners, seed=header.seed
        )
        return cls(settings, str(run.path), run, message=run.message)

    @property
    def is_live(self) -> bool:
        """Whether it is searched here."""
        return self.source == "live"

    @property
    def is_finished(self) -> bool:
        """Whether no more events come."""
        return self.more is None

    def grow(self) -> bool:
        """Search for one more event; return whether there was one. An interruption leaves the tape as it was."""
        more = self.more
        if more is None:
            return False
        assert isinstance(self.events, list)
        try:
            event = next(more, None)
        except BaseException:
            if self.more is more:
                self.more = self._again()
            raise
        if self.more is not more:  # left behind meanwhile, and another thread goes on
            return False
        if event is None:
            self.more = None
            return False
        # texts of the values engine are written by what the search changes, so they are written here, in its thread
        self.events.append(event if self.settings.engine == "prefix" else settled(event))
        return True

    def leave(self) -> None:
        """Go on without the search that another thread is inside of: what it still finds is not taken."""
        if self.more is not None:
            self.more = self._again()

    def _again(self) -> Iterator[Event]:
        """Yield the events after those that are there, from a search of its own."""
        known = len(self.events)
        yield from islice(self.settings.events(), known, None)

    def read(self, upto: int | None = None, *, stop: Callable[[], bool] | None = None) -> None:
        """Let the tree read the events up to a number, or all that are there."""
        end = len(self.events) if upto is None else min(upto, len(self.events))
        while self.tree.read < end and not (stop is not None and stop()):
            slice_end = min(self.tree.read + SLICE, end)
            self.tree.extend([self.events[number] for number in range(self.tree.read, slice_end)])

    # ----------------------------------------------------------------------------------------------------------- events
    @property
    def desk(self) -> PrefixDesk | None:
        """What rebuilds prefixes; None where it cannot (`no_desk` says why)."""
        if self._desk is None and not self._no_desk and self.settings.engine == "prefix":
            settings = self.settings
            try:
                self._desk = PrefixDesk(settings.program, settings.space, settings.pruners, settings.seed)
            except WorkbenchError as error:
                self._no_desk = str(error)
        return self._desk

    @property
    def no_desk(self) -> str:
        """Why prefixes cannot be rebuilt, "" if they can."""
        return self._no_desk if self.settings.engine == "prefix" else "the values engine grows no prefixes"

    def view(self, number: int) -> EventView:
        """Return one event as view data. Raises: FormatError for a damaged record."""
        event = self.events[number]
        desk = self.desk
        extents = desk.extents if desk is not None else {}
        if desk is None or not isinstance(event, Extended | Pruned) or not event.prefix:
            return view_event(number, event, extents)
        try:
            name = event.prefix
            # the own texts of a live event would be written by the search that runs in another thread
            said = self._said(event, desk.look(name)) if self.is_live else event
            seen = view_event(number, said, extents)
            return seen if seen.latex else replace(seen, **self._formulas(desk, name))
        except WorkbenchError:
            return view_event(number, event, extents)

    @staticmethod
    def _said(event: Extended | Pruned, looked: Looked) -> Event:
        """Return an event whose texts come from a search of our own."""
        if isinstance(event, Extended):
            return replace(
                event, expression=looked.expression, latex=lambda: looked.expression(latex=True), goal=looked.goal,
                goal_latex=lambda: looked.goal(latex=True), verdicts=looked.lines,
            )  # fmt: skip
        return replace(
            event, subject=looked.subject, evidence=lambda: looked.evidence(event.rule), verdicts=looked.lines
        )

    @staticmethod
    def _formulas(desk: PrefixDesk, name: str) -> dict[str, Any]:
        """Return the formulas of a dropped prefix, which its event does not have."""
        looked = desk.look(name)
        texts = {"latex": looked.expression(latex=True), "goal": looked.goal(), "goal_latex": looked.goal(latex=True)}
        return {what: named(text, desk.extents) for what, text in texts.items()}

    def numbers(self, *kinds: str) -> list[int]:
        """Return the numbers of the events of these classes."""
        if isinstance(self.events, Replay):
            return list(self.events.find(*kinds))
        return [number for number, event in enumerate(self.events) if type(event).__name__ in kinds]

    def summary(self, title: str) -> RunSummary:
        """Return the run for a comparison, as far as the tree has read it."""
        kept, dropped = self.tree.counts(self.tree.read)
        ended = "finished" if self.is_finished else "stopped, may go on"
        return RunSummary(
            title=title, settings=self.settings.describe(), events=len(self.events), kept=kept, dropped=dropped,
            complete=len(self.numbers("Completed")), verified=len(self.numbers("Verified")), ended=ended,
        )  # fmt: skip
