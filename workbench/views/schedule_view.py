"""A schedule space as a map over two parameters, and what stands behind one cell. Invariant: a cell says the least cost.

A cell without a legal schedule is crossed out and says so; measured times lie only where somebody measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from workbench.cost.breakdown import Cost
from workbench.cost.heat_map import HeatMap
from workbench.cost.schedules import KernelTable, ScheduleRow, ScheduleSpace
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.retile import Retiler
from workbench.views.markup import Cell, Row, number, setting, table, words

Metric = Literal["cost", "fits", "measured"]
METRICS: tuple[Metric, ...] = ("cost", "fits", "measured")
_LEFT, _TOP, _CELL_WIDE, _CELL_HIGH = 64.0, 10.0, 52.0, 26.0


@dataclass(frozen=True, slots=True)
class MeasuredSchedule:
    """A time somebody measured. Attributes: parameters: of one kernel, by name; time_us: of the whole program, L2 cold."""

    parameters: Mapping[str, int]
    time_us: float


def parameters_of(graph: KernelGraph, schedules: Mapping[str, Mapping[str, object]], kernel: int) -> dict[str, int]:
    """Return the parameters of one kernel of a graph under schedules, by the names of a schedule space."""
    retiler = Retiler(graph)
    tiling = next(tiling for tiling in retiler.tilings if tiling.kernel == kernel)
    block = graph.graph_defined[[t.kernel for t in retiler.tilings].index(kernel)]
    told = schedules.get(block.results[0].name, {})
    found = {axis: tiling.counts.grid.get(axis, 1) for axis in tiling.free}
    found |= {"loop": tiling.counts.loop, "split": tiling.counts.split}
    for name, default in (
        ("cluster", tiling.counts.cluster),
        ("stages", 1),
        ("threads", math.prod(block.block.block_dims)),
    ):
        value = told.get(name)
        found[name] = value if isinstance(value, int) else default
    return found


def cell_counts(tab: KernelTable, x: str, y: str) -> dict[tuple[int, int], tuple[int, int]]:
    """Return per cell how many schedules there are, and how many of them are legal."""
    found: dict[tuple[int, int], tuple[int, int]] = {}
    keys = np.stack([tab.all_columns[x], tab.all_columns[y]], axis=1)
    cells, index, totals = np.unique(keys, axis=0, return_inverse=True, return_counts=True)
    legal = np.bincount(index.ravel(), tab.fits, minlength=len(cells))
    for cell, total, fits in zip(cells.tolist(), totals.tolist(), legal.tolist(), strict=True):
        found[cell[0], cell[1]] = (int(total), int(fits))
    return found


def cell_row(space: ScheduleSpace, kernel: int, chosen: Mapping[str, int]) -> ScheduleRow | None:
    """Return the cheapest legal schedule of the program in which a kernel has the chosen parameters, None without one."""
    tab = space.kernels[kernel]
    keep = np.ones(tab.size, bool)
    for name, value in chosen.items():
        keep &= tab.columns[name] == value
    if not keep.any():
        return None
    rows = np.flatnonzero(keep)
    own = int(rows[np.argmin(tab.cost_us[rows])])
    picked = {kernel: own}
    wanted = {tab.kernel: int(tab.columns["split"][own])} if tab.tiling.split else {}
    wanted |= {tied: int(tab.columns[f"split{tied}"][own]) for tied in tab.symbolic.tied}
    for place, other in enumerate(space.kernels):
        if place == kernel:
            continue
        fit = np.ones(other.size, bool)
        if other.tiling.split and other.kernel in wanted:
            fit &= other.columns["split"] == wanted[other.kernel]
        for tied in other.symbolic.tied:
            if tied in wanted:
                fit &= other.columns[f"split{tied}"] == wanted[tied]
        if not fit.any():
            return None
        candidates = np.flatnonzero(fit)
        picked[place] = int(candidates[np.argmin(other.cost_us[candidates])])
    order = tuple(picked[place] for place in range(len(space.kernels)))
    cost = sum(float(t.cost_us[row]) for t, row in zip(space.kernels, order, strict=True)) + space.fixed_us
    return ScheduleRow(cost, order, tuple(t.parameters(row) for t, row in zip(space.kernels, order, strict=True)))


def heat_svg(
    heat: HeatMap,
    counts: Mapping[tuple[int, int], tuple[int, int]],
    measured: Mapping[tuple[int, int], float],
    metric: Metric,
    cell: tuple[int, int],
) -> str:
    """Return the map as SVG to click; cheap cells are strong. counts: schedules and legal ones per cell (x, y)."""
    values: dict[tuple[int, int], float] = {}
    for row, y in enumerate(heat.y_values):
        for column, x in enumerate(heat.x_values):
            total, legal = counts.get((x, y), (0, 0))
            if metric == "cost" and heat.fits[row, column]:
                values[x, y] = float(heat.cost_us[row, column])
            elif metric == "fits" and total:
                values[x, y] = legal / total
            elif metric == "measured" and (x, y) in measured:
                values[x, y] = measured[x, y]
    low, high = min(values.values(), default=1.0), max(values.values(), default=1.0)
    parts = []
    for row, y in enumerate(heat.y_values):
        for column, x in enumerate(heat.x_values):
            at = (_LEFT + column * _CELL_WIDE, _TOP + (len(heat.y_values) - 1 - row) * _CELL_HIGH)
            parts.append(
                _cell(
                    heat, (x, y), at, values.get((x, y)), low, high, counts.get((x, y), (0, 0)), metric, (x, y) == cell
                )
            )
    foot = _TOP + len(heat.y_values) * _CELL_HIGH
    wide = _LEFT + len(heat.x_values) * _CELL_WIDE
    for column, x in enumerate(heat.x_values):
        parts.append(_text(_LEFT + (column + 0.5) * _CELL_WIDE, foot + 14, str(x), "middle"))
    for row, y in enumerate(heat.y_values):
        parts.append(_text(_LEFT - 6, _TOP + (len(heat.y_values) - 0.5 - row) * _CELL_HIGH + 4, str(y), "end"))
    middle = (foot + _TOP) / 2
    parts.append(_text((wide + _LEFT) / 2, foot + 30, heat.x, "middle"))
    parts.append(f'<g transform="rotate(-90 12 {middle:.0f})">{_text(12, middle, heat.y, "middle")}</g>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="wb-as-is" role="img" '
        f'aria-label="{metric} over {words(heat.x)} and {words(heat.y)}" '
        f'viewBox="0 0 {wide + 8:.0f} {foot + 38:.0f}" width="{wide + 8:.0f}" height="{foot + 38:.0f}">{"".join(parts)}</svg>'
    )


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" font-size="11.5" text-anchor="{anchor}">{words(text)}</text>'


def _cell(
    heat: HeatMap, key: tuple[int, int], at: tuple[float, float], value: float | None, low: float, high: float,
    counts: tuple[int, int], metric: Metric, is_chosen: bool,
) -> str:  # fmt: skip
    (x, y), (total, legal) = at, counts
    tip = f"{heat.x} = {key[0]}, {heat.y} = {key[1]}: {legal:,} of {total:,} schedules fit"
    border = "wb-here" if is_chosen else "wb-stroke"
    wide, high_ = _CELL_WIDE - 2, _CELL_HIGH - 2
    if value is None:
        body = f'<rect class="wb-off" x="{x}" y="{y}" width="{wide}" height="{high_}"/>'
        if metric != "measured":
            body += f'<path class="wb-stroke" d="M{x} {y} l{wide} {high_} M{x} {y + high_} l{wide} {-high_}"/>'
        text = ""
    else:
        strength = value if metric == "fits" or high <= low else 1 - math.log(value / low) / math.log(high / low)
        strength = min(strength, 1.0)
        body = (
            f'<rect class="wb-off" x="{x}" y="{y}" width="{wide}" height="{high_}"/><rect fill="var(--wb-accent)" '
            f'fill-opacity="{0.05 + 0.45 * strength:.2f}" x="{x}" y="{y}" width="{wide}" height="{high_}"/>'
        )
        text = f"{value:.0%}" if metric == "fits" else f"{value:.3g}"
    label = (
        f'<text x="{x + wide / 2:.0f}" y="{y + high_ / 2 + 4:.0f}" font-size="11.5" text-anchor="middle" '
        f'font-weight="{700 if is_chosen else 500}">{text}</text>'
    )
    edge = f'<rect class="{border}" fill="none" x="{x}" y="{y}" width="{wide}" height="{high_}" style="fill:none"/>'
    seen = " data-into-view" if is_chosen else ""
    return f"<g {setting('cell', list(key))}{seen}><title>{words(tip)}</title>{body}{edge}{label}</g>"


def parts_svg(cost: Cost) -> str:
    """Return a cost by parts as bars, the largest first, each with its microseconds."""
    parts = sorted(((us, name) for name, us in cost.parts.items() if us > 0.0005), reverse=True)
    most = parts[0][0] if parts else 1.0
    drawn = []
    for line, (us, name) in enumerate(parts):
        y = 4 + line * 20
        long = max(1.0, 180 * us / most)
        drawn.append(
            f'{_text(118, y + 12, name, "end")}<rect class="wb-bar-good" x="124" y="{y + 1}" width="{long:.1f}" height="14" '
            f'rx="2"/>{_text(130 + long, y + 12, f"{us:.2f} us", "start")}'
        )
    height = 10 + 20 * len(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="cost by parts" viewBox="0 0 380 {height}" width="380" '
        f'height="{height}">{"".join(drawn)}</svg>'
    )


def parameters_html(rows: Sequence[Mapping[str, int]]) -> str:
    """Return the parameters of each kernel as a table, a kernel a column."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    body = [Row((name, *(number(row[name]) if name in row else number("") for row in rows))) for name in names]
    return table(("", *(Cell(f"kernel {place}", is_number=True) for place in range(len(rows)))), body)
