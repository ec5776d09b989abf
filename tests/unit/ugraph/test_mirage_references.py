"""Mirage's twelve reference µGraphs (its demo/reference_mugraphs), built with our builder: legal, and equal to what they compute.

Each is built at Mirage's full shapes; where a weight would take a gigabyte in float64, both its axes are divided by
`shrink` for the evaluation, grid and loop counts kept. The right values are NumPy closed forms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from workbench.core.dtypes import DType
from workbench.interpret import evaluate
from workbench.ugraph import value as op
from workbench.ugraph.builder import KernelBuilder
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import AccumulatorKind, OpNode, RunningMax
from workbench.ugraph.serialize import dumps, loads
from workbench.ugraph.text import parse_graph, print_graph
from workbench.ugraph.value import Value

Array = np.ndarray[Any, Any]


# ------------------------------------------------------------------------------------------------------- closed forms
def rms_norm(x: Array) -> Array:
    return np.asarray(x / np.sqrt((x * x).mean(-1, keepdims=True)))


def silu(x: Array) -> Array:
    return np.asarray(x / (1 + np.exp(-x)))


def attention(q: Array, k: Array, v: Array) -> Array:
    weights = np.exp(q @ k)
    return np.asarray(weights / weights.sum(-1, keepdims=True) @ v)


def safe_attention(q: Array, k: Array, v: Array) -> Array:
    logits = q @ k
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return np.asarray(weights / weights.sum(-1, keepdims=True) @ v)


# ------------------------------------------------------------------------------------------------------------- µGraphs
def rms_linear(rows: int, hidden: int, out: int, grid: int, loop: int) -> KernelGraph:
    kernel = KernelBuilder("rms_linear")
    x, w = kernel.input("X", (rows, hidden)), kernel.input("W", (hidden, out))
    block = kernel.block(x, w, grid=(grid,), loop=loop)
    left, right = block.load(x, fmap=1), block.load(w, imap=(1,), fmap=0)
    product = left @ right
    root = block.accumulate(left, "rms")
    block.save(block.accumulate(product) / root, omap=(1,))
    kernel.output(*block.finish())
    return kernel.build()


def gated_mlp(rows: int, hidden: int, out: int, grid: int, loop: int) -> KernelGraph:
    kernel = KernelBuilder("gated_mlp")
    x, w1, w2 = kernel.input("X", (rows, hidden)), kernel.input("W1", (hidden, out)), kernel.input("W2", (hidden, out))
    block = kernel.block(x, w1, w2, grid=(grid,), loop=loop)
    left = block.load(x, fmap=1)
    gate, up = (block.accumulate(left @ block.load(w, imap=(1,), fmap=0)) for w in (w1, w2))
    block.save(op.silu(gate) * up, omap=(1,))
    kernel.output(*block.finish())
    return kernel.build()


def operands(kernel: KernelBuilder, heads: int, rows: int, depth: int, context: int) -> tuple[Value, Value, Value]:
    return (
        kernel.input("Q", (heads, rows, depth)),
        kernel.input("K", (heads, depth, context)),
        kernel.input("V", (heads, context, depth)),
    )


@dataclass(frozen=True)
class Split:
    """Shapes and counts of attention whose keys are split over blocks: `grid` is (heads, splits, rows), then the combine."""

    heads: int
    rows: int
    depth: int
    context: int
    grid: tuple[int, int, int]
    loop: int
    combine: tuple[int, int, int]
    normalize: str = ""  # the operands that pass through rms_norm


def split_attention(s: Split) -> KernelGraph:
    """One kernel makes O and the sum of exponentials per split of the keys, a second one adds the splits up."""
    kernel = KernelBuilder("attention")
    q, k, v = operands(kernel, s.heads, s.rows, s.depth, s.context)
    block = kernel.block(q, k, v, grid=s.grid, loop=s.loop)
    query = block.load(q, imap=(0, None, 1))
    keys, values = block.load(k, imap=(0, 2), fmap=2), block.load(v, imap=(0, 1), fmap=1)
    query = op.rms_norm(query, eps=0) if "Q" in s.normalize else query
    values = op.rms_norm(values, eps=0) if "V" in s.normalize else values
    weights = op.exp(query @ keys)
    block.save(block.accumulate(weights @ values), omap=(0, 2, 1))
    block.save(block.accumulate(weights, "sum_dim"), omap=(0, 2, 1))
    partial, sums = block.finish()
    combine = kernel.block(partial, sums, grid=s.combine)
    tiles = [combine.load(tensor, imap=(0, 1)) for tensor in (partial, sums)]
    total = combine.accumulate(tiles[0], "sum_to_columns", columns=s.depth)
    combine.save(total / combine.accumulate(tiles[1], "sum_dim"), omap=(0, 1))
    kernel.output(*combine.finish())
    return kernel.build()


def online_attention(heads: int, rows: int, depth: int, context: int) -> KernelGraph:
    """Keys stay in one block per group of rows, in a loop; the second kernel only divides."""
    kernel = KernelBuilder("online")
    q, k, v = operands(kernel, heads, rows, depth, context)
    block = kernel.block(q, k, v, grid=(heads, 1, 16), loop=16)
    query = block.load(q, imap=(0, None, 1))
    keys, values = block.load(k, imap=(0,), fmap=2), block.load(v, imap=(0,), fmap=1)
    weights = op.exp(query @ keys)
    block.save(block.accumulate(weights @ values), omap=(0, None, 1))
    block.save(block.accumulate(weights, "sum_dim"), omap=(0, None, 1))
    partial, sums = block.finish()
    combine = kernel.block(partial, sums, grid=(heads,))
    tiles = [combine.load(tensor, imap=(0,)) for tensor in (partial, sums)]
    combine.save(combine.accumulate(tiles[0]) / combine.accumulate(tiles[1], "sum_dim"), omap=(0,))
    kernel.output(*combine.finish())
    return kernel.build()


def safe_split_attention(heads: int, rows: int, depth: int, context: int) -> KernelGraph:
    """Split keys with a running maximum; the merge kernel runs over the splits and rescales once more."""
    kernel = KernelBuilder("customized")
    q, k, v = operands(kernel, heads, rows, depth, context)
    block = kernel.block(q, k, v, grid=(heads, 16, 4), loop=4)
    query = block.load(q, imap=(0, None, 1))
    keys, values = block.load(k, imap=(0, 2), fmap=2), block.load(v, imap=(0, 1), fmap=1)
    logits = query @ keys
    best, shift = block.running_max(logits)
    weights, factor = op.exp(logits - best), op.exp(shift)
    block.save(block.accumulate(weights @ values, "rescale", rescale=factor), omap=(0, 2, 1))
    block.save(block.accumulate(weights, "rescale_sum", rescale=factor), omap=(0, 2, 1))
    block.save(block.accumulate(best, "max"), omap=(0, 2, 1))
    partial = block.finish()
    merge = kernel.block(*partial, grid=(heads, 1, 4), loop=16)
    out, sums, maxima = (merge.load(tensor, imap=(0, None, 1), fmap=2) for tensor in partial)
    best, shift = merge.running_max(maxima)
    scale, factor = op.exp(maxima - best), op.exp(shift)
    total = merge.accumulate(out * scale, "rescale", rescale=factor)
    merge.save(total / merge.accumulate(sums * scale, "rescale", rescale=factor), omap=(0, None, 1))
    kernel.output(*merge.finish())
    return kernel.build()


def lora(rows: int, hidden: int, rank: int, out: int) -> KernelGraph:
    kernel = KernelBuilder("lora")
    x, w = kernel.input("X", (rows, hidden)), kernel.input("W", (hidden, out))
    a, b = kernel.input("A", (hidden, rank)), kernel.input("B", (rank, out))
    kernel.output(x @ w + (x @ a) @ b)
    return kernel.build()


def gained_norm_linear(hidden: int, out: int) -> KernelGraph:
    """rms_norm, gain, matmul with a column-major bfloat16 weight."""
    kernel = KernelBuilder("qwen")
    x, g = kernel.input("X", (1, hidden), "bfloat16"), kernel.input("G", (1, hidden), "bfloat16")
    w = kernel.input("W", (hidden, out), "bfloat16", (1, hidden))
    kernel.output(op.rms_norm(x, eps=0) * g @ w)
    return kernel.build()


def gate_down(hidden: int, out: int) -> KernelGraph:
    kernel = KernelBuilder("qwen_part2")
    x, y = kernel.input("X", (1, hidden), "bfloat16"), kernel.input("Y", (1, hidden), "bfloat16")
    kernel.output(op.silu(x) * y @ kernel.input("W", (hidden, out), "bfloat16"))
    return kernel.build()


# -------------------------------------------------------------------------------------------------------------- table
GQA = Split(2, 256, 64, 4096, (2, 16, 4), 4, (2, 16, 1))
CHAMELEON = Split(8, 128, 64, 4096, (8, 16, 4), 4, (8, 16, 1), normalize="QV")
CHAMELEON_7B = Split(32, 4, 128, 4096, (32, 16, 1), 4, (32, 2, 1), normalize="Q")


@dataclass(frozen=True)
class Reference:
    """One reference: `build(shrink)`, the shapes of inputs and outputs at full size, scale of the random inputs."""

    build: Callable[[int], KernelGraph]
    shapes: Sequence[tuple[int, ...]]
    program: Callable[..., Array]
    scale: float = 0.1
    shrink: int = 1


def norm_linear(x: Array, w: Array) -> Array:
    return np.asarray(rms_norm(x) @ w)


REFERENCES = {
    "rms_norm": Reference(
        lambda n: rms_linear(16, 4096 // n, 4096 // n, 64, 64), [(16, 4096), (4096, 4096), (16, 4096)], norm_linear
    ),
    "gated_mlp": Reference(
        lambda n: gated_mlp(16, 4096 // n, 4096 // n, 64, 32),
        [(16, 4096), (4096, 4096), (4096, 4096), (16, 4096)],
        lambda x, w1, w2: silu(x @ w1) * (x @ w2),
        shrink=2,
    ),
    "group_query_attention": Reference(
        lambda n: split_attention(GQA), [(2, 256, 64), (2, 64, 4096), (2, 4096, 64), (2, 256, 64)], attention
    ),
    "group_query_attention_online": Reference(
        lambda n: online_attention(2, 256, 64, 1024),
        [(2, 256, 64), (2, 64, 1024), (2, 1024, 64), (2, 256, 64)],
        attention,
    ),
    "group_query_attention_customized": Reference(
        lambda n: safe_split_attention(2, 256, 64, 1024),
        [(2, 256, 64), (2, 64, 1024), (2, 1024, 64), (2, 256, 64)],
        safe_attention,
        scale=30.0,  # logits of several thousand: only the rescaled form survives
    ),
    "chameleon": Reference(
        lambda n: split_attention(CHAMELEON),
        [(8, 128, 64), (8, 64, 4096), (8, 4096, 64), (8, 128, 64)],
        lambda q, k, v: attention(rms_norm(q), k, rms_norm(v)),
    ),
    "chameleon_7b_rms_linear": Reference(
        lambda n: rms_linear(4, 4096 // n, 12288 // n, 384, 32),
        [(4, 4096), (4096, 12288), (4, 12288)],
        norm_linear,
        shrink=4,
    ),
    "chameleon_7b_rms_linear2": Reference(
        lambda n: rms_linear(4, 4096 // n, 22016 // n, 344, 32),
        [(4, 4096), (4096, 22016), (4, 22016)],
        norm_linear,
        shrink=8,
    ),
    "chameleon_7b_attention": Reference(
        lambda n: split_attention(CHAMELEON_7B),
        [(32, 4, 128), (32, 128, 4096), (32, 4096, 128), (32, 4, 128)],
        lambda q, k, v: attention(rms_norm(q), k, v),
    ),
    "llama3_8b_rms_linear": Reference(
        lambda n: rms_linear(1, 4096 // n, 6144 // n, 192, 32),
        [(1, 4096), (4096, 6144), (1, 6144)],
        norm_linear,
        shrink=2,
    ),
    "llama3_8b_rms_linear2": Reference(
        lambda n: rms_linear(1, 4096 // n, 28672 // n, 448, 32),
        [(1, 4096), (4096, 28672), (1, 28672)],
        norm_linear,
        shrink=8,
    ),
    "lora": Reference(
        lambda n: lora(1, 4096 // n, 16, 4096 // n),
        [(1, 4096), (4096, 4096), (4096, 16), (16, 4096), (1, 4096)],
        lambda x, w, a, b: x @ w + x @ a @ b,
        shrink=2,
    ),
    "qwen_mlp": Reference(
        lambda n: gained_norm_linear(3584 // n, 37888 // n),
        [(1, 3584), (1, 3584), (3584, 37888), (1, 37888)],
        lambda x, g, w: rms_norm(x) * g @ w,
        shrink=8,
    ),
    "qwen_mlp_part2": Reference(
        lambda n: gate_down(18944 // n, 3584 // n),
        [(1, 18944), (1, 18944), (18944, 3584), (1, 3584)],
        lambda x, y, w: silu(x) * y @ w,
        shrink=8,
    ),
    "qwen_prenorm": Reference(
        lambda n: gained_norm_linear(2048 // n, 2560 // n),
        [(1, 2048), (1, 2048), (2048, 2560), (1, 2560)],
        lambda x, g, w: rms_norm(x) * g @ w,
    ),
}


@pytest.mark.parametrize("name", REFERENCES)
def test_the_reference_is_legal_at_full_size(name: str) -> None:
    reference = REFERENCES[name]
    graph = reference.build(1)
    assert [tensor.shape for tensor in (*graph.inputs, *graph.outputs)] == list(reference.shapes)
    assert parse_graph(print_graph(graph)) == graph
    assert loads(dumps(graph)) == [graph]


@pytest.mark.parametrize("name", REFERENCES)
def test_the_reference_computes_its_closed_form(name: str, rng: np.random.Generator) -> None:
    reference = REFERENCES[name]
    graph = reference.build(reference.shrink)
    inputs = [reference.scale * rng.standard_normal(tensor.shape) for tensor in graph.inputs]
    expected = reference.program(*inputs)
    assert np.isfinite(expected).all()
    (found,) = evaluate(graph, inputs)
    assert np.linalg.norm(found - expected) / np.linalg.norm(expected) < 1e-12


def test_the_structures_are_those_of_the_references() -> None:
    first, second = split_attention(GQA).graph_defined
    assert (first.block.grid_dims, first.block.forloop_range) == ((2, 16, 4), 4)
    assert [tensor.shape for tensor in first.results] == [(2, 256, 16 * 64), (2, 256, 16)]
    assert [a.kind for a in second.block.accumulators] == [AccumulatorKind.SUM_TO_COLUMNS, AccumulatorKind.SUM_DIM]
    first, second = safe_split_attention(2, 256, 64, 1024).graph_defined
    kinds = [[a.kind.value for a in node.block.accumulators] for node in (first, second)]
    assert kinds == [["rescale", "rescale_sum", "max"], ["rescale", "rescale"]]
    assert all(any(isinstance(n, RunningMax) for n in node.block.nodes) for node in (first, second))
    qwen = gained_norm_linear(3584, 37888)
    assert [node.op for node in qwen.nodes if isinstance(node, OpNode)] == ["rms_norm", "mul", "matmul"]
    assert qwen.inputs[2].strides == (1, 3584)
    assert {tensor.dtype for tensor in qwen.inputs} == {DType.BFLOAT16}


def test_a_split_kernel_that_adds_contiguous_groups_would_be_seen(rng: np.random.Generator) -> None:
    """The strided meaning of sum_to_columns is the one these graphs need: the contiguous one is far off."""
    first, _ = split_attention(GQA).graph_defined
    kernel = KernelBuilder()
    q, k, v = operands(kernel, 2, 256, 64, 4096)
    partial, sums = kernel.graph_defined(first.block, [q, k, v])
    kernel.output(partial, sums)
    inputs = [0.1 * rng.standard_normal(shape) for shape in ((2, 256, 64), (2, 64, 4096), (2, 4096, 64))]
    out, total = evaluate(kernel.build(), inputs)
    contiguous = out.reshape(2, 256, 64, 16).sum(-1) / total.sum(-1, keepdims=True)
    expected = attention(*inputs)
    assert np.linalg.norm(contiguous - expected) / np.linalg.norm(expected) > 0.5
