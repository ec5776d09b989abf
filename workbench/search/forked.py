"""Runs units in this process and, where that pays, in a copy of it: `fork`, so the copy imports and prepares nothing anew.

The copy begins with the unit that looks heaviest, then both take the next when they are free. Invariant: the events are
those of a search in one process; a copy that dies, or cannot be made, costs time, not results: its units are done here.
"""

from __future__ import annotations

import io
import math
import os
import pickle
import select
import signal
import struct
import sys
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn, cast

from workbench.search.event_lines import settled, with_texts
from workbench.search.events import Event, Said
from workbench.search.work import Known, Outcome, Unit, collected

AFTER_S = 0.05
"""Seconds of a search after which a copy is worth its making: some milliseconds, and the wait for it where others work."""

LONG_MS = 400
"""Guessed milliseconds of a round for which a copy is made at once."""

_Result = tuple[list[Event], Outcome]
_SIZE = struct.Struct("<Q")
_CLAIM = struct.Struct("<I")


class Forked:
    """A `Runner` with one copy of this process at most.

    ahead: asked for every event that the copy makes, there, for what will be asked of it here and is kept in it.
    settles_after_s: seconds from now on after which texts will all be asked for (a record is written), so that the copy
    writes them; before, it leaves them to be written when somebody asks, who then waits while the unit runs again.
    """

    def __init__(self, *, ahead: Callable[[Event], object] | None = None, settles_after_s: float = math.inf) -> None:
        """Start nothing yet."""
        self.ahead, self.settles_after_s = ahead, settles_after_s
        self._start = time.perf_counter()
        self._copy: _Copy | None = None
        self._is_refused = False

    def run(self, units: Sequence[Unit], known: Known) -> Generator[Generator[Event, None, Outcome], None, None]:
        """Yield per unit its events and outcome."""
        is_long = sum(unit.guess_ms for unit in units) >= LONG_MS
        try:
            for number, unit in enumerate(units):
                first = {} if number else known
                is_worth_it = is_long or time.perf_counter() - self._start >= AFTER_S
                if is_worth_it and can_fork(len(units) - number):
                    copy = self._made(units, number)
                    if copy is not None:
                        yield from _shared(copy, units, number, first)
                        return
                yield unit.events(first)
        finally:
            self.close()

    def close(self) -> None:
        """End the copy."""
        with _uninterrupted():
            copy, self._copy = self._copy, None
            if copy is not None:
                copy.close()

    def _made(self, units: Sequence[Unit], first: int) -> _Copy | None:
        """Return a copy that begins, of the units after `first`, with the one that may be most work; None without one."""
        if self._is_refused:
            return None
        heaviest = max(range(first + 1, len(units)), key=lambda number: units[number].guess_ms)
        others = [number for number in range(first + 1, len(units)) if number != heaviest]
        try:
            with _uninterrupted():
                self._copy = _Copy(units, heaviest, others, self.ahead, self._start + self.settles_after_s)
        except OSError:  # no further process, or file, is to be had
            self._is_refused = True
        return self._copy


def can_fork(units: int) -> bool:
    """Return whether a copy of this process may be made for so many units, and there is a processor for it.

    Not beside other threads: the copy would have their locks without them.
    """
    return (
        3 <= units <= 8192  # half of the claims that a pipe holds
        and sys.platform == "linux"
        and threading.active_count() == 1
        and len(os.sched_getaffinity(0)) > 1
    )


def _shared(
    copy: _Copy, units: Sequence[Unit], first: int, known: Known
) -> Generator[Generator[Event, None, Outcome], None, None]:
    """Yield the units from `first` on, which is done here."""
    yield units[first].events(known)
    results: dict[int, _Result] = {}
    mine = copy.claims.next()
    for number in range(first + 1, len(units)):
        while number != mine and number not in results and not copy.is_lost:
            if mine is None or copy.has_answer():
                results |= copy.answer()
            else:  # the copy is at it: another one meanwhile
                results[mine] = collected(units[mine], {})
                mine = copy.claims.next()
        if number in results:
            yield _replayed(*results.pop(number))
        else:
            yield units[number].events({})
            if number == mine:
                mine = copy.claims.next()


def _replayed(events: Sequence[Event], outcome: Outcome) -> Generator[Event, None, Outcome]:
    yield from events
    return outcome


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Put Ctrl-C off to the end, so that no process is half made, or half ended."""
    is_main = threading.current_thread() is threading.main_thread()  # where signals come, and may be set
    before = signal.getsignal(signal.SIGINT) if is_main else None
    if before is None:
        yield
        return
    came: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came:
            signal.raise_signal(signal.SIGINT)


class _Claims:
    """Numbers of units in a pipe: each is read once, by whichever process comes first, and in order. Attributes: source."""

    def __init__(self, numbers: Sequence[int]) -> None:
        """Fill the pipe. Raises: OSError where it cannot be made, or holds less than this system's pipes usually do."""
        self.source, sink = os.pipe()
        claims = b"".join(map(_CLAIM.pack, numbers))
        try:
            os.set_blocking(sink, False)
            if os.write(sink, claims) < len(claims):
                raise BlockingIOError(f"a pipe does not hold {len(numbers)} claims")
        except OSError:
            os.close(self.source)
            raise
        finally:
            os.close(sink)

    def next(self) -> int | None:
        """Return the next number, None when all are taken."""
        claim = os.read(self.source, _CLAIM.size)
        return int(_CLAIM.unpack(claim)[0]) if claim else None

    def close(self) -> None:
        """Close this process's end."""
        os.close(self.source)


class _Copy:
    """The other process, as seen from this one.

    Attributes: claims: of the units that it does not begin with; is_lost: it will not answer any more.
    """

    def __init__(
        self,
        units: Sequence[Unit],
        first: int,
        others: Sequence[int],
        ahead: Callable[[Event], object] | None,
        settles_at: float,
    ) -> None:
        """Make it. Raises: OSError where that is not possible; then nothing is left open."""
        self._units, self.is_lost = units, False
        with ExitStack() as opened:
            self.claims = _Claims(others)
            opened.callback(self.claims.close)
            self._source, sink = os.pipe()
            opened.callback(os.close, self._source)
            parent = os.getpid()
            try:
                with warnings.catch_warnings():  # Python 3.12 warns of threads; those of libraries end at a fork
                    warnings.simplefilter("ignore", DeprecationWarning)
                    self._process = os.fork()
                if not self._process:
                    _serve(_Worker(parent, self._source, sink, ahead, settles_at), units, first, self.claims)
            finally:
                os.close(sink)
            opened.pop_all()

    def has_answer(self) -> bool:
        """Return whether something, be it its end, has come from the copy."""
        poll = select.poll()
        poll.register(self._source, select.POLLIN)
        return bool(poll.poll(0))

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
        with suppress(ProcessLookupError):
            os.kill(self._process, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(self._process, 0)
        os.close(self._source)
        self.claims.close()

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
        """Leave the unit behind in the copy, where `_Reader` adds it; be the text itself anywhere else."""
        return (Later, (self.number, self.name)) if self.again is None else (Said, (self(),))


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
    """What the copy knows of its task. Attributes: settles_at: the time from which on texts are written, in seconds."""

    parent: int
    source: int
    sink: int
    ahead: Callable[[Event], object] | None
    settles_at: float

    def each(self, event: Event) -> None:
        """Do what is done for every event."""
        self.end_with_parent()
        if self.ahead is not None:
            self.ahead(event)

    def told(self, event: Event, number: int) -> Event:
        """Return an event, its number in its unit given, as it travels."""
        if time.perf_counter() < self.settles_at:
            return with_texts(event, lambda name, _: Later(None, number, name))
        self.end_with_parent()
        return settled(event)

    def end_with_parent(self) -> None:
        """End when the process that made this one has ended."""
        if os.getppid() != self.parent:
            os._exit(1)

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
        for stream in {0, 1, 2} - {worker.sink, claims.source}:  # pipes have these numbers where a stream was closed
            os.dup2(nothing, stream)
        number: int | None = first
        while number is not None:
            events, outcome = collected(units[number], {}, worker.each)
            worker.send(number, ([worker.told(event, place) for place, event in enumerate(events)], outcome))
            number = claims.next()
    finally:
        os._exit(0)
