"""Exponentials scaled in their exponent on the way into a float16 product: right for small, large and mixed rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.unit.codegen.cuda.emitting import check_graph, hard_inputs
from tests.unit.codegen.cuda.planned import attention, block_graph, node_of
from workbench.codegen.cuda.kernel import emit_block
from workbench.codegen.cuda.schedule import Schedule
from workbench.core.dtypes import DType


def text(dtype: DType, schedule: Schedule | None = None) -> str:
    graph = block_graph(attention, (20, 32), (32, 128), (128, 32), loop=4, dtype=dtype)
    return emit_block(node_of(graph), schedule=schedule or Schedule()).body


def test_only_float16_with_fast_mathematics_is_scaled_so() -> None:
    assert "t3_scale" in text(DType.FLOAT16) or "_scale[" in text(DType.FLOAT16)
    assert "fast_exp2(-" in text(DType.FLOAT16)
    assert "fast_exp2(-" not in text(DType.BFLOAT16)  # bfloat16 has float32's range
    assert "largest_scale()" in text(DType.FLOAT16, Schedule(fast_math=False))  # scaled after the exponential


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("order", ["rising", "falling", "mixed"])
def test_logits_far_beyond_float16(order: str, fast: bool, host_cache: Path) -> None:
    """Rows whose largest logit is -60 to 60: exp(60) is 1e26, and what was summed before must follow."""
    graph = block_graph(attention, (20, 32), (32, 128), (128, 32), loop=4)
    inputs = hard_inputs(graph)
    rng = np.random.default_rng(3)
    direction = rng.standard_normal(32)
    direction /= np.linalg.norm(direction)
    size = np.linspace(-60, 60, 20) if order == "mixed" else np.full(20, 40.0)
    ramp = {"rising": np.linspace(-1, 1, 128), "falling": np.linspace(1, -1, 128), "mixed": rng.uniform(-1, 1, 128)}[
        order
    ]
    inputs[0] = np.float16(np.outer(size, direction) * 0.5).astype(float)
    inputs[1] = np.float16(2 * np.outer(direction, ramp)).astype(float)
    check_graph(graph, host_cache, inputs=inputs, schedule=Schedule(fast_math=fast))


def test_rows_that_are_minus_infinity_give_nothing(host_cache: Path) -> None:
    """One key of -inf logit has weight 0; it must not become NaN by scaling."""
    graph = block_graph(attention, (20, 32), (32, 64), (64, 32), loop=2)
    inputs = hard_inputs(graph)
    inputs[0] = np.abs(inputs[0]) + 0.1
    inputs[1][:, 5] = -np.inf
    check_graph(graph, host_cache, inputs=inputs)
