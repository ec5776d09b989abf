"""Attributes: what converters accept, and what a node stores once shapes are known."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from workbench.errors import AttributeValueError, ShapeError
from workbench.ops import complete_attributes, normalize_attributes, operator
from workbench.ops.attributes import as_extents, as_integer, as_not_negative, as_parts, as_positive_integer


def test_integers_of_numpy_count_and_floats_do_not() -> None:
    assert as_integer(np.int32(-4)) == -4
    for bad in (2.0, "2", None, True, Fraction(2)):
        with pytest.raises(TypeError):
            as_integer(bad)


def test_bounds_of_numbers() -> None:
    assert as_positive_integer(1) == 1
    assert as_not_negative("0.25") == Fraction(1, 4)
    with pytest.raises(ValueError, match="at least 1"):
        as_positive_integer(0)
    with pytest.raises(ValueError, match="not be negative"):
        as_not_negative(-1e-9)


def test_extents_are_a_tuple_with_at_most_one_open_place() -> None:
    assert as_extents([3, -1, np.int64(2)]) == (3, -1, 2)
    assert as_extents(6) == (6,)
    for bad in ((-1, -1), (0,), (-2, 3)):
        with pytest.raises(ValueError, match="at least 1"):
            as_extents(bad)
    with pytest.raises(TypeError):
        as_extents((2.5,))


def test_equal_parts_are_stored_as_their_number() -> None:
    assert as_parts(4) == 4
    assert as_parts([5, 5, 5]) == 3
    assert as_parts([5, 2]) == (5, 2)


@pytest.mark.parametrize(
    ("name", "given", "shapes", "stored"),
    [
        ("sum", {"axis": 0}, ((2, 3, 5),), {"axis": -3}),
        ("sum", {"axis": 2}, ((2, 3, 5),), {"axis": -1}),
        ("sum", {}, ((2, 3, 5),), {"axis": -1}),
        ("concat", {"axis": 1}, ((2, 3), (2, 5)), {"axis": -1}),
        ("split", {"parts": [2, 3], "axis": 0}, ((5, 7),), {"parts": (2, 3), "axis": -2}),
        ("reshape", {"shape": (4, -1)}, ((6, 2),), {"shape": (4, 3)}),
        ("rms", {"axis": 0, "eps": 1e-6}, ((3, 4),), {"axis": -2, "eps": Fraction(1, 10**6)}),
        ("clamp", {"lo": 0.1, "hi": 1}, ((3,),), {"lo": Fraction(1, 10), "hi": Fraction(1)}),
    ],
)
def test_complete_attributes(
    name: str, given: dict[str, object], shapes: tuple[tuple[int, ...], ...], stored: dict[str, object]
) -> None:
    assert complete_attributes(operator(name), given, shapes) == stored


def test_normalising_twice_changes_nothing() -> None:
    once = normalize_attributes(operator("max"), {"axis": 0}, ((2, 3),))
    assert once == normalize_attributes(operator("max"), once, ((2, 3),)) == {"axis": -2}


def test_an_open_place_that_cannot_be_filled_names_the_operator() -> None:
    with pytest.raises(ShapeError, match=r"operator reshape: 12 elements of \(3, 4\).*5 does not divide 12"):
        complete_attributes(operator("reshape"), {"shape": (5, -1)}, ((3, 4),))


def test_an_unknown_attribute_lists_the_known_ones() -> None:
    with pytest.raises(AttributeValueError, match="unknown attribute 'dim'; it takes: axis, eps"):
        complete_attributes(operator("rms"), {"dim": 1}, ((3,),))
