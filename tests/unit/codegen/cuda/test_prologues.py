"""Work on a left operand in its fragments: when it moves into the product, when it must not, and that both are right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.codegen.cuda.emitting import check_graph
from tests.unit.codegen.cuda.planned import block_graph, planned
from workbench.codegen.cuda.steps import ProductStep, Section, StoreSink
from workbench.core.dtypes import DType
from workbench.ugraph.builder import BlockBuilder
from workbench.ugraph.kernel_graph import KernelGraph


def fused(graph: KernelGraph) -> list[str]:
    """What the loop's products do on their left fragments."""
    plan = planned(graph)
    steps = [step for step in plan.steps[Section.LOOP] if isinstance(step, ProductStep)]
    return [type(sink).__name__ for step in steps for stage in step.prologues for sink in stage.sinks]


def silu(block: BlockBuilder) -> None:
    block.save(block.accumulate(block.apply("silu", block.load(0, fmap=1)) @ block.load(1, fmap=0)))


def weighted_and_summed(block: BlockBuilder) -> None:
    """x * g feeds the product, the squares of x are summed on the way; g runs along the depth."""
    x, w, g = block.load(0, fmap=1), block.load(1, fmap=0), block.load(2, fmap=0)
    block.save(block.accumulate((x * g) @ w) / block.accumulate(x, "rms"))


def maximum_of_rows(block: BlockBuilder) -> None:
    x = block.load(0, fmap=1)
    block.save(block.accumulate(x @ block.load(1, fmap=0)) + block.accumulate(x, "max_dim"))


def read_twice(block: BlockBuilder) -> None:
    """The stored operand feeds two products, so it cannot live in the fragments of one."""
    left = block.apply("silu", block.load(0, fmap=1))
    block.save(block.accumulate(left @ block.load(1, fmap=0)) + block.accumulate(left @ block.load(2, fmap=0)))


def transposed(block: BlockBuilder) -> None:
    left = block.apply("transpose", block.apply("silu", block.load(0, fmap=0)))
    block.save(block.accumulate(left @ block.load(1, fmap=0)))


CASES: dict[str, tuple[Callable[[BlockBuilder], None], tuple[tuple[int, ...], ...], set[str]]] = {
    "silu": (silu, ((13, 250), (250, 24)), {"StoreSink"}),
    "weighted": (weighted_and_summed, ((13, 256), (256, 24), (256,)), {"StoreSink", "FoldSink"}),
    "maximum": (maximum_of_rows, ((13, 256), (256, 24)), {"FoldSink"}),
    "read twice": (read_twice, ((13, 64), (64, 24), (64, 24)), set()),
    "transposed": (transposed, ((64, 13), (64, 24)), set()),
}


@pytest.mark.parametrize("name", CASES)
def test_what_moves_into_the_product(name: str, host_cache: Path) -> None:
    fill, shapes, expected = CASES[name]
    graph = block_graph(fill, *shapes, loop=2)
    assert set(fused(graph)) == expected
    check_graph(graph, host_cache)


@pytest.mark.parametrize("name", ["silu", "weighted"])
def test_float32_stays_outside(name: str, host_cache: Path) -> None:
    """Split tf32 fragments hold no elements that could be worked on."""
    fill, shapes, _ = CASES[name]
    graph = block_graph(fill, *shapes, loop=2, dtype=DType.FLOAT32)
    assert fused(graph) == []
    check_graph(graph, host_cache)


def test_the_tile_of_a_fused_operand_is_gone() -> None:
    graph = block_graph(silu, (13, 256), (256, 24), loop=2)
    plan = planned(graph)
    stored = [s for stage in plan.stages_of(Section.LOOP) for s in stage.sinks if isinstance(s, StoreSink)]
    assert len(stored) == 1
    assert stored[0].tile not in plan.tiles
    assert stored[0].tile.offset is None
