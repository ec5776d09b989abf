"""Block graphs made by rule: products and rows of every shape mean what their operators mean, and fit a launch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.unit.codegen.cuda.emitting import Array, hard_inputs
from workbench.codegen.cuda.host_program import run_program_on_host
from workbench.codegen.cuda.host_run import HostOptions
from workbench.codegen.cuda.kernel_level import emit_program
from workbench.codegen.cuda.storage import from_storage
from workbench.core.dtypes import DType
from workbench.core.tensors import DeviceTensor
from workbench.interpret.floats import evaluate
from workbench.ugraph.builder import KernelBuilder
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.rule_blocks import grid_cuts, merged_leading, parts, row_tiles


def outputs(graph: KernelGraph, cache: Path) -> tuple[Array, Array]:
    inputs = hard_inputs(graph)
    program = emit_program(graph, library=False)
    (found,) = run_program_on_host(program, inputs, HostOptions(cache_folder=cache))
    return from_storage(found, program.buffer(program.outputs[0]).tensor.dtype), evaluate(graph, inputs)[0]


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((1, 1), (1, 1)),
        ((70, 33), (33, 130)),
        ((2, 3, 5, 16), (2, 3, 16, 6)),
        ((3, 5, 16), (16, 6)),
        ((2, 1, 5, 16), (3, 16, 6)),
        ((200, 8), (8, 3)),
    ],
)
@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.FLOAT32], ids=lambda dtype: dtype.value)
def test_products(left: tuple[int, ...], right: tuple[int, ...], dtype: DType, host_cache: Path) -> None:
    k = KernelBuilder("product")
    k.output(k.input("X", left, dtype) @ k.input("W", right, dtype))
    found, right_values = outputs(k.build(), host_cache)
    assert np.linalg.norm(found - right_values) <= 1e-3 * np.linalg.norm(right_values)


@pytest.mark.parametrize(("shape", "axis"), [((5, 9000), -1), ((70, 6), -2), ((3, 4, 50), -3), ((2000,), -1)])
def test_rows(shape: tuple[int, ...], axis: int, host_cache: Path) -> None:
    k = KernelBuilder("rows")
    x = k.input("X", shape, DType.FLOAT32)
    e = k.apply("exp", x - k.apply("max", x, axis=axis))
    k.output(e / k.apply("sum", e, axis=axis))
    found, right = outputs(k.build(), host_cache)
    assert np.linalg.norm(found - right) <= 1e-5 * np.linalg.norm(right)


def test_parts_are_not_empty() -> None:
    for extent in range(1, 300):
        count = parts(extent, 64)
        length = -(-extent // count)
        assert length <= 64
        assert (count - 1) * length < extent


def test_the_largest_cut_is_along_x() -> None:
    assert grid_cuts((3, 100, 70000), (1, 64, 1)) == [(2, 70000), (0, 3), (1, 2)]
    assert grid_cuts((1, 5), (1, 5)) == []
    assert len(grid_cuts((2, 3, 4, 5), (1, 1, 1, 1))) == 3


def test_no_more_blocks_along_y_and_z_than_a_launch_takes() -> None:
    k = KernelBuilder("wide")
    k.output(k.apply("softmax", k.input("X", (70000, 80000, 512), DType.FLOAT16), axis=-1))
    (kernel,) = emit_program(k.build()).kernels
    assert kernel.launch.grid[0] > 65535 >= kernel.launch.grid[1]
    assert grid_cuts((3, 100, 70000, 80000), (1, 64, 1, 1)) == [(3, 80000), (2, 35000), (0, 3)]


def test_tiles_of_rows_are_whole_along_the_folded_axis() -> None:
    assert row_tiles((64, 8192), -1) == [1, 8192]
    assert row_tiles((64, 128), -1) == [32, 128]
    assert row_tiles((8192, 64), -2) == [8192, 32]


def test_leading_axes_merge_where_strides_allow() -> None:
    merged = merged_leading(DeviceTensor("X", (2, 3, 4, 5), DType.FLOAT16))
    assert merged is not None
    assert (merged.shape, merged.strides) == ((6, 4, 5), (20, 5, 1))
    assert merged_leading(DeviceTensor("X", (2, 3, 4, 5), DType.FLOAT16, (100, 20, 5, 1))) is None
    single = merged_leading(DeviceTensor("X", (1, 3, 4, 5), DType.FLOAT16, (999, 20, 5, 1)))
    assert single is not None
    assert single.shape == (3, 4, 5)
