"""The optimizer's passes on candidates: what they tell, what is taken back, what is left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import workbench as wb
from workbench.codegen.cuda.choices import DEFAULT_CHOICES, Choices
from workbench.codegen.cuda.host_run import HostOptions, run_on_host
from workbench.codegen.cuda.kernel_level import emit_program
from workbench.codegen.cuda.optimized import emit_optimized
from workbench.core.layouts import SharedLayout, Spread
from workbench.cost.estimate import estimate, features
from workbench.cost.hardware import hardware
from workbench.cost.launch import own_choice
from workbench.device.architecture import architecture
from workbench.errors import EmitError, UnknownNameError
from workbench.optimize.ablation import ablation
from workbench.optimize.optimizer import optimize
from workbench.pipeline import passes
from workbench.pipeline.kernel_schedules import schedules_of
from workbench.pipeline.passes import (
    accesses_by_launch,
    check_passes,
    choices_by_launch,
    choices_from_json,
    choices_to_json,
    modelled_cost,
    note_from_json,
    run_passes,
)
from workbench.pipeline.superoptimize import Options, superoptimize
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.verify.compare import verify

H200, ARCH = hardware("h200"), architecture("h200")
SIZES: dict[str, Any] = {"batch": 16, "hidden": 256, "out": 192}


def passed(graph: KernelGraph, without: tuple[str, ...] = ()) -> passes.Passed:
    choices = [own_choice(node.block) for node in graph.graph_defined]
    return run_passes(graph, choices, ARCH, without=without, verifier=verify)


def test_the_passes_choose_for_every_kernel_and_say_what_they_did() -> None:
    graph = wb.programs.known_good("gqa", context=512)[1]
    found = passed(graph)
    assert len(found.kernel_choices) == len(graph.graph_defined)
    assert [note.name for note in found.notes][:4] == ["threads", "layouts", "order", "memory"]
    assert any("stays in registers" in line for line in found.notes[0].changes)
    assert verify(graph, found.graph).kind == "equal"


@pytest.mark.parametrize("name", ["layouts", "order", "memory", "threads"])
def test_a_pass_that_is_left_out_is_off_in_the_notes_and_in_the_kernels(name: str) -> None:
    graph = wb.programs.known_good("rms_norm_linear", **SIZES)[0]
    off, on = passed(graph, (name,)), passed(graph)
    assert [note.describe() for note in off.notes if not note.is_on] == [f"{name}: off"]
    assert off.program.kernels[0].body != on.program.kernels[0].body
    fields = {"order": "fewest_barriers", "memory": "reuses_memory", "threads": "fuses"}
    if name in fields:
        assert not getattr(off.kernel_choices[0], fields[name])


def test_what_the_emitter_refuses_is_taken_back_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    real = emit_program

    def refusing(graph: KernelGraph, **given: Any) -> Any:
        if any(schedule.choices != DEFAULT_CHOICES for schedule in given["schedules"].values()):
            raise EmitError("not like this", "t0", "otherwise")
        return real(graph, **given)

    monkeypatch.setattr(passes, "emit_program", refusing)
    found = passed(wb.programs.known_good("rms_norm_linear", **SIZES)[0])
    assert found.kernel_choices == ()
    assert "not like this" in found.notes[-1].describe()


def test_choices_that_cost_more_barriers_or_memory_are_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        passes, "choices_by_launch", lambda found: (Choices(fewest_barriers=False),) * len(found.graph.graph_defined)
    )
    found = passed(wb.programs.known_good("rms_norm_linear", **SIZES)[0])
    assert found.kernel_choices == ()
    assert "barriers instead of" in found.notes[-1].headline


def test_the_ablation_foretells_what_layouts_are_worth() -> None:
    """Without layouts rows lie plainly and conflict, which the model prices; other passes it does not look at."""
    graph = wb.programs.known_good("gqa")[0]
    table = ablation(graph, verifier=None, cost=lambda one: modelled_cost(one, hardware=hardware("h200")).total_us)
    loss = table.loss("without layouts")
    assert loss is not None
    assert loss > 0.1
    assert table.loss("without memory") == 0
    cost = modelled_cost(optimize(graph, verifier=None), hardware=hardware("h200"))
    assert cost.total_us == table.rows[0].cost_us == estimate(graph, hardware=hardware("h200")).total_us


def test_the_model_counts_the_conflicts_that_the_host_counts() -> None:
    """Passes over the banks beyond one per 8 x 8 matrix, of a kernel without layouts, to a quarter: warps read q again."""
    sizes = {"heads": 2, "rows": 16, "head_dim": 32, "context": 128}
    graph = next(g for g in wb.programs.known_good("gqa", "standard", "float16", **sizes) if len(g.nodes) == 1)
    optimized = optimize(graph, ("layouts",), verifier=None)
    accesses = accesses_by_launch(optimized.graph, choices_by_launch(optimized))
    counts = dict(features(optimized.graph, hardware("h200"), accesses=accesses).kernels[0][1])
    further = counts["conflict_traffic"] * counts["iterations"] + counts["last_conflict_traffic"]
    kernel = emit_optimized(optimized).kernels[0]
    arrays = [np.zeros(tensor.shape, np.float16) for tensor in (*graph.inputs, *graph.outputs)]
    ran = run_on_host(kernel.source, kernel.launch, arrays, HostOptions())
    assert further * counts["blocks"] / 128 == pytest.approx(ran.ldmatrix_conflicts, rel=0.25)


@pytest.mark.parametrize("is_slower", [True, False])
def test_choices_that_the_model_finds_slower_are_taken_back(is_slower: bool) -> None:
    graph = wb.programs.known_good("rms_norm_linear", **SIZES)[0]
    choices = [own_choice(node.block) for node in graph.graph_defined]

    def cost_us(_: KernelGraph, chosen: tuple[Choices, ...]) -> float:
        return 2.0 if chosen and is_slower else 1.0

    found = run_passes(graph, choices, ARCH, verifier=verify, cost_us=cost_us)
    assert (found.kernel_choices == ()) == is_slower
    assert ("1.00 us by the model instead of 2.00" in found.notes[-1].describe()) == is_slower


def test_rows_that_no_vector_fits_are_not_copied_across(tmp_path: Path) -> None:
    """The layouts of an odd product may be transposed while it is copied; where the model finds that slower, they are not."""
    program = wb.trace(lambda X, W: wb.silu(X @ W), X=(7, 100), W=(100, 33))
    result = superoptimize(
        program, measure=False, out=tmp_path, options=Options(space=wb.Space(max_block_ops=4), keep=3)
    )
    fitted = wb.cost_preset("calibrated")
    for one in result.candidates:
        assert one.cost_us <= estimate(one.graph, hardware=H200, choices=one.choices, preset=fitted).total_us + 1e-9
    assert any("by the model instead of" in note.headline for note in result.best.passes)


def test_unknown_passes_are_told_with_the_names(tmp_path: Path) -> None:
    assert check_passes(["memory", "layouts", "memory"]) == ("layouts", "memory")
    with pytest.raises(UnknownNameError, match=r"no pass speed; .*layouts, order, memory, threads"):
        Options(without=("speed",))
    with pytest.raises(UnknownNameError, match="stable"):
        superoptimize(wb.programs.get("softmax"), without=["stable"], out=tmp_path)


def test_notes_and_choices_come_back_from_plain_data() -> None:
    found = passed(wb.programs.known_good("rms_norm_linear", **SIZES)[0])
    assert [note_from_json(note.to_json()) for note in found.notes] == list(found.notes)
    odd = Choices(order=("a", "b"), layouts=(("x", SharedLayout(-2, Spread.PADDED)),), fuses=False)
    for choices in (*found.kernel_choices, odd):
        assert choices_from_json(choices_to_json(choices)) == choices


def test_schedules_hold_what_the_passes_chose() -> None:
    found = passed(wb.programs.known_good("rms_norm_linear", **SIZES)[0])
    own = tuple(own_choice(node.block) for node in found.graph.graph_defined)
    made = schedules_of(found.graph, own, found.kernel_choices)
    assert [schedule.choices for schedule in made.values()] == list(found.kernel_choices)
    assert all(schedule.choices == DEFAULT_CHOICES for schedule in schedules_of(found.graph, own).values())


def test_candidates_carry_the_passes_and_another_set_of_passes_is_another_request(tmp_path: Path) -> None:
    program = wb.programs.get("rms_norm_linear", **SIZES)
    first = superoptimize(program, measure=False, out=tmp_path, options=Options(keep=2))
    assert "layouts:" in first.best.describe()
    assert "What the optimizer's passes did" in first.explain()
    again = superoptimize(program, measure=False, out=tmp_path, options=Options(keep=2))
    assert again.cached
    assert again.best.passes == first.best.passes
    assert again.best.kernel_choices == first.best.kernel_choices
    other = superoptimize(program, measure=False, out=tmp_path, options=Options(keep=2), without=["layouts"])
    assert not other.cached
    assert "layouts: off" in other.best.describe_passes()
    assert all(one.cost.parts["bank conflicts"] == 0 for one in first.candidates)
    assert any(one.cost.parts["bank conflicts"] > 0 for one in other.candidates)
    back = superoptimize(program, measure=False, out=tmp_path, options=Options(keep=2), without=["layouts"])
    assert back.cached
    assert [one.cost.parts for one in back.candidates] == [one.cost.parts for one in other.candidates]
