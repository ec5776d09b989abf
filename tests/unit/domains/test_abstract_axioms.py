"""The axiom list itself, and the normal form against every axiom of it."""

from __future__ import annotations

import random

import pytest

from tests.unit.domains.abstract_terms import AXES, FORMS, WITH_MAXIMA, A, B, random_term, walk
from workbench.domains import abstract_expr as expr
from workbench.domains.abstract_axioms import AXIOMS, Axiom, axioms_of, direct_subterms, rewrites
from workbench.domains.abstract_expr import Kind, Term
from workbench.domains.abstract_normal_form import Algebra

X, Y, Z = (expr.symbol(name) for name in "XYZ")


def test_the_list_is_table_2() -> None:
    """Written down once more from the paper, by hand."""
    assert [str(axiom) for axiom in axioms_of("table 2")] == [
        "add(x, y) = add(y, x)",
        "mul(x, y) = mul(y, x)",
        "add(x, add(y, z)) = add(add(x, y), z)",
        "mul(x, mul(y, z)) = mul(mul(x, y), z)",
        "add(mul(x, z), mul(y, z)) = mul(add(x, y), z)",
        "add(div(x, z), div(y, z)) = div(add(x, y), z)",
        "mul(x, div(y, z)) = div(mul(x, y), z)",
        "div(div(x, y), z) = div(x, mul(y, z))",
        "x = sum(1, x)",
        "sum(i, sum(j, x)) = sum(i*j, x)",
        "sum(i, add(x, y)) = add(sum(i, x), sum(i, y))",
        "sum(i, mul(x, y)) = mul(sum(i, x), y)",
        "sum(i, div(x, y)) = div(sum(i, x), y)",
        "mul(exp(x), exp(y)) = exp(add(x, y))",
        "mul(sqrt(x), sqrt(y)) = sqrt(mul(x, y))",
    ]


def test_a_sub_is_the_papers() -> None:
    quotient = expr.div(X, Y)
    assert direct_subterms(quotient) == (X, Y)
    for term in (expr.exp(X), expr.sqrt(X), expr.silu(X), expr.sum_over(4, X)):
        assert direct_subterms(term) == (X,)
    assert direct_subterms(expr.add(X, Y)) == direct_subterms(expr.mul(X, Y)) == (X, Y)


def instances(axiom: Axiom, form: str, rng: random.Random) -> list[tuple[Term, Term]]:
    """Return pairs of terms that one use of the axiom makes equal, on random operands."""
    words = FORMS[form]
    found = []
    for _ in range(1500):
        term = random_term(rng, 3, words, (*WITH_MAXIMA, "div", "sqrt"))
        found += [(term, other) for other in rewrites(term, [axiom])]
        if len(found) > 15:
            break
    return found


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("axiom", AXIOMS, ids=lambda axiom: axiom.name.replace(" ", "_"))
def test_every_axiom_keeps_the_normal_form(axiom: Axiom, form: str) -> None:
    rng = random.Random(f"{axiom.name} {form}")
    pairs = instances(axiom, form, rng)
    if axiom.name == "sum of one":  # only the paper's form has sums over 1
        pairs = [(term, expr.sum_over(1, term)) for term in (random_term(rng, 3, FORMS[form]) for _ in range(20))]
    # Patterns with two equal parts hardly ever match at random: walk there from their other side.
    if len(pairs) < 5:
        pairs += built(axiom, form, rng)
    assert len(pairs) >= 5, f"{axiom} was never used"
    algebra = Algebra()
    for left, right in pairs:
        assert algebra.normalize(left) == algebra.normalize(right), f"{left} and {right}"


def built(axiom: Axiom, form: str, rng: random.Random) -> list[tuple[Term, Term]]:
    """Return both sides of the axiom built from random operands."""
    found = []
    for _ in range(30):
        x, y, z = (random_term(rng, 2, FORMS[form]) for _ in range(3))
        sides = {
            "mul distributes": (expr.mul(expr.add(x, y), z), expr.add(expr.mul(x, z), expr.mul(y, z))),
            "div distributes": (expr.div(expr.add(x, y), z), expr.add(expr.div(x, z), expr.div(y, z))),
            "maximum of shifted": (
                expr.add(expr.maximum(x, y), z),
                expr.maximum(expr.add(x, z), expr.add(y, z)),
            ),
            "product with one": (x, expr.mul(x, expr.constant(1))),
            "maximum of equals": (x, expr.maximum(x, x)),
        }
        if axiom.name in sides:
            found.append(sides[axiom.name])
    return found


@pytest.mark.parametrize("form", FORMS)
def test_random_rewriting_keeps_the_normal_form(form: str) -> None:
    rng = random.Random(11)
    undecided = 0
    for _ in range(1000):
        algebra = Algebra()
        term = random_term(rng, 4, FORMS[form])
        other = walk(rng, term, rng.randrange(1, 8))
        left, right = algebra.normalize(term), algebra.normalize(other)
        if algebra.is_undecided(left) or algebra.is_undecided(right):
            undecided += 1
        else:
            assert left == right, f"{term} and {other}"
    assert undecided <= 10


@pytest.mark.parametrize("form", FORMS)
def test_random_rewriting_with_maxima_keeps_the_normal_form(form: str) -> None:
    rng = random.Random(12)
    for _ in range(400):
        algebra = Algebra()
        term = random_term(rng, 4, FORMS[form], WITH_MAXIMA)
        other = walk(rng, term, rng.randrange(1, 8))
        left, right = algebra.normalize(term), algebra.normalize(other)
        assert left == right or algebra.is_undecided(left) or algebra.is_undecided(right), f"{term} and {other}"


def test_side_conditions_of_the_axes_form() -> None:
    x, y = AXES.leaves[0], AXES.leaves[1]  # X[a, b], Y[b]
    product = expr.sum_over(A, expr.mul(x, y))
    axiom = next(axiom for axiom in AXIOMS if axiom.name == "sum of mul")
    assert expr.mul(expr.sum_over(A, x), y) in set(rewrites(product, [axiom]))
    assert not list(rewrites(expr.sum_over(B, expr.mul(x, y)), [axiom]))


def test_sums_split_in_every_way() -> None:
    axiom = next(axiom for axiom in AXIOMS if axiom.name == "sum of a sum")
    inner = {(t.size, t.args[0].size) for t in rewrites(expr.sum_over(12, X), [axiom]) if t.kind is Kind.SUM}
    assert inner == {(2, 6), (3, 4), (4, 3), (6, 2)}
    assert set(rewrites(expr.sum_over([A, B], X), [axiom])) == {
        expr.sum_over(A, expr.sum_over(B, X)),
        expr.sum_over(B, expr.sum_over(A, X)),
    }
