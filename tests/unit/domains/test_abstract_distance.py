"""Distances: nothing useful is ever far, nothing is further than it is, and what is far is far."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from tests.unit.domains.abstract_terms import FORMS, WITH_MAXIMA, A, Vocabulary, path_lengths, random_term, walk
from workbench.domains import abstract_expr as expr
from workbench.domains.abstract_axioms import Axiom, axioms_of, rewrites
from workbench.domains.abstract_costs import StepCosts
from workbench.domains.abstract_distance import FAR, WHOLE, DistanceTables
from workbench.domains.abstract_expr import Axis, Term
from workbench.domains.abstract_normal_form import Algebra

X, Y, Z, G, W = (expr.symbol(name) for name in "XYZGW")
add, mul, div, exp, sqrt, total, silu = expr.add, expr.mul, expr.div, expr.exp, expr.sqrt, expr.sum_over, expr.silu


def distance(term: Term, goal: Term, costs: StepCosts | None = None) -> int:
    algebra = Algebra()
    tables = DistanceTables(algebra, costs)
    region = tables.region(algebra.normalize(goal))
    return tables.distances(region, algebra.normalize(term))[WHOLE]


# ------------------------------------------------------------------------------------------------- the lecture's examples
def test_x_times_y_is_pruned_and_x_plus_y_is_not() -> None:
    """Lecture, section 4.2: the goal X Z + Y Z equals (X + Y) Z."""
    goal = add(mul(X, Z), mul(Y, Z))
    assert distance(mul(X, Y), goal) == FAR
    assert distance(add(X, Y), goal) == 1
    assert distance(mul(X, Z), goal) == 1
    assert distance(X, goal) == 2
    assert distance(mul(add(X, Y), Z), goal) == 0


RMS = sqrt(div(total(64, mul(X, X)), expr.constant(64)))
RMS_NORM_LINEAR = total(64, div(mul(mul(G, W), X), RMS))


def test_exercise_1() -> None:
    """Four iterations of 16 elements: A = Accum(sum_h(sqr X)) lies in the denominator's root."""
    accumulated = total(4, total(16, expr.square(X)))
    algebra = Algebra()
    assert algebra.normalize(accumulated) == algebra.normalize(total(64, mul(X, X)))
    assert distance(expr.square(X), RMS_NORM_LINEAR) < FAR
    assert distance(total(16, expr.square(X)), RMS_NORM_LINEAR) < FAR
    assert distance(accumulated, RMS_NORM_LINEAR) == 2  # the root, then the division: 1/64 rides along
    assert distance(total(3, expr.square(X)), RMS_NORM_LINEAR) == FAR  # 3 does not divide 64


def test_exercise_2_cancellation_would_make_everything_a_subexpression() -> None:
    assert distance(Y, X) == FAR
    assert distance(div(mul(X, Y), Y), X) == FAR
    assert distance(X, div(mul(X, Y), Y)) == 1


def test_candidate_3_forgets_the_gain_and_survives_in_the_papers_form_only() -> None:
    """Lecture, section 4.4: without G it is still a subproduct; the axes form sees that G varies along the sum."""
    forgot = total(64, div(mul(W, X), RMS))
    assert distance(forgot, RMS_NORM_LINEAR) == 1
    h = Axis("h")
    x, g, w = expr.symbol("X", ["b", h]), expr.symbol("G", [h]), expr.symbol("W", [h, "d"])
    rms = sqrt(div(total(h, expr.square(x)), expr.constant(64)))
    goal = total(h, div(mul(mul(g, w), x), rms))
    assert distance(total(h, div(mul(w, x), rms)), goal) == FAR
    assert distance(mul(w, x), goal) == 1  # a matmul with G / rms


@pytest.mark.parametrize("term", [mul(W, W), mul(G, G), add(X, G), exp(X), div(W, X), total(5, X)])
def test_typical_pruned_prefixes(term: Term) -> None:
    assert distance(term, RMS_NORM_LINEAR) == FAR


# --------------------------------------------------------------------------------------------------------- A_sub, random
def check_subterms(
    form: Vocabulary, rng: random.Random, count: int, depth: int, operators: Sequence[str] | None = None
) -> tuple[int, int, int]:
    """Check every subterm of randomly rewritten goals; return (subterms, those with the exact distance, skipped)."""
    seen = exact = skipped = 0
    for _ in range(count):
        term = random_term(rng, depth, form, operators) if operators else random_term(rng, depth, form)
        rewritten = walk(rng, term, rng.randrange(8))
        algebra = Algebra()
        tables = DistanceTables(algebra)
        goal = algebra.normalize(term)
        region = tables.region(goal)
        for sub, steps in path_lengths(rewritten).items():
            value = algebra.normalize(sub)
            if algebra.is_undecided(value) or algebra.is_undecided(goal):
                skipped += 1
                continue
            found = tables.distances(region, value)[WHOLE]
            if operators and not algebra.fits(algebra.count[value], region.count):
                skipped += 1  # a maximum that joins equal operands only once they are reduced
                continue
            assert found < FAR, f"{sub} is far from {rewritten}"
            assert found <= steps, f"{sub} is {steps} operators from {rewritten}, not {found}"
            if tables.undecided:
                skipped += 1
                continue
            assert (found == 0) == (value == goal)
            seen, exact = seen + 1, exact + (found == steps)
    return seen, exact, skipped


@pytest.mark.parametrize("form", FORMS)
def test_subterms_of_rewritten_goals_are_near_and_never_too_far(form: str) -> None:
    seen, exact, skipped = check_subterms(FORMS[form], random.Random(21), 450, 4)
    assert seen > 2500
    assert exact > 0.4 * seen  # a bound of 0 would be admissible too
    assert skipped < 0.01 * seen


@pytest.mark.parametrize("form", FORMS)
def test_deep_goals(form: str) -> None:
    seen, _, skipped = check_subterms(FORMS[form], random.Random(22), 25, 6)
    assert seen > 150
    assert skipped < 0.1 * seen


@pytest.mark.parametrize("form", FORMS)
def test_subterms_of_goals_with_maxima(form: str) -> None:
    seen, _, skipped = check_subterms(FORMS[form], random.Random(23), 300, 4, WITH_MAXIMA)
    assert seen > 1500
    assert skipped < 0.01 * seen


def closure(term: Term, axioms: Sequence[Axiom], limit: int) -> set[Term] | None:
    """Return everything the axioms make equal to the term, None past the limit."""
    seen, todo = {term}, [term]
    while todo:
        for new in rewrites(todo.pop(), axioms):
            if new not in seen:
                seen.add(new)
                todo.append(new)
        if len(seen) > limit:
            return None
    return seen


@pytest.mark.parametrize("form", FORMS)
def test_far_means_in_no_equal_form_and_near_means_in_one(form: str) -> None:
    """The whole class of A_eq of small goals is built; only x * 1 = x, which the class leaves out, adds to what is near."""
    rng = random.Random(24)
    words = Vocabulary(
        tuple(leaf for leaf in FORMS[form].leaves if leaf.kind is expr.Kind.SYMBOL)[:3], FORMS[form].indices
    )
    axioms = [axiom for axiom in axioms_of("table 2") if axiom.name != "sum of one"]
    queries = near = extra = 0
    while queries < 900:
        goal = random_term(rng, 3, words)
        forms = closure(goal, axioms, 800)
        if forms is None:
            continue
        algebra = Algebra()
        tables = DistanceTables(algebra)
        region = tables.region(algebra.normalize(goal))
        inside = {algebra.normalize(sub) for other in forms for sub in other.subterms()}
        pool = [sub for other in sorted(forms, key=repr)[:20] for sub in other.subterms()]
        for _ in range(40):
            x, y = rng.choice(pool), rng.choice(pool)
            over = rng.choice(words.indices)
            asked = rng.choice([mul(x, y), add(x, y), div(x, y), exp(x), sqrt(x), total(over, x), silu(x), x])
            value = algebra.normalize(asked)
            found = tables.distances(region, value)[WHOLE]
            assert (value not in inside) or found < FAR, f"{asked} is far from {goal}"
            queries, near = queries + 1, near + (value in inside)
            extra += value not in inside and found < FAR
    assert near > 90
    assert extra < 0.01 * queries


def random_path(rng: random.Random, start: Term, leaves: Sequence[Term], steps: int) -> Term:
    """Return what a number of operators make of a term, loop sums and matmuls among them."""
    term = start
    for _ in range(steps):
        other = random_term(rng, 1, Vocabulary(tuple(leaves), (A,)), ("add", "mul", "div", "exp"))
        free = sorted(expr.free_axes(term), key=str)
        both = sorted(expr.free_axes(term) & expr.free_axes(other), key=str)
        inner = [axis for axis in both if axis.part is not expr.Part.LOOP]
        choices = [
            add(term, other),
            mul(term, other),
            div(term, other),
            div(other, term),
            exp(term),
            sqrt(term),
            silu(term),
        ]
        if free:
            choices.append(total(rng.choice(free), term))
        if inner:
            choices += [total(inner[0], mul(term, other))] * 3
        loop = [axis for axis in free if axis.part is expr.Part.LOOP]
        if loop:
            choices += [total(loop, term), total([*loop, *inner[:1]], term)] * 2
        term = rng.choice(choices)
    return term


def test_no_path_of_operators_is_shorter_than_the_distance() -> None:
    rng = random.Random(25)
    loop, tile = Axis("h").split()[1:]
    leaves = [
        expr.symbol("X", ["b", loop, tile]),
        expr.symbol("W", [loop, tile, "d"]),
        expr.symbol("V", ["b"]),
        expr.symbol("Q", ["b", "d"]),
    ]
    tight = 0
    for _ in range(700):
        steps = rng.randrange(1, 6)
        start = random_term(rng, 1, Vocabulary(tuple(leaves), (tile,)))
        goal = random_path(rng, start, leaves, steps)
        algebra = Algebra()
        tables = DistanceTables(algebra)
        value, target = algebra.normalize(start), algebra.normalize(goal)
        if algebra.is_undecided(target):
            continue
        found = tables.distances(tables.region(target), value)[WHOLE]
        assert found <= steps, f"{start} to {goal} in {steps} operators, not {found}"
        tight += found == steps
    assert tight > 150


# ------------------------------------------------------------------------------------------------------------------ traps
def test_a_product_with_a_sum_is_one_operator() -> None:
    """X (a + b) holds X a: one operator from X, not a product and an addition."""
    assert distance(X, mul(X, add(Y, Z))) == 1
    assert distance(add(Y, Z), mul(X, add(Y, Z))) == 1
    assert distance(mul(X, Y), mul(X, add(Y, Z))) == 1
    assert distance(Y, add(mul(X, Y), mul(X, Z))) == 2


def test_sums_over_axes_that_a_value_does_not_carry_count_nothing() -> None:
    loop, tile = Axis("h").split()[1:]
    x, w, v = (expr.symbol(name, [*axes, loop, tile]) for name, axes in (("X", ["b"]), ("W", ["d"]), ("V", ["d"])))
    gate = silu(total([loop, tile], mul(x, w)))
    goal = mul(gate, total([loop, tile], mul(x, v)))
    assert distance(gate, goal) == 1  # the other factor is summed elsewhere
    assert distance(total(tile, mul(x, v)), goal) == 2  # accumulate, multiply
    assert distance(x, goal) == 2  # at least a product with a sum over the tile, and an accumulator


def test_a_loop_sum_is_an_operator_of_its_own_and_takes_the_tile_along() -> None:
    loop, tile = Axis("h").split()[1:]
    x = expr.symbol("X", ["b", loop, tile])
    assert distance(x, total([loop, tile], x)) == 1
    assert distance(x, total([loop, tile], mul(x, expr.symbol("W", [loop, tile])))) == 2
    grid = Axis("h").split()[0]
    split = expr.symbol("X", ["b", grid, loop, tile])
    assert distance(split, total([grid, loop, tile], split)) == 2  # a second kernel sums over the blocks


def test_without_matmul_a_product_and_a_sum_are_two() -> None:
    x, w = expr.symbol("X", ["b", "h"]), expr.symbol("W", ["h"])
    goal = total(Axis("h"), mul(x, w))
    assert distance(x, goal) == 1
    assert distance(x, goal, StepCosts(product_sums=False)) == 2


def test_a_product_may_come_before_or_after_a_root_or_an_exp() -> None:
    """sqrt(a) sqrt(b) X from a is sqrt, then one product; the root of the whole a b would be one operator more."""
    assert distance(X, mul(mul(sqrt(X), sqrt(Y)), Z)) == 2
    assert distance(mul(X, Y), mul(mul(sqrt(X), sqrt(Y)), Z)) == 2
    assert distance(X, mul(mul(exp(X), exp(Y)), Z)) == 2
    assert distance(X, sqrt(mul(X, Y))) == 2
    assert distance(X, exp(add(X, Y))) == 2


def test_below_the_bar_any_factor_of_the_denominator_may_be_divided_by() -> None:
    goal = div(X, mul(add(Y, Z), add(G, W)))
    assert distance(add(Y, Z), goal) == 1
    assert distance(Y, goal) == 2
    assert distance(mul(Y, G), goal) == 2  # added up to the whole product
    assert distance(mul(Y, X), goal) == FAR
    assert distance(div(X, add(Y, Z)), goal) == 1


def test_constants_may_have_stood_below() -> None:
    eight = expr.constant(8)
    assert distance(eight, div(X, eight)) == 1
    assert distance(mul(eight, Y), div(X, mul(eight, Y))) == 1
    assert distance(add(mul(eight, Y), mul(eight, Z)), div(X, mul(eight, add(Y, Z)))) == 1


def test_composites_shorten_paths() -> None:
    h = Axis("h")
    x = expr.symbol("X", ["b", h])
    goal = div(x, sqrt(mul(total(h, expr.square(x)), expr.constant("1/64"))))
    assert distance(expr.square(x), goal) == 3  # sum (the constant may come later), sqrt, div
    assert distance(expr.square(x), goal, StepCosts(absorbs={"sqrt": 4})) == 2  # inside rms, then div
    inner = total(h, mul(x, expr.constant("1/64")))
    assert distance(x, mul(inner, Y)) == 1
    assert distance(x, inner, StepCosts(sum_scales=True)) == 1
    assert distance(x, div(Y, sqrt(exp(x))), StepCosts(crossing={"exp": 0})) == 2


def test_an_axis_both_free_and_reduced() -> None:
    """nTrans: h is free above and bound in the norm; the value whose h is summed is the one below."""
    h = Axis("h")
    x, y = expr.symbol("X", ["b", h]), expr.symbol("Y", ["b", h])
    mixed = add(x, y)
    goal = div(mixed, sqrt(total(h, expr.square(mixed))))
    assert distance(mixed, goal) == 1
    assert distance(expr.square(mixed), goal) == 3
    assert distance(mul(x, y), goal) == 4  # add, sum, root, div
    assert distance(total(h, mul(x, y)), goal) == 3
    assert distance(total(h, x), goal) == FAR
    both = mul(x, total(h, x))  # h free and bound in one product of the goal
    assert distance(x, both) == 1
    assert distance(mul(x, x), both) == FAR


def test_an_axis_summed_below_a_root_and_again_beside_it() -> None:
    """V is summed before the root, so the sum over the loop beside it is not V's to make."""
    loop = Axis("h").split()[1]
    x, v, w = (expr.symbol(name, ["b", loop]) for name in "XVW")
    assert distance(v, mul(sqrt(total(loop, v)), total(loop, mul(w, sqrt(x))))) == 3


def test_bound_names_do_not_capture_when_axes_are_exchanged() -> None:
    """a and b are free in the factor (and a bound once more inside it) and bound in the sum beside it."""
    a, b = Axis("a"), Axis("b")
    x, y = expr.symbol("X", [a, b]), expr.symbol("Y", [b])
    factor = sqrt(div(exp(total(a, x)), mul(y, add(y, x))))
    inner = add(x, expr.constant("1/8"))
    assert distance(inner, mul(factor, total([a, b], inner))) < FAR


def test_a_sum_made_already_is_not_summed_again() -> None:
    h = Axis("h")
    x, y = expr.symbol("X", [h]), expr.symbol("Y", [h])
    goal = add(total(h, x), total(h, y))
    assert distance(add(x, y), goal) == 1
    assert distance(add(x, total(h, y)), goal) == FAR


def test_equal_sizes_forms_need_not_be_equal() -> None:
    """Why values are never joined by the paper's form: X and its transpose, sums over rows or columns."""
    i, j = Axis("i"), Axis("j")
    x = expr.symbol("X", [i, j])
    rows, columns = total(i, x), total(j, x)
    algebra = Algebra()
    assert algebra.normalize(rows) != algebra.normalize(columns)
    extents = {i: 8, j: 8}
    assert expr.to_sizes(rows, extents) is expr.to_sizes(columns, extents)


def test_answers_do_not_depend_on_the_order_of_questions() -> None:
    """A value met while another is computed must not be remembered wrongly."""
    rng = random.Random(26)
    for _ in range(40):
        goal = random_term(rng, 5, FORMS["axes"])
        asked = sorted({sub for sub in walk(rng, goal, 6).subterms()}, key=repr)
        answers = []
        for order in (asked, asked[::-1]):
            algebra = Algebra()
            tables = DistanceTables(algebra)
            region = tables.region(algebra.normalize(goal))
            answers.append({term: tables.distances(region, algebra.normalize(term)) for term in order})
        assert answers[0] == answers[1]


def test_an_undecided_goal_keeps_everything() -> None:
    algebra = Algebra(max_terms=8)
    power = mul(mul(add(X, add(Y, Z)), add(X, Y)), add(X, Z))
    tables = DistanceTables(algebra)
    region = tables.region(algebra.normalize(exp(power)))
    for term in (X, mul(X, Y), add(X, Y), exp(X)):
        assert tables.distances(region, algebra.normalize(term))[WHOLE] < FAR
