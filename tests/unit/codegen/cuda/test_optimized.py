"""Kernels with the optimizer's decisions: right with every pass off, and each pass visible in what they do."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.unit.codegen.cuda.emitting import TOLERANCES, hard_inputs, relative_error
from workbench import programs
from workbench.codegen.cuda.choices import Choices
from workbench.codegen.cuda.emitted import EmittedProgram
from workbench.codegen.cuda.host_program import run_program_on_host
from workbench.codegen.cuda.host_run import HostOptions, run_on_host
from workbench.codegen.cuda.kernel_level import emit_program
from workbench.codegen.cuda.optimized import choices_of, emit_optimized, optimized_schedules
from workbench.codegen.cuda.schedule import Schedule
from workbench.codegen.cuda.storage import from_storage, span, storage_dtype, to_storage
from workbench.core.layouts import DeviceLayout, SharedLayout, Spread
from workbench.interpret.floats import evaluate
from workbench.optimize.layouts import choose_layouts, with_device_layouts
from workbench.optimize.optimizer import PASSES, optimize
from workbench.ugraph import value as op
from workbench.ugraph.builder import KernelBuilder
from workbench.ugraph.kernel_graph import KernelGraph

OFF = [(), ("layouts",), ("order",), ("memory",), ("threads",), PASSES]
SIZES = {"batch": 1, "heads": 2, "rows": 16, "head_dim": 32, "context": 128, "hidden": 64, "out": 48, "rank": 16}


def graphs(name: str) -> list[KernelGraph]:
    sizes = {p.name: SIZES.get(p.name, min(p.default, 32)) for p in programs.parameters(name)}
    return programs.known_good(name, "standard", "float16", **sizes)


def check(program: EmittedProgram, graph: KernelGraph, cache: Path) -> None:
    inputs = hard_inputs(graph)
    right = evaluate(graph, inputs)
    found = run_program_on_host(program, inputs, HostOptions(cache_folder=cache))
    tolerance = max(TOLERANCES[tensor.dtype] for tensor in graph.tensors.values())
    for tensor, stored, expected in zip(graph.outputs, found, right, strict=True):
        assert relative_error(from_storage(stored, tensor.dtype), expected) < tolerance


CASES = [
    ("gqa", ()), ("gqa", ("layouts",)), ("gqa", ("threads",)), ("rms_norm_linear", ("threads",)), ("rms_norm_linear", PASSES),
    ("gated_mlp", ("order",)), ("lora", PASSES), ("qk_norm_attention", ()), ("softmax", PASSES),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "without"), CASES, ids=lambda value: value if isinstance(value, str) else "+".join(value)
)
def test_kernels_are_right_with_passes_off(name: str, without: tuple[str, ...], host_cache: Path) -> None:
    graph = min(graphs(name), key=lambda graph: len(graph.nodes))
    check(emit_optimized(optimize(graph, without, verifier=None)), graph, host_cache)


def test_the_stable_rewrite_is_emitted_like_any_other(host_cache: Path) -> None:
    graph = graphs("gqa")[0]
    check(emit_optimized(optimize(graph, verifier=None, stable=True)), graph, host_cache)


def test_an_intermediate_that_is_stored_column_by_column_is_read_so(host_cache: Path) -> None:
    k = KernelBuilder()
    X, W = k.input("X", (32, 64)), k.input("W", (64, 48))
    b = k.block(X, W, grid=(2,), loop=2)
    b.save(b.accumulate(b.load(X, imap=(0,), fmap=1) @ b.load(W, fmap=0)), omap=(0,))
    (made,) = b.finish(names=["T"])
    b = k.block(made, grid=(2,))
    b.save(op.exp(b.load(made, imap=(0,))), omap=(0,))
    k.output(*b.finish())
    graph = k.build()
    choice = choose_layouts(graph, pins={("T",): DeviceLayout(-2)})
    moved = with_device_layouts(graph, choice)
    assert moved.tensors["T"].strides == (1, 32)
    check(emit_program(moved), graph, host_cache)


def barriers(program: EmittedProgram) -> int:
    return sum(kernel.body.count("block_barrier();") for kernel in program.kernels)


def stored(program: EmittedProgram) -> int:
    return sum(kernel.body.count("-> shared memory as") for kernel in program.kernels)


def shared(program: EmittedProgram) -> int:
    return sum(kernel.launch.shared_bytes for kernel in program.kernels)


@pytest.mark.parametrize("name", ["gqa", "rms_norm_linear", "gated_mlp"])
def test_each_pass_shows_in_the_kernels(name: str) -> None:
    graph = graphs(name)[-1]
    made = {off: emit_optimized(optimize(graph, off, verifier=None)) for off in OFF}
    whole = made[()]
    assert barriers(made["order",]) > barriers(whole)
    assert shared(made["memory",]) >= shared(whole)
    assert stored(made["threads",]) > stored(whole)
    assert "SharedTile<f16" in whole.kernels[0].body
    assert any(", false, " in kernel.body for kernel in made["layouts",].kernels)


def test_all_passes_together_are_no_worse_than_what_the_emitter_does_by_itself() -> None:
    for name in ("gqa", "gated_mlp", "rms_norm_linear"):
        graph = graphs(name)[-1]
        whole, plain = emit_optimized(optimize(graph, verifier=None)), emit_program(graph)
        assert barriers(whole) <= barriers(plain)
        assert shared(whole) <= shared(plain) + 128  # a tile that needs no swizzle keeps its odd rows


def barriers_in_loop(body: str) -> int:
    """Barriers of one iteration, read off the text."""
    start = body.index("for (int step = first")
    end = body.index("\n  }\n", start)
    return body[start:end].count("block_barrier();")


def test_the_barriers_of_an_iteration_are_as_many_as_the_optimizer_foresees() -> None:
    """It counts them on the µGraph, the emitter on its own steps and tiles.

    They differ where the emitter stores what registers could hand over: a product of LoRA's, numbers of columns that are
    costly to compute again.
    """
    same, other = 0, 0
    for name in programs.names():
        for graph in programs.known_good(name):
            optimized = optimize(graph, verifier=None)
            program = emit_optimized(optimized)
            for kernel, launch in zip(program.kernels, optimized.graph.graph_defined, strict=True):
                if "for (int step = first" not in kernel.body:
                    continue
                if barriers_in_loop(kernel.body) == optimized.blocks[launch.results[0].name].order.loop:
                    same += 1
                else:
                    other += 1
    assert same >= 3 * other
    assert same + other >= 20


def conflicts(program: EmittedProgram, graph: KernelGraph, cache: Path) -> int:
    """Passes over the banks beyond one per 8 x 8 matrix, counted while the first kernel runs on the host."""
    kernel, inputs = program.kernels[0], dict(zip((t.name for t in graph.inputs), hard_inputs(graph), strict=True))
    arguments: list[Any] = []
    for parameter, name in zip(kernel.parameters, program.steps[0].arguments, strict=True):  # type: ignore[union-attr]
        tensor = parameter.tensor
        memory = np.zeros(span(tensor), storage_dtype(tensor.dtype))
        if not parameter.is_output:
            memory[:] = to_storage(inputs[name], tensor.dtype).ravel()
        arguments.append(memory)
    return run_on_host(kernel.source, kernel.launch, arguments, HostOptions(cache_folder=cache)).ldmatrix_conflicts


def test_chosen_layouts_have_no_bank_conflicts_and_plain_rows_do(host_cache: Path) -> None:
    """The host counts what `optimize/banks.py` predicts."""
    graph = next(g for g in graphs("gqa") if len(g.nodes) == 1)
    assert conflicts(emit_optimized(optimize(graph, verifier=None)), graph, host_cache) == 0
    assert conflicts(emit_optimized(optimize(graph, ("layouts",), verifier=None)), graph, host_cache) > 0
    padded = Choices(layouts=tuple((name, SharedLayout(-1, Spread.PADDED)) for name in ("q", "k", "v")))
    program = emit_program(graph, schedules={"O": Schedule(choices=padded)})
    check(program, graph, host_cache)
    assert conflicts(program, graph, host_cache) == 0


def test_choices_are_plain_data() -> None:
    graph = graphs("gqa")[0]
    optimized = optimize(graph, verifier=None)
    schedules = optimized_schedules(optimized, {"O": Schedule(threads=256)})
    assert set(schedules) == {launch.results[0].name for launch in graph.graph_defined}
    assert pickle.loads(pickle.dumps(schedules)) == schedules
    assert schedules["O"].threads == 256
    made = choices_of(optimized, optimized.graph.graph_defined[0])
    assert made.layout("k") == SharedLayout(-1, Spread.SWIZZLED)
    assert made.layout("nothing") is None
