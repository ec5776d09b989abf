"""Chains of elementwise operators and movement as one kernel over all elements."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.unit.codegen.cuda.emitting import hard_inputs
from workbench.codegen.cuda.emitted import KernelSource
from workbench.codegen.cuda.host_program import run_program_on_host
from workbench.codegen.cuda.host_run import HostOptions
from workbench.codegen.cuda.kernel_level import emit_program
from workbench.codegen.cuda.storage import from_storage
from workbench.core.dtypes import DType
from workbench.interpret.floats import evaluate
from workbench.ugraph.builder import KernelBuilder
from workbench.ugraph.kernel_graph import KernelGraph


def kernel_of(graph: KernelGraph) -> KernelSource:
    (kernel,) = emit_program(graph).kernels
    return kernel


def chain(shape: tuple[int, ...], dtype: DType = DType.FLOAT32) -> KernelGraph:
    k = KernelBuilder("chain")
    x, y = k.input("X", shape, dtype), k.input("Y", shape[-1:], dtype)
    k.output(k.apply("silu", x * y) + 1)
    return k.build()


@pytest.mark.parametrize("shape", [(7,), (3, 100), (64, 64), (2, 3, 5, 8), (1, 1)])
@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.BFLOAT16], ids=lambda dtype: dtype.value)
def test_chains(shape: tuple[int, ...], dtype: DType, host_cache: Path) -> None:
    graph = chain(shape, dtype)
    inputs = hard_inputs(graph)
    program = emit_program(graph)
    (found,) = run_program_on_host(program, inputs, HostOptions(cache_folder=host_cache))
    right = evaluate(graph, inputs)[0]
    limit = 1e-6 if dtype is DType.FLOAT32 else 1e-2
    assert np.linalg.norm(from_storage(found, dtype) - right) <= limit * np.linalg.norm(right)


def test_no_shared_memory_and_no_barrier() -> None:
    kernel = kernel_of(chain((64, 64)))
    assert kernel.launch.shared_bytes == 0
    assert "barrier" not in kernel.body
    assert kernel.products == 0


def test_blocks_grow_with_the_elements_up_to_a_limit() -> None:
    assert kernel_of(chain((4, 8))).launch.grid == (1, 1, 1)
    assert kernel_of(chain((1024, 4096))).launch.grid == (2048, 1, 1)
    assert kernel_of(chain((2**18, 2**13))).launch.grid == (65535, 1, 1)


def test_neighbours_move_together() -> None:
    body = kernel_of(chain((64, 4096), DType.FLOAT16)).body
    assert "global_to_register<8" in body
    assert "register_to_global" in body


def test_every_operator_of_the_chain_stands_in_the_text_once() -> None:
    body = kernel_of(chain((64, 64))).body
    assert len(re.findall(r"precise_silu|fast_silu|1\.0f \+ expf", body)) == 1


def test_results_of_several_shapes_share_a_kernel(host_cache: Path) -> None:
    k = KernelBuilder("shapes")
    x = k.input("X", (6, 8), DType.FLOAT32)
    e = k.apply("exp", x)
    k.output(e, k.apply("transpose", e), k.apply("reshape", e, shape=(4, 12)))
    graph = k.build()
    program = emit_program(graph)
    inputs = hard_inputs(graph)
    found = run_program_on_host(program, inputs, HostOptions(cache_folder=host_cache))
    for one, other in zip(found, evaluate(graph, inputs), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)
