"""What was found and measured: schemas, append-only store."""

from __future__ import annotations

from workbench.records.candidates import (
    StoredCandidate,
    candidate_store,
    find_candidates,
    save_candidate,
    shipped_candidates,
)
from workbench.records.measurements import (
    current_rows,
    geometric_mean,
    label_of,
    measurement_store,
    shipped_measurements,
)
from workbench.records.store import RecordStore
from workbench.records.table_rows import TABLE_ROWS, TableRow

__all__ = [
    "TABLE_ROWS",
    "RecordStore",
    "StoredCandidate",
    "TableRow",
    "candidate_store",
    "current_rows",
    "find_candidates",
    "geometric_mean",
    "label_of",
    "measurement_store",
    "save_candidate",
    "shipped_candidates",
    "shipped_measurements",
]
