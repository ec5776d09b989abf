"""How often folds over an axis follow each other."""

from __future__ import annotations

from tests.unit.search.searched import ATTENTION, NORM, PRODUCT, expressions_of, graph_of
from workbench.search.nesting import ENDLESS, Nesting, is_hopeless
from workbench.search.plans import Plan
from workbench.search.space import Space
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.value import exp, log
from workbench.ugraph.value import max as max_of
from workbench.ugraph.value import sum as sum_of


def depths(program: KernelGraph) -> list[int]:
    expressions = expressions_of(program, Plan((None,)))
    return [Nesting(expressions).depth(axis) for axis in expressions.problem.reduced]


def test_depths_by_hand() -> None:
    assert depths(PRODUCT) == [1]
    assert depths(NORM) == [1]  # the norm divides after both sums
    assert depths(ATTENTION) == [1, 1]
    twice = graph_of(lambda x: sum_of(exp(x / sum_of(exp(x)))), X=(8, 16))
    assert depths(twice) == [2]
    safe = graph_of(lambda x: log(sum_of(exp(x - max_of(x)))), X=(8, 16))
    assert depths(safe) == [2]  # exp(-max) would leave the sum, but 1 / exp(max) is not exp(-max) in A_eq


def test_an_axis_that_is_not_folded_to_the_end_is_endless() -> None:
    expressions = expressions_of(graph_of(lambda x: sum_of(exp(x / sum_of(exp(x)))), X=(8, 16)), Plan((None,)), limit=2)
    assert Nesting(expressions).depth(expressions.problem.reduced[0]) >= ENDLESS


def test_plans_that_would_accumulate_what_depends_on_it() -> None:
    space = Space()
    assert is_hopeless(Plan(("b",)), space, {"b": 2}.__getitem__)
    assert not is_hopeless(Plan(("b",)), space, {"b": 1}.__getitem__)
    assert not is_hopeless(Plan((None,)), space, {"b": 2}.__getitem__)
    assert not is_hopeless(Plan(("b", "b")), space, {"b": 2}.__getitem__)
    assert is_hopeless(Plan(("b", "b")), space, {"b": 3}.__getitem__)
