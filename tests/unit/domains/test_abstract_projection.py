"""Values seen with axes of extent 1: the image is the normal form of the term rewritten in the same way."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

from tests.unit.domains.abstract_terms import OPERATORS, WITH_MAXIMA, Vocabulary, random_term
from workbench.domains import abstract_expr as expr
from workbench.domains.abstract_expr import Axis, Term
from workbench.domains.abstract_normal_form import Algebra
from workbench.domains.abstract_projection import Projection
from workbench.search.problem import split_axes

A, B = Axis("a"), Axis("b")
_, LOOP, TILE = A.split()
CUT = Vocabulary(
    (
        expr.symbol("X", [LOOP, TILE]),
        expr.symbol("Y", [LOOP, TILE, B]),
        expr.symbol("U", [B]),
        expr.constant("1/8"),
    ),
    (LOOP, TILE, B, (LOOP, TILE)),
)
AXES: Mapping[Axis, Axis | None] = {LOOP: None, TILE: A}


def without_loop(term: Term) -> Term:
    """Return a term with the loop's part of the axis taken to have one element."""
    return split_axes(term, {LOOP: (), TILE: (A,)})


@pytest.mark.parametrize("operators", [OPERATORS, WITH_MAXIMA], ids=["plain", "with maxima"])
def test_image_is_the_normal_form_of_the_rewritten_term(operators: tuple[str, ...]) -> None:
    rng = random.Random(len(operators))
    compared = changed = 0
    for _ in range(300):
        term = random_term(rng, 4, CUT, operators)
        source, target = Algebra(), Algebra()
        value, expected = source.normalize(term), target.normalize(without_loop(term))
        if source.undecided or target.undecided:
            continue
        assert Projection(source, target, AXES).image(value) == expected, term
        compared += 1
        changed += without_loop(term) != term
    assert compared > 200
    assert changed > 150


def test_partial_sums_become_whole_ones() -> None:
    source, target = Algebra(), Algebra()
    x, whole = source.symbol("X", [LOOP, TILE]), target.symbol("X", [A])
    image = Projection(source, target, AXES).image
    partial = source.sum_over([TILE], x)
    assert image(partial) == target.sum_over([A], whole)
    assert image(source.sum_over([LOOP], source.mul(partial, partial))) == target.mul(
        target.sum_over([A], whole), target.sum_over([A], whole)
    )
    assert image(source.sum_over([LOOP], source.sum_over([TILE], source.mul(x, x)))) != target.mul(
        target.sum_over([A], whole), target.sum_over([A], whole)
    )


def test_what_is_undecided_has_no_image() -> None:
    source, target = Algebra(max_terms=2), Algebra()
    x, y, z = (source.symbol(name, [TILE]) for name in "XYZ")
    large = source.add(x, source.add(y, z))  # three summands: past the budget of two
    assert source.is_undecided(large)
    assert Projection(source, target, AXES).image(large) is None
    assert Projection(source, target, AXES).image(source.sqrt(large)) is None
