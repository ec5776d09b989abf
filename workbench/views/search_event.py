"""One event of a search as plain view data, the same for a live search and for a record.

Invariant: texts are those of the event; numbers that a search writes in place of extents are replaced by the extents.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from workbench.search.events import (
    Completed,
    Event,
    Extended,
    Finished,
    Progress,
    Pruned,
    Refused,
    Started,
    ValueKept,
    Verified,
)
from workbench.search.problem import Problem
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.units import counted

_VERDICT = re.compile(r"(\S+) (keeps|drops): (.*)")
_PLACEHOLDER = re.compile(r"\b\d{7,}\b")


@dataclass(frozen=True, slots=True)
class PrunerSays:
    """What one pruner says of an extension, and why."""

    pruner: str
    keeps: bool
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EventView:
    """An event.

    Attributes: number; kind: name of its class; prefix, parent: names, "" where it is of none; operator: in words; rule:
    that dropped it, "" if none did; expression, latex, goal, goal_latex: of the new tensor and of the program with the
    matched part marked; evidence; verdicts: of every pruner; distance: operators to a goal at least, None where unknown;
    graph: of a complete one; text: the event in words.
    """

    number: int
    kind: str
    text: str
    prefix: str = ""
    parent: str = ""
    operator: str = ""
    rule: str = ""
    expression: str = ""
    latex: str = ""
    goal: str = ""
    goal_latex: str = ""
    evidence: str = ""
    verdicts: tuple[PrunerSays, ...] = ()
    distance: int | None = None
    graph: KernelGraph | None = None


def view_event(number: int, event: Event, extents: Mapping[str, str] | None = None) -> EventView:
    """Return an event as view data. extents: what stands for the placeholder numbers, as `placeholders` gives it."""
    known = extents or {}
    kind = type(event).__name__
    match event:
        case Extended():
            return EventView(
                number=number, kind=kind, text=named(event.describe(), known), prefix=event.prefix, parent=event.parent,
                operator=named(event.operator, known), expression=named(event.expression(), known),
                latex=named(event.latex(), known), goal=named(event.goal(), known), goal_latex=named(event.goal_latex(), known),
                verdicts=says(named(event.verdicts(), known)), distance=event.distance if event.prefix else None,
            )  # fmt: skip
        case Pruned():
            subject = named(event.subject(), known)
            operator, _, expression = subject.partition(" = ")
            times = f" ({event.count:,} alike)" if event.count > 1 else ""
            return EventView(
                number=number, kind=kind, text=f"{event.rule} drops {subject}{times}", prefix=event.prefix,
                parent=event.parent, operator=operator.partition("(")[0] if event.prefix else subject, rule=event.rule,
                expression=expression if event.prefix else "", evidence=named(event.evidence(), known),
                verdicts=says(named(event.verdicts(), known)),
            )  # fmt: skip
        case ValueKept():
            return EventView(
                number=number, kind=kind, text=named(event.describe(), known), expression=named(event.text(), known),
                operator=event.place, distance=event.least,
            )  # fmt: skip
        case Completed():
            text = f"structure {event.number}: {counted(event.operators, 'operator')} in {counted(event.kernels, 'kernel')}"
            return EventView(number=number, kind=kind, text=text, graph=event.graph)
        case Verified() | Refused():
            return EventView(
                number=number, kind=kind, text=event.describe(), graph=event.graph, evidence=event.verdict.reason
            )
        case Started() | Progress() | Finished():
            return EventView(number=number, kind=kind, text=event.describe())


def says(text: str) -> tuple[PrunerSays, ...]:
    """Return pruners' verdicts from their lines; a line of another form continues the one before."""
    found: list[PrunerSays] = []
    for line in text.split("\n"):
        match = _VERDICT.fullmatch(line)
        if match:
            found.append(PrunerSays(match[1], match[2] == "keeps", match[3]))
        elif line and found:
            last = found.pop()
            found.append(PrunerSays(last.pruner, last.keeps, f"{last.why}\n{line}"))
    return tuple(found)


def placeholders(problem: Problem) -> dict[str, str]:
    """Return the extents that the numbers of a problem stand for."""
    return {str(number): str(problem.extents[name]) for name, number in problem.numbers.items()}


def named(text: str, extents: Mapping[str, str]) -> str:
    """Return a text with extents in place of the numbers that stand for them."""
    return _PLACEHOLDER.sub(lambda found: extents.get(found[0], found[0]), text) if extents else text
