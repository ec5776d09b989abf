"""A program as expressions over axes, without names, sizes or order."""

from __future__ import annotations

from fractions import Fraction

import pytest

import workbench as wb
from tests.unit.search.searched import ATTENTION, NORM, PRODUCT, graph_of
from workbench.errors import NotApplicableError, UsageError
from workbench.search.problem import problem_of
from workbench.ugraph.value import concat, exp, rms_norm, softmax, transpose
from workbench.ugraph.value import sum as sum_of


def test_axes_of_a_product() -> None:
    problem = problem_of(PRODUCT)
    (x, w), (goal,) = problem.starts, problem.goals
    assert x.dims[1] == w.dims[0]
    assert goal.dims == (x.dims[0], w.dims[1])
    assert problem.reduced == x.dims[1]
    assert not problem.numbers  # a sum is no mean


def test_a_mean_has_a_number_of_its_own() -> None:
    problem = problem_of(NORM)
    (axis,) = problem.reduced
    assert problem.numbers[axis] > 10**6  # beyond every extent that a program names
    assert problem.constants == (Fraction(1, 10**6),)
    names = [item.spec.name for item in problem.operators]
    assert {"rms_norm", "rms", "matmul", "div", "sqrt"} <= set(names)


def test_nothing_depends_on_extents() -> None:
    small = graph_of(lambda x, w: rms_norm(x) @ w, X=(3, 5), W=(5, 7))
    assert [goal.term for goal in problem_of(small).goals] == [goal.term for goal in problem_of(NORM).goals]


def test_one_head_is_an_axis_like_eight() -> None:
    one = graph_of(lambda q, k, v: softmax(q @ k) @ v, Q=(1, 8, 16), K=(1, 16, 32), V=(1, 32, 16))
    assert [goal.term for goal in problem_of(one).goals] == [goal.term for goal in problem_of(ATTENTION).goals]


def test_an_extent_of_one_that_is_broadcast_is_no_axis() -> None:
    problem = problem_of(graph_of(lambda x, y: x * y, X=(8, 1), Y=(8, 16)))
    assert problem.starts[0].dims[1] == ()
    assert not problem.has_outer_products


def test_an_operator_that_broadcasts_both_operands_is_noticed() -> None:
    assert problem_of(graph_of(lambda x, y: x * y, X=(8, 1), Y=(1, 16))).has_outer_products


def test_a_tensor_used_twice_has_copied_axes() -> None:
    problem = problem_of(graph_of(lambda x: x @ transpose(x), X=(8, 16)))
    assert len(problem.starts) == 2
    assert [start.position for start in problem.starts] == [0, 0]
    ((copy, origin),) = problem.ties.items()
    assert problem.extents[copy] == problem.extents[origin[0]] == 8


def test_a_constant_operand_is_kept_with_its_position() -> None:
    problem = problem_of(graph_of(lambda x: 2 / exp(x + 1), X=(8, 16)))
    kept = {(item.spec.name, item.constant, item.position) for item in problem.operators if item.constant is not None}
    assert kept == {("div", Fraction(2), 0), ("add", Fraction(1), 1)}


def test_what_cannot_be_read_is_said() -> None:
    with pytest.raises(UsageError, match="graph-defined"):
        problem_of(wb.programs.known_good("softmax")[0])
    with pytest.raises(NotApplicableError, match="taken apart"):
        problem_of(graph_of(lambda x, y: sum_of(concat(x, y, axis=-1)), X=(8, 16), Y=(8, 4)))


def test_axes_that_are_copies_of_each_other_follow_one_of_them() -> None:
    graph = wb.trace(lambda X, W: wb.silu(wb.silu(wb.silu(X @ W) @ W) @ W) @ W, X=(16, 64), W=(64, 64))
    problem = problem_of(graph)
    assert problem.ties
    for name in problem.ties:
        followed = [name]
        while followed[-1] in problem.ties:
            (source,) = problem.ties[followed[-1]]
            assert source not in followed, f"{name} follows itself: {followed}"
            followed.append(source)
