"""Which chains of two block graphs count."""

from __future__ import annotations

import pytest

from tests.unit.search.searched import ATTENTION, GATED, NORM, graph_of
from workbench.search.chains import WHY
from workbench.search.engine import search
from workbench.search.events import Completed, Pruned
from workbench.search.space import Space
from workbench.search.summary import collect
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import GraphDefinedNode
from workbench.ugraph.value import exp, softmax


def found(program: KernelGraph, space: Space) -> dict[str, KernelGraph]:
    return {one.structure_hash: one.graph for one in collect(search(program, space=space), space).structures}


def launches(graph: KernelGraph) -> int:
    return sum(isinstance(node, GraphDefinedNode) for node in graph.nodes)


@pytest.mark.parametrize(("program", "limit"), [(GATED, 6), (NORM, 5)], ids=["gated", "norm"])
def test_needed_chains_are_some_of_all_and_single_graphs_stay(program: KernelGraph, limit: int) -> None:
    needed, every = (found(program, Space(chains=chains, max_block_ops=limit)) for chains in ("needed", "all"))
    assert set(needed) < set(every)
    left_out = [every[hash_] for hash_ in set(every) - set(needed)]
    assert {launches(graph) for graph in left_out} <= {1, 2}
    single = {hash_ for hash_, graph in every.items() if launches(graph) == len(graph.nodes) == 1}
    assert single <= set(needed)


def test_every_rule_names_itself_and_some_program_shows_it() -> None:
    shown = set()
    three = graph_of(lambda x, a, b: (softmax(x @ a), exp(x) @ b), X=(8, 16), A=(16, 12), B=(16, 12))
    for program in (ATTENTION, NORM, three):
        for event in search(program):
            if isinstance(event, Pruned) and event.rule.startswith("chain: "):
                rule = event.rule.removeprefix("chain: ")
                shown.add(rule)
                assert event.describe().startswith(event.rule)
                assert event.evidence().endswith(WHY[rule])
                if rule in ("computed where it is read", "stored as late as possible"):
                    assert len(event.evidence()) > len(WHY[rule])  # the value that shows it
    assert shown <= set(WHY)
    assert len(shown) >= 6


def test_block_graphs_with_nothing_in_common_may_stand_side_by_side() -> None:
    program = graph_of(lambda x, w, y: (x @ w, exp(y)), X=(8, 16), W=(16, 12), Y=(5, 7))
    assert any(launches(graph) == 2 for graph in found(program, Space()).values())
    # Products that share an input, and no other axis of their own, are no chain of two loops over it.
    shared = graph_of(lambda x, a, b: (x @ a, x @ b), X=(8, 16), A=(16, 12), B=(16, 12))
    for event in search(shared):
        if isinstance(event, Completed):
            assert event.plan != "loops b, b" or launches(event.graph) < 2


def test_keys_split_over_blocks_with_a_combining_kernel_are_needed() -> None:
    events = [
        event for event in search(ATTENTION) if isinstance(event, Completed) and "split over blocks" in event.plan
    ]
    assert all(launches(event.graph) == 2 for event in events)
    # Products and sums of each share of the keys, which one block adds up and divides.
    assert any(
        len(event.graph.graph_defined[0].results) == 2 and event.graph.graph_defined[1].block.forloop_range == 1
        for event in events
    )
