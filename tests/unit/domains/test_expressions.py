"""The readers' door to abstract expressions answers as the parts behind it."""

from __future__ import annotations

from workbench.domains import expressions as ex

X, Y, Z = (ex.symbol(name) for name in "XYZ")
GOAL = ex.add(ex.mul(X, Z), ex.mul(Y, Z))


def test_equality_is_a_eq() -> None:
    assert ex.are_equal(GOAL, ex.mul(ex.add(Y, X), Z))
    assert not ex.are_equal(GOAL, ex.mul(X, Z))
    assert not ex.are_equal(ex.div(ex.mul(X, Y), Y), X)  # no cancellation


def test_distance_counts_operators() -> None:
    assert ex.distance(GOAL, GOAL) == 0
    assert ex.distance(ex.add(X, Y), GOAL) == 1
    assert ex.distance(ex.mul(X, Y), GOAL) == ex.FAR


def test_parts_are_those_with_a_distance() -> None:
    assert ex.is_part(ex.mul(X, Z), GOAL)
    assert not ex.is_part(ex.mul(X, X), GOAL)


def test_every_name_is_there() -> None:
    assert all(hasattr(ex, name) for name in ex.__all__)
