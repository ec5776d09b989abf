"""Values at places and the edges between them."""

from __future__ import annotations

import pytest

from tests.unit.search.searched import ADAPTER, ATTENTION, NORM, PRODUCT, PROGRAMS, TWO, hypergraph_of
from workbench.search.palette import Effect
from workbench.search.places import LOOP, Place
from workbench.search.plans import Plan, plans_of
from workbench.search.problem import problem_of
from workbench.search.space import NEVER, Space


@pytest.mark.parametrize("name", PROGRAMS)
def test_edges_lead_forwards_in_order_and_in_time(name: str) -> None:
    program = PROGRAMS[name]
    for plan in plans_of(problem_of(program), Space()):
        graph = hypergraph_of(program, plan, kernels=1)
        for node, edges in enumerate(graph.edges):
            for edge in edges:
                for operand in edge.operands:
                    assert graph.order[operand] < graph.order[node]
                    assert graph.places[operand] <= graph.places[node] or graph.places[operand].is_dependent
                if edge.kind == "load":
                    assert graph.values[edge.operands[0]] == graph.values[node]
                    assert graph.places[edge.operands[0]].kernel is None
                if edge.kind == "store":
                    assert graph.places[node].kernel is None
                    assert not graph.varies(graph.values[node], graph.places[edge.operands[0]].kernel or 0)
                if edge.kind == "accumulate":
                    assert graph.places[edge.operands[0]].stage == LOOP


def test_a_value_of_the_loop_varies_with_it_and_no_other_does() -> None:
    (axis,) = problem_of(PRODUCT).reduced
    graph = hypergraph_of(PRODUCT, Plan((axis,)))
    for node in graph.kept:
        place = graph.places[node]
        if place.kernel is not None:
            assert graph.varies(graph.values[node], place.kernel) == (place.stage == LOOP)


def test_least_counts_by_hand() -> None:
    (axis,) = problem_of(PRODUCT).reduced
    looped, unlooped = (hypergraph_of(PRODUCT, Plan((loop,))) for loop in (axis, None))
    assert [looped.least[goal] for (goal,) in looped.goals] == [2]  # product, accumulator
    assert [unlooped.least[goal] for (goal,) in unlooped.goals] == [1]


def test_a_limit_removes_what_cannot_be_reached() -> None:
    (axis,) = problem_of(NORM).reduced
    assert not hypergraph_of(NORM, Plan((axis,)), limit=2).kept
    tight, wide = (
        hypergraph_of(NORM, Plan((axis,)), limit=limit) for limit in (4, 8)
    )  # 4: product, two sums, quotient
    assert 0 < len(tight.kept) < len(wide.kept)


def test_a_softmax_holds_its_axis_whole() -> None:
    contexts = problem_of(ATTENTION).reduced
    for loop in contexts:
        graph = hypergraph_of(ATTENTION, Plan((loop,)))
        wholes = [e for edges in graph.edges for e in edges if e.operator and e.operator.effect is Effect.WHOLE]
        assert all(edge.axis != loop for edge in wholes)


def test_predefined_kernels_stand_before_and_after() -> None:
    graph = hypergraph_of(ATTENTION, Plan((None,)), kernels=2)
    places = {graph.places[node] for node, edges in enumerate(graph.edges) for e in edges if e.kind == "kernel"}
    assert places == {Place.BEFORE, Place.BETWEEN}
    without = hypergraph_of(ATTENTION, Plan((None,)))
    assert not any(edge.kind == "kernel" for edges in without.edges for edge in edges)


def test_the_only_output_comes_last_and_several_may_come_earlier() -> None:
    one, two = hypergraph_of(PRODUCT, Plan((None,)), kernels=1), hypergraph_of(TWO, Plan((None,)), kernels=1)
    assert [[one.places[node] for node in goals] for goals in one.goals] == [[Place.BETWEEN]]
    assert all([two.places[node] for node in goals] == [Place.BEFORE, Place.BETWEEN] for goals in two.goals)


def test_inputs_are_free_and_what_nothing_makes_never_comes() -> None:
    graph = hypergraph_of(PRODUCT, Plan((None,)))
    for node, least in enumerate(graph.least):
        is_input = graph.places[node] is Place.BEFORE and graph.values[node] in graph.expressions.starts
        assert (least == 0) == (is_input or [edge.kind for edge in graph.edges[node]] == ["load"])
        assert least <= NEVER or not graph.edges[node]


def test_products_of_concatenations_stand_in_loops_only() -> None:
    for plan in plans_of(problem_of(ADAPTER), Space()):
        graph = hypergraph_of(ADAPTER, plan)
        joined = [node for node, edges in enumerate(graph.edges) if any(edge.parts for edge in edges)]
        assert all(graph.places[node].stage == LOOP for node in joined)
        assert joined or plan.loops[0] != problem_of(ADAPTER).reduced[0]
