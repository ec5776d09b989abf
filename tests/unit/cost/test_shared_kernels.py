"""What the counts know of how an emitter works: shared kernels, tiles that are not staged, wide factors, small pieces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import workbench as wb
from tests.unit.cost.example_graphs import split_attention
from workbench.codegen.cuda.host_program import run_program_on_host
from workbench.codegen.cuda.kernel_level import emit_program
from workbench.codegen.cuda.schedule import Schedule
from workbench.cost.estimate import Features, estimate, features, price
from workbench.cost.hardware import hardware
from workbench.cost.launch import LaunchChoice
from workbench.cost.presets import preset
from workbench.ugraph.builder import KernelBuilder
from workbench.ugraph.kernel_graph import KernelGraph

H200, FITTED = hardware("h200"), preset("calibrated")


@pytest.mark.parametrize("name", wb.programs.names())
def test_a_program_as_written_has_as_many_kernels_as_the_emitter_writes(name: str) -> None:
    program = wb.programs.get(name)
    assert len(features(program, H200).kernels) == len(emit_program(program).steps)


@pytest.mark.parametrize(
    ("program", "kernels"),
    [
        (lambda x: wb.reshape(wb.softmax(wb.reshape(wb.softmax(x), (4, 8, 32)), axis=1), (2, 512)), 2),
        (lambda x: wb.softmax(wb.reshape(x, (4, 8, 32)), axis=1), 1),
        (lambda x: (x, wb.softmax(wb.reshape(x, (4, 8, 32)), axis=1)), 2),  # x is copied
        (lambda x: wb.reshape(x, (4, 256)), 1),  # an output has memory of its own
        (lambda x: (s := wb.softmax(x), wb.reshape(s, (4, 256))), 2),  # two of them too
        (lambda x: wb.reshape(x @ x, (4, 256)), 2),  # the library takes a tensor by its own shape
        (lambda x: (wb.exp(x), 3.0), 2),  # a constant that is returned is written
    ],
)
def test_a_reshape_is_no_kernel_where_its_result_can_have_the_same_memory(
    program: Callable[[Any], Any], kernels: int
) -> None:
    graph = wb.trace(program, x=(32, 32))
    emitted = emit_program(graph)
    assert len(features(graph, H200).kernels) == len(emitted.steps) == kernels
    array = np.random.default_rng(0).uniform(-0.5, 0.5, (32, 32)).astype(np.float16).astype(np.float64)
    for ours, theirs in zip(run_program_on_host(emitted, [array]), wb.evaluate(graph, [array]), strict=True):
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=2e-3, atol=1e-4)


def test_a_chain_of_elementwise_operators_is_one_kernel_that_moves_its_ends_only() -> None:
    program = wb.trace(lambda X, Y: wb.exp(wb.relu(X) * Y) + Y, X=(64, 256), Y=(64, 256), dtype="float16")
    ((_, counts),) = features(program, H200).kernels
    assert counts["unique_bytes"] == 2 * 64 * 256 * 2
    assert counts["stored_bytes"] == 64 * 256 * 2
    assert counts["handed_bytes"] == 0


def scaled(*, factor: str, wide: bool = False, columns: int = 64, threads: int = 128) -> KernelGraph:
    """Return (X * g) @ W or X @ (g * W), the inner axis looped. factor: "left", "right" or "none" is worked on first."""
    kernel = KernelBuilder("scaled")
    x = kernel.input("X", (16, 1024), "float32" if wide else "float16")
    g = kernel.input("G", (1024,) if factor == "left" else (1024, 1), "float16")
    w = kernel.input("W", (1024, 256), "float16")
    block = kernel.block(x, g, w, grid=(256 // columns,), loop=4, threads=(threads,))
    a, b, c = block.load(x, fmap=1), block.load(g, fmap=0), block.load(w, imap=(1,), fmap=0)
    if factor == "left":
        a = a * b
    elif factor == "right":
        c = b * c
    block.save(block.accumulate(a @ c), omap=(1,))
    kernel.output(*block.finish(names=["O"], dtypes=["float16"]))
    return kernel.build()


def counts_of(graph: KernelGraph, stages: int = 2) -> dict[str, float]:
    choices = [LaunchChoice(128, stages) for _ in graph.graph_defined]
    return dict(features(graph, H200, choices).kernels[0][1])


def test_a_wide_factor_is_multiplied_as_float32() -> None:
    narrow, wide = counts_of(scaled(factor="none")), counts_of(scaled(factor="none", wide=True))
    assert narrow["wide"] == 0
    assert wide["wide"] >= 16 * 256 + 256 * 64  # every element of both tiles at least once an iteration
    assert wide["tensor_flops"] > narrow["tensor_flops"]


def test_what_stays_in_the_fragments_of_a_product_keeps_its_narrow_type() -> None:
    """exp of logits in float32 goes on as float16 fragments; the same values loaded as float32 do not."""
    graph = split_attention(2, 64, 64, 512, split=2, loop=2)
    assert counts_of(graph)["wide"] == 0


@pytest.mark.parametrize(("columns", "is_read"), [(64, False), (256, True)])
def test_an_input_of_a_computed_factor_is_staged_where_there_is_room(columns: int, is_read: bool) -> None:
    graph = scaled(factor="right", columns=columns)
    counts = counts_of(graph)
    assert (counts["read_bytes"] > 0) is is_read
    (kernel,) = emit_program(graph, schedules={"O": Schedule(threads=128, stages=2)}).kernels
    assert any("w [" in note and "read where it is needed" in note for note in kernel.notes) is is_read


def test_reading_unstaged_costs_time() -> None:
    staged = dict(counts_of(scaled(factor="right")))
    unstaged = {**staged, "read_bytes": staged["stage_bytes"], "stage_bytes": 0.0}
    mine, theirs = (Features((("k", counts),)) for counts in (staged, unstaged))
    assert price(theirs, H200, FITTED).total_us > price(mine, H200, FITTED).total_us


def test_small_pieces_of_rows_move_whole_sectors() -> None:
    """Tiles of 4 columns of a row-major tensor are runs of 8 bytes; memory serves 32 at once."""
    narrow, wide = counts_of(scaled(factor="none", columns=4)), counts_of(scaled(factor="none", columns=64))
    weights = 1024 * 256 * 2
    other = narrow["requested_bytes"] - 4 * weights
    assert other == (16 * 1024 * 2) * 64  # X, asked for by every block: its runs are whole sectors
    assert wide["requested_bytes"] == weights + (16 * 1024 * 2) * 4


def test_a_mixed_product_of_a_program_is_no_library_product() -> None:
    kernel = KernelBuilder("mixed")
    a, b = kernel.input("A", (64, 512), "float32"), kernel.input("B", (512, 64), "float16")
    kernel.output(kernel.apply("matmul", a, b, name="C"))
    ((_, counts),) = features(kernel.build(), H200).kernels
    assert "library" not in counts
    assert counts["wide"] > 0
    assert estimate(kernel.build(), hardware=H200, preset=FITTED).total_us > 0
