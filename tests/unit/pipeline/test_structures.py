"""Which space is searched where none is named: the choice follows from what a narrow search meets, not from a clock."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import workbench as wb
from workbench.pipeline.progress import silent
from workbench.pipeline.run_folder import Request, RunFolder
from workbench.pipeline.structures import (
    MANY_STRUCTURES,
    NARROW,
    OUT_OF_REACH,
    PartFound,
    find_in_default_space,
    find_structures,
    is_large,
)
from workbench.search.space import Space
from workbench.search.summary import Structure
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.lax import LaxPart

PART = LaxPart(wb.programs.get("rms_norm_linear", batch=16, hidden=256, out=192), True)
WIDE = Space().max_block_ops


def never() -> bool:
    return False


def found_in(part: LaxPart, folder: Path) -> PartFound:
    return find_in_default_space(
        part, 0, RunFolder(folder, Request(part.graph, "h200", {})), seed=0, progress=silent, is_stopped=never
    )


@pytest.mark.parametrize(
    ("program", "chosen"),
    [
        (lambda: PART.graph, WIDE),
        (lambda: wb.programs.get("qk_norm_attention"), WIDE),  # its best µGraph takes more than 8 operators
        (lambda: wb.programs.get("lora"), WIDE),
        (lambda: wb.programs.get("ntrans"), NARROW),  # minutes in the wide space
    ],
    ids=["rms_norm_linear", "qk_norm_attention", "lora", "ntrans"],
)
def test_roots_of_sums_stay_in_the_narrow_space(
    program: Callable[[], KernelGraph], chosen: int, tmp_path: Path
) -> None:
    found = found_in(LaxPart(program(), True), tmp_path)
    assert found.finished is not None
    assert found.structures
    assert found.space.max_block_ops == chosen
    assert RunFolder(tmp_path, Request(PART.graph, "h200", {})).chosen_space(0) == chosen


def test_a_space_is_large_by_what_is_out_of_reach_or_by_its_structures() -> None:
    one = Structure(PART.graph, 1, 1)
    few, many = [one] * MANY_STRUCTURES, [one] * (MANY_STRUCTURES + 1)
    space = Space(max_block_ops=NARROW)
    assert not is_large(PartFound(PART, space, few, kept=10, out_of_reach=10 * OUT_OF_REACH))
    assert is_large(PartFound(PART, space, few, kept=10, out_of_reach=10 * OUT_OF_REACH + 1))
    assert is_large(PartFound(PART, space, many, kept=10))
    assert not is_large(PartFound(PART, space))


def test_a_search_that_was_stopped_and_continued_counts_what_one_that_was_not_counts(tmp_path: Path) -> None:
    record, space = tmp_path / "search.jsonl", Space(max_block_ops=NARROW)

    def stop() -> bool:
        return record.is_file() and '"elapsed_s"' in record.read_text()

    stopped, continued, whole = (
        find_structures(PART, space, seed=0, record=kept, progress=silent, is_stopped=is_stopped)
        for kept, is_stopped in ((record, stop), (record, never), (None, never))
    )
    assert stopped.finished is None
    assert 0 < stopped.kept < continued.kept
    assert (continued.kept, continued.out_of_reach) == (whole.kept, whole.out_of_reach)
    assert whole.out_of_reach > 0
