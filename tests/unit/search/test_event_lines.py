"""Events as lines of JSON: what is read back is the event that was written."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest

import workbench as wb
from tests.unit.search.small_works import small_graph
from workbench.errors import FormatError
from workbench.search.event_lines import EVENTS, LineWriter, read_event, settled
from workbench.search.events import (
    Completed,
    Event,
    Extended,
    Finished,
    Progress,
    Pruned,
    Refused,
    Said,
    Started,
    ValueKept,
    Verified,
)
from workbench.search.verdicts import RecordedVerdict, Screening
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.verify.compare import verify

GRAPH = small_graph()
EVERY: list[Event] = [
    Started("loops h"),
    ValueKept("loops h", 3, "LOOP", 2, lambda: "Σ_h[X·W]"),
    Extended("loops h", 3, "matmul", (1, 2)),
    Pruned("loops h", "demand", lambda: "X·X", Said("too far"), 7),
    Completed("loops h", 0, GRAPH, 4, 1),
    Verified(0, GRAPH, Screening("equal", "agrees", 1, (((2, 4), (4, 3)),))),
    Refused(1, small_graph(5), RecordedVerdict("unknown", "no meaning", {"tests": 3})),
    Progress(1, 4, 20, 2),
    Finished(20, 3, 2, 1, {"demand": 7, "layout": 1}, 0, 1.5),
]


def no_graph(digest: str) -> KernelGraph:
    """Fail: the line shows no graph."""
    raise KeyError(digest)


def written(event: Event) -> tuple[list[str], dict[str, KernelGraph]]:
    """Return the lines of an event, and the graphs among them as they are read back."""
    lines = LineWriter().lines(event)
    graphs = {}
    for line in lines[:-1]:
        plain = json.loads(line)
        document = {"schema": "mugraph-workbench", "version": 1, "graph": plain["value"]}
        (graphs[plain["graph"]],) = wb.loads(json.dumps(document))
    return lines, graphs


OF_PREFIXES: list[Event] = [
    Extended(
        "p", 3, "mul", (1, 2), "0.1.2", "0.1", 4, Said("X·X"), lambda: "X^2", Said("⟦X·X⟧·W"), verdicts=Said("keep")
    ),
    Pruned("p", "axes", Said("X"), Said("no"), prefix="0.1.3", parent="0.1", verdicts=lambda: "axes: drop"),
]


@pytest.mark.parametrize("event", OF_PREFIXES)
def test_events_of_prefixes(event: Event) -> None:
    lines, graphs = written(event)
    back = read_event(lines[-1], graphs.__getitem__)
    assert back == event
    for name in ("expression", "latex", "goal", "goal_latex", "verdicts", "subject", "evidence"):
        if hasattr(event, name):
            assert getattr(back, name)() == getattr(event, name)()
    assert "goal_latex" not in lines[-1]  # what is as it is by default is not written


@pytest.mark.parametrize("event", EVERY, ids=[type(event).__name__ for event in EVERY])
def test_round_trip(event: Event) -> None:
    lines, graphs = written(event)
    back = read_event(lines[-1], graphs.__getitem__)
    assert back == event
    assert back.describe() == event.describe()  # texts do not count in comparisons
    assert all("\n" not in line for line in lines)


def test_every_kind_is_tried() -> None:
    assert {type(event).__name__ for event in EVERY} == set(EVENTS)


def test_texts_are_as_they_were_when_written() -> None:
    words = ["first"]
    event = Pruned("p", "r", lambda: words[0], lambda: words[0])
    line = LineWriter().lines(event)[-1]
    settled_event = settled(event)
    words[0] = "second"
    assert isinstance(settled_event, Pruned)
    back = read_event(line, no_graph)
    assert isinstance(back, Pruned)
    assert (back.subject(), settled_event.evidence(), event.subject()) == ("first", "first", "second")


def test_a_graph_is_written_once() -> None:
    writer = LineWriter()
    counts = [len(writer.lines(event)) for event in (EVERY[4], EVERY[5], EVERY[6], EVERY[6], EVERY[4], EVERY[6])]
    assert counts == [2, 1, 2, 1, 1, 1]


def test_exact_numbers_and_unknown_verdicts() -> None:
    verdict = verify(GRAPH, GRAPH)
    lines, graphs = written(Verified(0, GRAPH, verdict))
    back = read_event(lines[-1], graphs.__getitem__)
    assert isinstance(back, Verified)
    assert isinstance(back.verdict, RecordedVerdict)
    assert (back.verdict.kind, back.verdict.reason) == ("equal", verdict.reason)
    assert back.verdict.to_json() == json.loads(json.dumps(verdict.to_json()))
    marked = Finished(0, 0, 0, 0, {"share": Fraction(1, 3)}, 0, 0.0)  # type: ignore[dict-item]
    assert read_event(LineWriter().lines(marked)[-1], no_graph) == marked


def test_what_has_no_json_form_is_refused() -> None:
    with pytest.raises(TypeError, match="object has no form in a record"):
        LineWriter().lines(Started(object()))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "expected an event"),
        ("[1]", "expected an event"),
        ('{"plan":"x"}', "expected an event"),
        ('{"event":"Started","plan":"x"', "expected an event"),
        ('{"event":"Exploded"}', "'Exploded' is not known"),
        ('{"event":"Started","plan":"x","colour":"red"}', "field 'colour'"),
        ('{"event":"Started"}', "lacks plan"),
    ],
)
def test_other_lines_are_refused(line: str, message: str) -> None:
    with pytest.raises(FormatError, match=message.replace("[", r"\[")):
        read_event(line, no_graph)
