"""What came closest when nothing was found."""

from __future__ import annotations

import pytest

import workbench as wb
from workbench.search.nearest import nearest_value
from workbench.search.space import Space


@pytest.mark.parametrize(
    ("name", "limit", "expression", "missing"),
    [
        ("rms_norm_linear", 3, "X·G / √(1 / 1000000 + Σ_b[X·X] / 4096)", "multiply by W, then sum over b"),
        ("gated_mlp", 1, "Σ_b[X·W2]", "multiply by silu(Σ_b[X·W1])"),
        ("gated_mlp_down", 5, "silu(Σ_b[X·W1])·Σ_b[X·W2]", "multiply by W3, then sum over c"),
        ("gqa", 1, "Σ_c[Q·K]", "take exp"),
        ("lora", 1, "Σ_b[X·W]", "add what stands beside it"),
        ("softmax", 1, "X", "take exp"),
    ],
)
def test_the_value_and_what_is_missing(name: str, limit: int, expression: str, missing: str) -> None:
    found = nearest_value(wb.programs.get(name), Space(max_block_ops=limit))
    assert found is not None
    assert (found.expression, found.missing) == (expression, missing)
    assert found.distance == 1
    assert found.operators <= limit
    assert "⟦" in found.goal
    assert expression in found.describe()


def test_a_wider_limit_comes_no_less_close() -> None:
    program = wb.trace(lambda X, A, B: wb.exp(wb.square(wb.exp(X @ A))) @ B, X=(3, 4), A=(4, 5), B=(5, 6))
    found = [nearest_value(program, Space(max_block_ops=limit)) for limit in range(1, 5)]
    distances = [one.distance for one in found if one is not None]
    assert len(distances) == 4
    assert distances == sorted(distances, reverse=True)


def test_means_show_the_program_s_extent_and_names() -> None:
    program = wb.trace(lambda long_name, other: wb.mean(long_name) * other, long_name=(3, 7), other=(3, 1))
    found = nearest_value(program, Space(max_block_ops=1))
    assert found is not None
    assert found.goal in ("⟦Σ_b[long_name] / 7⟧·other", "⟦other⟧·Σ_b[long_name] / 7", "other·⟦Σ_b[long_name] / 7⟧")
