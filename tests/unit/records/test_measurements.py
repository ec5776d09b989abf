"""Rows of measurements: the table's sixteen, the last of each counts, a missing ratio leaves no mean."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import workbench as wb
from tests.unit.records.measured_rows import made_rows
from workbench.records.measurements import best_of, current_rows, geometric_mean, label_of, measurement_store
from workbench.records.table_rows import TABLE_ROWS, table_row


def test_the_table_has_sixteen_rows_of_programs_that_exist() -> None:
    assert len(TABLE_ROWS) == 16
    assert len({row.label for row in TABLE_ROWS}) == 16
    for row in TABLE_ROWS:
        assert {one.name for one in wb.programs.parameters(row.program)} == set(row.sizes)
        assert row.floor_us < row.target_us < row.best_peer_us
    goals = [row.best_peer_us / row.target_us for row in TABLE_ROWS]
    assert math.exp(sum(map(math.log, goals)) / 16) == pytest.approx(1.7, abs=0.05)


def test_a_row_is_found_by_its_sizes() -> None:
    row = table_row("ntrans", {"hidden": 4096, "batch": 64})
    assert row is not None
    assert row.best_peer_us == 3.6
    assert table_row("ntrans", {"hidden": 4096, "batch": 65}) is None


def test_records_round_trip_and_the_last_counts(tmp_path: Path) -> None:
    store = measurement_store(tmp_path / "h200.jsonl")
    rows = made_rows()
    for row in reversed(rows):
        store.append(row)
    store.append(rows[3] | {"ours_us": 1.0})
    other = rows[0] | {"parameters": {"batch": 3, "hidden": 8, "out": 8}, "table": False}
    store.append(other)
    found = current_rows(store.records())
    assert [(row["program"], row["parameters"]) for row in found[:16]] == [
        (r.program, dict(r.sizes)) for r in TABLE_ROWS
    ]
    assert found[3]["ours_us"] == 1.0
    assert len(found) == 17


@pytest.mark.parametrize(
    ("ratios", "mean"), [([2.0, 0.5], 1.0), ([1.0, 8.0, 1.0], 2.0), ([2.0, None], None), ([], None), ([0.0], None)]
)
def test_the_mean_is_geometric_and_complete(ratios: list[Any], mean: float | None) -> None:
    found = geometric_mean([{"ratio": ratio} for ratio in ratios])
    assert found == (None if mean is None else pytest.approx(mean))


def test_the_best_peer_is_the_fastest() -> None:
    assert best_of({"a": 2.0, "b": 1.5}) == ("b", 1.5)
    assert best_of({}) == (None, None)


def test_labels_tell_the_rows_apart() -> None:
    labels = [label_of({"program": row.program, "parameters": row.sizes}) for row in TABLE_ROWS]
    assert len(set(labels)) == 16
    assert labels[0] == "rms_norm_linear 2x4096 -> 4096"
