"""Counts of kernels, computed by hand: bytes, flops, iterations, shared memory."""

from __future__ import annotations

import pytest

from tests.unit.cost.example_graphs import split_attention
from workbench import programs
from workbench.core.dtypes import DType
from workbench.cost.counts import COUNTED, warp_grid
from workbench.cost.estimate import features
from workbench.cost.hardware import hardware
from workbench.cost.launch import LaunchChoice
from workbench.ugraph.builder import KernelBuilder
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.retile import Counts, retile

H200 = hardware("h200")


def counts(graph: KernelGraph, choice: LaunchChoice, kernel: int = 0) -> dict[str, float]:
    return dict(features(graph, H200, [choice] * len(graph.graph_defined)).kernels[kernel][1])


def test_rms_norm_linear_by_hand() -> None:
    graph = retile(programs.known_good("rms_norm_linear")[0], Counts({"c": 32}, loop=16, cluster=2))
    found = counts(graph, LaunchChoice(128, 3, 2))
    assert set(found) == set(COUNTED)
    assert (found["blocks"], found["iterations"], found["stages"]) == (64, 8, 3)
    x, g, w = 2 * 16 * 4096, 2 * 4096, 2 * 4096 * 4096
    assert found["unique_bytes"] == x + g + w
    assert found["requested_bytes"] == 32 * (x + g) + w  # every cell reads all of X and G, its cluster shares them
    assert found["stored_bytes"] == 2 * 16 * 4096
    assert found["stage_bytes"] == 2 * (16 * 256 + 256 + 256 * 128)
    assert found["shared_at_least"] == 3 * found["stage_bytes"]
    assert found["tensor_flops"] == 2 * 16 * 256 * 128
    assert found["exchanged_bytes"] == 4 * (16 * 128 + 16)
    assert found["uneven_bytes"] == 0


def test_the_blocks_of_a_cluster_share_the_loop_and_each_load_what_is_loaded_once() -> None:
    graph = programs.known_good("lora", batch=16, hidden=256, out=128, rank=16)[0]
    made = retile(graph, Counts({"c": 4}, loop=5, cluster=2))
    found = counts(made, LaunchChoice(128, 2, 2))
    assert found["iterations"] == 3  # of 5, two blocks take 3 and 2
    x, w, a, b = (tensor.nbytes for tensor in graph.inputs)
    assert found["requested_bytes"] == 4 * x + w + 4 * a + 2 * b


def test_products_are_padded_to_tensor_core_tiles() -> None:
    graph = programs.known_good("rms_norm_linear", batch=3, hidden=96, out=40)[0]
    found = counts(retile(graph, Counts({}, loop=3)), LaunchChoice())
    assert found["tensor_flops"] == 2 * 16 * 32 * 48


def test_stages_are_not_more_than_iterations_and_at_least_two() -> None:
    graph = programs.known_good("rms_norm_linear", batch=16, hidden=256, out=64)[0]
    for loop, cluster, asked, expected in ((4, 1, 8, 4), (4, 2, 8, 2), (4, 4, 8, 2), (1, 1, 4, 1), (4, 1, 1, 1)):
        made = retile(graph, Counts({}, loop=loop, cluster=cluster))
        assert counts(made, LaunchChoice(128, asked, cluster))["stages"] == expected


def test_results_for_later_kernels_are_told_apart() -> None:
    graph = split_attention(2, 64, 64, 1024, split=4, loop=4)
    first, second = (counts(graph, LaunchChoice(), kernel) for kernel in (0, 1))
    partial = sum(tensor.nbytes for tensor in graph.graph_defined[0].results)
    assert (first["handed_bytes"], first["stored_bytes"]) == (partial, 0)
    assert (second["made_bytes"], second["unique_bytes"]) == (partial, 0)
    assert second["stored_bytes"] == graph.outputs[0].nbytes
    assert second["direct_bytes"] > 0 == second["once_bytes"]  # no product reads it: it is not staged


def test_uneven_tiles_are_counted() -> None:
    graph = programs.known_good("rms_norm_linear", batch=16, hidden=256, out=96)[0]

    def uneven(blocks: int) -> float:
        return counts(retile(graph, Counts({"c": blocks}, loop=4)), LaunchChoice())["uneven_bytes"]

    assert uneven(2) == 0  # rows of 48 elements: three sectors of 32 B
    assert uneven(4) == 2 * 64 * 24  # rows of 24 elements: one sector and a half
    assert uneven(5) == 2 * 64 * 20  # the last block has 16 columns


def test_dead_operators_cost_nothing() -> None:
    def graph(*, dead: bool) -> KernelGraph:
        kernel = KernelBuilder()
        x = kernel.input("X", (64, 64))
        block = kernel.block(x, grid=(4,))
        tile = block.load(x, imap=(0,))
        if dead:
            block.apply("exp", tile)
        block.save(block.apply("neg", tile), omap=(0,))
        kernel.output(*block.finish())
        return kernel.build()

    assert counts(graph(dead=True), LaunchChoice()) == counts(graph(dead=False), LaunchChoice())


def test_thread_graphs_cost_what_their_operators_do() -> None:
    def graph(*, threads: bool) -> KernelGraph:
        kernel = KernelBuilder()
        x = kernel.input("X", (64, 64))
        block = kernel.block(x, grid=(4,))
        tile = block.load(x, imap=(0,))
        made = block.apply("silu", tile)
        block.save(block.apply("exp", made), omap=(0,))
        kernel.output(*block.finish())
        plain = kernel.build()
        if not threads:
            return plain
        from workbench.optimize.thread_graphs import build_thread_graphs

        return build_thread_graphs(plain).graph

    assert counts(graph(threads=True), LaunchChoice()) == counts(graph(threads=False), LaunchChoice())


def test_exponentials_go_to_the_special_unit() -> None:
    graph = programs.known_good("softmax", batch=4, hidden=256)[0]
    found = counts(graph, LaunchChoice())
    assert found["last_special"] >= 2 * 256  # exp and the division's reciprocal


@pytest.mark.parametrize(("rows", "columns", "warps"), [(1, 4, 4), (4, 4, 4), (4, 1, 8), (1, 1, 8), (8, 2, 16)])
def test_warps_are_spread_over_no_more_tiles_than_there_are(rows: int, columns: int, warps: int) -> None:
    import numpy as np

    by_row, by_column = warp_grid(np.asarray(float(rows)), np.asarray(float(columns)), np.asarray(float(warps)))
    assert 1 <= by_row <= rows
    assert 1 <= by_column <= columns
    assert by_row * by_column <= warps


def test_wide_types_take_more_of_a_tensor_core() -> None:
    def flops(dtype: DType) -> float:
        graph = programs.known_good("rms_norm_linear", dtype=dtype, batch=16, hidden=256, out=64)[0]
        return counts(retile(graph, Counts({}, loop=4)), LaunchChoice())["tensor_flops"]

    assert flops(DType.FLOAT32) == pytest.approx(2 * flops(DType.FLOAT16))
