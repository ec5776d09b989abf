"""Mutated copies of emitted kernels are found on the host: every barrier is needed, stray indices and early reads are named."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.unit.codegen.cuda.emitting import Array, hard_inputs, run_kernel
from workbench.codegen.cuda.emitted import KernelSource
from workbench.codegen.cuda.kernel import emit_block
from workbench.errors import HostRunError
from workbench.programs import registry as programs
from workbench.ugraph.builder import KernelBuilder
from workbench.ugraph.kernel_graph import KernelGraph


def clustered() -> KernelGraph:
    """A product and a row sum over a loop that two blocks share."""
    kernel = KernelBuilder("clustered")
    x, w = kernel.input("X", (16, 256)), kernel.input("W", (256, 32))
    block = kernel.block(x, w, loop=4, cluster=(2,))
    a, b = block.load(0, fmap=1), block.load(1, fmap=0)
    block.save(block.accumulate(a @ b) / block.accumulate(a, "rms"))
    kernel.output(*block.finish(names=["O"], name="clustered"))
    return kernel.build()


def in_one_kernel(name: str, **sizes: int) -> KernelGraph:
    """A program's known good graph that is a single kernel."""
    graphs = programs.known_good(name, **sizes)  # type: ignore[arg-type]  # sizes are keywords of their own
    return next(graph for graph in graphs if len(graph.nodes) == 1)


GRAPHS: dict[str, Callable[[], KernelGraph]] = {
    "clustered": clustered,
    "lora": lambda: programs.known_good("lora", batch=16, hidden=64, out=32, rank=8)[0],
    "qk_norm": lambda: in_one_kernel("qk_norm_attention", heads=1, rows=16, head_dim=16, context=64),
    "softmax": lambda: programs.known_good("softmax", batch=2, hidden=300)[1],
}


def is_found(kernel: KernelSource, graph: KernelGraph, cache: Path, right: list[Array]) -> bool:
    """Whether some order of threads ends in an error or in another result."""
    for seed in (0, 1, 2):
        try:
            outputs, _ = run_kernel(kernel, hard_inputs(graph), cache, seed=seed)
        except HostRunError:
            return True
        if not all(np.array_equal(a, b) for a, b in zip(outputs, right, strict=True)):
            return True
    return False


@pytest.mark.parametrize("name", sorted(GRAPHS))
def test_every_barrier_is_needed(name: str, host_cache: Path) -> None:
    graph = GRAPHS[name]()
    kernel = emit_block(graph.graph_defined[0])
    right, _ = run_kernel(kernel, hard_inputs(graph), host_cache)
    barriers = list(re.finditer(r"\b(block_barrier|cluster_barrier)\(\);", kernel.body))
    assert len(barriers) >= 2
    for barrier in barriers:
        body = kernel.body[: barrier.start()] + kernel.body[barrier.end() :]
        line = kernel.body[: barrier.start()].count("\n") + 1
        found = is_found(replace(kernel, body=body), graph, host_cache, right)
        assert found, f"{barrier.group()} in line {line} is not missed:\n{kernel.body}"


def test_reading_before_a_copy_has_arrived_is_found(host_cache: Path) -> None:
    graph = clustered()
    kernel = emit_block(graph.graph_defined[0])
    early = re.sub(r"cp_async_wait<(\d+)>", lambda found: f"cp_async_wait<{int(found.group(1)) + 1}>", kernel.body)
    with pytest.raises(HostRunError) as caught:
        run_kernel(replace(kernel, body=early), hard_inputs(graph), host_cache)
    assert caught.value.kind in ("copy in flight", "race")


@pytest.mark.parametrize(
    ("place", "mutant", "kind"),
    [
        ("O[row * 32 + col]", "O[row * 33 + col]", "out of bounds"),
        ("O + row * 32 + col", "O + row * 33 + col + 1", "out of bounds|misaligned"),
        ("load_b_pair(right, w_tile, depth,", "load_b_pair(right, w_tile, depth + 16,", "undefined|out of bounds"),
        ("X + (i64)ahead * 64", "X + (i64)ahead * 65", "out of bounds|misaligned"),
    ],
)
def test_a_stray_index_is_found(place: str, mutant: str, kind: str, host_cache: Path) -> None:
    graph = clustered()
    kernel = emit_block(graph.graph_defined[0])
    if place not in kernel.body:
        assert place.startswith("O["), f"{place} is not in\n{kernel.body}"
        return  # elements are written one by one only where they do not lie together
    with pytest.raises(HostRunError) as caught:
        run_kernel(replace(kernel, body=kernel.body.replace(place, mutant)), hard_inputs(graph), host_cache)
    assert re.fullmatch(kind, caught.value.kind), caught.value
