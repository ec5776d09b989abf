"""A hierarchical roofline: what device memory, the L2 cache and the tensor cores allow, and where programs lie.

Invariant: a point whose bytes were counted by the hardware is filled, one whose bytes were modelled is hollow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from workbench.core.dtypes import DType
from workbench.cost.hardware import Hardware
from workbench.errors import UsageError
from workbench.records.measurements import label_of
from workbench.views.plot_style import MARKERS, Style, add_legend, start_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes


LEVELS = ("device", "L2")
"""Memory levels of a row's traffic; its other keys are further counters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflinePoint:
    """A program's work over its time, at one memory level.

    Attributes: label; series: points of one series share colour and shape; level: "device" or "L2"; flops and bytes of a
    run; time_us; is_measured: bytes counted by the hardware, else modelled.
    """

    label: str
    series: str
    level: str
    flops: float
    bytes: float
    time_us: float
    is_measured: bool

    @property
    def intensity(self) -> float:
        """Operations a byte."""
        return self.flops / self.bytes

    @property
    def tflops(self) -> float:
        """Operations a second, 10^12."""
        return self.flops / self.time_us * 1e-6


def roofline_points(rows: Sequence[Mapping[str, Any]]) -> list[RooflinePoint]:
    """Return the points of measured rows: per level the bytes that counters saw, else modelled ones; unmeasured rows none."""
    points = []
    for row in rows:
        if row["ours_us"] is None:
            continue
        traffic = row.get("traffic") or {"device": {"bytes": row["bytes"], "measured": False}}
        points += [
            RooflinePoint(
                label=label_of(row), series=row["program"], level=level, flops=row["flops"], bytes=told["bytes"],
                time_us=row["ours_us"], is_measured=told["measured"],
            )
            for level, told in ((level, traffic[level]) for level in LEVELS if level in traffic)
            if told["bytes"]
        ]  # fmt: skip
    return points


def plot_roofline(
    points: Sequence[RooflinePoint], hardware: Hardware, ax: Axes | None = None, *, theme: str = "light"
) -> Axes:
    """Return axes with the ceilings of a GPU and the points; a program's levels are joined by a thin line.

    Raises: UsageError without points.
    """
    if not points:
        raise UsageError("no points to draw; rows without a time of ours have none")
    ax, style = start_axes(ax, theme, (8.6, 5.6))
    low = min(0.3, *(point.intensity for point in points)) / 1.5
    high = max(600.0, *(point.intensity for point in points)) * 2
    peak = hardware.tensor_rate(DType.FLOAT16)
    bottom = min(point.tflops for point in points) / 2.5
    _ceilings(ax, style, hardware, low, high, peak)
    series = list(dict.fromkeys(point.series for point in points))
    for point in points:
        hue = style.hues[series.index(point.series) % len(style.hues)]
        ax.scatter(
            point.intensity, point.tflops, marker=MARKERS[series.index(point.series) % len(MARKERS)], zorder=4,
            s=52 if point.level == "device" else 24, facecolor=hue if point.is_measured else style.ground, edgecolor=hue,
            linewidth=1.4,
        )  # fmt: skip
    for label in dict.fromkeys(point.label for point in points):
        own = sorted((p for p in points if p.label == label), key=lambda point: point.intensity)
        hue = style.hues[series.index(own[0].series) % len(style.hues)]
        ax.plot([p.intensity for p in own], [p.tflops for p in own], color=hue, linewidth=0.7, zorder=3)
    _legend(ax, style, series, points)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlim(low, high)
    ax.set_ylim(bottom, peak * 2)
    ax.set_xlabel("operations a byte moved at the level")
    ax.set_ylabel("TFLOP/s")
    ax.set_title(f"{hardware.title}: roofline of device memory and L2", fontsize=10, loc="left", color=style.ink)
    return ax


def _ceilings(ax: Axes, style: Style, hardware: Hardware, low: float, high: float, peak: float) -> None:
    for name, rate, line in (("device memory", hardware.bandwidth_tb_s, "-"), ("L2", hardware.l2_tb_s, "--")):
        knee = peak / rate
        ax.plot([low, knee], [low * rate, peak], color=style.ink, linewidth=1.3, linestyle=line, zorder=2)
        y, is_inner = peak / 2, line == "-"
        ax.annotate(
            f"{name} {rate:.3g} TB/s", (y / rate, y), xytext=(6 if is_inner else -6, 0), textcoords="offset points",
            fontsize=8.5, color=style.ink, ha="left" if is_inner else "right", va="top" if is_inner else "bottom",
        )  # fmt: skip
    ax.plot([peak / hardware.l2_tb_s, high], [peak, peak], color=style.ink, linewidth=1.3, zorder=2)
    ax.annotate(
        f"tensor cores, float16: {peak:g} TFLOP/s", (high, peak), xytext=(-4, 4), textcoords="offset points", fontsize=8.5,
        color=style.ink, ha="right",
    )  # fmt: skip


def _legend(ax: Axes, style: Style, series: Sequence[str], points: Sequence[RooflinePoint]) -> None:
    for number, name in enumerate(series):
        ax.scatter(
            [], [], marker=MARKERS[number % len(MARKERS)], color=style.hues[number % len(style.hues)], label=name
        )
    kinds = {(point.level, point.is_measured) for point in points}
    for level, is_measured in sorted(kinds):
        ax.scatter(
            [], [], marker="o", s=52 if level == "device" else 24, edgecolor=style.ink, linewidth=1.4,
            facecolor=style.ink if is_measured else style.ground,
            label=f"{level} bytes {'measured' if is_measured else 'modelled'}",
        )  # fmt: skip
    add_legend(ax, style)
