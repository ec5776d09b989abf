"""Plans: sections, where values lie, which products follow each other in registers, and what is refused."""

from __future__ import annotations

import pytest

from tests.unit.codegen.cuda.planned import attention, block_graph, looped_product, planned
from workbench.codegen.cuda.plan import KernelPlan
from workbench.codegen.cuda.schedule import Schedule, WarpLayout
from workbench.codegen.cuda.steps import (
    FoldSink,
    HandOverSink,
    KeepSink,
    ProductStep,
    RescaleSink,
    RunningSink,
    SaveSink,
    Section,
    StoreSink,
    leaves,
)
from workbench.codegen.cuda.tile_values import Loaded
from workbench.core.dtypes import DType
from workbench.errors import EmitError
from workbench.ugraph.builder import BlockBuilder


def products_of(plan: KernelPlan, section: Section) -> list[ProductStep]:
    return [step for step in plan.steps[section] if isinstance(step, ProductStep)]


def sinks_of(plan: KernelPlan, section: Section) -> list[object]:
    return [sink for stage in plan.stages_of(section) for sink in stage.sinks]


def test_a_product_adds_to_its_accumulator() -> None:
    plan = planned(block_graph(looped_product, (16, 256), (256, 64), loop=4))
    (product,) = products_of(plan, Section.LOOP)
    assert product.kept is not None
    assert product.c_type == "f16"
    assert [type(sink) for sink in sinks_of(plan, Section.AFTER)] == [SaveSink]


def test_work_on_the_left_operand_moves_into_its_product() -> None:
    """The squares of X are summed from the fragments that the product loads anyway."""
    plan = planned(block_graph(looped_product, (16, 256), (256, 64), loop=4))
    (product,) = products_of(plan, Section.LOOP)
    (prologue,) = product.prologues
    assert [type(sink) for sink in prologue.sinks] == [FoldSink]
    assert plan.steps[Section.LOOP] == [product]


def test_work_that_other_warps_would_repeat_does_not() -> None:
    plan = planned(
        block_graph(looped_product, (16, 256), (256, 64), loop=4),
        schedule=Schedule(layouts={"t0": WarpLayout(1, 4, 1)}),
    )
    (product,) = products_of(plan, Section.LOOP)
    assert product.layout.warp_columns == 4
    assert product.prologues == []
    assert len(plan.steps[Section.LOOP]) == 2


def test_a_product_feeds_the_next_in_registers() -> None:
    plan = planned(block_graph(attention, (64, 64), (64, 128), (128, 64), loop=2))
    first, second = products_of(plan, Section.LOOP)
    assert second.operands[0][0].tile is None
    assert any(isinstance(sink, HandOverSink) for sink in sinks_of(plan, Section.LOOP))
    assert (first.layout.warp_rows, first.layout.row_tiles) == (second.layout.warp_rows, second.layout.row_tiles)


def test_float32_factors_go_through_shared_memory() -> None:
    plan = planned(block_graph(attention, (32, 32), (32, 64), (64, 32), loop=2, dtype=DType.FLOAT32))
    assert all(product.c_type == "float" for product in products_of(plan, Section.LOOP))
    assert any(isinstance(sink, StoreSink) for sink in sinks_of(plan, Section.LOOP))


def test_invariant_values_are_computed_once() -> None:
    """silu(X) is read by the loop but does not change in it; its row sums are wanted after the loop only."""

    def fill(block: BlockBuilder) -> None:
        x, y = block.load(0), block.load(1, fmap=1)
        left = block.apply("silu", x)
        block.save(block.accumulate(block.apply("sum", left @ y, axis=-1)))
        block.save(block.apply("sum", x * x, axis=-1))

    plan = planned(block_graph(fill, (16, 32), (32, 64), loop=2))
    assert [type(sink) for sink in sinks_of(plan, Section.BEFORE)] == [StoreSink]
    assert any(isinstance(sink, FoldSink) for sink in sinks_of(plan, Section.AFTER))


def test_running_maxima_and_rescaled_products_stay_in_the_loop() -> None:
    def fill(block: BlockBuilder) -> None:
        q, k, v = block.load(0), block.load(1, fmap=1), block.load(2, fmap=0)
        scores = q @ k
        largest, shift = block.running_max(scores)
        weights, factor = block.apply("exp", scores - largest), block.apply("exp", shift)
        block.save(block.accumulate(weights @ v, "rescale", rescale=factor))
        block.save(block.accumulate(weights, "rescale_sum", rescale=factor))

    plan = planned(block_graph(fill, (32, 32), (32, 128), (128, 32), loop=4))
    found = {type(sink) for sink in sinks_of(plan, Section.LOOP)}
    assert {RunningSink, RescaleSink, HandOverSink} <= found
    assert not plan.steps[Section.BEFORE]


def test_elementwise_graphs_bypass_shared_memory() -> None:
    def fill(block: BlockBuilder) -> None:
        block.save(block.load(0, imap=(0,)) + block.load(1, imap=(0,)), omap=(0,))

    plan = planned(block_graph(fill, (8, 256), (8, 256), grid=(4,)))
    assert plan.staged == {}
    assert plan.shared_bytes == 0
    assert len(plan.direct) == 2


def test_every_value_that_is_read_can_be_found() -> None:
    for graph in (
        block_graph(looped_product, (16, 256), (256, 64), loop=4),
        block_graph(attention, (20, 24), (24, 70), (70, 24), loop=3),
        block_graph(attention, (20, 24), (24, 70), (70, 24), loop=3, dtype=DType.FLOAT32),
    ):
        plan = planned(graph)
        for section in Section:
            for stage in plan.stages_of(section):
                for leaf in leaves(stage.roots):
                    if isinstance(leaf, Loaded):
                        assert (leaf in plan.staged) != (leaf in plan.direct)


def test_small_tiles_that_are_kept_are_in_registers_and_large_ones_are_not() -> None:
    def fill(block: BlockBuilder) -> None:
        block.save(block.accumulate(block.load(0, fmap=1), "max"))

    def kept(rows: int) -> KeepSink:
        (sink,) = (
            s for s in sinks_of(planned(block_graph(fill, (rows, 64), loop=2)), Section.LOOP) if isinstance(s, KeepSink)
        )
        return sink

    assert kept(32).tile is None
    assert kept(512).tile is not None


def test_refusals_name_node_rule_and_cure() -> None:
    with pytest.raises(EmitError, match="accumulators a thread") as caught:
        planned(block_graph(looped_product, (128, 64), (64, 512), loop=2))
    assert "more threads" in caught.value.cure
    with pytest.raises(EmitError, match="does not divide"):
        planned(
            block_graph(looped_product, (16, 64), (64, 64), loop=2),
            schedule=Schedule(layouts={"t0": WarpLayout(3, 1, 1)}),
        )


def scaled_weight(block: BlockBuilder) -> None:
    """X (g Z) over the loop: Z is scaled before it is multiplied."""
    x, g, z = block.load(0, fmap=1), block.load(1, fmap=0), block.load(2, fmap=0)
    block.save(block.accumulate(x @ block.apply("mul", z, g)))


def test_inputs_of_computed_factors_are_staged_where_there_is_room() -> None:
    def staged(depth: int, columns: int, **schedule: int) -> set[str]:
        graph = block_graph(scaled_weight, (16, 4 * depth), (4 * depth, 1), (4 * depth, columns), loop=4)
        plan = planned(graph, schedule=Schedule(**schedule))  # type: ignore[arg-type]
        return {value.label for value in plan.staged}

    assert staged(256, 64) == {"x", "y", "z"}
    assert staged(256, 80) == {"x", "y", "z"}  # 40 KB a tile
    assert staged(512, 96) == {"x", "y"}  # 96 KB: two do not fit beside their product's factor
    assert staged(256, 80, stages=5) == {"x", "y"}  # five do not


def test_a_loop_stages_what_its_computed_factors_read_though_no_product_does() -> None:
    def fill(block: BlockBuilder) -> None:
        x, z = block.load(0, fmap=1), block.load(1, fmap=0)
        block.save(block.accumulate(block.apply("silu", x) @ block.apply("square", z)))

    plan = planned(block_graph(fill, (16, 256), (256, 32), loop=4))
    assert {value.label for value in plan.staged} == {"x", "y"}
    elementwise = block_graph(lambda block: block.save(block.accumulate(block.load(0, fmap=1))), (16, 256), loop=4)
    assert not planned(elementwise).staged
