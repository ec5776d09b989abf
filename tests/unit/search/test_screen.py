"""The first test of every structure: right ones pass, wrong ones do not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.search.searched import ATTENTION, GATED, NORM, PRODUCT, PROGRAMS, graph_of, sketches_of
from workbench.search.enumeration import Sketch
from workbench.search.plans import Plan, plans_of
from workbench.search.problem import problem_of
from workbench.search.screen import Screen
from workbench.search.space import Space
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.value import exp, maximum, relu, reshape, transpose


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_the_search_finds_passes(name: str) -> None:
    program = PROGRAMS[name]
    screen = Screen(problem_of(program))
    for plan in plans_of(problem_of(program), Space()):
        for sketch in sketches_of(program, plan, limit=6):
            answer = screen.screen(sketch)
            assert answer.kind == "equal" or "built" in answer.reason


def spoilt(sketch: Sketch) -> Sketch | None:
    """Return the sketch with the operands of its quotient, or an operator after its last one, exchanged."""
    chosen = list(sketch.chosen)
    for place, (node, edge) in enumerate(chosen):
        if edge.operator is not None and edge.operator.name == "div" and edge.operator.constant is None:
            chosen[place] = (node, replace(edge, operands=edge.operands[::-1]))
            return replace(sketch, chosen=tuple(chosen))
    return None


@pytest.mark.parametrize("program", [NORM, ATTENTION], ids=["norm", "attention"])
def test_a_quotient_upside_down_is_refused(program: KernelGraph) -> None:
    screen = Screen(problem_of(program))
    wrong = 0
    for plan in plans_of(problem_of(program), Space(max_block_graphs=1)):
        for sketch in sketches_of(program, plan, limit=7):
            bad = spoilt(sketch)
            if bad is not None:
                answer = screen.screen(bad)
                assert answer.kind != "equal"
                wrong += answer.kind == "different"
    assert wrong


def test_finished_graphs_are_compared_too() -> None:
    screen = Screen(problem_of(PRODUCT))
    assert screen.screen_graph(PRODUCT).kind == "equal"
    other = graph_of(lambda x, w: (x + x) @ w, X=(8, 32), W=(32, 16))
    answer = screen.screen_graph(other)
    assert answer.kind == "different"
    assert "differs" in answer.reason


def test_copies_products_of_axes_and_branches_have_small_instances() -> None:
    for program in (
        graph_of(lambda x: x @ transpose(x), X=(8, 16)),
        graph_of(lambda x, w: reshape(x @ w, (2, 4, 16)), X=(8, 32), W=(32, 16)),
        graph_of(lambda x, y: maximum(relu(x), exp(y)), X=(8, 16), Y=(8, 16)),
    ):
        assert Screen(problem_of(program)).instances


def test_seeds_change_the_point_and_not_the_answer() -> None:
    problem = problem_of(GATED)
    sketches = sketches_of(GATED, Plan((problem.reduced[0],)))
    for seed in range(3):
        assert {Screen(problem, seed=seed).screen(sketch).kind for sketch in sketches} == {"equal"}
