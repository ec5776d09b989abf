"""Figures drawn from records: every row and peer is there, losses too; given axes are used; both themes can be read."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.unit.records.measured_rows import made_rows
from workbench.cost.hardware import hardware
from workbench.errors import UsageError
from workbench.views.cost_plots import (
    FoundCandidate,
    Prediction,
    plot_heatmap,
    plot_predictions,
    plot_search,
)
from workbench.views.measured_plots import plot_floor_fraction, plot_speedups
from workbench.views.palette import contrast
from workbench.views.plot_style import STYLES
from workbench.views.roofline import plot_roofline, roofline_points

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass
class Costs:
    x: str
    y: str
    x_values: list[object]
    y_values: list[object]
    cost_us: Any


HEAT = Costs("cluster", "threads", [1, 2, 4], [64, 128], np.asarray([[3.0, 2.0, np.nan], [9.0, 150.0, np.nan]]))
PREDICTIONS = [Prediction(10.0, 11.0, "gqa"), Prediction(20.0, 19.0, "gqa"), Prediction(5.0, 6.0, "lora")]
FOUND = [
    FoundCandidate(1, 9.0),
    FoundCandidate(2, 5.0, 7.0),
    FoundCandidate(3, 1.0, refused="verify"),
    FoundCandidate(4, 8.0),
]


def points() -> Any:
    rows = made_rows(broken=3)
    rows[0]["traffic"] = {
        "device": {"bytes": rows[0]["bytes"] * 1.1, "measured": True},
        "L2": {"bytes": rows[0]["bytes"] * 3, "measured": True},
        "counters": {"is_measured": True, "values": {}},
    }
    return roofline_points(rows)


PLOTS: dict[str, Callable[..., Axes]] = {
    "speedups": lambda **options: plot_speedups(made_rows(broken=3), **options),
    "floor": lambda **options: plot_floor_fraction(made_rows(broken=3), **options),
    "roofline": lambda **options: plot_roofline(points(), hardware("h200"), **options),
    "heat map": lambda **options: plot_heatmap(HEAT, **options),
    "predictions": lambda **options: plot_predictions(PREDICTIONS, **options),
    "search": lambda **options: plot_search(FOUND, floor_us=2.0, **options),
}


def texts(ax: Axes) -> list[str]:
    legend = ax.get_legend()
    told = [text.get_text() for text in ax.texts] + [ax.get_title(loc="left")]
    return told + ([text.get_text() for text in legend.get_texts()] if legend is not None else [])


@pytest.mark.parametrize("theme", STYLES)
@pytest.mark.parametrize("name", PLOTS)
def test_figures_are_drawn_in_both_themes_and_can_be_read(name: str, theme: str) -> None:
    ax = PLOTS[name](theme=theme)
    figure = ax.get_figure()
    assert figure is not None
    ground = STYLES[theme].ground
    assert ax.get_xlabel()
    for label in (*ax.get_xticklabels(), *ax.get_yticklabels(), ax.xaxis.label, ax.yaxis.label):
        colour = label.get_color()
        assert isinstance(colour, str)
        assert contrast(colour, ground) > 4.5
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=40)  # type: ignore[union-attr]  # a figure of its own, no sub-figure
    assert len(file.getvalue()) > 3000


@pytest.mark.parametrize("name", PLOTS)
def test_given_axes_are_drawn_on_and_returned(name: str) -> None:
    from matplotlib.figure import Figure

    ax = Figure().add_subplot()
    assert PLOTS[name](ax=ax) is ax
    assert ax.has_data()


@pytest.mark.parametrize("theme", STYLES)
def test_hues_stand_out_from_the_ground(theme: str) -> None:
    style = STYLES[theme]
    assert all(contrast(hue, style.ground) > 2.9 for hue in (*style.hues, style.win, style.loss))
    assert len(set(style.hues)) == len(style.hues)


def test_speedups_show_losses_missing_rows_and_every_peer() -> None:
    rows = made_rows(broken=3)
    rows[0] |= {"ours_us": 20.0, "ratio": rows[0]["best_peer_us"] / 20.0}
    ax = plot_speedups(rows)
    bars = [patch for patch in ax.patches if patch.get_hatch() == "////"]
    assert len(bars) == sum(row["ratio"] is not None and row["ratio"] < 1 for row in rows)
    assert len(bars) >= 1
    assert len(ax.patches) == 15
    assert len(ax.get_yticklabels()) == 16
    shown = texts(ax)
    assert f"{rows[0]['ratio']:.2f}" in shown
    assert any(text.startswith("no time: wrong result") for text in shown)
    assert {"eager", "compile", "compile max-autotune", "sdpa flash", "sdpa efficient"} <= set(shown)
    assert "geometric mean: none, a row has no time" in shown
    marks = sum(np.asarray(collection.get_offsets()).shape[0] for collection in ax.collections)
    assert marks == sum(len(row["peers"]) for row in rows if row["ours_us"])
    low, high = ax.get_xlim()
    ratios = [peer / row["ours_us"] for row in rows if row["ours_us"] for peer in row["peers"].values()]
    assert low < min(ratios)
    assert high > max(ratios)


def test_the_roofline_tells_measured_from_modelled() -> None:
    made = points()
    assert len(made) == 16
    assert {(point.level, point.is_measured) for point in made} == {("device", True), ("L2", True), ("device", False)}
    first = made[0]
    assert first.tflops == pytest.approx(first.flops / (first.time_us * 1e-6) * 1e-12)
    ax = plot_roofline(made, hardware("h200"))
    ground = STYLES["light"].ground
    from matplotlib.colors import to_hex

    drawn = [c for c in ax.collections if np.asarray(c.get_offsets()).size]
    filled = [to_hex(np.asarray(c.get_facecolor())[0]) != ground for c in drawn]
    assert sum(filled) == 2
    assert {"device bytes measured", "device bytes modelled", "L2 bytes measured"} <= set(texts(ax))


def test_the_heat_map_frames_the_least_and_hatches_what_does_not_fit() -> None:
    ax = plot_heatmap(HEAT)
    hatched = [patch for patch in ax.patches if patch.get_hatch() == "xxx"]
    assert sorted((patch.get_x(), patch.get_y()) for patch in hatched) == [(1.5, -0.5), (1.5, 0.5)]  # type: ignore[attr-defined]
    (frame,) = (patch for patch in ax.patches if not patch.get_hatch())
    assert (frame.get_x(), frame.get_y()) == (0.5, -0.5)  # type: ignore[attr-defined]
    assert {"3.0", "2.0", "9.0", "150"} <= set(texts(ax))
    with pytest.raises(UsageError, match="no schedule fits"):
        plot_heatmap(Costs("a", "b", [1], [1], np.asarray([[np.nan]])))


def test_predictions_tell_rank_correlation_and_error() -> None:
    assert "3 timed: rank correlation 1.00, median error 9%" in texts(plot_predictions(PREDICTIONS))
    with pytest.raises(UsageError, match="at least two"):
        plot_predictions(PREDICTIONS[:1])


def test_the_best_so_far_leaves_out_what_was_refused() -> None:
    ax = plot_search(FOUND, floor_us=2.0)
    (line,) = (line for line in ax.lines if line.get_label() == "best so far")
    assert np.asarray(line.get_ydata()).tolist() == [9.0, 7.0, 7.0, 7.0]
    assert {"modelled", "measured", "refused", "bound of the hardware"} <= set(texts(ax))


@pytest.mark.parametrize(
    "empty", [lambda: plot_speedups([]), lambda: plot_search([]), lambda: plot_roofline([], hardware("h200"))]
)
def test_nothing_to_draw_is_said(empty: Callable[[], object]) -> None:
    with pytest.raises(UsageError):
        empty()


def test_an_unknown_theme_is_refused() -> None:
    with pytest.raises(UsageError, match="light and dark"):
        plot_search(FOUND, theme="sepia")
