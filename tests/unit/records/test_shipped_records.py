"""What ships in data/records is whole: no damaged line, every candidate loads and answers for its program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import workbench as wb
from workbench.commands.measure import schedule_of
from workbench.records.candidates import find_candidates, shipped_candidates
from workbench.records.measurements import measurement_store
from workbench.records.table_rows import TABLE_ROWS
from workbench.shipped import shipped_path


def test_candidates_are_whole_and_certified() -> None:
    store = shipped_candidates()
    contents = store.read()
    assert not contents.damaged
    assert all(record["certificate"]["verdict"] == "equal" for record in contents.records)
    found = 0
    programs = {record["program_hash"]: wb.loads(record["program"])[0] for record in contents.records}
    for row in TABLE_ROWS:
        sizes: dict[str, Any] = {**row.sizes}
        program = wb.programs.get(row.program, **sizes)
        assert program.hash in programs
    for program in programs.values():
        candidates = find_candidates([store], program, device="h200", version=wb.__version__)
        found += len(candidates)
        for candidate in candidates:
            kernels = {tensor.name for node in candidate.graph.nodes for tensor in node.results}
            assert set(candidate.schedules) <= kernels
            for fields in candidate.schedules.values():
                schedule_of(fields)
    assert found == len(contents.records)


def test_measurements_are_whole() -> None:
    path = Path(str(shipped_path("data", "records", "h200.jsonl")))
    assert not measurement_store(path).read().damaged
