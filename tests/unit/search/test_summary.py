"""What is gathered from the events of a search."""

from __future__ import annotations

from tests.unit.search.searched import NORM, PRODUCT, graph_of
from workbench.search.engine import search
from workbench.search.events import Completed, Event, Finished, Progress, Pruned, Said, Verified
from workbench.search.space import Space
from workbench.search.summary import OUT, Found, collect, gather, progress_lines
from workbench.search.verdicts import Screening
from workbench.ugraph.kernel_graph import KernelGraph


def completed(number: int, graph: KernelGraph) -> list[Event]:
    return [Completed("loops none", number, graph, 1, 1), Verified(number, graph, Screening("equal", "as said"))]


def test_a_structure_counts_once() -> None:
    scaled = graph_of(lambda x, w: x @ w, X=(80, 320), W=(320, 160))
    found = collect([*completed(0, PRODUCT), *completed(1, scaled), *completed(2, NORM)], Space())
    assert [one.graph for one in found.structures] == [PRODUCT, NORM]
    assert found.finished is None
    assert "interrupted" in found.describe()


def test_misses_and_reasons_are_kept() -> None:
    events: list[Event] = [
        Pruned("loops none", rule, Said("a graph"), Said(f"because of {rule}"), 2)
        for rule in ("memory", "layout", "demand", OUT)
    ]
    found = collect(events, Space())
    assert [event.rule for event in found.misses] == ["memory", "layout"]
    assert found.outside == [f"because of {OUT}"]
    assert found.pruned == {"memory": 2, "layout": 2, "demand": 2, OUT: 2}


def test_it_is_the_same_live_and_in_parts() -> None:
    events = list(search(NORM))
    whole, parts = collect(events, Space()), Found(Space())
    gather(events[:100], parts)
    gather(events[100:], parts)
    assert [one.structure_hash for one in parts.structures] == [one.structure_hash for one in whole.structures]
    assert whole.finished is events[-1]
    assert isinstance(whole.finished, Finished)
    assert all(text in whole.describe() for text in ("structure 0", "verified"))


def test_progress_is_told_in_words() -> None:
    told: list[str] = []
    events = [Progress(1, 4, 10, 2), *completed(0, PRODUCT)]
    assert list(progress_lines(events, told.append)) == events
    assert told == ["plan 1 of 4, 2 structures"]
