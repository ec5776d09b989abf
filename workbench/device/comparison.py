"""How far is an output from what is right: as a whole, in its worst row, at its worst element.

Invariant: a number that is not finite, or a row that is wrong however small, never passes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.core.dtypes import DType

Floats = npt.NDArray[np.float64]
TOLERANCES = {DType.FLOAT16: 2e-3, DType.BFLOAT16: 1e-2, DType.FLOAT32: 1e-4}
"""Largest relative error (Frobenius norm) of an output whose coarsest type, inputs and intermediates included, is this."""

ROW_FACTOR = 2.0
"""A row may be this much further off than the whole: rounding errors of few elements average less."""

ELEMENT_FACTOR = 10.0
"""An element may be off by this times the tolerance, of its row's root mean square: 4.5 deviations and its own rounding."""

FLOOR = 1e-2
"""Rows smaller than this, of the whole's root mean square, are measured against it: they may be differences of large terms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputComparison:
    """An output against float64.

    Attributes: relative_error: Frobenius norm of the difference over that of the right values; worst_row: the largest of
    the same by rows (last axis), at index row; worst_element: the largest difference over its row's root mean square, at
    index element; not_finite: elements that are NaN or infinite; tolerance: of the relative error.
    """

    name: str
    relative_error: float
    worst_row: float
    row: tuple[int, ...]
    worst_element: float
    element: tuple[int, ...]
    not_finite: int
    tolerance: float

    @property
    def problem(self) -> str:
        """What is wrong, "" if nothing."""
        if self.not_finite:
            return f"output {self.name} has {self.not_finite} elements that are not finite, the first at {self.element}"
        if not self.relative_error <= self.tolerance:
            return f"output {self.name} is off by {self.relative_error:.2e}, allowed {self.tolerance:.0e}"
        if not self.worst_row <= self.tolerance * ROW_FACTOR:
            return f"output {self.name}, row {self.row} is off by {self.worst_row:.2e}, allowed {self.tolerance * ROW_FACTOR:.0e}"
        if not self.worst_element <= self.tolerance * ELEMENT_FACTOR:
            return (
                f"output {self.name}, element {self.element} is off by {self.worst_element:.2e} of its row's size, "
                f"allowed {self.tolerance * ELEMENT_FACTOR:.0e}"
            )
        return ""


def compare(name: str, found: Floats, expected: Floats, tolerance: float) -> OutputComparison:
    """Return how far an output is from what is right; both of one shape, `expected` finite."""
    finite = np.isfinite(found)
    missing = int(finite.size - finite.sum())
    if missing or not found.size:
        first = tuple(int(i) for i in np.argwhere(~finite)[0]) if missing else ()
        nan = float("nan") if missing else 0.0
        return OutputComparison(
            name=name, relative_error=nan, worst_row=nan, row=first[:-1], worst_element=nan, element=first,
            not_finite=missing, tolerance=tolerance,
        )  # fmt: skip
    rows = expected.reshape(-1, expected.shape[-1]) if expected.ndim else expected.reshape(1, 1)
    differences = found.reshape(rows.shape) - rows
    whole = float(np.sqrt(np.mean(rows * rows))) or 1.0  # all zero: errors count as they are
    sizes = np.maximum(np.sqrt(np.mean(rows * rows, axis=1)), FLOOR * whole)
    by_row = np.sqrt(np.mean(differences * differences, axis=1)) / sizes
    by_element = np.abs(differences) / sizes[:, None]
    worst_row, worst = int(np.argmax(by_row)), int(np.argmax(by_element))
    return OutputComparison(
        name=name,
        relative_error=float(np.sqrt(np.mean(differences * differences))) / whole,
        worst_row=float(by_row[worst_row]),
        row=_index(worst_row, expected.shape[:-1]),
        worst_element=float(by_element.reshape(-1)[worst]),
        element=_index(worst, expected.shape),
        not_finite=0,
        tolerance=tolerance,
    )


def _index(position: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    indices: Any = np.unravel_index(position, shape) if shape else ()
    return tuple(int(i) for i in indices)
