from __future__ import annotations

import numpy as np
import pytest

from workbench.core.shapes import as_shape, broadcast_shapes, negative_axis, num_elements
from workbench.errors import ShapeError


def test_extents_are_positive_integers_of_any_integer_type() -> None:
    assert as_shape([2, np.int64(3)]) == (2, 3)  # type: ignore[list-item]  # NumPy does not declare its integers as int
    assert as_shape(()) == ()
    for extents in ((2, 0), (-1,), (2.0, 3), (2, "3"), (None,)):
        with pytest.raises(ShapeError):
            as_shape(extents)  # type: ignore[arg-type]  # the mistake under test
    assert num_elements(as_shape((2**26, 2**27))) == 2**53
    with pytest.raises(ShapeError, match="at most 2\\^53 can be addressed"):
        as_shape((2**26, 2**27, 2))
    with pytest.raises(ShapeError, match="tensor X: extent of axis 1 is 0; every extent must be at least 1"):
        as_shape((2, 0), where="tensor X")


def test_axes_are_counted_from_the_end() -> None:
    assert [negative_axis(axis, 3) for axis in (0, 1, 2, -3, -1)] == [-3, -2, -1, -3, -1]
    with pytest.raises(ShapeError, match="axis 3 does not exist in a tensor of rank 3; use -3 to 2"):
        negative_axis(3, 3)
    with pytest.raises(ShapeError, match="a scalar has no axis"):
        negative_axis(-1, 0)


@pytest.mark.parametrize("shapes", [[(3, 1, 5), (4, 1)], [(), (2, 2)], [(7,)], [(1, 1), (1,)]])
def test_shapes_broadcast_as_numpy_broadcasts(shapes: list[tuple[int, ...]]) -> None:
    assert broadcast_shapes(shapes) == np.broadcast_shapes(*shapes)
    assert num_elements(broadcast_shapes(shapes)) == np.broadcast(*(np.zeros(shape) for shape in shapes)).size


def test_shapes_that_do_not_broadcast_are_shown() -> None:
    with pytest.raises(ShapeError, match=r"\(3, 5\) and \(4, 5\) do not broadcast: extents \[3, 4\] meet at axis -2"):
        broadcast_shapes([(3, 5), (4, 5)])
