"""Compiled goals: several outputs, counts before construction, parts, evidence."""

from __future__ import annotations

import random

import pytest

from tests.unit.domains.abstract_terms import FORMS, random_term
from workbench.domains import abstract_expr as expr
from workbench.domains.abstract_distance import FAR
from workbench.domains.abstract_expr import Axis, Term
from workbench.domains.abstract_goals import Goals
from workbench.domains.abstract_normal_form import Algebra, Value
from workbench.domains.abstract_print import to_text
from workbench.domains.abstract_readback import Readback
from workbench.errors import UsageError

X, Y, Z, G, W = (expr.symbol(name) for name in "XYZGW")
add, mul, div, sqrt, total = expr.add, expr.mul, expr.div, expr.sqrt, expr.sum_over
RMS = sqrt(div(total(64, mul(X, X)), expr.constant(64)))
LECTURE = total(64, div(mul(mul(G, W), X), RMS))


def compiled(*terms: Term) -> tuple[Algebra, Goals]:
    algebra = Algebra()
    return algebra, Goals(algebra, [algebra.normalize(term) for term in terms])


def test_several_outputs() -> None:
    algebra, goals = compiled(mul(X, Y), add(X, Z))
    value = algebra.normalize
    assert goals.distances(value(X)) == (1, 1)
    assert goals.distances(value(Y)) == (1, FAR)
    assert goals.distance(value(Z)) == 1
    assert goals.distance(value(mul(Y, Z))) == FAR
    assert goals.is_goal(value(add(Z, X)))
    assert goals.judge(value(add(Z, X))).goal == 1


def test_no_goal_is_refused() -> None:
    with pytest.raises(UsageError, match="no goal"):
        Goals(Algebra(), [])


def test_memo_and_counters() -> None:
    algebra, goals = compiled(LECTURE)
    for _ in range(3):
        for term in (X, mul(W, W), add(X, G), mul(X, G)):
            goals.distance(algebra.normalize(term))
    assert (goals.asked, goals.computed) == (12, 4)
    assert goals.rejected == {"count": 1, "absent": 1}


def test_counts_alone_refuse_before_anything_is_built() -> None:
    algebra, goals = compiled(LECTURE)
    w, x, power = algebra.normalize(W), algebra.normalize(X), algebra.normalize(add(X, add(Y, Z)))
    before = len(algebra.polynomials)
    assert not goals.admits("mul", w, w)
    assert not goals.admits("add", power, x)
    assert goals.admits("mul", w, x)
    assert goals.admits("div", w, x)
    assert goals.admits("exp", x)
    assert len(algebra.polynomials) == before


def test_counts_never_refuse_what_is_near() -> None:
    """For every operator inside random goals, the count test on its operands lets it through."""
    rng = random.Random(31)
    binary = {expr.Kind.ADD: "add", expr.Kind.MUL: "mul", expr.Kind.DIV: "div"}
    for words in FORMS.values():
        for _ in range(250):
            goal = random_term(rng, 4, words)
            algebra, goals = compiled(goal)
            for sub in goal.subterms():
                if sub.kind in binary:
                    left, right = (algebra.normalize(arg) for arg in sub.args)
                    assert goals.admits(binary[sub.kind], left, right), f"{sub} in {goal}"


def test_counts_of_results_are_superadditive() -> None:
    rng = random.Random(32)
    for words in FORMS.values():
        for _ in range(300):
            left, right = random_term(rng, 3, words), random_term(rng, 3, words)
            algebra = Algebra()
            x, y = algebra.normalize(left), algebra.normalize(right)
            for result in (algebra.add(x, y), algebra.mul(x, y), algebra.div(x, y)):
                if not algebra.is_undecided(result):
                    assert algebra.fits(algebra.count[x] + algebra.count[y], algebra.count[result])


def test_undecided_values_are_kept_and_counted() -> None:
    algebra = Algebra(max_terms=4)
    goals = Goals(algebra, [algebra.normalize(mul(mul(X, Y), Z))])
    value = algebra.normalize(mul(add(X, Y), add(Y, add(X, Z))))
    assert algebra.is_undecided(value)
    assert goals.distance(value) == FAR  # X twice: the counts decide
    roomy = Goals(algebra, [algebra.normalize(mul(mul(mul(X, X), mul(Y, Y)), mul(mul(X, Y), Z)))])
    assert roomy.distance(value) == 0
    assert roomy.kept_undecided == 1
    assert roomy.judge(value).rule == "undecided"


# --------------------------------------------------------------------------------------------------------------- evidence
def shown(goals: Goals, algebra: Algebra, term: Term) -> tuple[int, str, str]:
    judgement = goals.judge(algebra.normalize(term))
    return judgement.distance, judgement.rule, to_text(Readback(algebra).goal_with_part(goals, judgement))


def test_the_matched_part_stands_marked_in_the_goal() -> None:
    algebra, goals = compiled(LECTURE)
    assert shown(goals, algebra, mul(X, G)) == (1, "embeds", "Σ_64[⟦G·X⟧·W / √(Σ_64[X·X / 64])]")
    assert shown(goals, algebra, mul(X, X)) == (2, "embeds", "Σ_64[G·W·X / √(Σ_64[⟦X·X⟧ / 64])]")
    assert shown(goals, algebra, RMS) == (1, "embeds", "Σ_64[G·W·X / ⟦√(Σ_64[X·X / 64])⟧]")
    assert shown(goals, algebra, LECTURE) == (0, "goal", "⟦Σ_64[G·W·X / √(Σ_64[X·X / 64])]⟧")
    assert shown(goals, algebra, mul(W, W)) == (FAR, "count", "Σ_64[G·W·X / √(Σ_64[X·X / 64])]")


def test_a_common_factor_is_shown_as_the_form_of_the_goal_that_has_it() -> None:
    algebra, goals = compiled(add(mul(X, Z), mul(Y, Z)))
    assert shown(goals, algebra, add(X, Y))[2] == "⟦X + Y⟧·Z"
    assert shown(goals, algebra, mul(X, Z))[2] == "⟦X·Z⟧ + Y·Z"


def test_evidence_names_crossings_cofactor_and_sums() -> None:
    h = Axis("h")
    x, g, w = expr.symbol("X", ["b", h]), expr.symbol("G", [h]), expr.symbol("W", [h, "d"])
    algebra, goals = compiled(div(total(h, mul(mul(x, g), w)), sqrt(total(h, mul(x, x)))))
    judgement = goals.judge(algebra.normalize(mul(x, x)))
    assert judgement.path == ("div", "sqrt")
    assert judgement.left == (h,)
    assert judgement.describe() == "lies in goal 0 in div < sqrt, then summed over h; at least 3 operators away"
    judgement = goals.judge(algebra.normalize(mul(x, g)))
    assert judgement.path == ("numerator",)
    assert to_text(Readback(algebra).term(judgement.cofactor)) == "W / √(Σ_h[X·X])"


def test_why_not() -> None:
    algebra, goals = compiled(add(mul(X, Z), mul(Y, Z)))
    judgement = goals.judge(algebra.normalize(mul(mul(Z, Z), Z)))
    assert judgement.excess == (("Z", 3, 2),)
    assert judgement.describe() == "has 3 x Z, no goal has more than 2"
    judgement = goals.judge(algebra.normalize(mul(X, Y)))
    assert judgement.rule == "absent"
    assert {to_text(Readback(algebra).term(part)) for part in judgement.clash} == {"X", "Y"}
    assert "never meet" in judgement.describe()


def test_the_marked_goal_is_the_goal_and_holds_the_value() -> None:
    rng = random.Random(33)
    marked = 0
    for words in FORMS.values():
        for _ in range(100):
            goal = random_term(rng, 4, words)
            algebra, goals = compiled(goal)
            if algebra.is_undecided(goals.values[0]):
                continue
            readback = Readback(algebra)
            for sub in goal.subterms():
                value: Value = algebra.normalize(sub)
                judgement = goals.judge(value)
                shown_goal = readback.goal_with_part(goals, judgement)
                parts = [part.args[0] for part in shown_goal.subterms() if part.kind is expr.Kind.MARK]
                if not parts or any("'" in str(axis) for part in shown_goal.subterms() for axis in part.axes):
                    continue  # constants found by counts only; copies of axes may be exchanged for the marked part
                assert algebra.normalize(shown_goal) == goals.values[0], f"{sub} in {goal}"
                assert any(algebra.normalize(part) == value for part in parts), f"{sub} in {goal}"
                marked += 1
    assert marked > 700
