"""The value of a term on constant inputs, against NumPy on constant arrays."""

from __future__ import annotations

import math

import numpy as np
import pytest

from workbench.domains import abstract_expr as expr
from workbench.domains.abstract_evaluation import FUNCTIONS, evaluate
from workbench.domains.abstract_expr import Axis
from workbench.errors import UsageError

H, D, S = Axis("h"), Axis("d"), Axis("s")


def test_rms_norm_linear_on_constants() -> None:
    x, g, w = expr.symbol("X", ["b", H]), expr.symbol("G", [H]), expr.symbol("W", [H, D])
    rms = expr.sqrt(expr.mul(expr.constant("1/6"), expr.sum_over(H, expr.square(x))))
    term = expr.sum_over(H, expr.mul(expr.mul(expr.div(x, rms), g), w))
    arrays = [np.full((2, 6), 0.7), np.full(6, 1.3), np.full((6, 3), -0.4)]
    normed = arrays[0] / np.sqrt((arrays[0] ** 2).mean(axis=1, keepdims=True)) * arrays[1]
    assert evaluate(term, {"X": 0.7, "G": 1.3, "W": -0.4}, {H: 6}) == pytest.approx((normed @ arrays[2])[0, 0])


def test_safe_softmax_on_constants_is_one_over_the_count() -> None:
    x = expr.symbol("X", ["q", S])
    weights = expr.exp(expr.add(x, expr.mul(expr.constant(-1), expr.max_over(S, x))))
    assert evaluate(expr.div(weights, expr.sum_over(S, weights)), {"X": 2.5}, {S: 5}) == pytest.approx(0.2)


def test_sizes_form_needs_no_extents() -> None:
    assert evaluate(expr.sum_over(6, expr.silu(expr.symbol("X"))), {"X": 2.0}, {}) == pytest.approx(
        6 * 2 / (1 + math.exp(-2))
    )


def test_concatenated_parts_are_evaluated_apart() -> None:
    r = Axis("r")
    both = expr.concat("c", {H: expr.symbol("X", [H]), r: expr.symbol("Y", [r])})
    assert evaluate(expr.sum_over(Axis("c"), both), {"X": 2.0, "Y": 3.0}, {H: 4, r: 5}) == 2 * 4 + 3 * 5
    with pytest.raises(UsageError, match="parts differ"):
        evaluate(both, {"X": 2.0, "Y": 3.0}, {})


def test_missing_values_are_named() -> None:
    with pytest.raises(UsageError, match="no value given for W"):
        evaluate(expr.symbol("W"), {}, {})
    with pytest.raises(UsageError, match="no value given for h"):
        evaluate(expr.sum_over(H, expr.symbol("X", [H])), {"X": 1.0}, {})
    with pytest.raises(UsageError, match="no value given for mystery"):
        evaluate(expr.apply("mystery", expr.constant(1)), {}, {})


def test_functions_agree_with_numpy() -> None:
    for name, function in (("tanh", np.tanh), ("log", np.log), ("relu", lambda v: np.maximum(v, 0)), ("abs", np.abs)):
        assert FUNCTIONS[name](0.3) == pytest.approx(float(function(0.3)))
    assert FUNCTIONS["clamp"](5.0, -1.0, 2.0) == 2.0
