"""Equal keys mean equal structures."""

from __future__ import annotations

import pytest

from tests.unit.search.searched import NORM, PROGRAMS, sketches_of
from workbench.errors import NotApplicableError
from workbench.search.canonical import Canonical
from workbench.search.plans import Plan, plans_of
from workbench.search.problem import problem_of
from workbench.search.schedules import first_instance
from workbench.search.space import Space


@pytest.mark.parametrize("name", PROGRAMS)
def test_equal_keys_are_equal_structures(name: str) -> None:
    program = PROGRAMS[name]
    canonical = Canonical()
    hashes: dict[tuple[int, ...], str] = {}
    for plan in plans_of(problem_of(program), Space(max_block_graphs=1)):
        for sketch in sketches_of(program, plan, limit=7):
            try:
                structure = first_instance(sketch).structure_hash
            except NotApplicableError:
                continue
            assert hashes.setdefault(canonical.key(sketch), structure) == structure


def test_a_norm_whole_and_its_parts_are_one() -> None:
    """rms_norm, x / rms(x) and x / sqrt(mean(square(x)) + eps) are three sketches of one structure."""
    canonical = Canonical()
    sketches = sketches_of(NORM, Plan((None,)))
    keys = [canonical.key(sketch) for sketch in sketches]
    names = [{str(edge.operator) for _, edge in sketch.chosen if edge.operator} for sketch in sketches]
    whole = next(key for key, used in zip(keys, names, strict=True) if any("rms_norm" in name for name in used))
    assert keys.count(whole) >= 3
