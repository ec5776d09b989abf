"""Figures of measured rows: speedup over every peer, and how near the floor of the hardware.

Invariant: a row without a time of ours is drawn as such, never left out; a loss is drawn like a win, in another colour and
hatched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from workbench.errors import UsageError
from workbench.records.measurements import geometric_mean, label_of
from workbench.views.plot_style import MARKERS, Style, add_legend, start_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Row = Mapping[str, Any]
ROW_INCHES, LEAST_INCHES = 0.42, 2.4


def plot_speedups(rows: Sequence[Row], ax: Axes | None = None, *, theme: str = "light") -> Axes:
    """Return axes with a bar per row, as long as ours is faster than its best peer, and a mark per other peer.

    Logarithmic, so that a loss is as long as the win that would mend it. Raises: UsageError without rows.
    """
    ax, style = _rows_axes(rows, ax, theme)
    peers = _peers(rows)
    for number, row in enumerate(rows):
        if row["ratio"] is None:
            _tell_missing(ax, style, number, 1.0, row)
            continue
        is_win = row["ratio"] >= 1
        ax.barh(
            number, row["ratio"] - 1, left=1, height=0.62, color=style.win if is_win else style.loss, alpha=0.85,
            hatch="" if is_win else "////", edgecolor=style.ground, linewidth=0,
        )  # fmt: skip
        ax.annotate(
            f"{row['ratio']:.2f}", (min(1.0, row["ratio"]), number), xytext=(-4 if is_win else -10, 0),
            textcoords="offset points", ha="right", va="center", fontsize=8.5, color=style.ink if is_win else style.loss,
        )  # fmt: skip
    for index, peer in enumerate(peers):
        points = [
            (row["peers"][peer] / row["ours_us"], number)
            for number, row in enumerate(rows)
            if peer in row["peers"] and row["ours_us"]
        ]
        ax.scatter(
            [x for x, _ in points], [y for _, y in points], marker=MARKERS[index % len(MARKERS)], s=40,
            color=style.hues[index % len(style.hues)], edgecolor=style.ground, linewidth=0.5, label=peer, zorder=3,
        )  # fmt: skip
    ax.axvline(1, color=style.ink, linewidth=1)
    ratios = [row["peers"][peer] / row["ours_us"] for row in rows for peer in row["peers"] if row["ours_us"]]
    _log_axis(ax, min([0.85, *ratios]) / 1.3, max([1.25, *ratios]) * 1.12)
    mean = geometric_mean(rows)
    ax.set_xlabel("time of the peer over ours (right of 1: ours is faster); bar: best peer")
    ax.set_title(
        "geometric mean: " + ("none, a row has no time" if mean is None else f"{mean:.2f}"), fontsize=10, loc="left"
    )
    add_legend(ax, style, title="peers, L2 cold")
    return ax


def plot_floor_fraction(rows: Sequence[Row], ax: Axes | None = None, *, theme: str = "light") -> Axes:
    """Return axes with a bar per row: the hardware's floor as a share of our time; marks: best peer's share, the target's.

    Raises: UsageError without rows.
    """
    ax, style = _rows_axes(rows, ax, theme)
    for number, row in enumerate(rows):
        if row["ours_us"] is None:
            shares = [100 * row["floor_us"] / row[key] for key in ("best_peer_us", "target_us") if row.get(key)]
            _tell_missing(ax, style, number, max([0.0, *shares]), row)
            continue
        share = 100 * row["floor_us"] / row["ours_us"]
        ax.barh(number, share, height=0.62, color=style.win, alpha=0.85)
        ax.annotate(f"{share:.0f}%", (1.0, number), xycoords=("axes fraction", "data"), xytext=(-2, 0),
                    textcoords="offset points", ha="right", va="center", fontsize=8.5, color=style.ink)  # fmt: skip
    marks = (("best_peer_us", "best peer", "D", style.hues[1]), ("target_us", "target", "|", style.ink))
    for key, label, marker, colour in marks:
        points = [(100 * row["floor_us"] / row[key], number) for number, row in enumerate(rows) if row.get(key)]
        ax.scatter(
            [x for x, _ in points], [y for _, y in points], marker=marker, s=110 if marker == "|" else 30, color=colour,
            label=label, zorder=3, linewidth=1.6 if marker == "|" else 0.8,
        )  # fmt: skip
    ax.set_xlim(0, 110)
    ax.set_xticks(range(0, 101, 20))
    ax.set_xlabel("floor of the hardware (bytes, operations) as a share of the time, per cent")
    add_legend(ax, style)
    return ax


def _rows_axes(rows: Sequence[Row], ax: Axes | None, theme: str) -> tuple[Axes, Style]:
    """Return axes with one line per row, the first on top. Raises: UsageError without rows."""
    if not rows:
        raise UsageError("no rows to draw; take them from `workbench measure` or from the shipped records")
    ax, style = start_axes(ax, theme, (9.6, max(LEAST_INCHES, ROW_INCHES * len(rows) + 1.1)))
    ax.set_yticks(range(len(rows)), [label_of(row) for row in rows])
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.grid(visible=False, axis="y")
    ax.tick_params(axis="y", length=0)
    return ax, style


def _tell_missing(ax: Axes, style: Style, number: int, x: float, row: Row) -> None:
    reason = next(iter(row["refused"].values()), "no peer") if row["ours_us"] is None else "no peer"
    text = reason if len(reason) <= 60 else reason[:57] + "..."
    ax.annotate(
        f"no time: {text}",
        (x, number),
        xytext=(6, 0),
        textcoords="offset points",
        va="center",
        fontsize=8.5,
        color=style.loss,
    )


def _peers(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(peer for row in rows for peer in row["peers"]))


def _log_axis(ax: Axes, low: float, high: float) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    ax.set_xscale("log")
    ax.set_xlim(low, high)
    steps = (0.25, 0.33, 0.5, 0.7, 1, 1.4, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
    ax.xaxis.set_major_locator(FixedLocator([step for step in steps if low <= step <= high]))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.xaxis.set_minor_locator(NullLocator())
