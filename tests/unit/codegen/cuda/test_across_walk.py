"""Folds across the contiguous axis: when columns are dealt to threads, that each element counts once, that rows stay a loop."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.codegen.cuda.emitting import check_graph
from tests.unit.codegen.cuda.planned import block_graph, node_of, planned
from tests.unit.codegen.cuda.test_walks import owners
from workbench.codegen.cuda.across_walk import AcrossWalk
from workbench.codegen.cuda.kernel import emit_block
from workbench.codegen.cuda.steps import Section
from workbench.core.dtypes import DType
from workbench.ugraph.builder import BlockBuilder


def column_sums(block: BlockBuilder) -> None:
    block.save(block.apply("sum", block.load(0), axis=-2))


@pytest.mark.parametrize(("space", "width"), [((7, 32), 4), ((64, 64), 8), ((5, 512), 4), ((130, 16), 4)])
def test_each_element_is_visited_once(space: tuple[int, int], width: int, host_cache: Path) -> None:
    who = owners(AcrossWalk(space, threads=128, width=width), 128, host_cache)
    assert (who[:, 0] == who[:, width - 1]).all()


@pytest.mark.parametrize(
    ("shape", "is_across"), [((40, 64), True), ((40, 128), True), ((40, 63), False), ((40, 2), False)]
)
@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.FLOAT32], ids=lambda dtype: dtype.value)
def test_where_it_is_taken(shape: tuple[int, int], is_across: bool, dtype: DType, host_cache: Path) -> None:
    graph = block_graph(column_sums, shape, dtype=dtype)
    fold = planned(graph).stages_of(Section.AFTER)[0]
    assert isinstance(fold.walk, AcrossWalk) is is_across
    check_graph(graph, host_cache)


def test_many_rows_are_not_unrolled() -> None:
    body = emit_block(node_of(block_graph(column_sums, (2**16, 64)))).body
    assert "#pragma unroll 4\n    for (int rr" in body
