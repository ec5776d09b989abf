"""Walks chosen for stages: on fragments where a product's result is worked on, on rows elsewhere; readers find results."""

from __future__ import annotations

from tests.unit.codegen.cuda.planned import attention, block_graph, looped_product, planned
from workbench.codegen.cuda.plan import KernelPlan
from workbench.codegen.cuda.stage_walks import only_saves, padded, row_shape
from workbench.codegen.cuda.steps import KeepSink, Section, Stage, leaves
from workbench.codegen.cuda.walks import FragmentWalk, OperandWalk, RowsWalk
from workbench.ugraph.builder import BlockBuilder


def walks(plan: KernelPlan, section: Section) -> list[type]:
    return [type(stage.walk) for stage in plan.stages_of(section)]


def test_results_of_products_are_worked_on_where_they_lie() -> None:
    plan = planned(block_graph(attention, (64, 64), (64, 128), (128, 64), loop=2))
    assert set(walks(plan, Section.LOOP)) == {FragmentWalk}
    assert walks(plan, Section.AFTER) == [FragmentWalk]


def test_prologues_walk_over_operands() -> None:
    plan = planned(block_graph(looped_product, (16, 256), (256, 64), loop=4))
    assert walks(plan, Section.LOOP) == [OperandWalk]


def test_slices_of_the_depth_are_read_from_shared_memory() -> None:
    """Four warps along the depth leave four partial results, which no thread has whole."""
    plan = planned(block_graph(looped_product, (16, 256), (256, 64), loop=4))
    (stage,) = plan.stages_of(Section.AFTER)
    assert isinstance(stage.walk, RowsWalk)
    assert {plan.shared[leaf].slices for leaf in leaves(stage.roots)} == {4}


def test_a_transposed_output_is_written_along_its_contiguous_axis() -> None:
    def fill(block: BlockBuilder) -> None:
        block.save(block.apply("transpose", block.load(0)))

    (stage,) = planned(block_graph(fill, (24, 40))).stages_of(Section.AFTER)
    assert isinstance(stage.walk, RowsWalk)
    assert (stage.space, stage.walk.inner) == ((40, 24), 1)


def test_a_fold_walks_along_its_axis() -> None:
    def fill(block: BlockBuilder) -> None:
        block.save(block.apply("sum", block.load(0), axis=-1) * 2)

    plan = planned(block_graph(fill, (24, 40)))
    fold = plan.stages_of(Section.AFTER)[0]
    assert isinstance(fold.walk, RowsWalk)
    assert fold.walk.inner == 1
    assert fold.walk.lanes > 1


def test_blocks_of_a_cluster_share_what_only_saves() -> None:
    plan = planned(block_graph(looped_product, (16, 256), (256, 64), loop=4, cluster=(2,)), cluster=2)
    stage = plan.stages_of(Section.AFTER)[-1]
    assert only_saves(stage)
    assert isinstance(stage.walk, RowsWalk)
    assert stage.walk.workers == 256
    assert {tile.cluster for tile in plan.shared.values()} == {2}


def test_shapes() -> None:
    assert padded((3, 4), 4) == (1, 1, 3, 4)
    walk = RowsWalk((2, 3, 4), 1, threads=32, width=1)
    assert row_shape((2, 3, 4), walk) == (2, 1, 4)
    stage = Stage(section=Section.AFTER, space=(2,), ragged=(None,), inner=None, sinks=[])
    assert only_saves(stage)
    assert not only_saves(Stage(section=Section.AFTER, space=(2,), ragged=(None,), inner=None, sinks=[object()]))  # type: ignore[list-item]


def test_what_is_kept_beside_large_products_lies_in_shared_memory() -> None:
    def fill(block: BlockBuilder) -> None:
        q, k, v = block.load(0), block.load(1, fmap=1), block.load(2, fmap=0)
        weights = block.apply("exp", q @ k)
        block.save(block.accumulate(weights, "sum_to_columns", columns=64))
        block.save(block.accumulate(weights @ v))

    def kept(rows: int) -> KeepSink:
        plan = planned(block_graph(fill, (rows, 64), (64, 512), (512, 64), loop=4))
        stages = plan.stages_of(Section.LOOP)
        (sink,) = (sink for stage in stages for sink in stage.sinks if isinstance(sink, KeepSink))
        return sink

    assert kept(32).tile is None
    assert kept(64).tile is not None  # 128 floats of products and 32 of these spilled
