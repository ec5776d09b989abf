"""Random graphs of every node through the emitter: text, or a refusal in words; what is written agrees with float64."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from tests.property.strategies import Options, kernel_graphs
from workbench.codegen.cuda.emitted import EmittedProgram
from workbench.codegen.cuda.host_program import run_program_on_host
from workbench.codegen.cuda.host_run import HostOptions
from workbench.codegen.cuda.kernel_level import emit_program
from workbench.codegen.cuda.storage import from_storage, to_storage
from workbench.core.dtypes import DType
from workbench.errors import EmitError
from workbench.interpret.floats import evaluate
from workbench.interpret.rounded import evaluate_rounded
from workbench.ugraph.kernel_graph import KernelGraph

LIMITS = {DType.FLOAT16: 2e-3, DType.BFLOAT16: 1.5e-2, DType.FLOAT32: 1e-5}
MARGIN = 8.0
"""Roundings in another order are another draw of the same errors."""


def emitted(graph: KernelGraph) -> EmittedProgram | None:
    """The program without the library, None where it is refused in words; nothing else may happen."""
    try:
        return emit_program(graph, library=False)
    except EmitError as error:
        refusal = error
    assert refusal.rule
    assert refusal.cure
    return None


@settings(max_examples=120, suppress_health_check=list(HealthCheck))
@given(kernel_graphs(Options(odd_names=True)))
def test_text_or_a_refusal(graph: KernelGraph) -> None:
    program = emitted(graph)
    if program is not None:
        assert all(kernel.launch.shared_bytes <= kernel.schedule.shared_limit for kernel in program.kernels)
        assert all(kernel.body.isascii() for kernel in program.kernels)
        if not any(tensor.dtype is DType.FLOAT64 for tensor in graph.inputs):
            assert emit_program(graph, library=False) == program


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ on the PATH: kernels cannot be built for the host")
@pytest.mark.timeout(180)
@settings(max_examples=30, suppress_health_check=list(HealthCheck))
@given(kernel_graphs())
def test_what_is_written_is_right(graph: KernelGraph) -> None:
    program = emitted(graph)
    if program is None:
        return
    rng = np.random.default_rng(5)
    inputs = [
        from_storage(to_storage(rng.standard_normal(tensor.shape), tensor.dtype), tensor.dtype)
        for tensor in graph.inputs
    ]
    outputs = run_program_on_host(program, inputs, HostOptions(seed=2))
    with np.errstate(all="ignore"):
        right, rounded = evaluate(graph, inputs), evaluate_rounded(graph, inputs)
        for name, output, expected, noisy in zip(program.outputs, outputs, right, rounded, strict=True):
            dtype = program.buffer(name).tensor.dtype
            found = from_storage(output, dtype)
            told = np.isfinite(expected) & np.isfinite(noisy) & (np.abs(expected) < dtype.largest)
            assert np.all(np.isfinite(found[told])), name
            size = float(np.linalg.norm(expected[told]))
            noise = float(np.linalg.norm(noisy[told] - expected[told]))
            assert np.linalg.norm(found[told] - expected[told]) <= LIMITS[dtype] * size + MARGIN * noise, name
