"""The lecture's figures come out of the model, each with what it rests on."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from workbench import programs
from workbench.cost.course import (
    COURSE,
    TEXT,
    Assumptions,
    Figure,
    cells_that_do_not_fit,
    course_cost,
    describe,
    figures,
    structure_bytes,
)
from workbench.errors import UsageError
from workbench.ugraph.retile import Counts, retile

# what the lecture prints, copied from it: name -> (printed, decimals)
PRINTED = {
    "attention, graph level": (71, 0),
    "attention, fused": (4.2, 1),
    "exercise 5, inputs": (82_944, 0),
    "exercise 5, intermediates": (36_928, 0),
    "exercise 5, accumulators": (4_160, 0),
    "demo 4, nx=16 ni=64": (37.3, 1),
    "demo 4, nx=64 ni=64": (14.1, 1),
    "cells that do not fit, batch 16, (X G) W": (11, 0),
    "cells that do not fit, batch 16, X (G W)": (12, 0),
    "cells that do not fit, batch 64, (X G) W": (15, 0),
    "cells that do not fit, batch 64, X (G W)": (14, 0),
    "GQA batch 1, 16 blocks": (12.3, 1),
    "GQA batch 1, split 32 times": (6.5, 1),
    "GQA batch 16, each head reads": (325, 0),
    "GQA batch 16, with L2": (220, 0),
    "GQA batch 16, grouped": (44, 0),
    "LoRA, 4 kernels": (29.3, 1),
    "LoRA, 1 kernel": (14.1, 1),
    "LoRA, ratio": (2.07, 2),
    "gated MLP, 3 kernels": (32.2, 1),
    "gated MLP, 2 kernels": (28.1, 1),
    "gated MLP, 1 kernel": (24.1, 1),
}


@pytest.mark.parametrize("name", PRINTED)
def test_a_figure_of_the_lecture_comes_out(name: str) -> None:
    figure = next(figure for figure in figures() if figure.name == name)
    printed, digits = PRINTED[name]
    assert figure.printed == printed
    assert abs(figure.value - printed) <= 0.5 * 10.0**-digits + 1e-9
    assert figure.is_reproduced


def test_products_of_attention_and_exercise_6() -> None:
    found = {(figure.name, figure.unit): figure.value for figure in figures()}
    assert found["attention, products", "GFLOP"] == pytest.approx(8.59, abs=0.005)
    assert found["attention, products", "us"] == pytest.approx(8.7, abs=0.05)
    assert found["exercise 6, K and V", "MB"] == pytest.approx(134.2, abs=0.05)
    assert found["exercise 6, each head reads", "MB"] == pytest.approx(1074, abs=0.5)
    assert found["exercise 6, each head reads", "us"] == pytest.approx(320.5, abs=0.1)
    assert found["exercise 6, grouped", "us"] == pytest.approx(40.06, abs=0.01)


def test_every_figure_says_what_it_rests_on() -> None:
    for figure in figures():
        source = figure.source()
        assert source == TEXT or source.startswith("under assumption ")
        assert all(COURSE.source(name).startswith("under assumption: ") for name in figure.rests_on)
    assert describe().count("\n") + 1 == len(figures())
    for item in fields(Assumptions):
        assert COURSE.source(item.name).startswith((f"{TEXT}: ", "under assumption: "))


def test_figures_move_with_their_assumptions_only() -> None:
    """A figure that does not name an assumption must not change with it; one that names it must."""
    changes = {
        "busy_share": 0.6,
        "l2_mb": 25.0,
        "small_batch": 64,
        "rank": 128,
        "tensor_tflops": 500.0,
        "narrow_blocks": 4,
    }
    for name, value in changes.items():
        moved = figures(replace(COURSE, **{name: value}))  # type: ignore[arg-type]
        for before, after in zip(figures(), moved, strict=True):
            assert (before.value != after.value) == (name in before.rests_on), (name, before.name)


def test_a_wrong_value_is_not_reproduced() -> None:
    assert not Figure("x", 37.36, "us", 37.3, 1, (), "").is_reproduced
    assert Figure("x", 37.34, "us", 37.3, 1, (), "").is_reproduced


def test_exercise_5_by_hand() -> None:
    assert structure_bytes(16, 64, 16, scales_weights=False) == (82_944, 36_928, 4_160)
    inputs, between, kept = structure_bytes(16, 64, 16, scales_weights=True)
    assert (inputs, kept) == (82_944, 4_160)
    assert between == (16 * 256 + 256 * 64 + 16 + 16 * 64) * 4
    assert cells_that_do_not_fit(16, scales_weights=False, assumptions=replace(COURSE, shared_bytes=10**9)) == 0


def test_the_model_prices_graphs_as_the_lecture_does() -> None:
    graph = programs.known_good("rms_norm_linear")[0]
    times = [course_cost(retile(graph, Counts({"c": grid}, loop=64))) for grid in (16, 64)]
    assert [round(cost.total_us, 1) for cost in times] == [37.3, 14.1]
    assert all(cost.total_us == sum(cost.parts.values()) for cost in times)
    lora = programs.known_good("lora", batch=8, hidden=4096, out=4096, rank=16)
    assert [round(course_cost(graph).total_us, 1) for graph in lora] == [14.1, 14.1]


@pytest.mark.parametrize(
    "wrong",
    [
        {"memory_tb_s": 0.0},
        {"busy_share": 0.0},
        {"busy_share": 1.5},
        {"launch_us": -1.0},
        {"grids": ()},
        {"loops": (4, 0)},
    ],
)
def test_assumptions_out_of_range_are_told(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        Assumptions(**wrong)


def test_other_numbers_than_the_lectures_behave() -> None:
    """Twice the bandwidth halves what is no launch; a cache that holds everything serves all repeats; tiles round up."""
    faster = {figure.name: figure.value for figure in figures(Assumptions(memory_tb_s=6.7))}
    slower = {figure.name: figure.value for figure in figures()}
    name = "GQA batch 16, grouped"
    assert faster[name] - 4 == pytest.approx((slower[name] - 4) / 2)
    large = {figure.name: figure.value for figure in figures(Assumptions(l2_mb=500.0))}
    assert large["GQA batch 16, with L2"] == pytest.approx(large[name])
    uncached = {figure.name: figure.value for figure in figures(Assumptions(l2_serves_repeats=False))}
    assert uncached["GQA batch 16, with L2"] == pytest.approx(uncached["GQA batch 16, each head reads"])
    assert structure_bytes(1, 3, 7, scales_weights=False, hidden=10)[0] == (2 + 2 + 2 * 4) * 2 * 2
    with pytest.raises(UsageError, match="grid 0"):
        structure_bytes(16, 0, 4, scales_weights=False)
    with pytest.raises(UsageError, match="0 blocks"):
        Assumptions().share(0)
