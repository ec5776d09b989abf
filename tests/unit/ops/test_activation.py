"""Activations at published values, and where a naive formula overflows or cancels."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.unit.ops.apply_operator import result


def test_values_at_one() -> None:
    """erf(1) from Abramowitz and Stegun, table 7.1; the others follow from e."""
    assert result("erf", [1.0])[0] == pytest.approx(0.8427007929497149, rel=1e-15)
    assert result("sigmoid", [1.0])[0] == pytest.approx(math.e / (1 + math.e), rel=1e-15)
    assert result("silu", [1.0])[0] == pytest.approx(math.e / (1 + math.e), rel=1e-15)
    assert result("tanh", [1.0])[0] == pytest.approx((math.e**2 - 1) / (math.e**2 + 1), rel=1e-15)


def test_both_forms_of_gelu_at_one() -> None:
    """0.8413447 is the normal distribution at 1; the tanh form gives 0.8411920 (torch's documentation of both)."""
    assert result("gelu", [1.0])[0] == pytest.approx(0.8413447460685429, rel=1e-14)
    assert result("gelu", [1.0], approximate="tanh")[0] == pytest.approx(0.8411919906082768, rel=1e-14)


def test_large_arguments_neither_overflow_nor_cancel() -> None:
    far = np.array([-1e4, -750.0, 750.0, 1e4])
    assert result("sigmoid", far).tolist() == [0.0, 0.0, 1.0, 1.0]
    assert result("silu", far).tolist() == [0.0, 0.0, 750.0, 1e4]
    for form in ("none", "tanh"):
        assert result("gelu", far, approximate=form).tolist() == [0.0, 0.0, 750.0, 1e4]
    assert result("sigmoid", [-40.0])[0] == pytest.approx(math.exp(-40.0), rel=1e-15)
    # The tail of the normal distribution: phi(x)/|x| (1 - 1/x^2 + 3/x^4 - ...) at -10, to the terms' size.
    tail = math.exp(-50.0) / math.sqrt(2 * math.pi) / 10 * (1 - 1e-2 + 3e-4 - 15e-6 + 105e-8)
    assert result("gelu", [-10.0])[0] == pytest.approx(-10 * tail, rel=1e-6)
