"""Figures of the cost model: schedules as a heat map, predictions against measurements, candidates as they were found.

Invariant: what does not fit, was not measured or was refused is drawn as such, never as a cheap value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from workbench.cost.calibration import spearman
from workbench.errors import UsageError
from workbench.views.plot_style import MARKERS, add_legend, plain_numbers, start_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class HeatMapData(Protocol):
    """Costs over two parameters of a schedule; `cost_us[y, x]`, NaN where no legal schedule has the two values."""

    @property
    def x(self) -> str:
        """Name of the parameter along x."""
        ...

    @property
    def y(self) -> str:
        """Name of the parameter along y."""
        ...

    @property
    def x_values(self) -> Sequence[object]:
        """Values of the parameter along x."""
        ...

    @property
    def y_values(self) -> Sequence[object]:
        """Values of the parameter along y."""
        ...

    @property
    def cost_us(self) -> npt.NDArray[np.float64]:
        """Least cost, in microseconds, of a schedule with these two values."""
        ...


def plot_heatmap(data: HeatMapData, ax: Axes | None = None, *, theme: str = "light") -> Axes:
    """Return axes with a cell per pair of values, its cost written in it where there is room; the least is framed.

    Raises: UsageError when nothing fits at all.
    """
    cost = np.asarray(data.cost_us, dtype=np.float64)
    rows, columns = cost.shape
    if not np.isfinite(cost).any():
        raise UsageError(f"no schedule fits at any pair of {data.x} and {data.y}; nothing to draw")
    ax, style = start_axes(ax, theme, (max(4.5, 0.62 * columns + 2.2), max(3.2, 0.42 * rows + 1.4)))
    ax.grid(visible=False)
    from matplotlib import colormaps
    from matplotlib.colors import LogNorm
    from matplotlib.patches import Rectangle

    least, most = float(np.nanmin(cost)), float(np.nanmax(cost))
    norm = LogNorm(least, max(most, least * 1.01))
    shades = colormaps["viridis_r"]  # what is masked shows the ground
    image = ax.imshow(np.ma.masked_invalid(cost), norm=norm, cmap=shades, aspect="auto", origin="lower")
    for row, column in np.argwhere(~np.isfinite(cost)):
        ax.add_patch(
            Rectangle(
                (column - 0.5, row - 0.5), 1, 1, facecolor="none", edgecolor=style.faint, hatch="xxx", linewidth=0
            )
        )
    if rows * columns <= 220:
        for row, column in np.argwhere(np.isfinite(cost)):
            value = cost[row, column]
            red, green, blue, _ = shades(norm(value))
            is_light = 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.45
            text = f"{value:.1f}" if value < 100 else f"{value:.0f}"
            ax.text(
                column, row, text, ha="center", va="center", fontsize=7.5, color="#111111" if is_light else "#ffffff"
            )
    best_row, best_column = np.unravel_index(int(np.nanargmin(cost)), cost.shape)
    ax.add_patch(
        Rectangle((best_column - 0.5, best_row - 0.5), 1, 1, facecolor="none", edgecolor=style.loss, linewidth=2.2)
    )
    ax.set_xticks(range(columns), [str(value) for value in data.x_values])
    ax.set_yticks(range(rows), [str(value) for value in data.y_values])
    ax.set_xlabel(data.x)
    ax.set_ylabel(data.y)
    note = "" if np.isfinite(cost).all() else "; hatched: nothing fits"
    ax.set_title(f"least {least:.2f} us (framed){note}", fontsize=10, loc="left", color=style.ink)
    figure = ax.get_figure()
    assert figure is not None
    bar = figure.colorbar(image, ax=ax, pad=0.02)
    bar.set_label("modelled time, us", color=style.ink)
    plain_numbers(bar.ax.yaxis)
    bar.ax.tick_params(which="both", colors=style.ink, labelsize=8)
    return ax


@dataclass(frozen=True, slots=True)
class Prediction:
    """A timed candidate: modelled and measured microseconds, and the program it belongs to."""

    predicted_us: float
    measured_us: float
    series: str = ""


def plot_predictions(points: Sequence[Prediction], ax: Axes | None = None, *, theme: str = "light") -> Axes:
    """Return axes with measured over predicted time, both logarithmic; the band is 25% to either side of equality.

    The title tells the rank correlation and the median error. Raises: UsageError for fewer than two points.
    """
    if len(points) < 2:
        raise UsageError(f"{len(points)} timed candidates; a comparison needs at least two")
    ax, style = start_axes(ax, theme, (6.8, 5.2))
    predicted = np.asarray([point.predicted_us for point in points])
    measured = np.asarray([point.measured_us for point in points])
    low = float(min(predicted.min(), measured.min())) / 1.3
    high = float(max(predicted.max(), measured.max())) * 1.3
    ends = np.asarray([low, high])
    ax.fill_between(ends, ends / 1.25, ends * 1.25, color=style.faint, alpha=0.6, linewidth=0, label="within 25%")
    ax.plot(ends, ends, color=style.ink, linewidth=1)
    for number, series in enumerate(dict.fromkeys(point.series for point in points)):
        own = [point for point in points if point.series == series]
        ax.scatter(
            [point.predicted_us for point in own], [point.measured_us for point in own], s=22, alpha=0.9,
            marker=MARKERS[number % len(MARKERS)], color=style.hues[number % len(style.hues)], label=series or "candidates",
        )  # fmt: skip
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlim(low, high)
    ax.set_ylim(low, high)
    for axis in (ax.xaxis, ax.yaxis):
        plain_numbers(axis)
    ax.set_xlabel("predicted, us")
    ax.set_ylabel("measured, us")
    error, rank = float(np.median(np.abs(predicted / measured - 1))), spearman(predicted.tolist(), measured.tolist())
    title = f"{len(points)} timed: rank correlation {rank:.2f}, median error {100 * error:.0f}%"
    ax.set_title(title, fontsize=10, loc="left", color=style.ink)
    add_legend(ax, style)
    return ax


@dataclass(frozen=True, slots=True)
class FoundCandidate:
    """A candidate of a search: when (seconds, or a count), modelled and measured cost; `refused`: why it is out, "" if not."""

    found_at: float
    cost_us: float
    measured_us: float | None = None
    refused: str = ""


def plot_search(
    found: Sequence[FoundCandidate],
    ax: Axes | None = None,
    *,
    theme: str = "light",
    floor_us: float | None = None,
    unit: str = "s",
) -> Axes:
    """Return axes with the cost of each candidate over the time it was found, and the best so far as a line.

    floor_us: the hardware's bound, drawn as a line. Raises: UsageError without candidates.
    """
    if not found:
        raise UsageError("no candidates to draw")
    ax, style = start_axes(ax, theme, (7.4, 4.2))
    good = sorted((one for one in found if not one.refused), key=lambda one: one.found_at)
    groups = (
        ("modelled", [(c.found_at, c.cost_us) for c in good if c.measured_us is None], "o", "none", style.hues[0]),
        (
            "measured",
            [(c.found_at, c.measured_us) for c in good if c.measured_us is not None],
            "s",
            style.hues[2],
            style.hues[2],
        ),
        ("refused", [(c.found_at, c.cost_us) for c in found if c.refused], "x", style.loss, style.loss),
    )
    for label, points, marker, face, edge in groups:
        if not points:
            continue
        xs, ys = zip(*points, strict=True)
        if marker == "x":
            ax.scatter(xs, ys, marker=marker, s=26, linewidth=1.3, label=label, zorder=3, color=edge)
        else:
            ax.scatter(
                xs, ys, marker=marker, s=26, linewidth=1.3, label=label, zorder=3, facecolor=face, edgecolor=edge
            )
    if good:
        best = np.minimum.accumulate([one.cost_us if one.measured_us is None else one.measured_us for one in good])
        times = [one.found_at for one in good]
        end = max(one.found_at for one in found)
        ax.step(
            [*times, end],
            [*best, best[-1]],
            where="post",
            color=style.ink,
            linewidth=1.2,
            label="best so far",
            zorder=2,
        )
    if floor_us is not None:
        ax.axhline(floor_us, color=style.hues[1], linestyle="--", linewidth=1.2, label="bound of the hardware")
    ax.set_yscale("log")
    plain_numbers(ax.yaxis)
    ax.set_xlabel(f"found at, {unit}")
    ax.set_ylabel("time, us")
    add_legend(ax, style)
    return ax
