"""Figures of measured rows as files: one SVG each, light and dark. Invariant: the same rows give the same bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.cost.hardware import hardware
from workbench.views.measured_plots import plot_floor_fraction, plot_speedups
from workbench.views.plot_style import STYLES
from workbench.views.roofline import plot_roofline, roofline_points

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_figures(rows: Sequence[Mapping[str, Any]], folder: Path, device: str) -> list[Path]:
    """Write speedups, floor and roofline as SVG, in both themes, and return the files. Raises: UsageError, OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for theme in STYLES:
        figures: dict[str, Axes] = {
            "speedups": plot_speedups(rows, theme=theme),
            "floor": plot_floor_fraction(rows, theme=theme),
        }
        points = roofline_points(rows)
        if points:
            figures["roofline"] = plot_roofline(points, hardware(device), theme=theme)
        for name, ax in figures.items():
            path = folder / f"{name}_{theme}.svg"
            save_svg(ax, path)
            written.append(path)
    return written


def save_svg(ax: Axes, path: Path) -> None:
    """Write the figure of some axes as SVG, text as text, without date or random names."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    figure = ax.get_figure()
    assert isinstance(figure, Figure)
    with rc_context({"svg.hashsalt": "workbench", "svg.fonttype": "none", "font.family": "sans-serif"}):
        figure.savefig(path, format="svg", metadata={"Date": None})
