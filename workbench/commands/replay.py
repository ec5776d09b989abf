"""`workbench replay`: print a recorded run the way it was printed when it ran, without running it again."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

from workbench.commands import findings
from workbench.commands.answer import Answer, Call, Json
from workbench.errors import FormatError, UsageError
from workbench.search.events import Event
from workbench.search.replay import Replay
from workbench.search.summary import collect

SEARCHES_OF_A_RUN = "search*.jsonl"
"""The records of searches in a folder that `workbench optimize` wrote: one for each part of the program."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "run", type=Path, metavar="RUN", help="a record of a search, or the folder of a run with search.jsonl in it"
    )
    parser.add_argument("--events", action="store_true", help="print every event in words as well")
    findings.add_arguments(parser)


def run(call: Call) -> Answer:
    """Return what was recorded; the answer is no if the search found nothing. Raises: UsageError, FormatError, OSError."""
    if call.settings:
        raise UsageError("a record has its own sizes; leave --set away")
    path: Path = call.arguments.run
    if not path.is_dir():
        return _record(path, call)
    records = sorted(path.glob(SEARCHES_OF_A_RUN), key=lambda file: (len(file.name), file.name))
    if not records:
        raise UsageError(f"{path} holds no search.jsonl; name a record, or a folder with one")
    answers = [_record(file, call) for file in records]
    if len(answers) == 1:
        return answers[0]
    parts: list[Json] = [answer.values for answer in answers]  # of a program that was cut into parts
    text = "\n\n".join(answer.text for answer in answers)
    return Answer(text, {**answers[0].values, "parts": parts}, is_yes=all(answer.is_yes for answer in answers))


def _record(path: Path, call: Call) -> Answer:
    with path.open("rb") as file:
        beginning = file.read(40)
    for mark, reader in _READERS.items():
        if beginning.startswith(mark):
            return reader(path, call)
    raise FormatError(f"{path} is no record that this version replays: expected the record of a search")


def _search(path: Path, call: Call) -> Answer:
    start = time.perf_counter()
    record = Replay(path)
    told: list[str] = []

    def tell(event: Event) -> None:
        if call.arguments.events:
            told.append(event.describe())

    found = collect(record, record.space, tell)
    header = record.header
    known = findings.known_structures(findings.studied(header.program))
    counts: dict[str, Json] = {}
    for number in range(len(record)):
        kind = record.kind(number)
        counts[kind] = int(str(counts.get(kind, 0))) + 1
    values: dict[str, Json] = {
        "program": header.program.name,
        "hash": header.program_hash,
        "engine": header.engine,
        "seed": header.seed,
        **findings.values_of(found, known),
        "record": str(path),
        "workbench": header.workbench,
        "events": counts,
        "message": record.message,
        "seconds": found.finished.seconds if found.finished is not None else None,
        "replay_seconds": time.perf_counter() - start,
    }
    lines = [record.describe(), *told, *findings.lines_of(found, known, graphs=call.arguments.graphs)]
    if not found.structures and found.finished is not None:
        lines.append("nothing found")
    return Answer("\n".join(lines), values, is_yes=bool(found.structures))


_READERS: dict[bytes, Callable[[Path, Call], Answer]] = {b'{"search":': _search}
"""How a record begins, and what reads it."""
