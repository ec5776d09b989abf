"""Interning, packed counts, axes and their copies."""

from __future__ import annotations

import random

import pytest

from workbench.domains.abstract_expr import Axis
from workbench.domains.abstract_normal_form import Algebra
from workbench.domains.abstract_tables import FIELD_BITS, UNIT, Atom, Monomial, UndecidedError, bits_of

H = Axis("h")


def test_equal_things_are_one_id() -> None:
    algebra = Algebra()
    atom = algebra.atom(Atom("symbol", "X"))
    assert algebra.atom(Atom("symbol", "X")) == atom
    monomial = algebra.monomial(Monomial((atom, atom)))
    assert algebra.monomial(Monomial((atom, atom))) == monomial
    assert algebra.polynomial([monomial, UNIT]) == algebra.polynomial([UNIT, monomial])
    assert algebra.monomial(Monomial()) == algebra.polynomial([UNIT]) == UNIT


def test_packed_counts_compare_field_by_field() -> None:
    rng = random.Random(71)
    algebra = Algebra()
    fields = [algebra.feature(("field", i)) for i in range(30)]
    limit = (1 << FIELD_BITS - 1) - 1
    for _ in range(500):
        left = [rng.choice((0, 1, 2, 500, limit)) for _ in fields]
        right = [rng.choice((0, 1, 2, 500, limit)) for _ in fields]
        packed = [sum(n * field for n, field in zip(counts, fields, strict=True)) for counts in (left, right)]
        assert algebra.fits(*packed) == all(a <= b for a, b in zip(left, right, strict=True))
        assert algebra.feature_counts(packed[0]) == {("field", i): n for i, n in enumerate(left) if n}


def test_a_feature_that_a_budget_has_not_seen_does_not_fit() -> None:
    algebra = Algebra()
    budget = algebra.feature("old") * 5
    assert not algebra.fits(algebra.feature("new"), budget)


def test_copies_of_an_axis() -> None:
    algebra = Algebra()
    first, second = algebra.axis_bit(H), algebra.axis_bit(H, 1)
    assert first != second
    assert algebra.base(second) == first
    assert algebra.base_mask(second | algebra.axis_bit(Axis("b"))) == first | algebra.axis_bit(Axis("b"))
    assert algebra.fresh_copy(first, first | second) == algebra.axis_bit(H, 2)
    assert algebra.axes_of(first | second) == (H,)
    assert list(bits_of(0b1011)) == [1, 2, 8]


def test_loop_and_grid_parts_are_known() -> None:
    algebra = Algebra()
    grid, loop, tile = (algebra.axis_bit(part) for part in H.split())
    assert (algebra.grid_mask, algebra.loop_mask) == (grid, loop)
    assert tile & (algebra.grid_mask | algebra.loop_mask) == 0


def test_the_budget_is_kept() -> None:
    algebra = Algebra(max_terms=3, max_weight=10)
    atoms = [algebra.atom(Atom("symbol", name)) for name in "abcdefghijkl"]
    monomials = [algebra.monomial(Monomial((atom,))) for atom in atoms]
    with pytest.raises(UndecidedError, match="4 monomials"):
        algebra.polynomial(monomials[:4])
    with pytest.raises(UndecidedError, match="weight 12"):
        algebra.monomial(Monomial(tuple(sorted(atoms, reverse=True))))


def test_an_undecided_operation_keeps_its_axes_and_counts() -> None:
    algebra = Algebra()
    x = algebra.symbol("X", [Axis("b"), H])
    y = algebra.symbol("Y", [H])
    atom = algebra.frozen_atom("mul", (x, y))
    assert algebra.atom_mask[atom] == algebra.mask[x] | algebra.mask[y]
    assert algebra.atom_count[atom] == algebra.count[x] + algebra.count[y]
    assert algebra.frozen_atom("mul", (x, y)) == atom
    assert algebra.frozen_atom("sum", (x,), bound=algebra.axis_bit(H)) != atom
