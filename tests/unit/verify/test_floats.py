from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from workbench.ugraph import value as op
from workbench.ugraph.tracing import trace
from workbench.ugraph.value import Value
from workbench.verify.floats import FloatCheck, compare_real, draw_inputs

Program = Callable[..., Value]


def check(left: Program, right: Program, **shapes: tuple[int, ...]) -> FloatCheck:
    return compare_real(
        trace(left, dtype="float16", **shapes), trace(right, dtype="float16", **shapes), np.random.default_rng(0)
    )


def test_a_constant_wrong_in_the_sixth_digit_has_a_witness_that_holds() -> None:
    found = check(lambda X: X * 1.234567, lambda X: X * 1.234568, X=(3, 4))
    assert found.witness is not None
    w = found.witness
    x = w.inputs[0][w.index]
    assert w.left == pytest.approx(x * 1.234567, rel=1e-15)
    assert w.right == pytest.approx(x * 1.234568, rel=1e-15)


def test_a_gap_far_below_float64_noise_is_found_in_longer_arithmetic() -> None:
    found = check(lambda X: X * (1 + 2**-40), lambda X: X * 1, X=(3, 4))
    assert found.witness is not None
    assert found.witness.how == "longdouble"


def test_rounding_is_no_witness() -> None:
    found = check(lambda X, Y: (X + Y) * (X - Y), lambda X, Y: X * X - Y * Y, X=(40, 40), Y=(40, 40))
    assert found.witness is None
    assert found.compared == 4
    found = check(lambda X, Y: op.exp(X + Y), lambda X, Y: op.exp(X) * op.exp(Y), X=(40, 40), Y=(40, 40))
    assert found.witness is None


def test_only_elements_finite_on_both_sides_count() -> None:
    assert check(lambda X: op.sqrt(X) * op.sqrt(X), lambda X: X * 1, X=(3, 4)).witness is None
    nowhere = check(lambda X: op.log(X - X - 1), lambda X: X * 1, X=(3, 4))
    assert nowhere.compared == 0


def test_rows_of_unlike_scale_show_a_statistic_of_another_row() -> None:
    inputs = draw_inputs([(64, 128)], np.random.default_rng(0), "rows")[0]
    rms = np.sqrt((inputs**2).mean(-1))
    assert rms.max() / rms.min() > 3
