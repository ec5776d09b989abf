"""Backwards: what made a value is always among its productions, and every production makes it."""

from __future__ import annotations

import itertools
import random
from fractions import Fraction

import pytest

from tests.unit.domains.abstract_terms import FORMS, WITH_MAXIMA, A, B, C, random_term
from workbench.domains import abstract_expr as expr
from workbench.domains.abstract_decomposition import Decomposition, Production
from workbench.domains.abstract_expr import Axis, Kind, Term
from workbench.domains.abstract_normal_form import ONE, Algebra, Value

X, Y, Z = (expr.symbol(name) for name in "XYZ")
add, mul, div, exp, sqrt, total = expr.add, expr.mul, expr.div, expr.exp, expr.sqrt, expr.sum_over
REDUCTIONS = [(A,), (B,), (C,), (A, B)]


def carried_out(algebra: Algebra, production: Production) -> Value:
    """Return the value a production makes."""
    operands, axes = production.operands, production.axes
    match production.operator:
        case "add":
            return algebra.add(*operands)
        case "mul":
            return algebra.mul(*operands)
        case "div":
            return algebra.div(*operands)
        case "exp":
            return algebra.exp(*operands)
        case "sqrt":
            return algebra.sqrt(*operands)
        case "sum":
            return algebra.sum_over(axes, *operands)
        case "matmul":
            return algebra.sum_over(axes, algebra.mul(*operands))
        case "max":
            return algebra.max_over(axes, *operands)
        case "maximum":
            return algebra.maximum(*operands)
    return algebra.apply(production.operator, *operands)


def is_number(algebra: Algebra, value: Value) -> bool:
    monomials = algebra.polynomials[value]
    return len(monomials) == 1 and all(map(algebra.is_number, algebra.monomials[monomials[0]].num))


def check(term: Term, reductions: list[tuple[Axis, ...]]) -> int:
    """Check every operator of a term; return how many."""
    algebra = Algebra()
    decomposition = Decomposition(algebra)
    seen = 0
    for sub in term.subterms():
        if not sub.args:
            continue
        value = algebra.normalize(sub)
        operands = tuple(algebra.normalize(arg) for arg in sub.args)
        if algebra.is_undecided(value) or value in decomposition.incomplete:
            continue
        productions = decomposition.productions(value, reductions)
        for production in productions:
            assert carried_out(algebra, production) == value, f"{production} does not make {sub}"
        trivial = ONE in operands or value in operands or (sub.kind is Kind.DIV and is_number(algebra, operands[1]))
        idle = sub.kind is Kind.MAX and not set(sub.axes) <= set(algebra.free_axes(operands[0]))
        if trivial or idle or sub.size:
            continue
        if sub.kind in (Kind.ADD, Kind.MUL, Kind.MAXIMUM):
            operands = tuple(sorted(operands))
        made_by = Production(sub.name or sub.kind.value, operands, sub.axes)
        assert made_by in productions, f"{made_by} is missing for {sub}"
        seen += 1
    return seen


@pytest.mark.parametrize("form", FORMS)
def test_what_made_a_value_is_found(form: str) -> None:
    rng = random.Random(41)
    reductions = REDUCTIONS if form == "axes" else []
    assert sum(check(random_term(rng, 4, FORMS[form]), reductions) for _ in range(220)) > 800


def test_what_made_a_maximum_is_found() -> None:
    rng = random.Random(42)
    operators = [operator for operator in WITH_MAXIMA if operator != "maximum"]
    assert sum(check(random_term(rng, 3, FORMS["axes"], operators), REDUCTIONS) for _ in range(200)) > 300


def test_every_split_of_a_choice() -> None:
    algebra = Algebra()
    names = [algebra.normalize(term) for term in (X, Y, Z)]
    value = algebra.maximum(names[0], algebra.maximum(names[1], names[2]))
    pairs = Decomposition(algebra).maxima(value)
    assert len(pairs) == 3
    assert {carried_out(algebra, Production("maximum", pair)) for pair in pairs} == {value}


def test_nothing_is_missed_among_small_values() -> None:
    """Every product, quotient and sum of two values from a pool is found from its result."""
    rng = random.Random(43)
    for _ in range(8):
        algebra = Algebra()
        decomposition = Decomposition(algebra)
        pool = sorted({algebra.normalize(random_term(rng, 2, FORMS["axes"])) for _ in range(14)})
        for left, right in itertools.combinations_with_replacement(pool, 2):
            if ONE in (left, right):
                continue
            product, added = algebra.mul(left, right), algebra.add(left, right)
            assert (left, right) in decomposition.products(product)
            assert (left, right) in decomposition.sums(added)
            if not is_number(algebra, right):
                assert (left, right) in decomposition.quotients(algebra.div(left, right))


def test_the_square_of_a_sum_of_three_falls_apart_at_once() -> None:
    """nTrans: nine products under the root, and one square root of them."""
    h = Axis("h")
    x, y = expr.symbol("X", ["b", h]), expr.symbol("H", ["b", h])
    alpha = expr.symbol("A", [h])
    mixed = add(x, mul(alpha, add(div(y, sqrt(total(h, expr.square(y)))), x)))
    algebra = Algebra()
    decomposition = Decomposition(algebra)
    wanted = algebra.normalize(mixed)
    root = algebra.normalize(sqrt(total(h, expr.square(mixed))))
    (step,) = decomposition.functions(root)
    assert step.operator == "sqrt"
    (summand,) = decomposition.summands(step.operands[0], [h])
    assert len(algebra.polynomials[summand]) == 9
    assert decomposition.products(summand) == [(wanted, wanted)]
    assert decomposition.square_root(summand) == wanted
    # mixed itself: X (1 + A) + A H / r, A (X + H / r) + X, and the split that makes neither
    assert len(decomposition.sums(wanted)) == 3
    assert algebra.normalize(mul(alpha, add(div(y, sqrt(total(h, expr.square(y)))), x))) in {
        value for pair in decomposition.sums(wanted) for value in pair
    }
    assert not decomposition.incomplete


def test_factors_of_sums() -> None:
    algebra = Algebra()
    decomposition = Decomposition(algebra)
    value = algebra.normalize
    product = value(mul(mul(add(X, Y), add(X, Z)), X))
    found = decomposition.products(product)
    assert tuple(sorted((value(add(X, Y)), value(mul(add(X, Z), X))))) in found
    assert tuple(sorted((value(X), value(mul(add(X, Z), add(X, Y)))))) in found
    assert len(found) == 3
    assert decomposition.products(value(add(mul(X, Y), Z))) == []
    # not unique factors of natural polynomials: 1 + x + ... + x^5 = (1 + x)(1 + x^2 + x^4) = (1 + x + x^2)(1 + x^3)
    one = expr.constant(1)
    power = [one, X, mul(X, X), mul(X, mul(X, X)), mul(mul(X, X), mul(X, X)), mul(mul(X, X), mul(X, mul(X, X)))]
    six = value(add(*power))
    assert decomposition.products(six) == sorted(
        tuple(sorted((value(add(*left)), value(add(*right)))))
        for left, right in (
            ((one, X), (one, power[2], power[4])),
            ((one, X, power[2]), (one, power[3])),
        )
    )


def test_matmuls_leave_both_operands_with_the_axis() -> None:
    h = Axis("h")
    x, g, w = expr.symbol("X", ["b", h]), expr.symbol("G", [h]), expr.symbol("W", [h, "d"])
    algebra = Algebra()
    productions = Decomposition(algebra).productions(algebra.normalize(total(h, mul(mul(x, g), w))), [(h,)])
    matmuls = {production.operands for production in productions if production.operator == "matmul"}
    pairs = ((x, mul(g, w)), (g, mul(x, w)), (w, mul(x, g)))
    assert matmuls == {tuple(sorted((algebra.normalize(a), algebra.normalize(b)))) for a, b in pairs}


def test_a_loop_and_a_tile_are_summed_apart_or_together() -> None:
    loop, tile = Axis("h").split()[1:]
    x = expr.symbol("X", ["b", loop, tile])
    algebra = Algebra()
    decomposition = Decomposition(algebra)
    value = algebra.normalize(total([loop, tile], x))
    assert decomposition.summands(value, [loop]) == [algebra.normalize(total(tile, x))]
    assert decomposition.summands(value, [loop, tile]) == [algebra.normalize(x)]
    assert decomposition.summands(algebra.normalize(total(tile, x)), [loop]) == []  # still in the loop


def test_which_of_two_sums_was_last_is_left_open() -> None:
    h = Axis("h")
    x, y = expr.symbol("X", [h]), expr.symbol("Y", [h])
    algebra = Algebra()
    value = algebra.normalize(mul(total(h, x), total(h, y)))
    wanted = {algebra.normalize(mul(x, total(h, y))), algebra.normalize(mul(y, total(h, x)))}
    assert set(Decomposition(algebra).summands(value, [h])) == wanted


def test_a_budget_past_which_a_value_is_reported_incomplete() -> None:
    algebra = Algebra()
    decomposition = Decomposition(algebra, max_splits=8)
    value = algebra.normalize(add(*(expr.symbol(name) for name in "abcdef")))
    assert len(decomposition.sums(value)) <= 8
    assert decomposition.incomplete == {value}


@pytest.mark.parametrize("seed", range(12))
def test_a_square_root_is_the_factor_that_occurs_twice(seed: int) -> None:
    """Compared with all factorisations of random values and of their squares."""
    rng = random.Random(seed)
    algebra = Algebra()
    apart = Decomposition(algebra)
    axes = [Axis("a"), Axis("b")]
    pool = [algebra.symbol(name, axes[: rng.randrange(3)]) for name in "xyzw"] + [algebra.constant(Fraction(1, 3))]
    for _ in range(8):
        left, right = rng.choice(pool), rng.choice(pool)
        made = rng.choice([algebra.add, algebra.mul, algebra.div])(left, right)
        pool += [
            value for value in (made, rng.choice([algebra.sqrt, algebra.exp])(left)) if algebra.weight[value] < 200
        ]
    roots = 0
    for value in [*pool, *(algebra.mul(value, value) for value in pool)]:
        if not algebra.frozen[value] and algebra.weight[value] < 300:
            twice = [p for p, q in apart.products(value) if p == q]
            assert apart.square_root(value) == (twice[0] if twice else None)
            roots += bool(twice)
    assert roots
