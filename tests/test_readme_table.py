"""The table and figures of README.md are those of the shipped records."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench.records.measurements import current_rows, measurement_store
from workbench.views.measured_table import markdown_table

BEGIN, END = "<!-- measured: workbench measure --all --replay --table -->", "<!-- end of measured -->"


def test_the_table_is_made_from_the_records(repository: Path) -> None:
    rows = current_rows(measurement_store(repository / "data" / "records" / "h200.jsonl").records())
    readme = (repository / "README.md").read_text(encoding="utf-8")
    if not rows and BEGIN not in readme:
        pytest.skip("nothing was measured yet")
    rows = [row for row in rows if row["table"]]
    shown = readme[readme.index(BEGIN) + len(BEGIN) : readme.index(END)].strip()
    assert shown == markdown_table(rows)
    assert len(rows) == 16
    for name in ("speedups", "floor", "roofline"):
        for theme in ("light", "dark"):
            path = repository / "docs" / "figures" / f"{name}_{theme}.svg"
            assert path.is_file()
    assert "docs/figures/speedups_light.svg" in readme
