"""What lives over the iterations, on the host against the interpreter: every kind, empty tiles, infinities, shared memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.unit.codegen.cuda.emitting import Array, check_graph, run_kernel
from workbench.codegen.cuda.accumulators import filled, neutral, updated
from workbench.codegen.cuda.kernel import emit_block
from workbench.codegen.cuda.tile_values import Accumulated, Keeping
from workbench.core.dtypes import DType
from workbench.interpret.floats import evaluate
from workbench.ugraph.builder import KernelBuilder
from workbench.ugraph.inference import Place
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import AccumulatorKind


def online_sum(context: int, *, grid: int, loop: int, rows: int = 3) -> KernelGraph:
    """Per block: sum of exp(s - m), m = max s, sum of the shifts; keys over the grid and the loop."""
    kernel = KernelBuilder("online")
    scores = kernel.input("S", (rows, context), DType.FLOAT32)
    block = kernel.block(scores, grid=(grid,), loop=loop)
    s = block.load(0, imap=(1,), fmap=1)
    largest, shift = block.running_max(s)
    weights, factor = block.apply("exp", s - largest), block.apply("exp", shift)
    block.save(block.accumulate(weights, "rescale_sum", rescale=factor), omap=(1,))
    block.save(block.accumulate(largest, "max"), omap=(1,))
    block.save(block.accumulate(shift), omap=(1,))
    kernel.output(*block.finish(names=["total", "largest", "shifts"], name="online"))
    return kernel.build()


def outputs_on_host(graph: KernelGraph, inputs: list[Array], cache: Path) -> list[Array]:
    (node,) = graph.graph_defined
    return run_kernel(emit_block(node), inputs, cache)[0]


@pytest.mark.parametrize(("context", "grid", "loop"), [(9, 6, 2), (9, 6, 1), (10, 4, 3), (23, 1, 4), (64, 2, 4)])
def test_running_maximum_of_tiles_that_end_early(context: int, grid: int, loop: int, host_cache: Path) -> None:
    """9 keys over 6 blocks leave the last block none: its maximum is the lowest number and its shift 0, as in the interpreter."""
    graph = online_sum(context, grid=grid, loop=loop)
    scores = (8 * np.random.default_rng(4).standard_normal((3, context))).astype(np.float32)
    found, expected = outputs_on_host(graph, [scores], host_cache), evaluate(graph, [scores])
    for name, one, other in zip(("total", "largest", "shifts"), found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-5, err_msg=name)
    if context == 9:
        assert np.all(found[2][:, 5] == 0)
        assert np.all(found[1][:, 5] == np.finfo(np.float32).min)


@pytest.mark.parametrize("loop", [1, 4])
def test_the_first_shift_is_zero_whatever_the_scores(loop: int, host_cache: Path) -> None:
    """An infinite score has no difference with itself; the shift is 0 by definition."""
    graph = online_sum(16, grid=1, loop=loop)
    scores = np.zeros((3, 16), np.float32)
    scores[0], scores[1, 0] = -np.inf, np.inf
    with np.errstate(invalid="ignore"):
        expected = evaluate(graph, [scores])
    found = outputs_on_host(graph, [scores], host_cache)
    np.testing.assert_array_equal(found[1], expected[1])
    np.testing.assert_array_equal(np.isnan(found[2]), np.isnan(expected[2]))
    if loop == 1:
        assert np.all(found[2] == 0)


def test_accumulators_too_large_for_registers(host_cache: Path) -> None:
    """600 x 24 elements over 128 threads are more than a thread keeps."""
    kernel = KernelBuilder("wide")
    x = kernel.input("X", (600, 96), DType.FLOAT32)
    block = kernel.block(x, loop=4)
    tile = block.load(0, fmap=1)
    block.save(block.accumulate(tile, "max"))
    block.save(block.accumulate(tile * tile))
    kernel.output(*block.finish(names=["largest", "squares"], name="wide"))
    graph = kernel.build()
    check_graph(graph, host_cache)
    assert "_kept(" in emit_block(graph.graph_defined[0]).body


def test_a_running_maximum_of_more_rows_than_threads(host_cache: Path) -> None:
    """2100 rows over 32 threads: each thread goes through 66 of them."""
    kernel = KernelBuilder("tall")
    x = kernel.input("X", (2100, 6), DType.FLOAT32)
    block = kernel.block(x, loop=3, threads=(32,))
    tile = block.load(0, fmap=1)
    largest, shift = block.running_max(tile)
    block.save(block.accumulate(block.apply("exp", tile - largest), "rescale_sum", rescale=block.apply("exp", shift)))
    kernel.output(*block.finish(names=["O"], name="tall"))
    check_graph(kernel.build(), host_cache)


CASES = [(kind.value, columns) for kind in AccumulatorKind for columns in (24, 26)]
NEEDS_WHOLE_TILES = {"sum", "max", "sum_to_columns", "rescale"}  # what they leave has the looped axis


@pytest.mark.parametrize(
    ("kind", "columns"), [case for case in CASES if case[1] == 24 or case[0] not in NEEDS_WHOLE_TILES]
)
def test_every_kind(kind: str, columns: int, host_cache: Path) -> None:
    """Each accumulator over tiles that divide the axis, and over a last tile that ends early."""
    kernel = KernelBuilder("kept")
    x = kernel.input("X", (5, columns), DType.FLOAT32)
    block = kernel.block(x, loop=3)
    tile = block.load(0, fmap=1)
    options: dict[str, object] = {}
    if kind == "sum_to_columns":
        options["columns"] = 4
    if kind.startswith("rescale"):
        options["rescale"] = block.apply("sigmoid", block.apply("sum", tile * tile))
    kept = block.accumulate(tile, kind, **options)  # type: ignore[arg-type]  # options are keywords of their own
    block.save(kept)
    kernel.output(*block.finish(names=["O"], name="kept"))
    check_graph(kernel.build(), host_cache)


def test_texts_of_updates() -> None:
    value = Accumulated(
        name="a", label="a", shape=(4,), ragged=(None,), dtype=DType.FLOAT32, place=Place.AFTER,
        operand=None, kind=Keeping.RESCALE,  # type: ignore[arg-type]  # only the kind is looked at
    )  # fmt: skip
    assert updated(value, "o", "x", "f") == "step == first ? x : o * f + x"
    assert neutral(Keeping.MAX) == "-infinity()"
    assert neutral(Keeping.SUM) == "0.0f"
    assert filled("a", "[2][3]", "0.0f") == ["float a[2][3] = {};"]
    assert "e < 6" in filled("a", "[2][3]", "-infinity()")[2]
