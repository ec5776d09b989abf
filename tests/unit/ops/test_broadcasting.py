"""Alignment of ranks behind leading axes, and the shape, axes and work that elementwise operators share."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.domains.work import Work
from workbench.errors import ShapeError
from workbench.ops.broadcasting import align_ranks, elementwise_axes, elementwise_shape, elementwise_work, shared_axis
from workbench.ops.spec import Dim, Same


def test_new_axes_go_behind_the_leading_ones() -> None:
    left, right = align_ranks((np.zeros((4, 7, 3, 5)), np.zeros((4, 7, 5))), prefix=2)
    assert (left.shape, right.shape) == ((4, 7, 3, 5), (4, 7, 1, 5))


def test_without_alignment_numpy_would_meet_a_leading_axis_with_a_trailing_one() -> None:
    matrix, row = np.ones((3, 3, 5)), np.arange(15.0).reshape(3, 5)  # three cells; a matrix and a row in each
    aligned = np.add(*align_ranks((matrix, row), prefix=1))
    for cell in range(3):
        assert (aligned[cell] == matrix[cell] + row[cell]).all()
    assert not (aligned == matrix + row).all()


def test_a_constant_without_leading_axes_is_brought_along() -> None:
    left, right = align_ranks((np.zeros((2, 3, 5)), np.asarray(1.0)), prefix=2)
    assert (left + right).shape == (2, 3, 5)
    assert right.shape == (1, 1, 1)


def test_shape_axes_and_work_of_a_broadcast() -> None:
    shapes = ((2, 3, 5), (3, 1))
    assert elementwise_shape(shapes, {}) == ((2, 3, 5),)
    (sources,) = elementwise_axes(shapes, {}).results
    assert sources == (Same((Dim(0, -3),)), Same((Dim(0, -2), Dim(1, -2))), Same((Dim(0, -1),)))
    assert elementwise_work(2)(shapes, {}) == Work(flops=60, elements_read=33, elements_written=30)


def test_a_stretched_dimension_is_not_the_result_s_axis() -> None:
    assert shared_axis(((1, 4), (3, 4)), -2, 3) == Same((Dim(1, -2),))
    assert shared_axis(((1, 4), (1, 4)), -2, 1) == Same((Dim(0, -2), Dim(1, -2)))


def test_shapes_that_do_not_broadcast_are_refused() -> None:
    with pytest.raises(ShapeError, match="do not broadcast"):
        elementwise_shape(((2, 3), (2, 4)), {})
