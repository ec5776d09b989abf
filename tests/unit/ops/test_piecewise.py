"""Piecewise operators: values, the piece at a tie, and guards as inequalities."""

from __future__ import annotations

import numpy as np

from tests.conformance.operator_checks.floats import FloatApply
from tests.unit.ops.apply_operator import result
from workbench.ops import operator
from workbench.ops.spec import Branch


def _branch(name: str) -> Branch:
    field = operator(name).field
    assert isinstance(field, Branch)
    return field


def test_values() -> None:
    x = [-2.0, 0.0, 0.5, 3.0]
    assert result("relu", x).tolist() == [0.0, 0.0, 0.5, 3.0]
    assert result("abs", x).tolist() == [2.0, 0.0, 0.5, 3.0]
    assert result("clamp", x, lo=-1, hi=1).tolist() == [-1.0, 0.0, 0.5, 1.0]
    assert result("maximum", x, [1.0, -1.0, 1.0, 1.0]).tolist() == [1.0, 0.0, 1.0, 3.0]
    assert result("minimum", x, [1.0, -1.0, 1.0, 1.0]).tolist() == [-2.0, -1.0, 0.5, 1.0]


def test_nan_stays_nan() -> None:
    assert np.isnan(result("relu", [np.nan])).all()
    assert np.isnan(result("maximum", [np.nan, 1.0], [1.0, np.nan])).all()
    assert np.isnan(result("clamp", [np.nan], lo=0, hi=1)).all()


def test_at_a_tie_the_guards_of_both_pieces_hold() -> None:
    """Cells are closed, so they cover everything; on their common edge the pieces are equal."""
    zero = np.asarray(0.0)
    for piece in range(2):
        assert all(guard >= 0 for guard in _branch("relu").guards(FloatApply(), (zero,), ((),), {}, piece))
        assert all(guard >= 0 for guard in _branch("minimum").guards(FloatApply(), (zero, zero), ((), ()), {}, piece))


def test_pieces_of_a_clamp_are_below_between_above() -> None:
    attributes = operator("clamp").check_attributes({"lo": -1, "hi": 1})
    clamp = _branch("clamp")
    assert clamp.count(((4,),), attributes) == 3
    assert clamp.select((np.array([-2.0, -1.0, 0.0, 2.0]),), attributes).tolist() == [0, 0, 1, 2]
    below, between, above = (
        clamp.guards(FloatApply(), (np.asarray(0.25),), ((),), attributes, piece) for piece in range(3)
    )
    assert [float(guard) for guard in below] == [-1.25]
    assert [float(guard) for guard in between] == [1.25, 0.75]
    assert [float(guard) for guard in above] == [-0.75]


def test_a_maximum_over_an_axis_has_a_piece_per_element() -> None:
    attributes = {"axis": -1}
    largest = _branch("max")
    assert largest.count(((2, 3),), attributes) == 3
    assert largest.select((np.array([[1.0, 5.0, 2.0], [7.0, 0.0, 7.0]]),), attributes).tolist() == [[1], [0]]
    row = tuple(np.asarray(value) for value in (1.0, 5.0, 2.0))
    assert [float(guard) for guard in largest.guards(FloatApply(), row, ((2, 3),), attributes, 1)] == [4.0, 3.0]
