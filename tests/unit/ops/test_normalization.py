"""Norms and softmax by closed forms; their cost from the expansion."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from tests.unit.ops.apply_operator import result
from workbench.ops import operator

PYTHAGORAS = [3.0, 4.0]


def test_norms_of_three_and_four() -> None:
    assert result("rms", PYTHAGORAS)[0] == pytest.approx(math.sqrt(12.5), rel=1e-15)
    assert result("l2_norm", PYTHAGORAS) == pytest.approx([0.6, 0.8], rel=1e-15)
    assert result("rms_norm", PYTHAGORAS, eps=0) == pytest.approx([0.6 * math.sqrt(2), 0.8 * math.sqrt(2)], rel=1e-15)
    assert result("layer_norm", PYTHAGORAS, eps=0) == pytest.approx([-1.0, 1.0], rel=1e-15)


def test_eps_is_added_under_the_root() -> None:
    assert result("rms", [0.0, 0.0], eps=0.25)[0] == 0.5
    assert result("rms_norm", [3.0, 3.0], eps=7) == pytest.approx([0.75, 0.75], rel=1e-15)
    assert result("l2_norm", [3.0, 3.0], eps=7) == pytest.approx([0.6, 0.6], rel=1e-15)


def test_softmax_of_logarithms_gives_shares() -> None:
    assert result("softmax", [math.log(1.0), math.log(3.0)]) == pytest.approx([0.25, 0.75], rel=1e-15)


def test_softmax_of_large_logits_does_not_overflow() -> None:
    assert result("softmax", [1000.0, 1000.0]).tolist() == [0.5, 0.5]


def test_softmax_along_another_axis() -> None:
    assert result("softmax", np.zeros((4, 3)), axis=0).tolist() == [[0.25] * 3] * 4


def test_flops_of_rms_norm() -> None:
    """Per row of n: n squares, n sums, 1 scaling, 1 eps, 1 root, n divisions."""
    spec = operator("rms_norm")
    assert spec.work(((2, 8),), spec.check_attributes({})).flops == 2 * (3 * 8 + 3)
    assert spec.work(((2, 8),), spec.check_attributes({"eps": 0})).flops == 2 * (3 * 8 + 2)


def test_constants_pass_through_norms_only_without_eps() -> None:
    assert operator("rms_norm").homogeneous({"eps": 1}) == ()
    (rule,) = operator("rms_norm").homogeneous({"eps": 0})
    assert (rule.degree, rule.positive) == (Fraction(0), True)
