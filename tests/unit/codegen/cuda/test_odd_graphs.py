"""Odd graphs, at every level: each is right on the host, infinities and NaN included, or refused with rule and cure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.unit.codegen.cuda.emitting import TOLERANCES, Array, hard_inputs
from workbench.codegen.cuda.emitted import EmittedProgram
from workbench.codegen.cuda.host_program import run_program_on_host
from workbench.codegen.cuda.host_run import HostOptions
from workbench.codegen.cuda.kernel_level import emit_program
from workbench.codegen.cuda.storage import from_storage, to_storage
from workbench.core.dtypes import DType
from workbench.core.layouts import column_major_strides
from workbench.errors import EmitError
from workbench.interpret.floats import evaluate
from workbench.ugraph.builder import KernelBuilder, ThreadBuilder
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.value import Value

Build = Callable[[KernelBuilder], Sequence[Value]]
F16, BF16, F32 = DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32


def graph_of(build: Build) -> KernelGraph:
    kernel = KernelBuilder("odd")
    kernel.output(*build(kernel))
    return kernel.build()


def check_on_host(graph: KernelGraph, cache: Path, inputs: Sequence[Array] | None = None) -> EmittedProgram:
    """Run both ways to multiply; compare, non-finite numbers by place and sign."""
    given = [
        from_storage(to_storage(array, tensor.dtype), tensor.dtype)
        for array, tensor in zip(inputs or hard_inputs(graph), graph.inputs, strict=True)
    ]
    with np.errstate(all="ignore"):
        right = evaluate(graph, given)
    for library in (True, False):
        program = emit_program(graph, library=library)
        outputs = run_program_on_host(program, given, HostOptions(cache_folder=cache))
        for name, output, expected in zip(program.outputs, outputs, right, strict=True):
            dtype = program.buffer(name).tensor.dtype
            found = from_storage(output, dtype)
            np.testing.assert_array_equal(np.isfinite(found), np.isfinite(expected), err_msg=name)
            rest = ~np.isfinite(expected)
            np.testing.assert_array_equal(found[rest], expected[rest], err_msg=name)
            size = np.linalg.norm(expected[~rest])
            assert np.linalg.norm(found[~rest] - expected[~rest]) <= TOLERANCES[dtype] * size, name
    return program


# -------------------------------------------------------------------------------------------------- kernel graphs
def an_input_as_output(k: KernelBuilder) -> Sequence[Value]:
    x = k.input("X", (3, 5), F16)
    return x, k.apply("neg", x), x


def one_value_twice(k: KernelBuilder) -> Sequence[Value]:
    y = k.apply("exp", k.input("X", (3, 5), F16))
    return y, y


def extents_of_one(k: KernelBuilder) -> Sequence[Value]:
    x, y = k.input("X", (1, 1, 1), F32), k.input("Y", (1,), F32)
    return x @ x, k.apply("sum", x * y, axis=-2), k.apply("softmax", y, axis=-1)


def scalars(k: KernelBuilder) -> Sequence[Value]:
    x, y = k.input("X", (), F32), k.input("Y", (4,), F32)
    return x * x, x + y


def strided_inputs(k: KernelBuilder) -> Sequence[Value]:
    """Gaps between rows, columns that lie together, and elements that lie three apart."""
    x = k.input("X", (6, 20), F16, (33, 1))
    y = k.input("Y", (20, 6), F16, column_major_strides((20, 6)))
    z = k.input("Z", (6, 6), F16, (18, 3))
    return x @ y + z, k.apply("transpose", y) * x, k.apply("sum", z, axis=-2)


def many_outputs(k: KernelBuilder) -> Sequence[Value]:
    x = k.input("X", (4, 24), F32)
    return [k.apply(op, x) for op in ("neg", "abs", "square", "relu", "tanh", "sigmoid", "silu", "gelu", "exp", "erf")]


def mixed_types(k: KernelBuilder) -> Sequence[Value]:
    x, y, z = k.input("X", (5, 16), BF16), k.input("Y", (16, 8), BF16), k.input("Z", (5, 8), BF16)
    return x @ y + z, k.apply("layer_norm", x)


def joined_and_cut(k: KernelBuilder) -> Sequence[Value]:
    x, y = k.input("X", (4, 6), F32), k.input("Y", (4, 10), F32)
    both = k.apply("concat", x, y, axis=-1)
    first, second = k.apply_all("split", both, axis=-1, parts=(9, 7))
    return k.apply("reshape", both, shape=(8, 8)), first, k.apply("sum", second, axis=-1)


KERNEL_GRAPHS = [
    an_input_as_output, one_value_twice, extents_of_one, scalars, strided_inputs, many_outputs, mixed_types,
    joined_and_cut,
]  # fmt: skip


# --------------------------------------------------------------------------------------------------- block graphs
def one_input_loaded_twice(k: KernelBuilder) -> Sequence[Value]:
    """By rows, by columns, and whole, in one block."""
    block = k.block(k.input("X", (16, 16), F16), grid=(2,), loop=2)
    rows, columns, whole = block.load(0, imap=(0,), fmap=1), block.load(0, imap=(1,), fmap=0), block.load(0)
    part = block.load(0, fmap=1)
    block.save(block.accumulate(part @ columns) + block.apply("sum", whole, axis=-1), omap=(1,))
    block.save(block.accumulate(rows, "sum_dim"), omap=(0,))
    return block.finish()


def one_operand_twice(k: KernelBuilder) -> Sequence[Value]:
    """The same tensor is two operands of the block graph."""
    x = k.input("X", (12, 12), F16)
    block = k.block(x, x, loop=3)
    block.save(block.accumulate(block.load(0, fmap=1) @ block.load(1, fmap=0)))
    return block.finish()


def reshaped_tiles(k: KernelBuilder) -> Sequence[Value]:
    x, w = k.input("X", (2, 24), F16), k.input("W", (6, 8), F16)
    block = k.block(x, w)
    tile = block.apply("reshape", block.load(0), shape=(8, 6))
    block.save(tile @ block.load(1))
    block.save(block.apply("reshape", block.apply("transpose", tile), shape=(48,)))
    return block.finish()


def tiles_joined_and_cut(k: KernelBuilder) -> Sequence[Value]:
    x, y, w = k.input("X", (5, 32), F16), k.input("Y", (5, 32), F16), k.input("W", (32, 8), F16)
    block = k.block(x, y, w, loop=2)
    both = block.apply("concat", block.load(0, fmap=1), block.load(1, fmap=1), axis=-1)
    first, second = block.apply_all("split", both, axis=-1, parts=(12, 20))
    block.save(block.accumulate(block.apply("sum", first, axis=-1)))
    w_tile = block.load(2, fmap=0)
    middle, _ = block.apply_all("split", second, axis=-1, parts=(16, 4))
    block.save(block.accumulate(middle @ w_tile))
    return block.finish()


def loop_that_does_not_divide(k: KernelBuilder) -> Sequence[Value]:
    x, w = k.input("X", (7, 50), F16), k.input("W", (50, 9), F16)
    block = k.block(x, w, grid=(2,), loop=4)
    a, b = block.load(0, fmap=1), block.load(1, imap=(1,), fmap=0)
    block.save(block.accumulate(a @ b) / block.accumulate(a * a, "rms"), omap=(1,))
    return block.finish()


def more_blocks_than_elements(k: KernelBuilder) -> Sequence[Value]:
    block = k.block(k.input("X", (3, 5), F32), grid=(7, 2))
    block.save(block.apply("exp", block.load(0, imap=(1, 0))), omap=(1, 0))
    return block.finish()


def thread_graphs_with_constants(k: KernelBuilder) -> Sequence[Value]:
    block = k.block(k.input("X", (6, 20), F16), k.input("Y", (20,), F16), grid=(2,))
    x, y = block.load(0, imap=(0,)), block.load(1)
    thread = ThreadBuilder()
    a, b = thread.input("a", x.shape), thread.input("b", y.shape)
    chain = thread.build((a * 3 + b / 7 - 1) * thread.value(2))
    block.save(block.thread(chain, x, y), omap=(0,))
    return block.finish()


def three_types_in_a_block(k: KernelBuilder) -> Sequence[Value]:
    """Operands of 16 and 32 bits meet where nothing demands one type."""
    x, y = k.input("X", (8, 32), F32), k.input("Y", (32, 8), F32)
    block = k.block(x, y, loop=2)
    block.save(block.accumulate(block.load(0, fmap=1) @ block.load(1, fmap=0)))
    block.save(block.load(0))
    return block.finish()


def many_results_of_a_block(k: KernelBuilder) -> Sequence[Value]:
    block = k.block(k.input("X", (6, 20), F32), grid=(3,))
    x = block.load(0, imap=(0,))
    for op in ("neg", "abs", "square", "relu", "tanh", "sigmoid", "silu", "exp"):
        block.save(block.apply(op, x), omap=(0,))
    block.save(block.apply("sum", x, axis=-2), omap=(0,))
    return block.finish()


def four_dimensions(k: KernelBuilder) -> Sequence[Value]:
    x, w = k.input("X", (2, 3, 5, 16), F16), k.input("W", (2, 3, 16, 6), F16)
    block = k.block(x, w, grid=(2, 3), loop=2)
    block.save(block.accumulate(block.load(0, imap=(0, 1), fmap=3) @ block.load(1, imap=(0, 1), fmap=2)), omap=(0, 1))
    return block.finish()


def vectors(k: KernelBuilder) -> Sequence[Value]:
    block = k.block(k.input("X", (100,), F16), grid=(4,), loop=3)
    x = block.load(0, imap=(0,), fmap=0)
    block.save(block.accumulate(x * x, "sum_dim"), omap=(0,))
    return block.finish()


BLOCK_GRAPHS = [
    one_input_loaded_twice, one_operand_twice, reshaped_tiles, tiles_joined_and_cut, loop_that_does_not_divide,
    more_blocks_than_elements, thread_graphs_with_constants, three_types_in_a_block, many_results_of_a_block,
    four_dimensions, vectors,
]  # fmt: skip


@pytest.mark.parametrize("build", [*KERNEL_GRAPHS, *BLOCK_GRAPHS], ids=lambda build: build.__name__)
def test_an_odd_graph_is_right(build: Build, host_cache: Path) -> None:
    check_on_host(graph_of(build), host_cache)


# -------------------------------------------------------------------------------------- numbers that are not finite
def non_finite(k: KernelBuilder) -> Sequence[Value]:
    x = k.input("X", (4, 8), F32)
    return (
        k.apply("exp", x), k.apply("max", x, axis=-1), k.apply("maximum", x, k.apply("neg", x)), k.apply("relu", x),
        k.apply("minimum", x, x * 0 + 1), k.apply("sum", x, axis=-1), k.apply("sigmoid", x), k.apply("silu", x),
        k.apply("sqrt", x), k.apply("log", x), k.apply("tanh", x),
    )  # fmt: skip


def non_finite_in_a_block(k: KernelBuilder) -> Sequence[Value]:
    block = k.block(k.input("X", (4, 8), F32), loop=2)
    x = block.load(0, fmap=1)
    block.save(block.accumulate(x, "max_dim"))
    block.save(block.accumulate(block.apply("exp", x)))
    block.save(block.accumulate(x, "max"))
    return block.finish()


@pytest.mark.parametrize("build", [non_finite, non_finite_in_a_block], ids=lambda build: build.__name__)
def test_infinities_and_nan_go_where_numpy_puts_them(build: Build, host_cache: Path) -> None:
    """exp(-inf) is 0, a maximum of NaN is NaN, infinities stay and meet as NaN."""
    x = np.linspace(-3, 3, 32).reshape(4, 8)
    x[0, 2], x[1, 5], x[2, 0], x[2, 7], x[3] = -np.inf, np.inf, np.nan, -np.inf, -np.inf
    check_on_host(graph_of(build), host_cache, [x])


# ----------------------------------------------------------------------------------------------------------- refusals
def refused(build: Build) -> EmitError:
    with pytest.raises(EmitError) as caught:
        emit_program(graph_of(build))
    assert caught.value.rule
    assert caught.value.cure
    return caught.value


def test_an_axis_beyond_32_bits_is_refused() -> None:
    error = refused(lambda k: [k.apply("relu", k.input("X", (2**32,), F16))])
    assert "counted in 32 bits" in str(error)


def test_offsets_beyond_32_bits_are_not_refused() -> None:
    program = emit_program(graph_of(lambda k: [k.apply("relu", k.input("X", (2**20, 2**13), F16))]))
    assert "(i64)row" in program.kernels[0].body


def test_a_grid_that_no_launch_takes_is_refused() -> None:
    def build(k: KernelBuilder) -> Sequence[Value]:
        block = k.block(k.input("X", (2, 70000), F16), grid=(2, 70000))
        block.save(block.apply("relu", block.load(0, imap=(0, 1))), omap=(0, 1))
        return block.finish()

    assert "65535" in str(refused(build))


def test_more_rows_than_registers_are_refused() -> None:
    def build(k: KernelBuilder) -> Sequence[Value]:
        block = k.block(k.input("X", (10**6, 8), F16))
        block.save(block.apply("sum", block.load(0), axis=-1))
        return block.finish()

    assert "one for each of its rows" in str(refused(build))


def test_long_rows_are_not_unrolled() -> None:
    """2^24 elements in a row are 8192 steps of a block; their text stays a loop."""
    program = emit_program(graph_of(lambda k: [k.apply("sum", k.input("X", (2, 2**24), F16), axis=-1)]))
    text = program.kernels[0].body
    assert "cc < 8192" not in text
    assert "col < 16777216; col += 2048" in text


def test_float64_is_refused() -> None:
    assert "float64" in str(refused(lambda k: [k.apply("relu", k.input("X", (4, 4), DType.FLOAT64))]))


def test_an_input_of_float64_is_refused_though_nothing_reads_it() -> None:
    def build(k: KernelBuilder) -> Sequence[Value]:
        k.input("unread", (4,), DType.FLOAT64)
        return [k.apply("relu", k.input("X", (4, 4), F32))]

    assert refused(build).node == "unread"
