"""The fewest operators that make a value: never more than a term of it uses."""

from __future__ import annotations

import random

from tests.unit.domains.abstract_terms import FORMS, random_term
from workbench.domains import abstract_expr as expr
from workbench.domains.abstract_costs import StepCosts, fewest_operators
from workbench.domains.abstract_expr import Axis, Term
from workbench.domains.abstract_normal_form import Algebra, Value

X, Y, Z = (expr.symbol(name) for name in "XYZ")
add, mul, sqrt, total, silu = expr.add, expr.mul, expr.sqrt, expr.sum_over, expr.silu


def test_fewest_operators() -> None:
    algebra = Algebra()

    def fewest(term: Term, costs: StepCosts | None = None) -> int:
        return fewest_operators(algebra, algebra.normalize(term), costs)

    assert fewest(X) == 0
    assert fewest(mul(X, Y)) == 1
    assert fewest(silu(add(X, mul(Y, Z)))) == 3
    loop, tile = Axis("h").split()[1:]
    x = expr.symbol("X", [loop, tile])
    assert fewest(sqrt(total([loop, tile], mul(x, x)))) == 2  # at least the root and the accumulator
    assert fewest(sqrt(total([loop, tile], mul(x, x))), StepCosts(absorbs={"sqrt": 4})) == 1


def test_fewest_operators_never_exceeds_what_a_term_uses() -> None:
    rng = random.Random(27)
    for form, words in FORMS.items():
        for _ in range(300):
            term = random_term(rng, 4, words)
            algebra = Algebra()
            used = sum(bool(sub.args) for sub in term.subterms())
            value: Value = algebra.normalize(term)
            assert fewest_operators(algebra, value) <= used, form
