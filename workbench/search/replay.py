"""A recorded search, read without searching: any event by its number. Invariant: opening a record parses no event.

Opening finds where lines begin; an event is parsed when it is asked for, and a graph when an event that shows it is. A
last line that a killed process left unfinished is left out and told about; any other damage is an error that names the
line: of a unit's mark when the record is opened, of an event or a graph when it is read. A mark says how many events its
unit has, so lines that are missing are told as well.
"""

from __future__ import annotations

import json
import logging
import mmap
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import overload

from workbench.display import Displayed
from workbench.errors import FormatError
from workbench.search.event_lines import SCHEMA_VERSION, read_event
from workbench.search.events import Event, Finished
from workbench.search.space import Space
from workbench.search.work import Outcome
from workbench.ugraph.json_reader import read_graph
from workbench.ugraph.json_value import JsonValue
from workbench.ugraph.kernel_graph import KernelGraph

KIND = "search"
_LINE = re.compile(rb'^\{"(?:(event)":"(\w+)|(graph)":"(\w+)|(unit)":|(search)":)', re.MULTILINE)
_LOG = logging.getLogger("workbench.search")


@dataclass(frozen=True, slots=True)
class Header:
    """What a record is of.

    Attributes: program, program_hash; space; seed; engine; options: whatever else decides the events, plain values;
    workbench: version that made it; version: of the lines.
    """

    program: KernelGraph
    program_hash: str
    space: Mapping[str, object]
    seed: int
    engine: str
    options: Mapping[str, object] = field(default_factory=dict)
    workbench: str = ""
    version: int = SCHEMA_VERSION


@dataclass(frozen=True, slots=True)
class UnitMark:
    """A finished unit of work. Attributes: name; end: number of the event after its last one; outcome; elapsed_s."""

    name: str
    end: int
    outcome: Outcome
    elapsed_s: float


class Replay(Displayed, Sequence[Event]):
    """A recorded search as a sequence of events.

    Attributes: path; header; units: of work that were finished, in order; message: what is wrong with the end of the
    file, "" if nothing; intact_bytes: how much of the file is whole lines.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Find the lines. Raises: FormatError when it is no record of a search, or lacks events of a unit; OSError."""
        self.path = Path(path)
        with self.path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
        self._events: list[int] = []
        self._names: list[str] = []
        self._graphs: dict[str, int] = {}
        self._units: list[tuple[int, int]] = []
        self._read: dict[str, KernelGraph] = {}
        self.message = ""
        self.intact_bytes = self._intact()
        self._scan()
        self.header = self._header()
        self.units = self._marks()

    # ------------------------------------------------------------------------------------------------------- sequence
    def __len__(self) -> int:
        return len(self._events)

    @overload
    def __getitem__(self, index: int) -> Event: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Event]: ...
    def __getitem__(self, index: int | slice) -> Event | Sequence[Event]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        start = self._events[index]
        try:
            return read_event(self._line(start), self.graph)
        except (ValueError, TypeError) as error:
            raise FormatError(f"{self.path}: line {self._line_number(start)}: {error}") from error

    def __iter__(self) -> Iterator[Event]:
        return (self[number] for number in range(len(self)))

    def kind(self, index: int) -> str:
        """Return the name of an event's class without reading the event."""
        return self._names[index]

    def find(self, *names: str) -> Iterator[int]:
        """Yield the numbers of the events of these classes, without reading any."""
        return (number for number, name in enumerate(self._names) if name in names)

    # -------------------------------------------------------------------------------------------------------- the rest
    @property
    def is_finished(self) -> bool:
        """Whether the search came to its end."""
        return bool(self._names) and self._names[-1] == Finished.__name__

    @cached_property
    def space(self) -> Space:
        """The space that was searched."""
        return Space.from_json(self.header.space)

    def graph(self, digest: str) -> KernelGraph:
        """Return a graph by its digest; it is read once. Raises: FormatError."""
        if digest not in self._read:
            if digest not in self._graphs:
                raise FormatError(f"the graph {digest} that the event shows is not in the record")
            start = self._graphs[digest]
            try:
                value = json.loads(self._line(start))["value"]
                self._read[digest] = read_graph(JsonValue(value, f"graph {digest}"))
            except (ValueError, KeyError, TypeError) as error:
                raise FormatError(f"its graph, line {self._line_number(start)}, cannot be read: {error}") from error
        return self._read[digest]

    @property
    def graph_digests(self) -> frozenset[str]:
        """The digests of all graphs."""
        return frozenset(self._graphs)

    def describe(self) -> str:
        """Return in a few lines what was recorded."""
        counts = ", ".join(f"{self._names.count(name)} {name}" for name in dict.fromkeys(self._names))
        state = "finished" if self.is_finished else "not finished"
        lines = [
            f"search of {self.header.program.name or 'a program'} ({self.header.engine} engine, seed {self.header.seed}), "
            f"{state}, {len(self)} events",
            counts,
        ]
        return "\n".join([*lines, *([self.message] if self.message else [])])

    def _line(self, start: int) -> bytes:
        end = self._bytes.find(b"\n", start)
        return self._bytes[start : end if end >= 0 else len(self._bytes)]

    def _line_number(self, start: int) -> int:
        return self._bytes[:start].count(b"\n") + 1

    def _intact(self) -> int:
        """Return where the last whole line ends."""
        size = len(self._bytes)
        last = size - 1 if size and self._bytes[size - 1 :] == b"\n" else size
        start = self._bytes.rfind(b"\n", 0, last) + 1
        if last < size:
            try:
                json.loads(self._bytes[start:last])
            except ValueError:
                pass
            else:
                return size
        if size:
            number = self._line_number(start)
            self.message = f"{self.path}: line {number}, the last one, is cut off or damaged and left out"
            _LOG.warning(self.message)
        return start

    def _scan(self) -> None:
        known = 1  # the header
        for match in _LINE.finditer(self._bytes, 0, self.intact_bytes):
            start = match.start()
            known += start > 0
            if match[1]:
                self._events.append(start)
                self._names.append(match[2].decode())
            elif match[3]:
                self._graphs.setdefault(match[4].decode(), start)
            elif match[5]:
                self._units.append((start, len(self._events)))
        if self.intact_bytes and known != self._bytes[: self.intact_bytes].count(b"\n"):
            self._refuse_foreign_line()

    def _refuse_foreign_line(self) -> None:
        """Name the first line that is no event, graph or mark. Raises: FormatError; the header is looked at elsewhere."""
        starts = {match.start() for match in _LINE.finditer(self._bytes, 0, self.intact_bytes)}
        start = self._bytes.find(b"\n") + 1
        while 0 < start < self.intact_bytes:
            if start not in starts:
                raise FormatError(f"{self.path}: line {self._line_number(start)}: no event, graph or mark of a search")
            start = self._bytes.find(b"\n", start) + 1

    def _header(self) -> Header:
        try:
            plain = json.loads(self._line(0)) if self.intact_bytes else {}
            version = plain[KIND]
        except (ValueError, KeyError, TypeError) as error:
            raise FormatError(f"{self.path} is no record of a search: its first line is no header") from error
        if version != SCHEMA_VERSION:
            raise FormatError(f"{self.path}: version {version!r} is not known; this workbench reads {SCHEMA_VERSION}")
        try:
            return Header(
                read_graph(JsonValue(plain["program"], "program")),
                plain["program_hash"],
                plain["space"],
                plain["seed"],
                plain["engine"],
                plain["options"],
                plain["workbench"],
                version,
            )
        except KeyError as error:
            raise FormatError(f"{self.path}: line 1: the header lacks {error}") from error

    def _marks(self) -> tuple[UnitMark, ...]:
        marks, before = [], 0
        for start, end in self._units:
            try:
                plain = json.loads(self._line(start))
                mark = UnitMark(plain["unit"], end, Outcome(**plain["outcome"]), plain["elapsed_s"])
                events = plain.get("events", end - before)  # records of older versions do not say how many
            except (ValueError, KeyError, TypeError) as error:
                raise FormatError(
                    f"{self.path}: line {self._line_number(start)}: no mark of a unit: {error}"
                ) from error
            if events != end - before:
                where = f"{self.path}: line {self._line_number(start)}"
                raise FormatError(
                    f"{where}: the unit {mark.name!r} has {events} events, {end - before} are in the record"
                )
            marks.append(mark)
            before = end
        return tuple(marks)


def replay(path: str | os.PathLike[str]) -> Replay:
    """Return a recorded search as a sequence of events, without searching.

    A damaged last line is left out; `message` says so. Raises: FormatError for what is no record; OSError.
    """
    return Replay(path)
