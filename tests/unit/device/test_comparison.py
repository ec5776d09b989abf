"""Distances from what is right, against closed forms; what must not pass."""

from __future__ import annotations

import math

import numpy as np
import pytest

from workbench.device.comparison import ELEMENT_FACTOR, ROW_FACTOR, compare


def test_equal_outputs() -> None:
    x = np.arange(1.0, 13.0).reshape(3, 4)
    found = compare("Y", x, x, 1e-3)
    assert (found.relative_error, found.worst_row, found.worst_element, found.problem) == (0, 0, 0, "")


def test_errors_by_their_definitions() -> None:
    expected = np.array([[3.0, 4.0], [6.0, 8.0]])
    found = expected + np.array([[0.3, 0.4], [0.0, 0.0]])
    result = compare("Y", found, expected, 1e-3)
    assert result.relative_error == pytest.approx(0.5 / math.sqrt(125))
    assert result.worst_row == pytest.approx(0.1)
    assert result.row == (0,)
    assert result.worst_element == pytest.approx(0.4 / (5 / math.sqrt(2)))
    assert result.element == (0, 1)
    assert result.problem == "output Y is off by 4.47e-02, allowed 1e-03"


def test_a_small_row_that_is_wrong_does_not_hide() -> None:
    rng = np.random.default_rng(0)
    expected = rng.standard_normal((2, 64, 32))
    expected[1, 7] *= 1e-3  # smaller than the floor
    found = expected.copy()
    found[1, 7] *= -1
    result = compare("Y", found, expected, 2e-3)
    assert result.relative_error < 2e-3
    assert result.row == (1, 7)
    assert "row (1, 7) is off" in result.problem


def test_one_wrong_element_does_not_hide() -> None:
    rng = np.random.default_rng(0)
    expected = rng.standard_normal((100, 4000))
    found = expected.copy()
    found[3, 5] += 0.1
    result = compare("Y", found, expected, 2e-3)
    assert result.worst_row < 2e-3 * ROW_FACTOR
    assert result.worst_element > 2e-3 * ELEMENT_FACTOR
    assert "element (3, 5)" in result.problem


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_never_passes(bad: float) -> None:
    expected = np.ones((2, 3))
    found = expected.copy()
    found[1, 2] = bad
    result = compare("Y", found, expected, 1e9)
    assert (result.not_finite, result.element) == (1, (1, 2))
    assert "1 elements that are not finite, the first at (1, 2)" in result.problem


def test_zero_and_scalars() -> None:
    assert compare("Y", np.zeros((2, 2)), np.zeros((2, 2)), 1e-3).problem == ""
    assert compare("Y", np.full((2, 2), 0.1), np.zeros((2, 2)), 1e-3).problem != ""
    assert compare("Y", np.array(2.002), np.array(2.0), 2e-3).problem == ""
    assert compare("Y", np.array(2.1), np.array(2.0), 2e-3).problem != ""


def test_rounding_to_half_passes() -> None:
    rng = np.random.default_rng(1)
    expected = rng.standard_normal((64, 4096)) * np.exp(rng.uniform(-2, 2, (64, 1)))
    assert compare("Y", expected.astype(np.float16).astype(np.float64), expected, 2e-3).problem == ""
