"""Folds: kept axes, the strided sum to columns, and one flop per folded element."""

from __future__ import annotations

import numpy as np

from tests.unit.ops.apply_operator import result
from workbench.domains.work import Work
from workbench.ops import operator
from workbench.ops.spec import AxisMap, Dim, Factor, Same

X = np.arange(6.0).reshape(2, 3)


def test_the_folded_axis_stays_with_extent_one() -> None:
    assert result("sum", X).tolist() == [[3.0], [12.0]]
    assert result("sum", X, axis=0).tolist() == [[3.0, 5.0, 7.0]]
    assert result("mean", X).tolist() == [[1.0], [4.0]]
    assert result("max", X, axis=-2).tolist() == [[3.0, 4.0, 5.0]]


def test_sum_to_columns_is_strided() -> None:
    """out[j] = x[j] + x[2 + j] + x[4 + j], not the sums of neighbours (1, 5, 9)."""
    assert result("sum_to_columns", [0.0, 1.0, 2.0, 3.0, 4.0, 5.0], columns=2).tolist() == [6.0, 9.0]


def test_work_of_folds() -> None:
    """n operations per folded element; the mean divides once more per result element."""
    assert operator("sum").work(((4, 8),), {"axis": -1}) == Work(32, 32, 4)
    assert operator("mean").work(((4, 8),), {"axis": -1}) == Work(36, 32, 4)
    assert operator("sum_to_columns").work(((4, 8),), {"columns": 2}) == Work(32, 32, 8)


def test_axes_of_folds() -> None:
    assert operator("sum").axes(((4, 8),), {"axis": -2}) == AxisMap(
        ((Same(), Same((Dim(0, -1),))),), reduced=((Dim(0, -2),),)
    )
    assert operator("sum_to_columns").axes(((4, 8),), {"columns": 2}) == AxisMap(
        ((Same((Dim(0, -2),)), Factor(Dim(0, -1), 1, (4, 2))),), reduced=((Factor(Dim(0, -1), 0, (4, 2)),),)
    )
