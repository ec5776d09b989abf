"""The least cost over two parameters of a schedule space, as a grid to be drawn.

Invariant: a cell without a legal schedule is nan and does not fit; every other cell holds a cost that some schedule has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench.errors import UnknownNameError, UsageError


@dataclass(frozen=True, slots=True)
class HeatMap:
    """Costs over two parameters. Attributes: x, y: names; x_values, y_values; cost_us, fits: (len(y), len(x)); fixed."""

    x: str
    y: str
    x_values: tuple[int, ...]
    y_values: tuple[int, ...]
    cost_us: np.ndarray[Any, np.dtype[np.float64]]
    fits: np.ndarray[Any, np.dtype[np.bool_]]
    fixed: Mapping[str, int]

    def to_json(self) -> dict[str, object]:
        """Return plain JSON data; None where nothing fits."""
        rows = [[None if np.isnan(value) else float(value) for value in row] for row in self.cost_us]
        return {
            "x": self.x,
            "y": self.y,
            "x_values": list(self.x_values),
            "y_values": list(self.y_values),
            "cost_us": rows,
            "fixed": dict(self.fixed),
        }


def heat_map(
    columns: Mapping[str, np.ndarray[Any, np.dtype[np.int64]]],
    cost_us: np.ndarray[Any, np.dtype[np.float64]],
    fits: np.ndarray[Any, np.dtype[np.bool_]],
    x: str,
    y: str,
    fixed: Mapping[str, int],
) -> HeatMap:
    """Return the least cost of the rows in each cell. Raises: UnknownNameError, UsageError, as `ScheduleSpace.heatmap`."""
    for name in (x, y, *fixed):
        if name not in columns:
            raise UnknownNameError(f"no parameter {name!r}; there are: {', '.join(columns)}")
    if x == y or x in fixed or y in fixed:
        raise UsageError(
            f"parameters {x!r} and {y!r} of a heat map differ from each other and from those that are fixed"
        )
    keep = np.ones(len(cost_us), bool)
    for name, value in fixed.items():
        keep &= columns[name] == value
        if not keep.any():
            known = ", ".join(map(str, np.unique(columns[name])))
            raise UsageError(f"no schedule has {name} = {value} beside what else is fixed; {name} may be {known}")
    x_values, x_index = np.unique(columns[x][keep], return_inverse=True)
    y_values, y_index = np.unique(columns[y][keep], return_inverse=True)
    least = np.full((len(y_values), len(x_values)), np.inf)
    np.minimum.at(least, (y_index, x_index), np.where(fits[keep], cost_us[keep], np.inf))
    good = np.isfinite(least)
    return HeatMap(
        x,
        y,
        tuple(int(value) for value in x_values),
        tuple(int(value) for value in y_values),
        np.where(good, least, np.nan),
        good,
        dict(fixed),
    )
