"""The fewest operators that make an expression, closed forwards."""

from __future__ import annotations

import itertools

from tests.unit.search.searched import ATTENTION, NORM, expressions_of, graph_of
from workbench.domains.abstract_goals import Goals
from workbench.search.expressions import Expressions
from workbench.search.plans import Plan
from workbench.search.shallow import Shallow


def closed(expressions: Expressions, depth: int) -> Shallow:
    return Shallow(
        expressions.algebra,
        Goals(expressions.algebra, expressions.goals, expressions.costs),
        expressions.problem,
        expressions.palette,
        expressions.folds,
        {name: expressions.mask(name) for name in expressions.problem.reduced},
        expressions.starts,
        depth=depth,
        outer_products=False,
        may_be_made=expressions.rules.may_be_made,
    )


def test_depths_grow_one_by_one() -> None:
    expressions = expressions_of(ATTENTION, Plan((None,)))
    shallow = closed(expressions, 4)
    assert {shallow.operators[start] for start in expressions.starts} == {0}
    deeper = closed(expressions, 5)
    for value, fewest in shallow.operators.items():
        assert deeper.operators[value] == fewest
    assert set(deeper.operators.values()) == {0, 1, 2, 3}  # no useful value takes more without a second kernel


def test_the_goal_is_reached_at_the_fewest_operators() -> None:
    # softmax(q k) v: product, softmax, product; rms_norm(x) w: norm, product.
    for program, fewest in ((ATTENTION, 3), (NORM, 2)):
        expressions = expressions_of(program, Plan((None,)))
        (goal,) = expressions.goals
        assert closed(expressions, 4).operators[goal] == fewest


def test_it_takes_apart_what_it_made() -> None:
    expressions = expressions_of(ATTENTION, Plan((None,)))
    algebra, shallow = expressions.algebra, closed(expressions, 5)
    for value in shallow.operators:
        for left, right in shallow.products(value):
            assert algebra.mul(left, right) == value
        for dividend, divisor in shallow.quotients(value):
            assert algebra.div(dividend, divisor) == value
        for left, right in shallow.sums(value):
            assert algebra.add(left, right) == value
        for _, mask in expressions.folds:
            for operand in shallow.summands(value, mask):
                assert algebra.sum_mask(mask, operand) == value


def test_a_sum_is_split_in_every_way_its_repeated_terms_too() -> None:
    expressions = expressions_of(graph_of(lambda x, y: x + y + x, X=(8, 16), Y=(8, 16)), Plan((None,)))
    (goal,) = expressions.goals
    algebra, shallow = expressions.algebra, closed(expressions, 4)
    pairs = itertools.combinations_with_replacement(sorted(shallow.operators), 2)
    expected = [pair for pair in pairs if algebra.add(*pair) == goal]
    assert len(expected) == 2  # x + (x + y), y + (x + x)
    assert shallow.sums(goal) == expected
