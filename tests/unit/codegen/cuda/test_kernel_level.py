"""Whole programs as steps: order, names, buffers that live as long as they are read, an input that is an output."""

from __future__ import annotations

from itertools import combinations

import pytest

from tests.unit.codegen.cuda.host_check import buffer_problems
from workbench import programs
from workbench.codegen.cuda.emitted import Buffer, EmittedProgram, KernelLaunch, LibraryMatmul
from workbench.codegen.cuda.kernel_level import buffer_bytes, emit_program, step_tensors
from workbench.codegen.cuda.schedule import Schedule
from workbench.core.dtypes import DType
from workbench.core.tensors import DeviceTensor
from workbench.errors import EmitError
from workbench.ugraph.builder import KernelBuilder
from workbench.ugraph.kernel_graph import KernelGraph


def chain() -> KernelGraph:
    """exp, a product, a row softmax, another product: every kind of unit."""
    kernel = KernelBuilder("chain")
    x, w, v = kernel.input("X", (8, 32)), kernel.input("W", (32, 24)), kernel.input("V", (24, 16))
    scores = kernel.apply("exp", x) @ w
    kernel.output(kernel.apply("softmax", scores, axis=-1) @ v, x)
    return kernel.build()


def kinds(program: EmittedProgram) -> list[str]:
    return [type(step).__name__ for step in program.steps]


@pytest.mark.parametrize("name", programs.names())
@pytest.mark.parametrize("library", [True, False])
def test_every_program_uses_its_buffers_rightly(name: str, library: bool) -> None:
    assert buffer_problems(emit_program(programs.get(name), library=library)) == []


def test_steps_in_order() -> None:
    program = emit_program(chain())
    assert kinds(program) == ["KernelLaunch", "LibraryMatmul", "KernelLaunch", "LibraryMatmul", "KernelLaunch"]
    assert kinds(emit_program(chain(), library=False)) == ["KernelLaunch"] * 5
    assert len(program.library_calls) == 2
    assert all(kernel.products == 0 for kernel in program.kernels)


def test_an_input_that_is_an_output_is_copied() -> None:
    program = emit_program(chain())
    assert program.outputs[1] == "X_copy"
    assert program.buffer("X_copy").role == "output"
    last = program.steps[-1]
    assert isinstance(last, KernelLaunch)
    assert last.arguments == ("X", "X_copy")


def test_intermediates_lie_in_one_workspace_and_are_used_again() -> None:
    program = emit_program(chain())
    between = [buffer for buffer in program.buffers if buffer.role == "intermediate"]
    assert all(buffer.offset is not None and buffer.offset % 256 == 0 for buffer in between)
    assert program.workspace_bytes < sum(-(-buffer_bytes(b.tensor) // 256) * 256 for b in between)
    for one, other in combinations(between, 2):
        assert not (lives_with(one, other) and shares_bytes(one, other))


def lives_with(one: Buffer, other: Buffer) -> bool:
    return one.first <= other.last and other.first <= one.last


def shares_bytes(one: Buffer, other: Buffer) -> bool:
    assert one.offset is not None
    assert other.offset is not None
    return one.offset < other.offset + buffer_bytes(other.tensor) and other.offset < one.offset + buffer_bytes(
        one.tensor
    )


def test_kernel_names_are_single_and_say_what_they_do() -> None:
    names = [kernel.name for kernel in emit_program(chain(), library=False).kernels]
    assert len(names) == len(set(names))
    assert any(name.startswith("exp") for name in names)
    assert any(name.startswith("matmul") for name in names)


def test_schedules_are_found_by_the_first_result() -> None:
    graph = chain()
    result = graph.nodes[0].results[0].name
    usual, other = emit_program(graph), emit_program(graph, schedules={result: Schedule(fast_math=False)})
    assert usual.kernels[0].schedule.fast_math is True
    assert other.kernels[0].schedule.fast_math is False
    assert [kernel.body for kernel in usual.kernels[1:]] == [kernel.body for kernel in other.kernels[1:]]


def test_what_outputs_do_not_need_is_left_out() -> None:
    kernel = KernelBuilder("dead")
    x = kernel.input("X", (4, 4))
    kernel.apply("exp", x)
    kernel.output(kernel.apply("relu", x))
    (step,) = emit_program(kernel.build()).steps
    assert step_tensors(step)[0] == ["X"]


def test_bytes_behind_strides() -> None:
    assert buffer_bytes(DeviceTensor("X", (3, 2), DType.FLOAT16, (10, 1))) == 2 * 22
    assert buffer_bytes(DeviceTensor("X", (), DType.FLOAT32)) == 4


def test_float64_names_the_tensor() -> None:
    kernel = KernelBuilder("wide")
    kernel.output(kernel.apply("exp", kernel.input("X", (4, 4), DType.FLOAT64)))
    with pytest.raises(EmitError, match="float64 is not claimed"):
        emit_program(kernel.build())


def test_products_of_mixed_strides_are_our_own() -> None:
    kernel = KernelBuilder("strided")
    x, w = kernel.input("X", (8, 16), DType.FLOAT16, (40, 2)), kernel.input("W", (16, 8), DType.FLOAT16)
    kernel.output(x @ w)
    (step,) = emit_program(kernel.build()).steps
    assert not isinstance(step, LibraryMatmul)
    assert step.kernel.products == 1
    assert step.kernel.inputs[0].tensor.strides == (40, 2)


def of_split() -> EmittedProgram:
    """Attention with keys split over blocks, then the kernel that combines them."""
    graph = next(g for g in programs.known_good("gqa", heads=2, rows=16, head_dim=64, context=512) if len(g.nodes) == 2)
    return emit_program(graph)


def test_a_second_kernel_starts_while_the_first_runs() -> None:
    first, second = of_split().kernels
    assert (first.schedule.programmatic, first.schedule.releases) == (False, "start")
    assert (second.schedule.programmatic, second.schedule.releases) == (True, "")
    assert second.body.index("grid_dependency_wait();") < second.body.index("split_products_2_global")
    assert "__restrict__" not in second.body.partition("{")[0]  # it would let reads before the wait


def test_a_kernel_with_a_loop_starts_only_as_others_end() -> None:
    graph = programs.known_good("attention_safe", heads=1, rows=16, head_dim=64, context=256)[0]
    first, second = emit_program(graph).kernels
    assert first.schedule.releases == "end"
    assert first.body.rstrip().endswith("grid_dependency_launch();\n}")
    assert second.schedule.programmatic


def test_intermediates_do_not_decide_on_fast_instructions() -> None:
    assert all(kernel.schedule.fast_math for kernel in of_split().kernels)
    wide = programs.known_good("gqa", "standard", "float32", heads=2, rows=16, head_dim=64, context=512)[0]
    assert not any(kernel.schedule.fast_math for kernel in emit_program(wide).kernels)
