"""Measured times with the counts they were taken of, as a file: what a preset was fitted to, so that anybody can fit it again.

Invariant: a row read is the row written, to six digits; counts hold no coefficient, so rows outlive presets.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from workbench.cost.calibration import Row
from workbench.cost.counts import COUNTED
from workbench.cost.estimate import Features
from workbench.errors import FormatError
from workbench.shipped import shipped_path

SCHEMA = "mugraph-workbench/cost-row"
SHIPPED = "h200_rows.jsonl"
WEIGHT = "weight"


def row_to_json(row: Row, **more: object) -> dict[str, object]:
    """Return a row as a JSON object, counts of zero left out; more: what else is to be told."""
    kernels = [
        {"name": name, "counts": {key: float(f"{value:.6g}") for key, value in counts.items() if value}}
        for name, counts in row.features.kernels
    ]
    told = {"schema": SCHEMA, "label": row.label, "measured_us": float(f"{row.measured_us:.6g}"), "cold": row.cold}
    return {**told, **more, "kernels": kernels}


def row_from_json(values: Mapping[str, object]) -> Row:
    """Return the row of a JSON object. Raises: FormatError."""
    try:
        if values["schema"] != SCHEMA:
            raise KeyError("schema")
        found = []
        kernels = values["kernels"]
        assert isinstance(kernels, Sequence)
        for kernel in kernels:
            counts = {str(name): float(value) for name, value in kernel["counts"].items()}
            zero = dict.fromkeys(LIBRARY if "library" in counts else COUNTED, 0.0)
            found.append((str(kernel["name"]), {**zero, **counts}))
        measured = values["measured_us"]
        assert isinstance(measured, int | float)
        return Row(Features(tuple(found)), float(measured), bool(values["cold"]), str(values["label"]))
    except (KeyError, TypeError, ValueError, AssertionError, AttributeError) as error:
        raise FormatError(
            f"no row of measured counts ({type(error).__name__}: {error}); rows have schema {SCHEMA}"
        ) from error


LIBRARY = (
    "library", "unique_bytes", "made_bytes", "stored_bytes", "handed_bytes", "tensor_flops", "lanes", "products", "tiles",
)  # fmt: skip
"""Counts of a kernel that is not made of tiles."""


def write_rows(path: Path, rows: Iterable[Mapping[str, object]]) -> None:
    """Write rows as `row_to_json` gives them, one a line. Raises: OSError."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def read_rows(path: Path | None = None) -> list[Row]:
    """Return the rows of a file, those that ship by default; one with a weight above 1 is there so many times.

    Raises: FormatError, OSError.
    """
    file = shipped_path("data", "cost", SHIPPED) if path is None else path
    found: list[Row] = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            values = json.loads(line)
        except ValueError as error:
            raise FormatError(f"{file}, line {number}: no JSON ({error})") from error
        found += [row_from_json(values)] * int(values.get(WEIGHT, 1))
    return found
