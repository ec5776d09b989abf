"""Warps that share rows keep running maxima of their own columns, where nothing else than rescaled sums is made with them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from workbench import programs
from workbench.codegen.cuda.emitted import EmittedProgram
from workbench.codegen.cuda.host_program import run_program_on_host
from workbench.codegen.cuda.host_run import HostOptions
from workbench.codegen.cuda.kernel_level import emit_program
from workbench.interpret.floats import evaluate
from workbench.optimize.stable_softmax import stabilise_softmax
from workbench.ugraph import value as op
from workbench.ugraph.builder import BlockBuilder, KernelBuilder
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.value import Value

ROWS, DEPTH, WIDTH = 8, 16, 16
Weigh = Callable[[BlockBuilder, Value, Value], tuple[Value, Value]]
"""Block, logits, tile of V -> what is saved."""


def attention(context: int, loop: int, weigh: Weigh, rows: int = ROWS) -> KernelGraph:
    """Query rows, 8 so that four warps share them, and `context` keys."""
    k = KernelBuilder()
    Q, K = k.input("Q", (rows, DEPTH), "float16"), k.input("K", (DEPTH, context), "float16")
    V = k.input("V", (context, WIDTH), "float16")
    b = k.block(Q, K, V, loop=loop)
    for made in weigh(b, b.load(Q) @ b.load(K, fmap=1), b.load(V, fmap=0)):
        b.save(made)
    k.output(*b.finish(dtypes=["float32", "float32"]))
    return k.build()


def online(b: BlockBuilder, logits: Value, v: Value) -> tuple[Value, Value]:
    """What the loop leaves, divided, and the largest logit of each row."""
    largest, shift = b.running_max(logits)
    weights, factor = op.exp(logits - largest), op.exp(shift)
    product = b.accumulate(weights @ v, "rescale", rescale=factor)
    total = b.accumulate(op.sum(weights), "rescale", rescale=factor)
    return product / total, b.accumulate(largest, "max")


def not_rescaled(b: BlockBuilder, logits: Value, v: Value) -> tuple[Value, Value]:
    """Sums of weights below the maximum so far: they depend on what it was in between, so warps must share it."""
    largest, _ = b.running_max(logits)
    weights = op.exp(logits - largest)
    return b.accumulate(weights @ v), b.accumulate(op.sum(weights))


def squared(b: BlockBuilder, logits: Value, v: Value) -> tuple[Value, Value]:
    """Rescaled by the square, so not by what a difference of maxima makes of the sums."""
    largest, shift = b.running_max(logits)
    weights, factor = op.exp(logits - largest), op.square(op.exp(shift))
    product = b.accumulate(weights @ v, "rescale", rescale=factor)
    return product, b.accumulate(op.sum(weights), "rescale", rescale=factor)


def transposed(b: BlockBuilder, logits: Value, v: Value) -> tuple[Value, Value]:
    """Maxima along the other axis of the product, which no warp finds in its own registers."""
    turned = op.transpose(logits)
    largest, shift = b.running_max(turned)
    weights = op.exp(turned - largest)
    return b.accumulate(op.sum(weights), "rescale", rescale=op.exp(shift)), b.accumulate(v)


def inputs_of(graph: KernelGraph, logits: float, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    q, k, v = (rng.standard_normal(tensor.shape) for tensor in graph.inputs)
    q *= logits / np.abs(q @ k).max()
    return [array.astype(np.float16).astype(np.float64) for array in (q, k, v)]


def loop_barriers(program: EmittedProgram) -> int:
    body = program.kernels[0].body
    start = body.index("for (int step = first")
    return body[start : body.index("\n  }\n", start)].count("block_barrier();")


def check(program: EmittedProgram, graph: KernelGraph, logits: float, options: HostOptions) -> None:
    inputs = inputs_of(graph, logits)
    for found, right in zip(run_program_on_host(program, inputs, options), evaluate(graph, inputs), strict=True):
        np.testing.assert_allclose(found, right, atol=4e-3 * max(np.abs(right).max(), 1e-3))


@pytest.mark.parametrize(("context", "loop", "logits"), [(256, 4, 100.0), (150, 3, 30.0)])
def test_warps_meet_once_after_the_loop_and_are_right(context: int, loop: int, logits: float, host_cache: Path) -> None:
    """150 keys in tiles of 50: the last warp has 2 of them, and in the padding none."""
    graph = attention(context, loop, online)
    program = emit_program(graph)
    assert "each warp has that of its own columns" in program.kernels[0].body
    assert loop_barriers(program) == 1  # the ring's
    for options in (HostOptions(cache_folder=host_cache, races=True), HostOptions(cache_folder=host_cache, seed=3)):
        check(program, graph, logits, options)


def test_splits_of_decoding_take_no_more_barriers_in_their_loop_than_the_unsafe_form(host_cache: Path) -> None:
    sizes = {"rows": 8, "head_dim": 32, "context": 512}
    graph = next(g for g in programs.known_good("gqa_decode", "standard", "float16", **sizes) if len(g.nodes) == 2)
    unsafe, stable = emit_program(graph), emit_program(stabilise_softmax(graph).graph)
    assert loop_barriers(stable) == loop_barriers(unsafe) == 1
    # in the combining kernel every thread takes the maximum of the parts itself, and asks for all it needs at once
    bodies = [program.kernels[1].body for program in (unsafe, stable)]
    assert [body.count("block_barrier();") for body in bodies] == [1, 1]
    inputs = inputs_of(graph, 100.0)
    (found,) = run_program_on_host(stable, inputs, HostOptions(cache_folder=host_cache))
    (right,) = evaluate(programs.get("gqa_decode", "standard", "float16", **sizes), inputs)
    np.testing.assert_allclose(found.astype(np.float64), right, atol=2e-3 * np.abs(right).max())


@pytest.mark.parametrize("weigh", [not_rescaled, squared])
def test_what_depends_on_maxima_in_between_shares_them(weigh: Weigh, host_cache: Path) -> None:
    graph = attention(256, 4, weigh)
    program = emit_program(graph)
    assert "each warp has that of its own columns" not in program.kernels[0].body
    check(program, graph, 5.0, HostOptions(cache_folder=host_cache))


def test_maxima_that_no_warp_has_are_shared_although_only_rescaled_sums_are_made_with_them(host_cache: Path) -> None:
    graph = attention(128, 4, transposed, rows=32)  # tiles of 32 x 32, so that the transpose has the product's shape
    program = emit_program(graph)
    assert "each warp has that of its own columns" not in program.kernels[0].body
    check(program, graph, 30.0, HostOptions(cache_folder=host_cache))


def test_a_product_is_rescaled_only_when_a_maximum_grew() -> None:
    body = emit_program(attention(256, 4, online)).kernels[0].body
    assert "if (warp_ballot(" in body
