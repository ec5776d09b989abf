"""Whole programs on the host: inputs are rounded and checked, library products and kernels share buffers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from workbench.codegen.cuda.host_program import run_program_on_host
from workbench.codegen.cuda.host_run import HostOptions
from workbench.codegen.cuda.kernel_level import emit_program
from workbench.core.dtypes import DType
from workbench.errors import ShapeError
from workbench.ugraph.builder import KernelBuilder
from workbench.ugraph.kernel_graph import KernelGraph


def graph() -> KernelGraph:
    k = KernelBuilder("program")
    x, w = k.input("X", (4, 16), DType.FLOAT16, (20, 1)), k.input("W", (16, 8), DType.FLOAT16)
    k.output(k.apply("relu", x @ w), x)
    return k.build()


@pytest.mark.parametrize("library", [True, False])
def test_outputs_have_their_shapes_whatever_the_strides(library: bool, host_cache: Path) -> None:
    rng = np.random.default_rng(1)
    x, w = rng.standard_normal((4, 16)), rng.standard_normal((16, 8))
    program = emit_program(graph(), library=library)
    product, copy = run_program_on_host(program, [x, w], HostOptions(cache_folder=host_cache))
    np.testing.assert_array_equal(copy, x.astype(np.float16))  # rounded once, then copied
    np.testing.assert_allclose(
        product, np.maximum(x.astype(np.float16).astype(float) @ w.astype(np.float16).astype(float), 0), atol=4e-3
    )


def test_wrong_inputs_are_named() -> None:
    program = emit_program(graph())
    with pytest.raises(ShapeError, match="takes 2 inputs, got 1"):
        run_program_on_host(program, [np.zeros((4, 16))])
    with pytest.raises(ShapeError, match="input W has shape"):
        run_program_on_host(program, [np.zeros((4, 16)), np.zeros((8, 16))])
