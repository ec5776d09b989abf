"""Times of programs beside their peers, as records: what a row holds, and what a set of rows says as a whole.

Invariant: a row holds all its peers, wins and losses alike; the last row of a program at its parameters counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from workbench.errors import UnknownNameError
from workbench.records.store import Record, RecordStore, last_of_each
from workbench.records.table_rows import TABLE_ROWS
from workbench.shipped import shipped_path

SCHEMA = "mugraph-workbench/measurement"
REQUIRED = frozenset(
    {
        "program", "parameters", "table", "ours_us", "peers", "best_peer", "best_peer_us", "ratio", "floor_us",
        "relative_error", "correct", "date", "gpu", "driver", "versions",
    }
)  # fmt: skip
"""Keys of every row; data/records/README.md says what each means."""


def measurement_store(path: Path) -> RecordStore:
    """Return the store of measurements in a file."""
    return RecordStore(path, SCHEMA, 1, REQUIRED)


def shipped_measurements(device: str = "h200") -> list[Record]:
    """Return the measurements that ship with the workbench, in the table's order; see `current_rows`.

    Raises: UnknownNameError when there are none of this device.
    """
    path = Path(str(shipped_path("data", "records", f"{device}.jsonl")))
    rows = current_rows(measurement_store(path).records())
    if not rows:
        raise UnknownNameError(
            f"no measurements of {device!r} ship with the workbench; take them with `workbench measure`"
        )
    return rows


def current_rows(records: Iterable[Record]) -> list[Record]:
    """Return the last row of each program and parameters: those of the table in its order, then the others."""
    order = {_key(row.program, row.sizes): number for number, row in enumerate(TABLE_ROWS)}
    rows = last_of_each(list(records), "program", "parameters", "style", "dtype")
    return sorted(rows, key=lambda row: order.get(_key(row["program"], row["parameters"]), len(order)))


def _key(program: str, sizes: Mapping[str, int]) -> tuple[object, ...]:
    return program, tuple(sorted(sizes.items()))


def best_of(peers: Mapping[str, float]) -> tuple[str | None, float | None]:
    """Return name and time of the fastest peer, None without any."""
    if not peers:
        return None, None
    name = min(peers, key=lambda peer: peers[peer])
    return name, peers[name]


def geometric_mean(rows: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the geometric mean of the ratios of all rows; None where some row has no ratio, or there are none.

    A row that was not right, or has no peer, must not vanish from the mean: it leaves none.
    """
    ratios = [row["ratio"] for row in rows]
    if not ratios or any(ratio is None or not ratio > 0 for ratio in ratios):
        return None
    return math.exp(math.fsum(math.log(ratio) for ratio in ratios) / len(ratios))


def label_of(row: Mapping[str, Any]) -> str:
    """Return a short name of a row: program and the sizes that the table tells apart."""
    sizes = row["parameters"]
    match row["program"]:
        case "rms_norm_linear" | "gated_mlp":
            text = f"{sizes['batch']}x{sizes['hidden']} -> {sizes['out']}"
        case "lora":
            text = f"{sizes['batch']}x{sizes['hidden']} -> {sizes['out']}, rank {sizes['rank']}"
        case "gqa" | "qk_norm_attention" | "gqa_decode" | "mha" | "mqa" | "attention_safe":
            text = f"batch {sizes['batch']}, {sizes['rows']} rows, ctx {sizes['context']}"
        case _:
            text = " ".join(f"{name}={size}" for name, size in sizes.items())
    if row["program"] == "ntrans":
        text = f"{sizes['batch']}x{sizes['hidden']}"
    return f"{row['program']} {text}"
