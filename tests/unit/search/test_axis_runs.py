"""Factors of a product axis that always run together are one axis."""

from __future__ import annotations

from tests.unit.search.searched import graph_of
from workbench.search.axis_runs import joined
from workbench.search.problem import problem_of
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.value import reshape, softmax, transpose

X, W = (8, 16), (16, 12)


def ranks(program: KernelGraph) -> list[int]:
    """Return how many axes each input has."""
    return [sum(map(len, start.dims)) for start in problem_of(program).starts]


def test_columns_that_are_only_shown_as_heads_are_one_axis() -> None:
    program = graph_of(lambda x, w: reshape(x @ w, (8, 3, 4)), X=X, W=W)
    assert ranks(program) == [2, 2]
    (goal,) = problem_of(program).goals
    assert [len(dim) for dim in goal.dims] == [1, 1]
    assert [len(dim) for dim in goal.own] == [1, 1, 1]


def test_heads_that_are_folded_one_by_one_are_axes() -> None:
    assert ranks(graph_of(lambda x, w: softmax(reshape(x @ w, (8, 3, 4))), X=X, W=W)) == [2, 3]
    assert ranks(graph_of(lambda x, w, v: reshape(x @ w, (8, 3, 4)) @ v, X=X, W=W, V=(8, 4, 5))) == [2, 3, 2 + 1]


def test_two_dimensions_of_an_input_that_are_folded_together_are_one_axis() -> None:
    problem = problem_of(graph_of(lambda x, w: reshape(x, (8, 16)) @ w, X=(8, 4, 4), W=W))
    assert [len(start.dims) for start in problem.starts] == [2, 2]
    assert len(problem.starts[0].own) == 3
    (name,) = problem.reduced
    assert problem.extents[name] == 16
    assert set(problem.ties[name]) <= set(problem.extents)


def test_an_output_in_another_order_keeps_them_apart() -> None:
    assert ranks(graph_of(lambda x, w: transpose(reshape(x @ w, (8, 3, 4))), X=X, W=W)) == [2, 3]


def test_dimensions_are_joined_at_the_first_factor() -> None:
    runs = {"b": (("b", "c"), "bc")}
    assert joined((("a",), ("b",), ("c",)), runs) == (("a",), ("bc",))
    assert joined((("a", "b", "c"), ("d",)), runs) == (("a", "bc"), ("d",))
    assert joined(((), ("b",), ("c", "d")), runs) == ((), ("bc",), ("d",))
    assert joined((("a",), ()), {}) == (("a",), ())
