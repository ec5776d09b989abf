"""Arithmetic by closed forms."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from tests.unit.ops.apply_operator import result
from workbench.domains.work import Work
from workbench.ops import operator


@pytest.mark.parametrize(
    ("name", "expected"), [("add", [5.0, 1.0]), ("sub", [1.0, -7.0]), ("mul", [6.0, -12.0]), ("div", [1.5, -0.75])]
)
def test_arithmetic(name: str, expected: list[float]) -> None:
    assert result(name, [3.0, -3.0], [2.0, 4.0]).tolist() == expected


def test_rank_is_aligned_at_the_end() -> None:
    assert result("sub", np.zeros((2, 2)), [1.0, 2.0]).tolist() == [[-1.0, -2.0], [-1.0, -2.0]]


def test_exp_and_log() -> None:
    assert result("exp", [0.0, 1.0]).tolist() == [1.0, math.e]
    assert result("log", [1.0, math.e]).tolist() == [0.0, 1.0]


def test_scale_takes_the_exact_decimal() -> None:
    assert operator("scale").check_attributes({"factor": 0.1}) == {"factor": Fraction(1, 10)}
    assert result("scale", [10.0], factor=0.1).tolist() == [1.0]


def test_neg() -> None:
    assert result("neg", [1.5, -2.0]).tolist() == [-1.5, 2.0]


def test_work_of_a_broadcast_product() -> None:
    assert operator("mul").work(((4, 8), (8,)), {}) == Work(flops=32, elements_read=40, elements_written=32)
