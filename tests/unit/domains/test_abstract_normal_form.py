"""What the normal form makes equal, what it keeps apart, and what it leaves undecided."""

from __future__ import annotations

import random

import pytest

from tests.unit.domains.abstract_terms import AXES, FORMS, A, B, C, random_term, walk
from workbench.domains import abstract_expr as expr
from workbench.domains.abstract_evaluation import FUNCTIONS, evaluate
from workbench.domains.abstract_expr import Axis, Term
from workbench.domains.abstract_normal_form import Algebra
from workbench.domains.abstract_readback import Readback
from workbench.errors import UsageError

X, Y, Z, V = (expr.symbol(name) for name in "XYZV")
add, mul, div, exp, sqrt, total = expr.add, expr.mul, expr.div, expr.exp, expr.sqrt, expr.sum_over
H, D = Axis("h"), Axis("d")
XBH, WHD, YBH = expr.symbol("X", ["b", H]), expr.symbol("W", [H, D]), expr.symbol("Y", ["b", H])


def equal(left: Term, right: Term) -> bool:
    algebra = Algebra()
    values = algebra.normalize(left), algebra.normalize(right)
    assert not any(map(algebra.is_undecided, values))
    return values[0] == values[1]


@pytest.mark.parametrize(
    ("left", "right"),
    [
        # denominators are multiplied out, whatever way they were divided by
        (div(X, mul(add(X, Y), add(Z, V))), div(div(X, add(X, Y)), add(Z, V))),
        (div(X, add(mul(Y, Z), mul(V, Z))), div(div(X, Z), add(Y, V))),
        (add(div(X, add(Y, Z)), div(V, add(Y, Z))), div(add(X, V), add(Y, Z))),
        # roots of products, with the product multiplied out or not
        (sqrt(add(mul(X, Z), mul(Y, Z))), mul(sqrt(add(X, Y)), sqrt(Z))),
        (mul(sqrt(add(X, Y)), sqrt(add(Z, V))), sqrt(mul(add(X, Y), add(Z, V)))),
        (sqrt(sqrt(mul(X, Y))), mul(sqrt(sqrt(X)), sqrt(sqrt(Y)))),
        (sqrt(mul(X, div(Y, Z))), mul(sqrt(X), sqrt(div(Y, Z)))),
        # sums in the paper's form are factors
        (mul(total(2, X), total(3, Y)), total(6, mul(X, Y))),
        (sqrt(total(6, mul(X, Y))), mul(sqrt(total(2, X)), sqrt(total(3, Y)))),
        (exp(total(2, add(X, Y))), mul(exp(total(2, X)), exp(total(2, Y)))),
        # constants
        (div(X, expr.constant(8)), mul(X, expr.constant("1/8"))),
        (div(X, mul(expr.constant(8), Y)), mul(div(X, Y), expr.constant("1/8"))),
        (div(X, sqrt(expr.constant(8))), mul(X, sqrt(expr.constant("1/8")))),
        (mul(expr.constant(1), X), X),
    ],
)  # fmt: skip
def test_equal_under_a_eq(left: Term, right: Term) -> None:
    assert equal(left, right)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (div(mul(X, Y), Y), X),  # cancellation (exercise 2)
        (add(X, add(Y, mul(expr.constant(-1), Y))), X),
        (mul(sqrt(X), sqrt(X)), X),
        (div(X, div(Y, Z)), div(mul(X, Z), Y)),  # true, and not in table 2
        (sqrt(div(X, Y)), div(sqrt(X), sqrt(Y))),  # likewise
        (exp(mul(X, Y)), mul(exp(X), exp(Y))),
        (sqrt(add(X, Y)), add(sqrt(X), sqrt(Y))),
        (mul(expr.constant(2), expr.constant(3)), expr.constant(6)),  # constants are symbols
        (add(X, X), mul(expr.constant(2), X)),
        (add(X, X), total(2, X)),
        (total(2, X), total(3, X)),
        (div(X, Y), div(Y, X)),
    ],
)
def test_kept_apart(left: Term, right: Term) -> None:
    assert not equal(left, right)


# ------------------------------------------------------------------------------------------------- axes and bound names
def test_rms_norm_before_and_after_the_matmul() -> None:
    """The lecture's transformation (section 3.2): the division commutes with the matmul."""
    gain = expr.symbol("G", [H])
    rms = sqrt(div(total(H, expr.square(XBH)), expr.constant(64)))
    assert equal(total(H, mul(mul(div(XBH, rms), gain), WHD)), div(total(H, mul(mul(XBH, gain), WHD)), rms))


def test_attention_normalised_before_or_after() -> None:
    q, k, v = expr.symbol("Q", ["q", D]), expr.symbol("K", ["s", D]), expr.symbol("V", ["s", "e"])
    s = Axis("s")
    weights = exp(total(D, mul(q, k)))
    assert equal(total(s, mul(div(weights, total(s, weights)), v)), div(total(s, mul(weights, v)), total(s, weights)))


def test_a_factor_that_does_not_vary_leaves_the_sum() -> None:
    assert equal(
        total(H, exp(add(XBH, expr.symbol("m", ["b"])))), mul(exp(expr.symbol("m", ["b"])), total(H, exp(XBH)))
    )
    assert equal(
        total(H, div(XBH, add(expr.symbol("p", ["b"]), expr.symbol("q", ["b"])))),
        div(total(H, XBH), add(expr.symbol("p", ["b"]), expr.symbol("q", ["b"]))),
    )
    assert equal(total(H, mul(sqrt(mul(XBH, add(Y, Z))), XBH)), mul(sqrt(add(Y, Z)), total(H, mul(sqrt(XBH), XBH))))


def test_a_sum_that_should_not_leave_stays() -> None:
    assert not equal(total(H, mul(XBH, YBH)), mul(total(H, XBH), YBH))
    assert not equal(total(H, mul(XBH, YBH)), mul(total(H, XBH), total(H, YBH)))
    assert not equal(total(H, exp(XBH)), exp(total(H, XBH)))


def test_an_axis_bound_twice_in_one_product() -> None:
    """sum_d (sum_h X W)^2, its three orders of summation (the bound h occurs twice, connected through d)."""
    inner = total(H, mul(XBH, WHD))
    squared = total(D, expr.square(inner))
    assert equal(squared, total(D, total(H, mul(mul(XBH, WHD), inner))))
    assert equal(squared, total(H, total(D, mul(mul(XBH, WHD), inner))))
    assert not equal(squared, total(D, total(H, expr.square(mul(XBH, WHD)))))
    first, second = mul(XBH, WHD), mul(YBH, WHD)  # which of the two is called h and which h' does not matter
    assert equal(total(H, total(D, mul(first, total(H, second)))), total(H, total(D, mul(second, total(H, first)))))


def test_an_axis_both_free_and_bound() -> None:
    """X / rms(X) has h free above and bound below; summing it over h binds both, and apart."""
    rms = sqrt(total(H, expr.square(XBH)))
    assert equal(total(H, div(XBH, rms)), div(total(H, XBH), rms))
    assert equal(total(H, mul(XBH, total(H, YBH))), mul(total(H, XBH), total(H, YBH)))
    free = Algebra()
    assert [str(axis) for axis in free.free_axes(free.normalize(div(XBH, rms)))] == ["b", "h"]


def test_a_sum_over_what_does_not_vary_is_its_extent() -> None:
    fixed = expr.symbol("u", ["b"])
    assert equal(total(H, mul(fixed, XBH)), mul(fixed, total(H, XBH)))
    assert equal(total(H, add(XBH, fixed)), add(total(H, XBH), total(H, fixed)))
    assert not equal(total(H, fixed), fixed)
    assert equal(mul(total(H, fixed), expr.symbol("v")), mul(fixed, total(H, expr.symbol("v"))))


def test_loop_parts_are_axes_of_their_own() -> None:
    _, loop, tile = H.split()
    x = expr.symbol("X", ["b", loop, tile])
    algebra = Algebra()
    partial = algebra.normalize(total(tile, x))
    assert algebra.is_in_loop(partial)
    assert not algebra.is_in_loop(algebra.normalize(total(loop, total(tile, x))))
    assert equal(total(loop, total(tile, x)), total([loop, tile], x))
    assert not equal(exp(total([loop, tile], x)), total(loop, exp(total(tile, x))))


def test_two_uses_of_one_tensor_are_two_symbols() -> None:
    left, right = expr.symbol("X", ["i", H]), expr.symbol("X", ["j", H])
    assert not equal(mul(left, right), mul(left, left))
    assert not equal(expr.symbol("X", ["i", "j"]), expr.symbol("X", ["j", "i"]))


# -------------------------------------------------------------------------------------------------------------- maxima
def test_lattice_laws() -> None:
    i = Axis("i")
    x, y = expr.symbol("x", [i]), expr.symbol("y", [i])
    fixed = expr.symbol("m")
    assert equal(expr.max_over(i, add(x, fixed)), add(expr.max_over(i, x), fixed))
    assert equal(expr.max_over(i, expr.maximum(x, y)), expr.maximum(expr.max_over(i, x), expr.max_over(i, y)))
    assert equal(expr.max_over(6, X), expr.max_over(2, expr.max_over(3, X)))
    assert equal(expr.max_over([A, B], AXES.leaves[0]), expr.max_over(B, expr.max_over(A, AXES.leaves[0])))
    assert equal(expr.max_over(i, fixed), fixed)
    two = expr.constant(2)
    assert equal(expr.max_over(i, mul(two, x)), mul(two, expr.max_over(i, x)))


def test_what_does_not_hold_of_max_is_not_used() -> None:
    i = Axis("i")
    x, y, fixed = expr.symbol("x", [i]), expr.symbol("y", [i]), expr.symbol("m")
    assert not equal(expr.max_over(i, mul(fixed, x)), mul(fixed, expr.max_over(i, x)))  # m may be negative
    assert not equal(expr.max_over(i, add(x, y)), add(expr.max_over(i, x), expr.max_over(i, y)))
    minus = expr.constant(-1)
    assert not equal(expr.max_over(i, mul(minus, x)), mul(minus, expr.max_over(i, x)))
    assert not equal(expr.max_over(i, exp(x)), exp(x))


def test_stable_softmax_shifts_leave_the_sums() -> None:
    """exp(x - max x) = exp(x) exp(-max x), so the shift is a factor of numerator and denominator (not cancelled)."""
    s = Axis("s")
    x, v = expr.symbol("x", ["q", s]), expr.symbol("V", [s, "e"])
    shift = mul(expr.constant(-1), expr.max_over(s, x))
    safe = exp(add(x, shift))
    assert equal(total(s, mul(safe, v)), mul(exp(shift), total(s, mul(exp(x), v))))


# ------------------------------------------------------------------------------------------------ both forms, undecided
def test_equal_axes_forms_have_equal_sizes_forms() -> None:
    rng = random.Random(5)
    extents = {A: 4, B: 6, C: 10}
    algebra = Algebra()
    for _ in range(400):
        term = random_term(rng, 4, AXES)
        other = walk(rng, term, 6)
        pair = [algebra.normalize(expr.to_sizes(t, extents)) for t in (term, other)]
        assert pair[0] == pair[1], f"{term} and {other}"


@pytest.mark.parametrize("form", FORMS)
def test_equal_normal_forms_are_equal_numbers(form: str) -> None:
    """A_eq is sound where every input is constant (and positive)."""
    rng = random.Random(6)
    numbers = {"X": 0.7, "Y": 0.9, "Z": 1.1, "U": 0.8}
    extents = {A: 2, B: 3, C: 5}
    clamped = dict(FUNCTIONS)
    for _ in range(300):
        term = random_term(rng, 3, FORMS[form])
        other = walk(rng, term, 5)
        try:
            value = evaluate(term, numbers, extents, clamped)
        except OverflowError:
            continue
        if value < 1e100:
            assert evaluate(other, numbers, extents, clamped) == pytest.approx(value, rel=1e-9)


def test_readback_is_a_term_of_the_value() -> None:
    rng = random.Random(7)
    for form, words in FORMS.items():
        for _ in range(300):
            algebra = Algebra()
            value = algebra.normalize(random_term(rng, 4, words))
            if not algebra.is_undecided(value):
                assert algebra.normalize(Readback(algebra).term(value)) == value, form


def test_results_do_not_depend_on_what_was_asked_before() -> None:
    rng = random.Random(8)
    terms = [random_term(rng, 4, AXES) for _ in range(60)]
    forwards, backwards = Algebra(), Algebra()
    written = {term: Readback(forwards).term(forwards.normalize(term)) for term in terms}
    for term in reversed(terms):
        assert Readback(backwards).term(backwards.normalize(term)) is written[term]


def test_past_the_budget_is_undecided_and_counted() -> None:
    algebra = Algebra(max_terms=16)
    factor = add(X, add(Y, Z))
    power = mul(mul(factor, factor), factor)  # 27 monomials
    value = algebra.normalize(power)
    assert algebra.is_undecided(value)
    assert algebra.undecided == 1
    assert algebra.normalize(power) == value  # the same operation is the same value
    assert algebra.is_undecided(algebra.normalize(exp(power)))
    assert algebra.undecided == 1
    larger = Algebra()
    assert not larger.is_undecided(larger.normalize(power))


def test_a_common_factor_that_only_factoring_would_find_is_undecided() -> None:
    """sum_h sqrt(p_h (a+b)(c+d) + q_h (a+b)(c+v)): whether (a+b) leaves the sum takes more than division."""
    p, q = expr.symbol("p", [H]), expr.symbol("q", [H])
    a, b, c, d, v = (expr.symbol(name) for name in "abcdv")
    radicand = add(mul(p, mul(add(a, b), add(c, d))), mul(q, mul(add(a, b), add(c, v))))
    algebra = Algebra()
    assert algebra.is_undecided(algebra.normalize(total(H, sqrt(radicand))))
    assert algebra.undecided == 1


def test_concatenated_parts_need_a_sum() -> None:
    both = expr.concat("c", {H: XBH, Axis("r"): expr.symbol("Y", ["b", "r"])})
    algebra = Algebra()
    with pytest.raises(UsageError, match="take `pieces`"):
        algebra.normalize(both)
    joined = algebra.normalize(total(Axis("c"), both))
    assert joined == algebra.normalize(add(total(H, XBH), total(Axis("r"), expr.symbol("Y", ["b", "r"]))))


def test_a_budget_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="does not fit"):
        Algebra(max_weight=40_000)
