"""Writes a search to a file while it goes by, so that it can be replayed, or continued after an interruption.

A record is a file of JSON lines: a header, then events, graphs, and a mark after each unit of work. Invariant: what was
told is in the file before it is told, up to what the operating system still holds; a process that is killed loses the
events of the last moments, which the next run tells again.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass, field
from io import BufferedWriter
from pathlib import Path

from workbench.errors import FormatError, UsageError
from workbench.search.event_lines import SCHEMA_VERSION, LineWriter, dump
from workbench.search.events import Event
from workbench.search.replay import Replay
from workbench.search.space import Space
from workbench.search.work import Outcome
from workbench.ugraph.hashes import digest
from workbench.ugraph.json_writer import write_graph
from workbench.ugraph.kernel_graph import KernelGraph

FLUSH_S = 0.2
"""Seconds after which events go to the operating system, if no unit ends before."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What is searched for, and everything else that decides the events.

    Attributes: program; space; seed; engine; options: further choices by name (pruners, verifier), plain values.
    """

    program: KernelGraph
    space: Space
    seed: int = 0
    engine: str = "values"
    options: Mapping[str, object] = field(default_factory=dict)

    def header(self) -> dict[str, object]:
        """Return the first line of a record."""
        return {
            "search": SCHEMA_VERSION,
            "workbench": version(),
            "engine": self.engine,
            "seed": self.seed,
            "program_hash": self.program.hash,
            "space": self.space.to_json(),
            "options": dict(self.options),
            "program": write_graph(self.program),
        }

    @property
    def key(self) -> str:
        """The same for searches that give the same events, 32 hexadecimal digits."""
        return digest(dump(self.header()))


@dataclass(frozen=True, slots=True)
class UnitLine:
    """The line that marks a finished unit."""

    text: str


def version() -> str:
    """Return the version of the workbench (which this module must not import, being part of it)."""
    return str(getattr(sys.modules[__name__.partition(".")[0]], "__version__", ""))


class Recorder:
    """A `Journal` in a file.

    Attributes: path; past: the record of an interrupted run that is continued, None if there is none; elapsed_s.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        subject: Subject,
        *,
        resume: bool | None = True,
        after_s: float = 0.0,
        optional: bool = False,
    ) -> None:
        """Look at the file.

        resume: continue what it holds, else replace a record of a search; None: continue an unfinished one of this search,
        and replace any other. after_s: seconds before the first line is written, so that a short search leaves no file
        unless it is interrupted. optional: a record that nobody asked for; what is in its place gives way, and it is
        given up when it cannot be written.

        Raises: UsageError when it holds something else than this search; OSError.
        """
        self.path = Path(path)
        self._optional, self._given_up = optional, False
        self.past = self._past(subject, resume=resume)
        self._subject = subject
        self._open: BufferedWriter | None = None
        self._lines = LineWriter(set(self.past.graph_digests) if self.past is not None else None)
        units = self.past.units if self.past is not None else ()
        self.elapsed_s = units[-1].elapsed_s if units else 0.0
        self._done = 0
        self._of_unit = 0  # events of the unit that is not finished yet
        self._flushed = time.perf_counter()
        self._first = self._flushed + after_s
        self._waiting: list[Event | UnitLine] = []

    def _past(self, subject: Subject, *, resume: bool | None) -> Replay | None:
        if not self.path.exists() or not self.path.stat().st_size:
            return None
        try:
            past = Replay(self.path)
        except FormatError as error:
            if self._optional:
                return None
            raise UsageError(f"{error}; it is left as it is: choose another file") from error
        if resume is None:
            resume = not past.is_finished and is_same(past, subject)
        if not resume:
            return None
        if not is_same(past, subject):
            if self._optional:
                return None
            raise UsageError(
                f"{self.path} holds another search ({difference(past, subject)}); choose another file, or delete it"
            )
        return past

    # -------------------------------------------------------------------------------------------------------- the past
    def past_unit(self, name: str) -> tuple[Iterator[Event], Outcome] | None:
        """Return the events and the outcome of the next unit if the file has all of it. Raises: FormatError."""
        if self.past is None or self._done >= len(self.past.units):
            return None
        mark = self.past.units[self._done]
        if mark.name != name:
            raise FormatError(f"{self.path}: unit {mark.name!r} where this version has {name!r}; record it anew")
        past, start = self.past, self.past.units[self._done - 1].end if self._done else 0
        self._done += 1
        return (past[number] for number in range(start, mark.end)), mark.outcome

    def past_events(self, name: str) -> Sequence[Event]:
        """Return the events that the file has of a unit that was not finished; the one that is asked for first."""
        if self.past is None or self._done != len(self.past.units):
            return ()
        units = self.past.units
        self._done += 1
        events = self.past[units[-1].end if units else 0 :]
        self._of_unit = len(events)
        return events

    # ----------------------------------------------------------------------------------------------------- the present
    def keep(self, event: Event) -> None:
        """Write an event."""
        self._of_unit += 1
        self._write(event)

    def end_unit(self, name: str, outcome: Outcome, elapsed_s: float) -> None:
        """Write the mark of a finished unit."""
        events, self._of_unit = self._of_unit, 0
        mark = {"unit": name, "events": events, "outcome": asdict(outcome), "elapsed_s": round(elapsed_s, 6)}
        self._write(UnitLine(dump(mark)))

    def _write(self, item: Event | UnitLine) -> None:
        self._waiting.append(item)
        now = time.perf_counter()
        if now >= self._first:
            self._write_waiting()
            if not self._given_up and (isinstance(item, UnitLine) or now - self._flushed > FLUSH_S):
                self._flush()

    def _write_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        if self._given_up:
            return
        try:
            for item in waiting:
                lines = [item.text] if isinstance(item, UnitLine) else self._lines.lines(item)
                self._file.writelines(line.encode() + b"\n" for line in lines)
        except OSError:
            if not self._optional:
                raise
            self._given_up = True

    def close(self, *, finished: bool) -> None:
        """Write what is still to be written, and close the file. finished: the search came to its end."""
        if self._open is not None or not finished:
            self._write_waiting()
        if self._open is not None:
            with suppress(OSError) if self._optional else nullcontext():
                self._open.close()

    @property
    def _file(self) -> BufferedWriter:
        """The file, opened when there is something to write."""
        if self._open is None:
            if self.past is None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._open = self.path.open("wb")
                self._open.write(dump(self._subject.header()).encode() + b"\n")
                self._flush()
            else:
                os.truncate(self.path, self.past.intact_bytes)
                self._open = self.path.open("ab")
        return self._open

    def _flush(self) -> None:
        self._file.flush()
        self._flushed = time.perf_counter()


def is_same(past: Replay, subject: Subject) -> bool:
    """Return whether a record is of this search, made by this version."""
    return not difference(past, subject)


def difference(past: Replay, subject: Subject) -> str:
    """Return in words what distinguishes a record from this search; "" if nothing does."""
    header = past.header
    if header.program_hash != subject.program.hash or write_graph(header.program) != write_graph(subject.program):
        return f"the program is {header.program.name or 'another one'}, {header.program_hash[:8]}"
    for what, found, wanted in (
        ("engine", header.engine, subject.engine),
        ("seed", header.seed, subject.seed),
        ("space", dict(header.space), subject.space.to_json()),
        ("options", dict(header.options), dict(subject.options)),
        ("version", header.workbench, version()),
    ):
        if dump(found) != dump(wanted):
            return f"{what} {dump(found)} instead of {dump(wanted)}"
    return ""


def record(
    events: Iterable[Event],
    path: str | os.PathLike[str],
    program: KernelGraph,
    space: Space | None = None,
    *,
    seed: int = 0,
    engine: str = "values",
) -> Iterator[Event]:
    """Yield the events, writing each to a file first; what else is given says in the file what they are of.

    Such a record replays; only `search(record=...)` can continue one. Raises: UsageError when the file exists and is no
    record of a search; OSError.
    """
    recorder = Recorder(path, Subject(program, space or Space(), seed, engine), resume=False)
    try:
        for event in events:
            recorder.keep(event)
            yield event
    finally:
        recorder.close(finished=True)
