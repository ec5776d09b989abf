"""Matrix products: values, batching under broadcasting, 2 m n k flops."""

from __future__ import annotations

import numpy as np

from tests.unit.ops.apply_operator import result
from workbench.domains.work import Work
from workbench.ops import operator
from workbench.ops.spec import AxisMap, Dim, Same


def test_a_product() -> None:
    assert result("matmul", [[1.0, 2.0]], [[3.0, 4.0], [5.0, 6.0]]).tolist() == [[13.0, 16.0]]


def test_leading_axes_broadcast() -> None:
    rng = np.random.default_rng(0)
    left, right = rng.normal(size=(2, 1, 3, 4)), rng.normal(size=(5, 4, 6))
    expected = np.einsum("amk,bkn->abmn", left[:, 0], right)
    np.testing.assert_allclose(result("matmul", left, right), expected, rtol=1e-13)


def test_work_is_two_m_n_k() -> None:
    assert operator("matmul").work(((16, 64), (64, 32)), {}) == Work(
        flops=2 * 16 * 32 * 64, elements_read=16 * 64 + 64 * 32, elements_written=16 * 32
    )


def test_axes_of_a_batched_product() -> None:
    assert operator("matmul").axes(((7, 3, 2), (2, 5)), {}) == AxisMap(
        ((Same((Dim(0, -3),)), Same((Dim(0, -2),)), Same((Dim(1, -1),))),), reduced=((Dim(0, -1), Dim(1, -2)),)
    )
