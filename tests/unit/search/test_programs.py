"""Programs that are in no list: the fused µGraph is found, whatever the program's names and order, and nothing aborts."""

from __future__ import annotations

import pytest

from tests.unit.search.fused_graphs import CASES, Fused
from workbench.search.engine import search
from workbench.search.space import Space
from workbench.search.summary import Found, collect
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.verify.compare import verify


def found_for(program: KernelGraph, space: Space | None = None) -> Found:
    space = space or Space()
    return collect(search(program, space=space), space)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_the_fused_graph_is_found(case: Fused) -> None:
    program, fused = case.program(), case.graph()
    assert verify(program, fused, shapes="reduced").kind == "equal"  # what a person wrote is right
    found = found_for(program, Space(max_block_graphs=1) if case.is_wide else None)
    assert not found.refused
    assert fused.structure_hash in {one.structure_hash for one in found.structures}


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in CASES if case.is_wide], ids=lambda case: case.name)
def test_wide_programs_are_searched_in_the_default_space(case: Fused) -> None:
    found = found_for(case.program())
    assert not found.refused
    assert case.graph().structure_hash in {one.structure_hash for one in found.structures}
