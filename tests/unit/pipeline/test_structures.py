"""Which space is searched where none is named: the choice counts the time of all calls, also of those that were stopped."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import workbench as wb
from workbench.pipeline.progress import silent
from workbench.pipeline.run_folder import Request, RunFolder
from workbench.pipeline.structures import HARD_CPU_S, NARROW, find_in_default_space, find_structures, whole_cpu_s
from workbench.search.space import Space
from workbench.ugraph.lax import LaxPart

PART = LaxPart(wb.programs.get("rms_norm_linear", batch=16, hidden=256, out=192), True)


def never() -> bool:
    return False


@pytest.mark.parametrize(("earlier_s", "chosen"), [(None, Space().max_block_ops), (500.0, NARROW)])
def test_a_search_that_was_long_before_it_was_stopped_is_not_taken_for_an_easy_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, earlier_s: float | None, chosen: int
) -> None:
    monkeypatch.setattr("workbench.pipeline.structures.HARD_CPU_S", 20.0)  # a loaded machine makes nothing hard here
    folder = RunFolder(tmp_path, Request(PART.graph, "h200", {}))
    record, seen = folder.record(0), list[int]()

    def stop() -> bool:
        seen.append(1)
        return record.is_file() and '"elapsed_s"' in record.read_text()

    stopped = find_structures(
        PART, Space(max_block_ops=NARROW), seed=0, record=record, progress=silent, is_stopped=stop
    )
    assert stopped.finished is None
    if earlier_s is not None:
        text, count = re.subn(r'"elapsed_s":[0-9.e-]+', f'"elapsed_s":{earlier_s}', record.read_text())
        assert count
        record.write_text(text)
    found = find_in_default_space(PART, 0, folder, seed=0, progress=silent, is_stopped=never)
    assert found.finished is not None
    assert folder.chosen_space(0) == found.space.max_block_ops == chosen


def test_earlier_calls_count_at_the_rate_of_this_one() -> None:
    assert whole_cpu_s(0.2, 0.2, 0.2) == pytest.approx(0.2)
    assert whole_cpu_s(0.1, 0.2, 4.2) == pytest.approx(0.1 + 4.0 / 2)
    assert whole_cpu_s(0.3, 0.2, 1.2) == pytest.approx(1.3)  # several threads: no more than the wall time
    assert whole_cpu_s(0.1, 0.1, 3.0) > HARD_CPU_S
