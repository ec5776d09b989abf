"""Movement: values, and how a reshape's dimensions come from the operand's."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.ops.apply_operator import result, results
from workbench.ops import operator
from workbench.ops.movement import reshape_sources
from workbench.ops.spec import Concatenated, Dim, DimSource, Factor, Piece, Product, Regrouped, Same

X = np.arange(6.0).reshape(2, 3)


def _same(axis: int) -> Same:
    return Same((Dim(0, axis),))


@pytest.mark.parametrize(
    ("shape", "new", "sources"),
    [
        ((2, 3), (2, 3), (_same(-2), _same(-1))),
        ((2, 3, 4), (6, 4), (Product((Dim(0, -3), Dim(0, -2))), _same(-1))),
        ((2, 12), (2, 3, 4), (_same(-2), Factor(Dim(0, -1), 0, (3, 4)), Factor(Dim(0, -1), 1, (3, 4)))),
        ((6, 4), (8, 3), tuple(Regrouped((Dim(0, -2), Dim(0, -1)), k, (8, 3)) for k in range(2))),
        ((3,), (1, 3), (Same(), _same(-1))),
        ((1, 3), (3,), (_same(-1),)),
        ((2, 1, 5), (10,), (Product((Dim(0, -3), Dim(0, -1))),)),
        ((4, 6), (2, 2, 6), (Factor(Dim(0, -2), 0, (2, 2)), Factor(Dim(0, -2), 1, (2, 2)), _same(-1))),
        ((), (1, 1), (Same(), Same())),
    ],
)
def test_reshape_sources(shape: tuple[int, ...], new: tuple[int, ...], sources: tuple[DimSource, ...]) -> None:
    assert reshape_sources(shape, new) == sources


def test_transpose_exchanges_the_last_two_axes() -> None:
    assert result("transpose", X).tolist() == [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]
    assert result("transpose", np.zeros((5, 2, 3))).shape == (5, 3, 2)


def test_reshape_is_row_major() -> None:
    assert result("reshape", X, shape=(3, -1)).tolist() == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]


def test_split_gives_back_what_concat_joined() -> None:
    joined = result("concat", X, 10 * X[:, :1], axis=-1)
    assert joined.tolist() == [[0.0, 1.0, 2.0, 0.0], [3.0, 4.0, 5.0, 30.0]]
    left, right = results("split", joined, parts=(3, 1), axis=1)
    assert (left == X).all()
    assert right.tolist() == [[0.0], [30.0]]


def test_the_number_of_parts_is_the_number_of_results() -> None:
    spec = operator("split")
    assert spec.num_results(spec.check_attributes({"parts": 4})) == 4
    assert spec.num_results(spec.check_attributes({"parts": (1, 2, 3)})) == 3


def test_broadcast_repeats() -> None:
    assert result("broadcast", [[1.0], [2.0]], shape=(2, 3)).tolist() == [[1.0] * 3, [2.0] * 3]


def test_axes_of_concat_and_split() -> None:
    (joined,) = operator("concat").axes(((2, 3), (2, 4)), {"axis": -1}).results
    assert joined == (Same((Dim(0, -2), Dim(1, -2))), Concatenated((Dim(0, -1), Dim(1, -1))))
    parts = operator("split").axes(((2, 6),), {"parts": (4, 2), "axis": -1}).results
    assert [part[1] for part in parts] == [Piece(Dim(0, -1), 0, 4), Piece(Dim(0, -1), 4, 2)]


def test_movement_keeps_any_element_type() -> None:
    residues = np.arange(6, dtype=np.int64).reshape(2, 3)
    for name, attributes in (("transpose", {}), ("reshape", {"shape": (6,)}), ("broadcast", {"shape": (4, 2, 3)})):
        (moved,) = operator(name).on_float((residues,), operator(name).check_attributes(attributes), 0)
        assert moved.dtype == np.int64
