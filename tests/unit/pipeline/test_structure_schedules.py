"""Schedules of many structures: the order is that of all of them sorted, and few structures are enumerated for it."""

from __future__ import annotations

from functools import cache
from itertools import islice
from typing import Any

import pytest

import workbench as wb
from workbench.cost.hardware import hardware
from workbench.cost.presets import preset
from workbench.cost.schedules import ScheduleSpace
from workbench.errors import NotApplicableError
from workbench.pipeline.candidate import Refusal
from workbench.pipeline.structure_schedules import PER_TILING, StructureRow, cheapest_proposals, cheapest_rows
from workbench.pipeline.tuning import Target
from workbench.search.searching import search
from workbench.search.space import Space
from workbench.search.summary import Structure, collect
from workbench.ugraph.builder import KernelBuilder

TARGET = Target("h200", hardware("h200"), preset("calibrated"))
PROGRAMS: dict[str, Any] = {
    "rms_norm_linear": {"batch": 16, "hidden": 256, "out": 192},
    "gqa": {"heads": 1, "rows": 32, "head_dim": 32, "context": 256},
    "lora": {"batch": 16, "hidden": 64, "out": 64, "rank": 8},
}


@cache
def structures_of(name: str) -> tuple[Structure, ...]:
    space = Space(max_block_ops=8)
    return tuple(collect(search(wb.programs.get(name, **PROGRAMS[name]), space=space), space).structures)


def product_of_a_context() -> Structure:
    """Return a structure that no schedule fits: every block holds the whole of W."""
    kernel = KernelBuilder()
    x, w = kernel.input("X", (16, 4096)), kernel.input("W", (4096, 4096))
    block = kernel.block(x, w, grid=(16,))
    product = block.load(x, imap=(0,)) @ block.load(w)
    block.save(block.apply("sum", product, axis=-1), omap=(0,))
    kernel.output(*block.finish())
    return Structure(kernel.build(), 2, 1)


def key(found: StructureRow) -> tuple[str, int, float]:
    return found.space.graph.structure_hash, found.rank, found.row.cost_us


@pytest.mark.parametrize("name", PROGRAMS)
def test_rows_come_as_if_all_had_been_enumerated_and_sorted(name: str) -> None:
    structures = structures_of(name)
    every = []
    for number, structure in enumerate(structures):
        try:
            space = ScheduleSpace(structure.graph, hardware=TARGET.hardware, preset=TARGET.preset)
        except NotApplicableError:
            continue
        for rank, row in enumerate(space.best(3, per_tiling=PER_TILING)):
            every.append((row.cost_us, number, (structure.structure_hash, rank, row.cost_us)))
    found = [key(one) for one in cheapest_rows(structures, TARGET, per_structure=3)]
    assert found == [last for _, _, last in sorted(every)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_first_few_are_known_before_all_structures_are_enumerated(name: str) -> None:
    structures, told = structures_of(name), list[int]()
    every = [key(one) for one in cheapest_rows(structures, TARGET, per_structure=3)]
    first = [key(one) for one in islice(cheapest_rows(structures, TARGET, per_structure=3, tell=told.append), 4)]
    assert first == every[:4]
    assert told == list(range(len(told)))
    assert len(told) < len(structures)


def test_what_no_schedule_fits_is_refused_with_the_reason_and_the_others_go_on() -> None:
    refused = list[Refusal]()
    structures = [product_of_a_context(), *structures_of("gqa")[:2]]
    proposals = list(
        cheapest_proposals(structures, TARGET, per_structure=2, tell=lambda number: None, refuse=refused.append)
    )
    (refusal,) = refused
    assert (refusal.stage, refusal.structure_hash) == ("schedule", structures[0].structure_hash)
    assert "shared memory" in refusal.reason
    assert {one.family for one in proposals} == {one.structure_hash for one in structures[1:]}
    first = proposals[0].realize()
    assert first.cost.total_us == pytest.approx(proposals[0].cost_us, rel=1e-9)
