"""Graphs from a hypergraph, each once."""

from __future__ import annotations

import pytest

from tests.unit.search.searched import NORM, PRODUCT, PROGRAMS, hypergraph_of, sketches_of
from workbench.search.enumeration import Enumeration
from workbench.search.plans import Plan, plans_of
from workbench.search.problem import problem_of
from workbench.search.space import Space


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_graph_is_met_once_and_has_no_dead_operator(name: str) -> None:
    program = PROGRAMS[name]
    for plan in plans_of(problem_of(program), Space()):
        graph = hypergraph_of(program, plan, limit=8)
        seen = set()
        for sketch in Enumeration(graph).sketches():
            key = (sketch.outputs, frozenset(sketch.chosen))
            assert key not in seen
            seen.add(key)
            made: set[int] = set()
            used = set(sketch.outputs)
            for node, edge in sketch.chosen:
                assert edge in graph.edges[node]
                assert all(operand in made or not graph.edges[operand] for operand in edge.operands)
                made.add(node)
                used |= set(edge.operands)
            assert made <= used
            assert sketch.block_operators <= 8


def test_a_product_by_hand() -> None:
    (axis,) = problem_of(PRODUCT).reduced
    for loop, operators in ((None, 1), (axis, 2)):
        (sketch,) = sketches_of(PRODUCT, Plan((loop,)))
        assert sketch.block_operators == operators
        assert sketch.kernels == 1


def test_more_operators_allow_more_graphs() -> None:
    (axis,) = problem_of(NORM).reduced
    counts = [len(sketches_of(NORM, Plan((axis,)), limit=limit)) for limit in range(3, 9)]
    assert counts == sorted(counts)
    assert counts[0] == 0 < counts[1]


def test_what_it_met_is_counted() -> None:
    enumeration = Enumeration(hypergraph_of(NORM, Plan((None,))))
    found = list(enumeration.sketches())
    assert enumeration.states > len(found) > 0
