"""Plans in words: every step, every input and every choice that the text follows is told."""

from __future__ import annotations

from tests.unit.codegen.cuda.planned import attention, block_graph, looped_product, planned
from workbench.codegen.cuda.plan_notes import described, plan_notes, prologue_comment, sink_comment, step_comment
from workbench.codegen.cuda.steps import ProductStep, Section, StoreSink
from workbench.codegen.cuda.tile_values import walk_values
from workbench.core.dtypes import DType


def test_grid_loop_threads_and_memory_are_told() -> None:
    plan = planned(block_graph(looped_product, (16, 256), (256, 64), loop=4, cluster=(2,)), cluster=2)
    first = plan_notes(plan)[0]
    assert first == (
        f"grid 1 x 1 x 1, 4 iterations, shared by clusters of 2 blocks; 128 threads, {plan.stages} stages, "
        f"{plan.shared_bytes:,} B of shared memory"
    )


def test_every_input_and_every_step_has_a_line() -> None:
    plan = planned(block_graph(attention, (20, 24), (24, 70), (70, 24), loop=3, dtype=DType.FLOAT32))
    notes = plan_notes(plan)
    for name in ("x", "y", "z"):
        assert sum(note.startswith(f"{name} [") for note in notes) == 1
    for section in Section:
        lines = [line for step in plan.steps[section] for line in step_comment(plan, step)]
        assert [note.split(": ", 1)[1] for note in notes if note.startswith(section.value)] == lines


def test_every_kind_of_value_can_be_described() -> None:
    plan = planned(block_graph(attention, (20, 24), (24, 70), (70, 24), loop=3))
    for value in walk_values(tuple(saved.operand for saved in plan.lowered.saved)):
        assert value.label in described(value)
        assert str(list(value.shape)) in described(value)


def test_work_on_fragments_is_told_under_its_product() -> None:
    plan = planned(block_graph(looped_product, (16, 256), (256, 64), loop=4))
    (product,) = (step for step in plan.steps[Section.LOOP] if isinstance(step, ProductStep))
    lines = step_comment(plan, product)
    assert "warps: 4 along the depth" in lines[0]
    assert lines[1].startswith("  on its left fragments: ")


def test_a_store_says_as_what() -> None:
    plan = planned(block_graph(attention, (32, 32), (32, 64), (64, 32), loop=2, dtype=DType.FLOAT32))
    (sink,) = (s for stage in plan.stages_of(Section.LOOP) for s in stage.sinks if isinstance(s, StoreSink))
    assert sink_comment(sink).endswith("-> shared memory as float")
    assert "->" not in prologue_comment(sink)
