"""The one door to both engines: what options reach the prefix engine, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.search.searched import graph_of
from workbench.errors import UsageError
from workbench.search.events import Event, Extended, Pruned, Verified
from workbench.search.replay import replay
from workbench.search.searching import search
from workbench.search.space import Space

PROGRAM = graph_of(lambda x, w: x @ w, X=(4, 8), W=(8, 6))
SPACE = Space(max_block_ops=2)


def told(**options: object) -> list[Event]:
    return list(search(PROGRAM, space=SPACE, options=options))


def test_options_choose_the_prefix_engine_and_reach_it() -> None:
    loud, quiet = told(quiet=False), told(quiet=True)
    assert any(isinstance(event, Extended) for event in loud)
    assert not any(isinstance(event, Extended) for event in quiet)
    graphs = [[e.graph.structure_hash for e in events if isinstance(e, Verified)] for events in (loud, quiet)]
    assert graphs[0] == graphs[1] != []


def test_a_search_begins_with_a_prefix_and_keeps_what_is_asked_for() -> None:
    events = told()
    first = next(event.prefix for event in events if isinstance(event, Extended))
    inside = {event.prefix for event in told(start=first) if isinstance(event, Extended)}
    assert inside < {event.prefix for event in events if isinstance(event, Extended)}
    dropped = [event for event in events if isinstance(event, Pruned) and event.rule == "abstract_expression"]
    assert dropped
    kept = [event.prefix for event in told(keep=lambda name: name == dropped[0].prefix) if isinstance(event, Extended)]
    assert dropped[0].prefix in kept


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"engine": "values", "options": {"quiet": True}}, "belongs to the prefix engine"),
        ({"options": {"loud": True}}, "option 'loud'"),
        ({"space": 11}, "space 11: expected a Space"),
        ({"seed": "one"}, "seed 'one': expected a whole number"),
    ],
)
def test_options_that_no_engine_has_are_refused(given: dict[str, object], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        search(PROGRAM, **{"space": SPACE, **given})  # type: ignore[arg-type]


def test_a_record_names_the_options(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    events = list(search(PROGRAM, space=SPACE, options={"quiet": True}, record=path))
    assert replay(path).header.options["quiet"] is True
    assert len(replay(path)) == len(events)
    with pytest.raises(UsageError, match="another search"):
        search(PROGRAM, space=SPACE, options={"quiet": False}, record=path)
    with pytest.raises(UsageError, match="cannot be written to a record"):
        search(PROGRAM, space=SPACE, options={"keep": lambda name: True}, record=tmp_path / "other.jsonl")
