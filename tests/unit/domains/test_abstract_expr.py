"""Terms: one object per value, both forms, concatenated parts."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from fractions import Fraction

import pytest

from workbench.domains import abstract_expr as expr
from workbench.domains.abstract_building import AxesBuilder, SizesBuilder
from workbench.domains.abstract_expr import Axis, Part, Term
from workbench.errors import UsageError

H, R, C = Axis("h"), Axis("r"), Axis("c")
X = expr.symbol("X", ["b", "h"])
W = expr.symbol("W", ["h", "d"])


def test_equal_terms_are_one_object() -> None:
    assert expr.mul(X, W) is expr.mul(expr.symbol("X", ["b", "h"]), W)
    assert expr.mul(X, W) is not expr.mul(W, X)
    term = expr.div(expr.sum_over(H, expr.mul(X, W)), expr.constant(8))
    assert pickle.loads(pickle.dumps(term)) is term
    assert copy.deepcopy(term) is term


def test_terms_do_not_change() -> None:
    with pytest.raises(AttributeError, match="immutable"):
        X.name = "Y"


def test_prefix_form_is_the_papers() -> None:
    term = expr.div(expr.sum_over(64, expr.mul(expr.symbol("X"), expr.symbol("W"))), expr.sqrt(expr.symbol("Y")))
    assert repr(term) == "div(sum(64, mul(X, W)), sqrt(Y))"
    assert repr(expr.sum_over([H.split()[1], H.split()[2]], X)) == "sum(h.l h.t, X[b, h])"


def test_a_sum_takes_its_axes_away() -> None:
    product = expr.mul(X, W)
    assert expr.free_axes(product) == {Axis("b"), H, Axis("d")}
    assert expr.free_axes(expr.sum_over(H, product)) == {Axis("b"), Axis("d")}


def test_in_the_loop_is_where_the_loop_part_is_free() -> None:
    _, loop, tile = H.split()
    assert loop == Axis("h", Part.LOOP)
    x = expr.symbol("X", ["b", loop, tile])
    assert expr.is_in_loop(expr.sum_over(tile, x))
    assert not expr.is_in_loop(expr.sum_over([loop, tile], x))


def test_sizes_form_keeps_only_how_many_elements_are_folded() -> None:
    grid, loop, tile = H.split()
    x = expr.symbol("X", ["b", grid, loop, tile])
    extents = {grid: 2, loop: 4, tile: 16}
    assert repr(expr.to_sizes(expr.sum_over([loop, tile], expr.square(x)), extents)) == "sum(64, mul(X, X))"
    with pytest.raises(UsageError, match=r"extent of h\.t is not given"):
        expr.to_sizes(expr.sum_over(tile, x), {loop: 4})


def test_lora_as_two_concatenated_matmuls() -> None:
    """[W | B] times [X ; A X] is W X + B (A X) (lecture, section 7.3)."""
    a, b = expr.symbol("A", ["h", "r"]), expr.symbol("B", ["r", "d"])
    low = expr.sum_over(H, expr.mul(X, a))
    fused = expr.sum_over(C, expr.mul(expr.concat("c", {H: W, R: b}), expr.concat("c", {H: X, R: low})))
    plain = expr.add(expr.sum_over(H, expr.mul(W, X)), expr.sum_over(R, expr.mul(b, low)))
    assert expr.close_concats(fused) is plain
    assert repr(expr.to_sizes(fused, {H: 64, R: 8})) == repr(expr.to_sizes(plain, {H: 64, R: 8}))


def test_operators_act_on_each_part() -> None:
    both = expr.exp(expr.concat("c", {H: X, R: expr.symbol("Y", ["b", "r"])}))
    assert expr.pieces(both) == (expr.exp(X), expr.exp(expr.symbol("Y", ["b", "r"])))
    assert expr.pieces(X) == (X,)
    with pytest.raises(UsageError, match="still concatenated"):
        expr.to_sizes(both, {})
    other = expr.concat("c", {R: X, H: X})
    with pytest.raises(UsageError, match="cut differently"):
        expr.close_concats(expr.add(both, other))


def test_maximum_over_parts_is_the_larger_maximum() -> None:
    both = expr.concat("c", {H: X, R: expr.symbol("Y", ["b", "r"])})
    wanted = expr.maximum(expr.max_over(H, X), expr.max_over(R, expr.symbol("Y", ["b", "r"])))
    assert expr.close_concats(expr.max_over(C, both)) is wanted


def test_renaming_reaches_bound_axes() -> None:
    renamed = expr.rename_axes(expr.sum_over(H, expr.mul(X, W)), {H: R})
    assert repr(renamed) == "sum(r, mul(X[b, r], W[r, d]))"
    with pytest.raises(UsageError, match="two axes"):
        expr.rename_axes(X, {H: Axis("b")})


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: expr.symbol("X", ["h", "h"]), "listed twice"),
        (lambda: expr.sum_over(0, X), "at least 1"),
        (lambda: expr.sum_over([H, H], X), "listed twice"),
        (lambda: expr.apply("relu"), "at least one argument"),
        (lambda: expr.concat("c", []), "needs parts"),
    ],
)
def test_bad_terms_are_refused(build: Callable[[], object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        build()


def test_builders_give_both_forms_of_one_rule() -> None:
    def matmul(b: SizesBuilder, left: Term, right: Term, extent: int) -> Term:  # the rule of table 1
        return b.sum(0, extent, b.mul(left, right))

    assert repr(matmul(SizesBuilder(), expr.symbol("X"), expr.symbol("W"), 64)) == "sum(64, mul(X, W))"
    axes = AxesBuilder([H.split()[1:]])
    assert repr(matmul(axes, X, W, 64)) == "sum(h.l h.t, mul(X[b, h], W[h, d]))"
    assert axes.apply("maximum", X, X).kind is expr.Kind.MAXIMUM
    assert axes.constant(Fraction(1, 8)) is expr.constant("1/8")
    with pytest.raises(UsageError, match="has no axes"):
        AxesBuilder().sum(0, 64, X)
    with pytest.raises(UsageError, match="concat of 2 parts"):
        SizesBuilder().concat(-1, (4, 4), (X, X))
    parts = AxesBuilder(concatenated="c", parts=[H, R])
    assert parts.concat(-1, (4, 2), (X, W)) is expr.concat("c", {H: X, R: W})
