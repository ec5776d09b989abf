"""Loops and splits that are chosen before values are closed."""

from __future__ import annotations

from tests.unit.search.searched import ATTENTION, GATED, PRODUCT
from workbench.domains.abstract_expr import Part
from workbench.search.plans import Plan, axis_parts, folds_of, plans_of
from workbench.search.problem import problem_of
from workbench.search.space import Space


def test_plans_of_a_product() -> None:
    problem = problem_of(PRODUCT)
    (axis,) = problem.reduced
    one = [Plan((None,)), Plan((axis,))]
    assert list(plans_of(problem, Space(max_block_graphs=1))) == one
    assert not list(plans_of(problem, Space(max_block_graphs=0)))
    every = list(plans_of(problem, Space()))
    assert every[:2] == one
    assert Plan((axis, None), axis) in every
    assert all(plan.loops[0] is not None for plan in every if len(plan.loops) == 2)  # the first of a chain loops
    assert set(every) < set(plans_of(problem, Space(chains="all")))


def test_only_axes_that_are_folded_are_looped() -> None:
    problem = problem_of(ATTENTION)
    assert len(problem.reduced) == 2
    looped = {loop for plan in plans_of(problem, Space()) for loop in plan.loops}
    assert looped == {None, *problem.reduced}


def test_plans_are_all_different() -> None:
    for program in (PRODUCT, ATTENTION, GATED):
        for chains in ("needed", "all"):
            plans = list(plans_of(problem_of(program), Space(chains=chains)))
            assert len(plans) == len(set(plans))


def test_parts_of_a_split_axis() -> None:
    (part,) = axis_parts(Plan(("b", "b"), "b")).values()
    assert [axis.part for axis in part.all] == [Part.GRID, Part.LOOP, Part.TILE]
    assert axis_parts(Plan((None,))) == {}
    assert Plan(("b", None), "b").describe() == "loops b, none, b split over blocks"


def test_what_one_operator_may_fold() -> None:
    problem = problem_of(PRODUCT)
    (axis,) = problem.reduced
    plan = Plan((axis,))
    part = axis_parts(plan)[axis]
    folds = set(folds_of(problem, [plan]))
    assert folds == {
        (axis, part.all), (axis, (part.tile,)), (axis, (part.tile, part.loop)), ("", (part.loop,))
    }  # fmt: skip
