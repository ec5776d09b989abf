"""Emitted kernels on the host: the known good graphs, shapes that divide nothing, choices of a schedule, and refusals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.unit.codegen.cuda.emitting import check_graph, hard_inputs, relative_error, run_kernel
from workbench.codegen.cuda.kernel import emit_block
from workbench.codegen.cuda.schedule import Schedule, WarpLayout
from workbench.errors import EmitError
from workbench.interpret.floats import evaluate
from workbench.programs import registry as programs
from workbench.ugraph.builder import KernelBuilder
from workbench.ugraph.kernel_graph import KernelGraph

SIZES: dict[str, dict[str, int]] = {
    "rms_norm_linear": {"batch": 5, "hidden": 320, "out": 72},
    "gated_mlp": {"batch": 8, "hidden": 160, "out": 72},
    "gated_mlp_down": {"batch": 4, "hidden": 128, "inner": 96, "out": 40},
    "lora": {"batch": 16, "hidden": 128, "out": 96, "rank": 8},
    "gqa": {"heads": 2, "rows": 20, "head_dim": 32, "context": 96},
    "mha": {"heads": 2, "rows": 4, "head_dim": 16, "context": 70},
    "mqa": {"heads": 1, "rows": 40, "head_dim": 16, "context": 80},
    "gqa_decode": {"heads": 2, "rows": 8, "head_dim": 32, "context": 160},
    "qk_norm_attention": {"heads": 2, "rows": 20, "head_dim": 32, "context": 96},
    "ntrans": {"batch": 3, "hidden": 100},
    "softmax": {"batch": 5, "hidden": 77},
    "attention_safe": {"heads": 2, "rows": 20, "head_dim": 32, "context": 96},
    "moe_expert": {"experts": 2, "rows": 5, "hidden": 72, "inner": 48, "out": 40},
}


def test_every_program_is_here() -> None:
    assert sorted(SIZES) == programs.names()


@pytest.mark.parametrize("name", sorted(SIZES))
def test_known_good(name: str, host_cache: Path) -> None:
    check_known_good(name, "standard", host_cache)


@pytest.mark.parametrize("name", ["rms_norm_linear", "qk_norm_attention", "ntrans", "softmax"])
def test_known_good_of_mirages_formulas(name: str, host_cache: Path) -> None:
    """The programs whose graphs differ in style."""
    check_known_good(name, "mirage", host_cache)


def check_known_good(name: str, style: str, host_cache: Path, dtype: str = "float16") -> None:
    scale = 0.1 if name == "moe_expert" else 0.3  # its exp goes to device memory as float16
    for graph in programs.known_good(name, style, dtype, **SIZES[name]):
        check_graph(graph, host_cache, inputs=hard_inputs(graph, scale=scale))


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("name", sorted(SIZES))
def test_other_types(name: str, dtype: str, host_cache: Path) -> None:
    check_known_good(name, "standard", host_cache, dtype)


@pytest.mark.parametrize("batch", [1, 64])
def test_one_structure_at_several_batch_sizes(batch: int, host_cache: Path) -> None:
    graph = programs.known_good("rms_norm_linear", batch=batch, hidden=100, out=33)[0]
    check_graph(graph, host_cache)


def test_large_logits_that_float16_does_not_hold(host_cache: Path) -> None:
    """Queries and keys of length sqrt(64) give logits up to 64 or so, and e^64 is far beyond 65504."""
    graph = programs.known_good("qk_norm_attention", heads=1, rows=16, head_dim=64, context=64)[0]
    inputs = hard_inputs(graph)
    inputs[0] = np.repeat(inputs[0][:, :1], 16, axis=1)  # one direction, so that some logit is as large as can be
    inputs[1][0, :, 5] = inputs[0][0, 0]
    check_graph(graph, host_cache, inputs=inputs)


# ------------------------------------------------------------------------------------------------------------- a loop
def linear(m: int, n: int, k: int, *, grid: int, loop: int, cluster: int = 1, kind: str = "rms") -> KernelGraph:
    """X W / accumulate(X), the depth looped and perhaps shared by a cluster."""
    kernel = KernelBuilder("linear")
    x, w = kernel.input("X", (m, k)), kernel.input("W", (k, n))
    block = kernel.block(x, w, grid=(grid,), loop=loop, cluster=(cluster,))
    a, b = block.load(0, fmap=1), block.load(1, imap=(1,), fmap=0)
    block.save(block.accumulate(a @ b) / block.accumulate(a * a + 1, kind), omap=(1,))
    kernel.output(*block.finish(names=["O"], name="linear"))
    return kernel.build()


@pytest.mark.parametrize("cluster", [2, 3])
def test_a_cluster_shares_the_iterations(cluster: int, host_cache: Path) -> None:
    (kernel,) = check_graph(linear(16, 64, 320, grid=2, loop=5, cluster=cluster), host_cache)
    assert kernel.launch.cluster == (cluster, 1, 1)
    assert kernel.launch.grid == (2 * cluster, 1, 1)


def test_a_block_of_a_cluster_without_iterations(host_cache: Path) -> None:
    """Four iterations dealt to three blocks by twos leave the third none; it still has to wait for the bias."""
    kernel = KernelBuilder("biased")
    x, w, c = kernel.input("X", (8, 64)), kernel.input("W", (64, 16)), kernel.input("C", (16, 16))
    block = kernel.block(x, w, c, loop=4, cluster=(3,))
    product = block.accumulate(block.load(0, fmap=1) @ block.load(1, fmap=0))
    block.save(product @ block.load(2))
    kernel.output(*block.finish())
    check_graph(kernel.build(), host_cache)


@pytest.mark.parametrize("kind", ["sum_dim", "mean", "max_dim"])
def test_a_cluster_folds_rows(kind: str, host_cache: Path) -> None:
    check_graph(linear(16, 64, 256, grid=2, loop=4, cluster=2, kind=kind), host_cache)


@pytest.mark.parametrize("stages", [2, 5])
def test_stages(stages: int, host_cache: Path) -> None:
    (kernel,) = check_graph(linear(16, 64, 320, grid=2, loop=5), host_cache, schedule=Schedule(stages=stages))
    assert kernel.schedule.stages == stages


@pytest.mark.parametrize("warps", [WarpLayout(1, 4, 1), WarpLayout(1, 1, 4), WarpLayout(1, 2, 2)])
def test_warp_layouts(warps: WarpLayout, host_cache: Path) -> None:
    graph = linear(16, 128, 256, grid=2, loop=4)
    product = next(name for name in graph.graph_defined[0].block.tiles if name == "t0")
    check_graph(graph, host_cache, schedule=Schedule(layouts={product: warps}))


@pytest.mark.parametrize("threads", [32, 96])
def test_threads(threads: int, host_cache: Path) -> None:
    check_graph(linear(20, 96, 192, grid=2, loop=3), host_cache, schedule=Schedule(threads=threads))


def test_order_of_threads_does_not_matter(host_cache: Path) -> None:
    """The same bits whatever thread runs first: nothing is read before it is written and ordered by a barrier."""
    graph = linear(16, 64, 256, grid=2, loop=4, cluster=2)
    (node,) = graph.graph_defined
    kernel, inputs = emit_block(node), hard_inputs(graph)
    runs = [run_kernel(kernel, inputs, host_cache, seed=seed)[0][0] for seed in (0, 1, 2)]
    assert all(np.array_equal(runs[0], other) for other in runs[1:])


def test_tensor_cores_and_swizzle(host_cache: Path) -> None:
    graph = linear(16, 64, 256, grid=1, loop=2)
    kernel = emit_block(graph.graph_defined[0])
    outputs, run = run_kernel(kernel, hard_inputs(graph), host_cache)
    assert run.mma > 0
    assert run.ldmatrix_conflicts == 0
    assert relative_error(outputs[0], evaluate(graph, hard_inputs(graph))[0]) < 2e-3


def test_the_text_is_the_same_every_time() -> None:
    texts = {emit_block(linear(16, 64, 256, grid=1, loop=2).graph_defined[0]).source for _ in range(3)}
    assert len(texts) == 1


# ---------------------------------------------------------------------------------------------------------- refusals
def refusal(graph: KernelGraph, schedule: Schedule | None = None) -> EmitError:
    """The error with which a graph's operator is refused."""
    with pytest.raises(EmitError) as caught:
        emit_block(graph.graph_defined[0], schedule=schedule or Schedule())
    assert caught.value.rule
    assert caught.value.node
    assert caught.value.cure
    return caught.value


def test_float64_is_refused() -> None:
    kernel = KernelBuilder("double")
    block = kernel.block(kernel.input("X", (4, 4), "float64"))
    block.save(block.load(0) * 2)
    kernel.output(*block.finish())
    assert "float64" in refusal(kernel.build()).rule


def test_too_much_shared_memory_is_refused_with_the_numbers() -> None:
    error = refusal(linear(64, 512, 1024, grid=1, loop=2), Schedule(threads=1024))
    assert "B of shared memory" in error.rule
    assert "232,448 B are allowed" in error.rule
    assert "tile" in error.cure


def test_too_many_accumulators_are_refused() -> None:
    error = refusal(linear(64, 512, 64, grid=1, loop=2), Schedule(threads=32))
    assert "accumulators a thread" in error.rule
    assert "32" in error.cure


def test_more_threads_are_taken_where_registers_need_them() -> None:
    kernel = emit_block(linear(64, 512, 64, grid=1, loop=4).graph_defined[0])
    assert kernel.launch.threads > 128


def test_a_cluster_cannot_rescale() -> None:
    kernel = KernelBuilder("online")
    block = kernel.block(kernel.input("X", (4, 64)), loop=4, cluster=(2,))
    x = block.load(0, fmap=1)
    maximum, shift = block.running_max(x)
    weights, factor = (block.apply("exp", value) for value in (x - maximum, shift))
    block.save(block.accumulate(weights, "rescale_sum", rescale=factor))
    kernel.output(*block.finish())
    assert "in order" in refusal(kernel.build()).rule


def test_a_layout_that_does_not_divide_is_refused() -> None:
    error = refusal(linear(16, 64, 256, grid=1, loop=2), Schedule(layouts={"t0": WarpLayout(3, 1, 1)}))
    assert "does not divide" in error.rule


def test_a_cluster_of_more_blocks_than_iterations_is_refused() -> None:
    assert "share 2 iterations" in refusal(linear(16, 64, 256, grid=1, loop=2), Schedule(cluster=4)).rule
