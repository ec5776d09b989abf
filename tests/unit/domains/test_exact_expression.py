from __future__ import annotations

from fractions import Fraction

import pytest

from workbench.domains.exact_expression import ABSENT, ExactKind, ExactTerms, Piece
from workbench.errors import BudgetError


@pytest.fixture
def terms() -> ExactTerms:
    return ExactTerms()


def variables(terms: ExactTerms, count: int) -> list[int]:
    return [terms.variable(0, number) for number in range(count)]


def test_equal_expressions_are_one_number(terms: ExactTerms) -> None:
    x, y, z = variables(terms, 3)
    assert terms.add(terms.add(x, y), z) == terms.add(z, terms.add(y, x))
    assert terms.mul(terms.mul(x, y), z) == terms.mul(z, terms.mul(y, x))
    assert terms.sub(terms.add(x, y), y) == x
    assert terms.div(terms.mul(x, y), y) == x
    assert terms.scale(2, terms.add(x, y)) == terms.add(terms.add(x, y), terms.add(x, y))
    assert terms.mul(terms.scale(2, x), terms.scale(3, y)) == terms.scale(6, terms.mul(x, y))


def test_different_expressions_are_different_numbers(terms: ExactTerms) -> None:
    x, y, _ = variables(terms, 3)
    assert terms.div(x, y) != terms.div(y, x)
    assert terms.sub(x, y) != terms.sub(y, x)
    assert terms.variable(0, 1) != terms.variable(1, 0)
    assert terms.power(x, 2) != terms.power(x, 3)
    assert terms.opaque("erf", (), (x,)) != terms.opaque("log", (), (x,))
    assert terms.opaque("f", (("a", "1"),), (x,)) != terms.opaque("f", (("a", "2"),), (x,))


def test_exponentials_merge_in_a_product(terms: ExactTerms) -> None:
    x, y, _ = variables(terms, 3)
    assert terms.mul(terms.exp(x), terms.exp(y)) == terms.exp(terms.add(x, y))
    assert terms.div(terms.exp(x), terms.exp(x)) == terms.one
    assert terms.exp(terms.zero) == terms.one


def test_roots_of_rational_squares_are_numbers_and_other_roots_stay(terms: ExactTerms) -> None:
    assert terms.sqrt(terms.number(Fraction(9, 4))) == terms.number(Fraction(3, 2))
    assert terms.nodes[terms.sqrt(terms.number(2))].kind is ExactKind.SQRT
    assert terms.nodes[terms.sqrt(terms.number(-4))].kind is ExactKind.SQRT
    x = terms.variable(0, 0)
    root = terms.sqrt(x)
    assert terms.mul(root, root) != x  # x >= 0 must not be forgotten


def test_a_quotient_by_zero_is_no_number(terms: ExactTerms) -> None:
    x = terms.variable(0, 0)
    assert terms.nodes[terms.div(x, terms.zero)].kind is ExactKind.PRODUCT


def test_maxima_are_flat_and_numbers_in_them_fold(terms: ExactTerms) -> None:
    x, y, z = variables(terms, 3)
    assert terms.maximum((terms.maximum((x, y)), z)) == terms.maximum((x, terms.maximum((z, y))))
    assert terms.maximum((x, x)) == x
    assert terms.maximum((x, ABSENT)) == x
    assert terms.maximum((ABSENT,)) == ABSENT
    assert terms.maximum((x, terms.number(1), terms.number(2))) == terms.maximum((terms.number(2), x))


def test_pieces_that_are_the_largest_or_smallest_become_maxima(terms: ExactTerms) -> None:
    x, y, _ = variables(terms, 3)
    negative = terms.scale(-1, x)
    relu = terms.choice("relu", [Piece((negative,), terms.zero), Piece((x,), x)])
    assert relu == terms.maximum((x, terms.zero))
    absolute = terms.choice("abs", [Piece((negative,), negative), Piece((x,), x)])
    assert absolute == terms.maximum((x, negative))
    smaller = terms.choice("minimum", [Piece((terms.sub(y, x),), x), Piece((terms.sub(x, y),), y)])
    assert smaller == terms.scale(-1, terms.maximum((terms.scale(-1, x), terms.scale(-1, y))))
    step = terms.choice("step", [Piece((negative,), terms.zero), Piece((x,), terms.one)])
    assert terms.nodes[step].kind is ExactKind.CHOICE


def test_pieces_without_a_value_are_left_out(terms: ExactTerms) -> None:
    x, y, _ = variables(terms, 3)
    assert terms.choice("max", [Piece((ABSENT,), x), Piece((ABSENT,), ABSENT)]) == x
    assert terms.choice("max", [Piece((), ABSENT)]) == ABSENT
    assert terms.add(ABSENT, y) == ABSENT
    assert terms.mul(ABSENT, y) == ABSENT


def test_signatures_forget_names_of_variables_and_nothing_else(terms: ExactTerms) -> None:
    x, y, z = variables(terms, 3)
    assert terms.signature((terms.div(x, y), x)) == terms.signature((terms.div(y, z), y))
    assert terms.signature((terms.div(x, y), x)) != terms.signature((terms.div(x, y), y))
    assert terms.signature((terms.add(x, y),)) != terms.signature((terms.sub(x, y),))


def test_a_cone_has_parts_before_wholes_and_guards_too(terms: ExactTerms) -> None:
    x, y, z = variables(terms, 3)
    step = terms.choice("step", [Piece((terms.sub(x, y),), z), Piece((terms.sub(y, x),), terms.one)])
    cone = terms.cone((step,))
    assert {x, y, z, terms.one} <= set(cone)
    assert cone == sorted(cone)
    assert cone[-1] == step


def test_the_store_has_a_limit() -> None:
    small = ExactTerms(limit=5)
    made = variables(small, 3)  # zero and one are there from the start
    with pytest.raises(BudgetError, match="more than 5 expressions"):
        small.variable(0, 3)
    assert small.variable(0, 1) == made[1]
