"""Arithmetic of normal forms: division undoes products, the order respects them, renaming does not capture."""

from __future__ import annotations

import random

import pytest

from tests.unit.domains.abstract_terms import AXES, A, B, random_term
from workbench.domains import abstract_expr as expr
from workbench.domains.abstract_expr import Axis
from workbench.domains.abstract_normal_form import Algebra
from workbench.domains.abstract_polynomials import intersect, merge, subtract
from workbench.domains.abstract_tables import UNIT, UndecidedError

X, Y, Z = (expr.symbol(name) for name in "XYZ")


def pool(rng: random.Random, algebra: Algebra, count: int) -> list[int]:
    values = [algebra.normalize(random_term(rng, 3, AXES)) for _ in range(count)]
    return [value for value in values if len(algebra.polynomials[value]) <= 12 and not algebra.frozen[value]]


def test_multisets() -> None:
    assert merge((5, 3), (4, 3)) == (5, 4, 3, 3)
    assert merge((), (2, 1)) == (2, 1)
    assert subtract((5, 4, 3, 3), (4, 3)) == (5, 3)
    assert subtract((5, 3), (3, 3)) is None
    assert intersect([(5, 3, 3), (3, 3, 1), (4, 3, 3)]) == (3, 3)
    assert intersect([(5,), (4,)]) == ()


def test_division_undoes_products() -> None:
    rng = random.Random(61)
    for _ in range(25):
        algebra = Algebra(max_terms=200)
        values = pool(rng, algebra, 10)
        for p in values:
            for q in values:
                product = algebra.multiply(p, q)
                assert algebra.divide(product, q) == p
                assert len(algebra.polynomials[product]) == len(algebra.polynomials[p]) * len(algebra.polynomials[q])
                more = algebra.plus(product, algebra.normalize(expr.symbol("fresh")))
                assert q == UNIT or algebra.divide(more, q) == -1 or len(algebra.polynomials[q]) == 0


def test_the_order_of_monomials_and_polynomials_respects_products() -> None:
    rng = random.Random(62)
    for _ in range(25):
        algebra = Algebra(max_terms=200)
        values = pool(rng, algebra, 8)
        for p in values:
            for q in values:
                for r in values:
                    before = algebra.order(p) < algebra.order(q)
                    after = algebra.order(algebra.multiply(p, r)) < algebra.order(algebra.multiply(q, r))
                    assert before == after


def test_content_and_primitive_part() -> None:
    algebra = Algebra()
    value = algebra.normalize(expr.add(expr.mul(X, expr.mul(X, Y)), expr.mul(X, Z)))
    atoms, primitive = algebra.content(value)
    assert [algebra.atoms[atom].name for atom in atoms] == ["X"]
    assert primitive == algebra.normalize(expr.add(expr.mul(X, Y), Z))
    assert algebra.content(primitive) == ((), primitive)


def test_split_finds_the_factor_that_does_not_vary() -> None:
    algebra = Algebra()
    varies, fixed = expr.symbol("X", [A]), expr.add(expr.symbol("p", [B]), expr.symbol("q", [B]))
    other = expr.symbol("Y", [A])
    value = algebra.normalize(expr.mul(expr.add(varies, other), fixed))
    factor, rest = algebra.split(value, algebra.axis_bit(A))
    assert factor == algebra.normalize(fixed)
    assert rest == algebra.normalize(expr.add(varies, other))
    assert algebra.split(factor, algebra.axis_bit(A)) == (factor, UNIT)


def test_common_divisors() -> None:
    algebra = Algebra()
    value = algebra.normalize
    both = expr.add(X, Y)
    polynomials = [value(expr.mul(both, Z)), value(expr.mul(expr.mul(both, both), Z)), value(expr.mul(both, Z))]
    assert algebra.common_divisor(polynomials) == value(expr.mul(both, Z))
    assert algebra.common_divisor([value(X), value(both)]) == UNIT
    with pytest.raises(UndecidedError):  # (X+Y)(X+Z) and (X+Y)(Y+Z) share X+Y, which no division finds
        algebra.common_divisor([value(expr.mul(both, expr.add(X, Z))), value(expr.mul(both, expr.add(Y, Z)))])


def test_renaming_does_not_capture() -> None:
    """Renaming h into the name that a sum inside binds leaves that sum alone."""
    h, k = Axis("h"), Axis("k")
    algebra = Algebra()
    inner = expr.sum_over(k, expr.mul(expr.symbol("W", [h, k]), expr.symbol("V", [k])))
    value = algebra.normalize(inner)
    bits = algebra.axis_bit(h), algebra.axis_bit(k)
    renamed = algebra.rename(value, ((bits[0], bits[1]),))
    assert algebra.mask[renamed] == bits[1]
    assert algebra.rename(renamed, ((bits[1], bits[0]),)) == value
    exchanged = algebra.rename(value, ((bits[0], bits[1]), (bits[1], bits[0])))
    assert exchanged == renamed


def test_sums_that_differ_in_bound_names_only_are_one() -> None:
    h, d = Axis("h"), Axis("d")
    x, w = expr.symbol("X", [h]), expr.symbol("W", [h, d])
    squared = expr.sum_over(d, expr.square(expr.sum_over(h, expr.mul(x, w))))
    algebra = Algebra()
    value = algebra.normalize(squared)
    (monomial,) = algebra.polynomials[value]
    bound, body = algebra.open_sums(monomial)
    assert bound.bit_count() == 3  # d and two copies of h
    copies = [bit for bit in (algebra.axis_bit(h), algebra.axis_bit(h, 1)) if bound & bit]
    assert len(copies) == 2
    exchanged = algebra.rename_monomial(body, ((copies[0], copies[1]), (copies[1], copies[0])))
    assert algebra.close_sum(bound, body) == algebra.close_sum(bound, exchanged)
