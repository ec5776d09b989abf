"""Searches that a copy of their process helps with; each is run in a process of its own, where no thread stands by.

python -c "from tests.unit.search.forked_runs import NAME; NAME(...)"
"""

from __future__ import annotations

import copy
import json
import math
import os
import pickle
import signal
import threading
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import workbench as wb
from tests.unit.search.small_works import Numbered, Small, SmallWork, lines_of
from workbench.search import forked
from workbench.search.driver import drive
from workbench.search.events import Event, Pruned, Said, Started
from workbench.search.forked import Forked
from workbench.search.recording import Recorder
from workbench.search.searching import subject_of
from workbench.search.space import Space
from workbench.search.work import Known, Outcome

forked.AFTER_S = 0.0
PROGRAM, SPACE = wb.programs.get("gqa"), Space()


def open_files() -> int:
    """Return how many files this process has open."""
    return len(os.listdir("/proc/self/fd"))


def has_children() -> bool:
    """Return whether a process that this one made has not been waited for."""
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return True


def tell(**values: object) -> None:
    """Print what a test reads, and that nothing is left behind."""
    print(json.dumps({**values, "children": has_children()}))


def whole_search(folder: str) -> None:
    """A search alone, with a copy, and with one that writes all texts; who saw the copy's events; open files."""
    seen = Path(folder) / "seen"

    def ahead(event: Event) -> None:
        with seen.open("a") as file:
            file.write(f"{os.getpid()} ")

    alone = lines_of(list(wb.search(PROGRAM, space=SPACE)))
    before = open_files()
    later = lines_of(list(wb.search(PROGRAM, space=SPACE, executor=Forked(ahead=ahead))))
    settled = lines_of(list(wb.search(PROGRAM, space=SPACE, executor=Forked(ahead=ahead, settles_after_s=0.0))))
    processes = set(seen.read_text().split())
    tell(
        later=later == alone, settled=settled == alone, events=len(alone), copies=len(processes),
        here=str(os.getpid()) in processes, files=open_files() - before,
    )  # fmt: skip


def texts_of_the_copy() -> None:
    """How many texts come later, and whether they are then what they are without a copy."""
    alone = list(wb.search(PROGRAM, space=SPACE))
    events = list(wb.search(PROGRAM, space=SPACE, executor=Forked()))
    pairs = [
        (one.evidence, other.evidence)
        for one, other in zip(alone, events, strict=True)
        if isinstance(one, Pruned) and isinstance(other, Pruned)
    ]
    tell(
        later=sum(isinstance(other, forked.Later) for _, other in pairs),
        same=all(one() == other() for one, other in pairs),
    )


def killed_copy(folder: str) -> None:
    """The copy dies at its first unit."""
    units = [Small(0), Small(1, kills=(Path(folder) / "killed", 1)), Small(2), Small(3)]
    events = list(drive(SmallWork(units), runner=Forked()))
    expected = list(drive(SmallWork([Small(number) for number in range(4)])))
    tell(same=lines_of(events) == lines_of(expected))


def is_later(event: Event) -> bool:
    """Return whether an event has words that stayed in the copy."""
    return isinstance(event, Pruned) and isinstance(event.evidence, forked.Later)


def texts_for_a_record() -> None:
    """How many texts come later: of a search without a record, and of one whose record begins or has begun."""
    later = []
    for settles_after_s in (math.inf, 3600.0, 0.0):
        runner = Forked(settles_after_s=settles_after_s)
        runner._start -= 60.0  # for so long it has been searching
        later.append(sum(map(is_later, wb.search(PROGRAM, space=SPACE, executor=runner))))
    tell(later=later)


def pickled_again() -> None:
    """Whether an event that came from the copy says the same when it is pickled here, or copied."""
    found = next(filter(is_later, wb.search(PROGRAM, space=SPACE, executor=Forked())))
    others = pickle.loads(pickle.dumps(found)), copy.deepcopy(found)
    tell(same=[other.describe() == found.describe() for other in others], later=any(map(is_later, others)))


def refused(what: str) -> None:
    """A search for which no process, or no pipe, is to be had, or only a small one; how often it asked; open files."""
    asked = list[int]()
    actual = getattr(os, what)

    def refuse(*arguments: bytes) -> int:
        asked.append(1)
        if what == "write":  # a pipe of one page, which a user with many pipes gets
            return int(actual(arguments[0], arguments[1][:4]))
        raise BlockingIOError("planned")

    units = [Small(number) for number in range(6)]
    expected = lines_of(list(drive(SmallWork(units))))
    before = open_files()
    setattr(os, what, refuse)
    events = lines_of(list(drive(SmallWork(units), runner=Forked())))
    setattr(os, what, actual)
    tell(same=events == expected, asked=len(asked), files=open_files() - before)


def more_units_than_claims() -> None:
    """Units of a round of which only the last ones are shared."""
    count = 65600
    run = Forked().run([Brief(number) for number in range(count)], {})
    names = [event.describe() for events in run for event in events]
    tell(same=names == [f"searching unit {number}" for number in range(count)])


def without_streams() -> None:
    """A search of a process whose standard streams are closed, so that pipes get their numbers."""
    alone = lines_of(list(wb.search(PROGRAM, space=SPACE)))
    kept = os.dup(1), os.dup(2)
    for stream in range(3):
        os.close(stream)
    events = list(wb.search(PROGRAM, space=SPACE, executor=Forked()))
    for stream, copied in enumerate(kept, 1):
        os.dup2(copied, stream)
    tell(same=lines_of(events) == alone, helped=any(map(is_later, events)))


def interrupted() -> None:
    """Ctrl-C while the copy is made, and again while it is ended."""
    fork, wait, said, before = os.fork, os.waitpid, list[str](), open_files()

    def interrupted_fork() -> int:
        process = fork()
        signal.raise_signal(signal.SIGINT)
        return process

    def interrupted_wait(process: int, options: int) -> tuple[int, int]:
        signal.raise_signal(signal.SIGINT)
        return wait(process, options)

    os.fork, os.waitpid = interrupted_fork, interrupted_wait
    try:
        list(drive(Endless(), runner=Forked()))
    except KeyboardInterrupt:
        said.append("interrupted")
    os.fork, os.waitpid = fork, wait
    tell(said=said, files=open_files() - before, handled=signal.getsignal(signal.SIGINT) is signal.default_int_handler)


def failing_unit() -> None:
    """A unit fails, in the copy and then here."""
    said = ""
    try:
        list(drive(SmallWork([Small(0), Small(1, fails=True), Small(2)]), runner=Forked()))
    except ArithmeticError as error:
        said = str(error)
    tell(said=said)


def left_early() -> None:
    """A search that is closed while the copy works."""
    before = open_files()
    run = drive(Endless(), runner=Forked())
    next(run)
    run.close()
    tell(files=open_files() - before)


def continued(folder: str) -> None:
    """A record of a search with a copy, left in the middle and continued with another."""
    path = Path(folder) / "run.jsonl"
    alone = lines_of(list(wb.search(PROGRAM, space=SPACE)))
    subject = subject_of(PROGRAM, SPACE, "values", None, None, 0)
    run = wb.search(PROGRAM, space=SPACE, executor=Forked(settles_after_s=0.0), record=Recorder(path, subject))
    for _ in range(len(alone) // 2):
        next(run)
    run.close()
    again = lines_of(list(wb.search(PROGRAM, space=SPACE, executor=Forked(), record=path)))
    tell(same=again == alone, replayed=lines_of(list(wb.replay(path))) == alone)


def beside_a_thread() -> None:
    """Whether a copy would be made, alone and beside a thread."""
    alone = forked.can_fork(3), forked.can_fork(2)
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    beside = forked.can_fork(3)
    end.set()
    thread.join()
    tell(alone=alone, beside=beside, processors=len(os.sched_getaffinity(0)))


@dataclass(frozen=True)
class Brief(Numbered):
    """A unit that says its name."""

    def events(self, known: Known) -> Generator[Event, None, Outcome]:
        yield Started(self.name)
        return Outcome(steps=1)


@dataclass(frozen=True)
class EndlessUnit(Numbered):
    """A unit that never ends, unless it is unit 0, which waits. file: where the process that does it leaves its number."""

    file: Path | None = None

    def events(self, known: Known) -> Generator[Event, None, Outcome]:
        yield Started(self.name)
        if self.file is not None:
            self.file.write_text(str(os.getpid()))
        while True:
            time.sleep(0.01)
            if self.number:
                yield Pruned(self.name, "none", Said(""), Said(""))


@dataclass
class Endless:
    """Three units that never end."""

    file: Path | None = None
    total = 3

    def rounds(self) -> Generator[list[EndlessUnit], object, None]:
        yield [EndlessUnit(0), EndlessUnit(1, self.file), EndlessUnit(2)]

    def note(self, event: Event) -> None:
        pass


def ended_from_outside(folder: str) -> None:
    """This process ends itself the hard way once its copy has begun."""
    file = Path(folder) / "copy"
    run = drive(Endless(file), runner=Forked())
    next(run)
    while not (file.exists() and file.read_text()):
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)
