"""Runs units in this process and, where that pays, in a copy of it: `fork`, so the copy imports and prepares nothing anew.

The copy begins with the unit that looks heaviest, then both take the next when they are free. Invariant: the events are
those of a search in one process; a copy that dies costs time, not results: its units are done here.
"""

from __future__ import annotations

import io
import os
import pickle
import select
import signal
import struct
import sys
import threading
import time
import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn, cast

from workbench.search.event_lines import settled, with_texts
from workbench.search.events import Event
from workbench.search.work import Known, Outcome, Unit, collected

AFTER_S = 0.05
"""Seconds of a search after which a copy is worth its making: some milliseconds, and the wait for it where others work."""

LATER_S = 1.0
"""Seconds for which a copy leaves texts to be written when somebody asks: whoever does waits while the unit runs again."""

_Result = tuple[list[Event], Outcome]
_SIZE = struct.Struct("<Q")
_CLAIM = struct.Struct("<H")


class Forked:
    """A `Runner` with one copy of this process at most.

    ahead: asked for every event that the copy makes, there, for what will be asked of it here and is kept in it. settles:
    texts will all be asked for (a record is written), so the copy writes them.
    """

    def __init__(self, *, ahead: Callable[[Event], object] | None = None, settles: bool = False) -> None:
        """Start nothing yet."""
        self.ahead, self.later_s = ahead, 0.0 if settles else LATER_S
        self._start = time.perf_counter()
        self._copy: _Copy | None = None

    def run(self, units: Sequence[Unit], known: Known) -> Generator[Generator[Event, None, Outcome], None, None]:
        """Yield per unit its events and outcome."""
        for number, unit in enumerate(units):
            if time.perf_counter() - self._start >= AFTER_S and can_fork(len(units) - number):
                yield from self._shared(units, number, {} if number else known)
                return
            yield unit.events({} if number else known)

    def close(self) -> None:
        """End the copy."""
        if self._copy is not None:
            self._copy.close()
            self._copy = None

    def _shared(
        self, units: Sequence[Unit], first: int, known: Known
    ) -> Generator[Generator[Event, None, Outcome], None, None]:
        """Yield the units from `first` on, which is done here; the copy begins with the one that may be most work."""
        heaviest = max(range(first + 1, len(units)), key=lambda number: units[number].weight)
        claims = _Claims([number for number in range(first + 1, len(units)) if number != heaviest])
        copy = self._copy = _Copy(units, heaviest, claims, self.ahead, self.later_s)
        try:
            yield units[first].events(known)
            results: dict[int, _Result] = {}
            mine = claims.next()
            for number in range(first + 1, len(units)):
                while number != mine and number not in results and not copy.is_lost:
                    if mine is None or copy.has_answer():
                        results |= copy.answer()
                    else:  # the copy is at it: another one meanwhile
                        results[mine] = collected(units[mine], {})
                        mine = claims.next()
                if number in results:
                    yield _replayed(*results.pop(number))
                else:
                    yield units[number].events({})
                    if number == mine:
                        mine = claims.next()
        finally:
            claims.close()
            self.close()


def can_fork(units: int) -> bool:
    """Return whether a copy of this process may be made for so many units, and there is a processor for it.

    Not beside other threads: the copy would have their locks without them.
    """
    return (
        3 <= units <= 8192  # as many claims as a pipe holds
        and sys.platform == "linux"
        and threading.active_count() == 1
        and len(os.sched_getaffinity(0)) > 1
    )


def _replayed(events: Sequence[Event], outcome: Outcome) -> Generator[Event, None, Outcome]:
    yield from events
    return outcome


class _Claims:
    """Numbers of units in a pipe: each is read once, by whichever process comes first, and in order."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self._source, sink = os.pipe()
        os.write(sink, b"".join(map(_CLAIM.pack, numbers)))  # a pipe holds more than that
        os.close(sink)

    def next(self) -> int | None:
        """Return the next number, None when all are taken."""
        claim = os.read(self._source, _CLAIM.size)
        return int(_CLAIM.unpack(claim)[0]) if claim else None

    def close(self) -> None:
        """Close this process's end."""
        os.close(self._source)


class _Copy:
    """The other process, as seen from this one. Attributes: is_lost: it will not answer any more."""

    def __init__(
        self,
        units: Sequence[Unit],
        first: int,
        claims: _Claims,
        ahead: Callable[[Event], object] | None,
        later_s: float,
    ) -> None:
        self._units, self.is_lost = units, False
        self._source, sink = os.pipe()
        parent = os.getpid()
        with warnings.catch_warnings():  # Python 3.12 warns of threads; those of libraries end at a fork by themselves
            warnings.simplefilter("ignore", DeprecationWarning)
            self._process = os.fork()
        if not self._process:
            _serve(_Worker(parent, self._source, sink, ahead, later_s), units, first, claims)
        os.close(sink)

    def has_answer(self) -> bool:
        """Return whether something, be it its end, has come from the copy."""
        return bool(select.select([self._source], [], [], 0)[0])

    def answer(self) -> dict[int, _Result]:
        """Wait for the next unit and return it by number; {} when the copy has ended, or cannot do the unit."""
        size = self._read(_SIZE.size)
        message = self._read(_SIZE.unpack(size)[0]) if size else b""
        if not message:
            self.is_lost = True
            return {}
        number = _CLAIM.unpack(message[: _CLAIM.size])[0]
        return {number: _Reader(message[_CLAIM.size :], _Again(self._units[number])).load()}

    def close(self) -> None:
        """End the process, wherever it is."""
        os.close(self._source)
        with suppress(ProcessLookupError):
            os.kill(self._process, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(self._process, 0)

    def _read(self, size: int) -> bytes:
        """Return so many bytes; b"" when the copy ended before."""
        parts = []
        while size:
            part = os.read(self._source, size)
            if not part:
                return b""
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


# --------------------------------------------------------------------------------------------------- texts, when asked
class _Again:
    """What a unit says, had by running it once more."""

    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self._events: list[Event] | None = None

    def text(self, number: int, name: str) -> str:
        """Return a text of an event."""
        if self._events is None:
            self._events = collected(self._unit, {})[0]
        return cast(str, getattr(self._events[number], name)())


@dataclass(frozen=True, slots=True)
class Later:
    """A text that stayed in the process that made the event. Attributes: again; number: of the event in its unit; name."""

    again: _Again | None
    number: int
    name: str

    def __call__(self) -> str:
        """Return it."""
        assert self.again is not None
        return self.again.text(self.number, self.name)

    def __reduce__(self) -> tuple[object, ...]:
        """Leave the unit behind: `_Reader` adds it."""
        return Later, (self.number, self.name)


class _Reader(pickle.Unpickler):
    """Reads events whose texts come later."""

    def __init__(self, message: bytes, again: _Again) -> None:
        super().__init__(io.BytesIO(message))
        self._again = again

    def find_class(self, module: str, name: str) -> Any:
        """Return what a name stands for."""
        found = super().find_class(module, name)
        return partial(Later, self._again) if found is Later else found


# ------------------------------------------------------------------------------------------------------------ the copy
@dataclass(frozen=True)
class _Worker:
    """What the copy knows of its task."""

    parent: int
    source: int
    sink: int
    ahead: Callable[[Event], object] | None
    later_s: float

    def each(self, event: Event) -> None:
        """Do what is done for every event."""
        if os.getppid() != self.parent:
            os._exit(1)
        if self.ahead is not None:
            self.ahead(event)

    def send(self, number: int, result: object) -> None:
        """Answer."""
        message = _CLAIM.pack(number) + pickle.dumps(result, pickle.HIGHEST_PROTOCOL)
        rest = memoryview(_SIZE.pack(len(message)) + message)
        while rest:
            rest = rest[os.write(self.sink, rest) :]


def _serve(worker: _Worker, units: Sequence[Unit], first: int, claims: _Claims) -> NoReturn:
    """Do the first unit, then others until all are taken; then, or when anything goes wrong, end.

    What was not answered is done where it was asked for.
    """
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever made the copy ends it
        os.close(worker.source)
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(nothing, stream)
        start = time.perf_counter()
        number: int | None = first
        while number is not None:
            events, outcome = collected(units[number], {}, worker.each)
            if time.perf_counter() - start > worker.later_s:
                events = [settled(event) for event in events]
            else:
                events = [_unsettled(event, place) for place, event in enumerate(events)]
            worker.send(number, (events, outcome))
            number = claims.next()
    finally:
        os._exit(0)


def _unsettled(event: Event, number: int) -> Event:
    return with_texts(event, lambda name, _: Later(None, number, name))
