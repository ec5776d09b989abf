"""Which expressions may occur, and what makes them: every making is carried out, none that brute force finds is missing."""

from __future__ import annotations

import itertools

import pytest

from tests.unit.search.searched import ADAPTER, ATTENTION, NORM, PRODUCT, PROGRAMS, expressions_of, graph_of
from workbench.domains.abstract_normal_form import Value
from workbench.search.expressions import Expressions
from workbench.search.makings import Making
from workbench.search.palette import Effect
from workbench.search.plans import Plan, plans_of
from workbench.search.problem import problem_of
from workbench.search.space import Space
from workbench.ugraph.value import exp, l2_norm, maximum, relu


def carried_out(expressions: Expressions, making: Making) -> Value:
    """Return what an operator makes of its operands."""
    algebra, op = expressions.algebra, making.operator
    if making.parts:
        x, y, w, z = making.operands
        (_, one), (_, two) = making.parts
        return algebra.add(algebra.sum_mask(one, algebra.mul(x, w)), algebra.sum_mask(two, algebra.mul(y, z)))
    if op.effect is Effect.CONTRACT:
        return algebra.sum_mask(making.mask, algebra.mul(*making.operands))
    number = expressions.problem.numbers.get(making.axis, 2)
    return op.abstract(algebra, making.operands, making.mask, number)


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_making_gives_its_value(name: str) -> None:
    program = PROGRAMS[name]
    for plan in plans_of(problem_of(program), Space()):
        expressions = expressions_of(program, plan)
        assert set(expressions.goals) <= set(expressions.above)
        for value, makings in expressions.makings.items():
            for making in makings:
                assert carried_out(expressions, making) == value
                assert making.operator.is_offered
                assert all(operand in expressions.above for operand in making.operands)
        assert not expressions.incomplete


@pytest.mark.parametrize("name", ["product", "norm", "attention"])
def test_elementwise_makings_are_those_that_trying_all_operands_finds(name: str) -> None:
    expressions = expressions_of(PROGRAMS[name], Plan((None,)))
    algebra, palette = expressions.algebra, expressions.palette
    known = sorted(expressions.makings)
    for op in (palette.add, palette.mul, palette.div):
        for pair in itertools.product(known, repeat=2):
            made = op.abstract(algebra, pair)
            left, right = (algebra.mask[operand] for operand in pair)
            broadcasts = left | right in (left, right)
            if made in expressions.makings and made not in expressions.starts and broadcasts and pair[0] != pair[1]:
                operands = [m.operands for m in expressions.makings[made] if m.operator is op]
                assert pair in operands or (op.spec.commutative and pair[::-1] in operands)


def test_an_input_is_not_made_again() -> None:
    expressions = expressions_of(PRODUCT, Plan((None,)))
    assert all(expressions.makings.get(start, ()) == () for start in expressions.starts)


def test_a_limit_leaves_out_what_it_cannot_afford() -> None:
    wide, tight = (expressions_of(NORM, Plan((None,)), limit=limit) for limit in (9, 3))
    assert len(tight.above) < len(wide.above)
    assert tight.left_out
    for left in tight.left_out.values():
        assert left.above + left.least > tight.limit


def test_bounds_are_admissible() -> None:
    """The fewest operators over the makings is never below the bound."""
    for program in (NORM, ATTENTION, ADAPTER):
        expressions = expressions_of(program, Plan((None,)))
        weight = expressions.algebra.weight
        fewest: dict[Value, int] = dict.fromkeys(expressions.starts, 0)
        for value in sorted(expressions.makings, key=lambda v: (weight[v], v)):
            ways = [
                making.operator.cost + max(fewest[operand] for operand in making.operands)
                for making in expressions.makings[value]
                if all(operand in fewest for operand in making.operands)
            ]
            if value not in fewest and ways:
                fewest[value] = min(ways)
                assert expressions.least(value) <= fewest[value]


def test_products_of_concatenations_are_found_in_a_loop() -> None:
    (axis, *_) = problem_of(ADAPTER).reduced
    joined = [
        making
        for makings in expressions_of(ADAPTER, Plan((axis,))).makings.values()
        for making in makings
        if making.parts
    ]
    assert joined
    off = expressions_of(ADAPTER, Plan((axis,)), space=Space(concatenation=False))
    assert not any(making.parts for makings in off.makings.values() for making in makings)


def test_a_wide_sum_is_closed_forwards_first() -> None:
    program = graph_of(
        lambda h, x, a: l2_norm(x + a * (l2_norm(h) - x)), H=(8, 32), X=(8, 32), a=(32,)
    )  # fmt: skip
    expressions = expressions_of(program, Plan((None,)), limit=6)
    assert expressions.is_wide
    assert expressions.shallow is not None
    assert all(expressions.makings[goal] for goal in expressions.goals)
    assert not expressions.incomplete  # what grows beyond the budget is refuted, not undecided


def test_opaque_functions_and_maxima() -> None:
    program = graph_of(lambda x, y: maximum(relu(x), exp(y)), X=(8, 16), Y=(8, 16))
    expressions = expressions_of(program, Plan((None,)))
    (goal,) = expressions.goals
    assert {making.operator.name for making in expressions.makings[goal]} >= {"maximum"}
