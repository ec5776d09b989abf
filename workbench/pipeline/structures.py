"""The first stage: which structures compute a program, or its parts where it is not LAX as a whole.

Invariant: every structure that is handed on was confirmed by the search's test; every rule that left something out is
counted, with one example in words.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from workbench.pipeline.candidate import Refusal
from workbench.pipeline.progress import Progress, Stage
from workbench.pipeline.run_folder import RunFolder
from workbench.search.engine import DEMAND
from workbench.search.events import Completed, Finished, Pruned, Refused, ValueKept, Verified
from workbench.search.events import Progress as SearchProgress
from workbench.search.searching import search
from workbench.search.space import Space
from workbench.search.summary import Structure
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.lax import LaxPart, split_lax
from workbench.units import counted

NARROW = 8
"""Operators of the space that is searched first where none is named."""

OUT_OF_REACH = 4
"""Values that are met in the narrow space and take more operators than are left, for each that is kept, above which a wider
space is left alone: it would take most of them apart. Roots of sums have 6 to 12, other programs at most 0.2; the time of
one of them (ntrans) grows more than thirtyfold from 8 to 11 operators."""

MANY_STRUCTURES = 200
"""Structures of the narrow space above which a wider one, which has still more, is left alone."""

LARGEST_PART = 12
"""Operators of the kernel level above which a part is cut further: the search's limit on operators, and a little more."""


@dataclass(slots=True)
class PartFound:
    """What the search found for one part.

    Attributes: part; space: that was searched; structures: each once by structure hash; refusals; finished: the counts,
    None if interrupted or if the part is not searched (one operator without meaning in a field); kept: values that may be
    part of a graph, counted in every plan; out_of_reach: how often the search said that something takes more operators
    than are left, which it says of a value once for all plans that cut the same axes.
    """

    part: LaxPart
    space: Space
    structures: list[Structure] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    finished: Finished | None = None
    kept: int = 0
    out_of_reach: int = 0


@dataclass(frozen=True, slots=True)
class Subjects:
    """What is searched for.

    Attributes: parts: the LAX parts, one by one; whole: the program in one piece beside them, where it is cut only
    because it is not LAX (the search takes an operator without meaning in a field as a random function).
    """

    parts: tuple[LaxPart, ...]
    whole: LaxPart | None


def subjects_of(program: KernelGraph) -> Subjects:
    """Return what is searched for: a program that is LAX and not too large is its one part."""
    parts = split_lax(program)
    if len(program.nodes) > LARGEST_PART:
        return Subjects(split_lax(program, max_operators=LARGEST_PART), None)
    return Subjects(parts, LaxPart(program, True) if len(parts) > 1 else None)


def find_in_default_space(
    part: LaxPart, number: int, folder: RunFolder, *, seed: int, progress: Progress, is_stopped: Callable[[], bool]
) -> PartFound:
    """Return the structures of a part in the default space, or in a narrower one where the default one is too large.

    The choice depends on what the narrow search tells, not on how fast it was, and is kept in the folder. Raises: as
    `find_structures`.
    """
    search = partial(find_structures, part, seed=seed, progress=progress, is_stopped=is_stopped)
    record = folder.record(number)
    chosen = folder.chosen_space(number)
    if chosen is None:
        found = search(Space(max_block_ops=NARROW), record=record)
        if found.finished is None:
            return found  # the same call continues in the narrow space
        if is_large(found):
            folder.choose_space(number, NARROW)
            return found
        record.unlink(missing_ok=True)  # a record is of one space
        chosen = Space().max_block_ops
        folder.choose_space(number, chosen)
    return search(Space(max_block_ops=chosen), record=record)


def is_large(narrow: PartFound) -> bool:
    """Return whether a space wider than the one searched would hold too much, by what was met in it."""
    return narrow.out_of_reach > OUT_OF_REACH * narrow.kept or len(narrow.structures) > MANY_STRUCTURES


def find_structures(
    part: LaxPart,
    space: Space,
    *,
    seed: int,
    record: Path | None,
    progress: Progress,
    is_stopped: Callable[[], bool],
) -> PartFound:
    """Return the structures of a part.

    record: a file that the events are written to, and continued from if it holds an interrupted search; is_stopped:
    asked at every event. Raises: KeyboardInterrupt as it comes, after the record is closed; UsageError for a record of
    another search.
    """
    found = PartFound(part, space)
    if not part.is_lax:
        return found
    known: set[str] = set()
    completed: dict[int, Completed] = {}
    counts: dict[str, int] = {}
    examples: dict[str, Pruned] = {}
    events = search(part.graph, space=space, seed=seed, record=record)
    try:
        for event in events:
            match event:
                case SearchProgress():
                    progress(Stage("search", event.done, event.total, counted(len(found.structures), "structure")))
                case Completed():
                    completed[event.number] = event
                case Verified():
                    structure_hash = event.graph.structure_hash
                    if structure_hash not in known:
                        known.add(structure_hash)
                        own = completed[event.number]
                        found.structures.append(Structure(event.graph, own.operators, own.kernels))
                case Refused():
                    found.refusals.append(
                        Refusal(
                            stage="search",
                            what=f"structure {event.number}",
                            reason=event.verdict.reason,
                            structure_hash=event.graph.structure_hash,
                        )
                    )
                case ValueKept():
                    found.kept += 1
                case Pruned():
                    found.out_of_reach += event.rule == DEMAND
                    counts[event.rule] = counts.get(event.rule, 0) + event.count
                    examples.setdefault(event.rule, event)
                case Finished():
                    found.finished = event
                case _:
                    pass
            if is_stopped():
                break
    finally:
        close = getattr(events, "close", None)
        if close is not None:
            close()
    for rule, example in examples.items():
        found.refusals.append(
            Refusal(stage="search", what=example.subject(), reason=f"{rule}: {example.evidence()}", count=counts[rule])
        )
    return found
