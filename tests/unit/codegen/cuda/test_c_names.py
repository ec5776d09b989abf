"""C identifiers and literals: none taken twice, none that the header or C++ owns, every float reads back."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.codegen.cuda.c_names import CNames, c_float, reserved_names


@given(st.fractions(min_value=Fraction(-(2**127)), max_value=Fraction(2**127)))
def test_literals_read_back_as_the_nearest_float32(value: Fraction) -> None:
    text = c_float(value).strip("()")
    assert text.endswith("f")
    assert np.float32(text[:-1]) == np.float32(float(value))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Fraction(1), "1.0f"),
        (Fraction(-1, 2), "(-0.5f)"),
        (Fraction(1, 3), "0.333333343f"),
        (Fraction(10) ** 60, "infinity()"),
        (-(Fraction(10) ** 400), "(-infinity())"),
        (Fraction(1, 10**60), "0.0f"),
    ],
)
def test_literals(value: Fraction, text: str) -> None:
    assert c_float(value) == text


def test_names_are_claimed_once() -> None:
    names = CNames()
    assert [names.claim("x") for _ in range(3)] == ["x", "x_2", "x_3"]
    assert names.claim("a.b-c") == "a_b_c"
    assert names.claim("1st") == "t1st"
    assert names.claim("été") == "t"
    assert names.claim("a__b") == "a_b"  # two underscores are the implementation's in C++


@pytest.mark.parametrize(
    "taken", ["mma", "warp", "float", "SharedTile", "infinity", "exp", "WB_CHECK_INDEX", "load_a_rows"]
)
def test_names_of_the_header_and_of_cpp_are_not_given_out(taken: str) -> None:
    assert taken in reserved_names()
    assert CNames().claim(taken) == f"{taken}_2"
