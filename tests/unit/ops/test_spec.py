"""The record's own methods: attributes, arity, C expressions, and exact numbers."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from workbench.errors import AttributeValueError, MissingRuleError, ShapeError
from workbench.ops import operator
from workbench.ops.spec import as_fraction, c_literal


def test_a_float_is_the_decimal_that_repr_prints() -> None:
    assert as_fraction(0.1) == Fraction(1, 10)
    assert as_fraction(np.float32(0.5)) == Fraction(1, 2)
    assert as_fraction(1e-6) == Fraction(1, 10**6)
    assert as_fraction(np.int64(3)) == 3


@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_constants_are_finite(bad: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        as_fraction(bad)


@pytest.mark.parametrize("bad", [True, None, [1], 1j])
def test_what_is_no_number_is_no_constant(bad: object) -> None:
    with pytest.raises(TypeError):
        as_fraction(bad)


@pytest.mark.parametrize(
    ("value", "literal"),
    [
        (2, "2.0f"),
        (Fraction(1, 3), "0.333333333f"),
        (Fraction(-3, 2), "(-1.5f)"),
        (10**12, "1e+12f"),
        (Fraction(1, 14336), "6.97544643e-05f"),
    ],
)
def test_c_literals_identify_the_float32(value: int | Fraction, literal: str) -> None:
    assert c_literal(value) == literal
    assert np.float32(literal.strip("()f")) == np.float32(float(value))


def test_scalar_expression_fills_in_operands_and_attributes() -> None:
    clamp = operator("clamp")
    attributes = clamp.check_attributes({"lo": -1, "hi": 0.5})
    expected = "(x < (-1.0f) ? (-1.0f) : (x > 0.5f ? 0.5f : x))"
    assert clamp.scalar_expression(["x"], attributes) == expected
    assert operator("power").scalar_expression(["v"], {"exponent": -2}) == "(1.0f / (v * v))"
    assert operator("power").scalar_expression(["v"], {"exponent": 5}) == "powf(v, 5.0f)"


def test_an_operator_without_expression_says_what_it_is() -> None:
    with pytest.raises(MissingRuleError, match="softmax has no one-element C expression; it is a reduction"):
        operator("softmax").scalar_expression(["x"], {"axis": -1})


def test_number_of_operands() -> None:
    with pytest.raises(ShapeError, match="takes 2 operands, got 3"):
        operator("add").check_arity(3)
    operator("concat").check_arity(7)
    with pytest.raises(ShapeError, match="at least one"):
        operator("concat").check_arity(0)


def test_a_missing_attribute_says_what_to_give() -> None:
    with pytest.raises(AttributeValueError, match="attribute 'factor' is missing; give the constant factor"):
        operator("scale").check_attributes({})


def test_records_are_frozen() -> None:
    with pytest.raises(AttributeError):
        operator("exp").name = "other"  # type: ignore[misc]
