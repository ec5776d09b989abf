"""The tree of a search against its events: parents, states, counts; a window says what it leaves out."""

from __future__ import annotations

from collections import Counter

import pytest

import workbench as wb
from workbench.search.events import Event, Extended, Pruned
from workbench.search.prefix.engine import search
from workbench.views.search_panels import parting, tree_html
from workbench.views.search_tree import KEPT, PRUNED, VERIFIED, SearchTree

PROGRAM = wb.programs.get("rms_norm_linear", batch=4, hidden=24, out=10)


@pytest.fixture(scope="module")
def events() -> list[Event]:
    """The events of a small search."""
    return list(search(PROGRAM, space=wb.Space(max_block_ops=4)))


@pytest.fixture(scope="module")
def tree(events: list[Event]) -> SearchTree:
    """The tree of all of them."""
    made = SearchTree()
    made.extend(events)
    return made


def test_every_prefix_hangs_below_its_parent(events: list[Event], tree: SearchTree) -> None:
    for event in events:
        if isinstance(event, Extended | Pruned) and event.prefix:
            node = tree.nodes[event.prefix]
            assert node.state == (KEPT if isinstance(event, Extended) else PRUNED)
            assert event.prefix in tree.nodes[node.parent].children
            assert event.prefix.startswith(event.parent)
    assert sum(node.state == VERIFIED for node in tree.nodes.values()) > 0


@pytest.mark.parametrize("upto", [0, 1, 57, 1000])
def test_counts_are_sums_over_events(events: list[Event], tree: SearchTree, upto: int) -> None:
    expected: Counter[str] = Counter()
    for event in events[:upto]:
        if isinstance(event, Pruned):
            expected[event.rule] += event.count
    kept, dropped = tree.counts(upto)
    assert dropped == dict(expected)
    assert kept == sum(isinstance(event, Extended) for event in events[:upto])


def test_rows_show_the_line_to_the_event_and_nothing_later(events: list[Event], tree: SearchTree) -> None:
    number = next(n for n, e in enumerate(events) if isinstance(e, Pruned) and e.prefix.count("/") == 3)
    rows, total = tree.rows(number)
    assert total == len(tree.nodes)
    assert [row.event for row in rows if row.is_now] == [number]
    shown = {row.name for row in rows}
    name = tree.name_at(number)
    while name:
        assert name in shown
        name = tree.nodes[name].parent
    assert all(row.event <= number for row in rows)


def test_a_cut_is_said(events: list[Event], tree: SearchTree) -> None:
    number = len(events) // 2
    html, notice = tree_html(tree, number, limit=10, total=len(events))
    assert html.count('role="treeitem"') <= 10
    assert f"of {len(tree.nodes):,} nodes" in notice
    half = SearchTree()
    half.extend(events[:100])
    _, notice = tree_html(half, 50, limit=400, total=len(events))
    assert f"the tree knows 100 of {len(events):,} events" in notice


def test_two_runs_part_where_a_rule_is_missing(tree: SearchTree) -> None:
    other = SearchTree()
    other.extend(
        search(PROGRAM, space=wb.Space(max_block_ops=4), pruners=["abstract_expression", "axes", "reducibility"])
    )
    told = parting(tree, other)
    assert "the second run kept and the first dropped" in told
    assert "(demand)" in told
    assert parting(tree, tree) == "of the prefixes that both met, both decided the same"
