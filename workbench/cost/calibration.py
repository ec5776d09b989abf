"""A preset fitted to measured times: which coefficients explain the records best, and how well.

Least squares on the logarithm of time, far-off rows counting less, by damped Gauss-Newton steps within the coefficients'
bounds, from counts that hold no coefficient. Invariant: the same rows give the same preset; the fit never ends worse than
it began.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from workbench.cost.counts import COUNTED
from workbench.cost.estimate import Features
from workbench.cost.hardware import Hardware
from workbench.cost.library import library_times
from workbench.cost.presets import COEFFICIENTS, Coefficients, Preset
from workbench.cost.presets import preset as named_preset
from workbench.cost.time_model import kernel_times, total_of
from workbench.errors import UsageError

Vector = np.ndarray[Any, np.dtype[np.float64]]

FITTED = tuple(COEFFICIENTS)
"""Coefficients that a fit moves unless told otherwise: all."""

PRIOR = 0.02
"""Weight of staying where the start was, per unit of a coefficient's range: decides what the rows say nothing about."""

OUTLIER = 0.2
"""Logarithm of a ratio beyond which a row counts less."""

STEPS = 40
MOVE = 1e-3


@dataclass(frozen=True, slots=True)
class Row:
    """One measured time. Attributes: features; measured_us; cold: with a cold L2 cache; label: what it was."""

    features: Features
    measured_us: float
    cold: bool = True
    label: str = ""


@dataclass(frozen=True, slots=True)
class Calibration:
    """A fit. Attributes: preset; predicted_us, measured_us: per row; labels; before: the median error of the start."""

    preset: Preset
    predicted_us: tuple[float, ...]
    measured_us: tuple[float, ...]
    labels: tuple[str, ...]
    before: float

    @property
    def rank_correlation(self) -> float:
        """Spearman's rank correlation of predicted and measured times."""
        return spearman(self.predicted_us, self.measured_us)

    @property
    def median_error(self) -> float:
        """Median relative error of the predicted times."""
        return median_error(self.predicted_us, self.measured_us)

    def describe(self) -> str:
        """Return how good the fit is, the coefficients, and the rows that it explains worst."""
        lines = [
            f"{len(self.labels)} rows: rank correlation {self.rank_correlation:.3f}, median error {self.median_error:.1%} "
            f"(before the fit {self.before:.1%})",
            self.preset.describe(),
            "worst rows:",
        ]
        rows = zip(self.labels, self.predicted_us, self.measured_us, strict=True)
        worst = sorted(rows, key=lambda row: -abs(np.log(row[1] / row[2])))[:5]
        lines += [f"  {label}: predicted {mine:.2f} us, measured {theirs:.2f} us" for label, mine, theirs in worst]
        return "\n".join(lines)


class Predictor:
    """Predicts the times of many rows at once, for any coefficients."""

    def __init__(self, rows: Sequence[Row], hardware: Hardware) -> None:
        """Lay the counts of all kernels side by side."""
        self.hardware, self.size = hardware, len(rows)
        self.groups: list[tuple[bool, np.ndarray[Any, np.dtype[np.intp]], dict[str, Vector]]] = []
        self.library: list[tuple[int, bool, Mapping[str, float]]] = []
        for cold in (True, False):
            owners: list[int] = []
            columns: dict[str, list[float]] = {name: [] for name in COUNTED}
            for number, row in enumerate(rows):
                for _, counts in row.features.kernels if row.cold is cold else ():
                    if "library" in counts:
                        self.library.append((number, cold, counts))
                        continue
                    owners.append(number)
                    for name in COUNTED:
                        columns[name].append(counts.get(name, 0.0))
            if owners:
                arrays = {name: np.asarray(values, float) for name, values in columns.items()}
                self.groups.append((cold, np.asarray(owners, np.intp), arrays))

    def times(self, coefficients: Coefficients) -> Vector:
        """Return the microseconds of every row."""
        total = np.zeros(self.size)
        for cold, owners, columns in self.groups:
            kernel = total_of(kernel_times(columns, self.hardware, coefficients, cold=cold))
            np.add.at(total, owners, kernel)
        for number, cold, counts in self.library:
            total[number] += sum(library_times(counts, self.hardware, coefficients, cold=cold).values())
        return total


def predict(features: Features, hardware: Hardware, preset: Preset | None = None, *, cold: bool = True) -> float:
    """Return the predicted microseconds of one program."""
    chosen = named_preset() if preset is None else preset
    return float(Predictor([Row(features, 1.0, cold)], hardware).times(chosen.coefficients)[0])


def calibrate(
    rows: Sequence[Row],
    hardware: Hardware,
    *,
    start: Preset | None = None,
    fitted: Sequence[str] = FITTED,
    name: str = "calibrated",
) -> Calibration:
    """Return the preset that explains measured times best, starting from another. fitted: names of what may move.

    Raises: UsageError for no rows, a time that is not positive, an unknown coefficient, or a row that does not fit the GPU.
    """
    begin = named_preset() if start is None else start
    _check(rows, fitted)
    predictor = Predictor(rows, hardware)
    goal = np.log(np.asarray([row.measured_us for row in rows]))
    values = asdict(begin.coefficients)
    if not np.all(np.isfinite(predictor.times(begin.coefficients))):
        raise UsageError("a row's kernel does not fit the GPU; leave it out")
    origin = np.asarray([_to_unit(key, values[key]) for key in fitted])

    def coefficients_at(point: Vector) -> Coefficients:
        moved = {key: _from_unit(key, float(x)) for key, x in zip(fitted, point, strict=True)}
        return Coefficients(**{**values, **moved})

    def residuals(point: Vector) -> Vector:
        ratio = np.log(predictor.times(coefficients_at(point))) - goal
        return np.concatenate([_damped(ratio), np.sqrt(PRIOR * len(rows)) * (point - origin)])

    best = _descend(residuals, origin)
    found = coefficients_at(best)
    measured = [row.measured_us for row in rows]
    before = median_error(predictor.times(begin.coefficients), measured)
    note = f"fitted to {len(rows)} times measured on {hardware.title}, starting from {begin.name}"
    times = tuple(float(us) for us in predictor.times(found))
    return Calibration(Preset(name, found, note), times, tuple(measured), tuple(row.label for row in rows), before)


def _check(rows: Sequence[Row], fitted: Sequence[str]) -> None:
    if not rows:
        raise UsageError("no rows to fit; measure something first")
    for row in rows:
        if not row.measured_us > 0:
            raise UsageError(f"row {row.label or '(unnamed)'} has a time of {row.measured_us} us; times are positive")
    unknown = [key for key in fitted if key not in COEFFICIENTS]
    if unknown:
        raise UsageError(f"no coefficient {unknown[0]!r}; there are: {', '.join(COEFFICIENTS)}")


def _descend(residuals: Any, origin: Vector) -> Vector:
    """Return the point of the unit cube that damped Gauss-Newton steps reach; accepted steps only improve."""
    point, damping = origin.copy(), 1e-2
    current = residuals(point)
    for _ in range(STEPS):
        columns = []
        for axis in range(len(point)):
            step = MOVE if point[axis] + MOVE <= 1 else -MOVE
            moved = point.copy()
            moved[axis] += step
            columns.append((residuals(moved) - current) / step)
        jacobian = np.stack(columns, axis=1)
        gradient, square = jacobian.T @ current, jacobian.T @ jacobian
        improved = False
        for _ in range(8):
            change = np.linalg.solve(
                square + damping * np.eye(len(point)) * (1 + np.trace(square) / len(point)), -gradient
            )
            trial = np.clip(point + change, 0.0, 1.0)
            after = residuals(trial)
            if after @ after < current @ current * (1 - 1e-9):
                improved = after @ after < current @ current * (1 - 1e-5)
                point, current, damping = trial, after, max(damping / 4, 1e-6)
                break
            damping *= 4
        if not improved:
            break
    return point


def _damped(ratio: Vector) -> Vector:
    """Return residuals whose squares grow as a logarithm beyond `OUTLIER` (Cauchy): an odd kernel does not bend the fit."""
    return np.asarray(np.sign(ratio) * OUTLIER * np.sqrt(np.log1p((ratio / OUTLIER) ** 2)))


def _to_unit(key: str, value: float) -> float:
    low, high = COEFFICIENTS[key].low, COEFFICIENTS[key].high
    if low > 0:
        return float(np.log(value / low) / np.log(high / low))
    return (value - low) / (high - low)


def _from_unit(key: str, place: float) -> float:
    low, high = COEFFICIENTS[key].low, COEFFICIENTS[key].high
    value = low * (high / low) ** place if low > 0 else low + (high - low) * place
    return float(min(max(value, low), high))


def median_error(predicted: Sequence[float] | Vector, measured: Sequence[float]) -> float:
    """Return the median of |predicted / measured - 1|."""
    return float(np.median(np.abs(np.asarray(predicted) / np.asarray(measured) - 1.0)))


def spearman(left: Sequence[float], right: Sequence[float]) -> float:
    """Return Spearman's rank correlation, ties given their mean rank; nan where one side is constant.

    Raises: UsageError for sequences of different lengths or fewer than two.
    """
    if len(left) != len(right) or len(left) < 2:
        raise UsageError(f"{len(left)} and {len(right)} values; give two sequences of one length, at least 2")
    a, b = _ranks(left), _ranks(right)
    a, b = a - a.mean(), b - b.mean()
    scale = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / scale if scale else float("nan")


def _ranks(values: Sequence[float]) -> Vector:
    array = np.asarray(values, float)
    _, where, counts = np.unique(array, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2.0)[where])
