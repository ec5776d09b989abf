from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from tests.unit.ugraph.mirage_writer import NEW, OLD, Block, Writer, dims, run
from workbench.core.dtypes import DType
from workbench.errors import DTypeError, FormatError, LegalityError, OmapError, ShapeError, WorkbenchError
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import AccumulatorKind, RunningMax
from workbench.ugraph.serialize import loads


def rms_linear(writer: Writer, accumulators: str = "tb_forloop_accum") -> Writer:
    x, w = writer.input(2, 8), writer.input(8, 12, strides=(1, 8))
    block = Block(writer, (3, 1, 1), 4)
    left, right = block.load(x, (2, 2), fmap=1), block.load(w, (2, 4), (1, -1, -1), 0)
    (root,) = block.op(f"{accumulators}_red_ld_rms_op", [left], (2, 1), after=True)
    (product,) = block.op("tb_matmul_op", [left, right], (2, 4))
    (total,) = block.op(f"{accumulators}_nored_op", [product], (2, 4), after=True)
    (quotient,) = block.op("tb_div_op", [total, root], (2, 4), after=True)
    writer.output(block.save(quotient, (2, 12), (1, -1, -1)))
    block.finish()
    writer.operators.append(writer.operators.pop(-2))  # the kernel's output after the kernel
    return writer


@pytest.mark.parametrize(("data_type", "names"), [(OLD, "tb_accum"), (NEW, "tb_forloop_accum")])
def test_both_generations_of_names_and_numbers(data_type: int, names: str, rng: np.random.Generator) -> None:
    graph = rms_linear(Writer(data_type), names).graph()
    assert [tensor.dtype for tensor in (*graph.inputs, *graph.outputs)] == [DType.FLOAT16] * 3
    assert graph.inputs[1].strides == (1, 8)
    assert graph.graph_defined[0].block.forloop_range == 4
    x, w = rng.standard_normal((2, 8)), rng.standard_normal((8, 12))
    expected = (x / np.sqrt((x**2).mean(-1, keepdims=True))) @ w
    np.testing.assert_allclose(run(graph, x, w)[0], expected, rtol=1e-12)


def test_two_generations_in_one_graph_are_refused() -> None:
    with pytest.raises(FormatError, match="two generations of Mirage meet: data_type 921 is older, tb_forloop_accum_"):
        rms_linear(Writer(OLD)).graph()


@pytest.mark.parametrize(
    ("number", "old", "dtype"),
    [(920, True, DType.BFLOAT16), (930, True, DType.FLOAT32), (940, True, DType.FLOAT64), (940, False, DType.FLOAT16),
     (941, False, DType.BFLOAT16), (950, False, DType.FLOAT32), (960, False, DType.FLOAT64)],
)  # fmt: skip
def test_a_number_means_what_its_generation_means(number: int, old: bool, dtype: DType) -> None:
    graph = rms_linear(Writer(number), "tb_accum" if old else "tb_forloop_accum").graph()
    assert graph.inputs[0].dtype is graph.outputs[0].dtype is dtype


@pytest.mark.parametrize(("number", "why"), [(930, "float8"), (955, "int32"), (920, "float4")])
def test_types_we_do_not_have_are_refused_by_name(number: int, why: str) -> None:
    with pytest.raises(DTypeError, match=rf"\[0\]\[0\].output_tensors\[0\].data_type: .*{why}"):
        rms_linear(Writer(number)).graph()


def test_an_unknown_data_type_is_refused_with_the_known_ones() -> None:
    with pytest.raises(FormatError, match=r"expected a data type of Mirage's \(920, 925.*, found 999"):
        rms_linear(Writer(999)).graph()


# ------------------------------------------------------------------------------------------------------------- block level
def accumulated(
    name: str, to: Sequence[int], *, fmap: int = 1, saved: Sequence[int], dimx: int = 2, after: bool = True
) -> KernelGraph:
    """X[4, 12] over a grid of 2 and a loop of 3, accumulated."""
    writer = Writer()
    block = Block(writer, (2, 1, 1), 3, dimx)
    tile = block.load(writer.input(4, 12), (2, 4 if fmap == 1 else 12), (0, -1, -1), fmap)
    (result,) = block.op(f"tb_forloop_accum_{name}_op", [tile], to, after=after)
    made = block.save(result, saved, (0, -1, -1))
    block.finish()
    writer.output(made)
    return writer.graph()


@pytest.mark.parametrize(
    ("name", "to", "saved", "function"),
    [
        ("nored", (2, 4), (4, 4), lambda x: x.reshape(4, 3, 4).sum(1)),
        ("red_ld_sum", (2, 1), (4, 1), lambda x: x.sum(-1, keepdims=True)),
        ("red_ld_mean", (2, 1), (4, 1), lambda x: x.mean(-1, keepdims=True)),
        ("red_ld_rms", (2, 1), (4, 1), lambda x: np.sqrt((x**2).mean(-1, keepdims=True))),
        ("redtox_ld_sum", (2, 2), (4, 2), lambda x: np.stack([x[:, 0::2].sum(1), x[:, 1::2].sum(1)], 1)),
        ("max", (2, 4), (4, 4), lambda x: x.reshape(4, 3, 4).max(1)),
    ],
)
def test_accumulators(
    name: str, to: Sequence[int], saved: Sequence[int], function: Callable[[Any], Any], rng: np.random.Generator
) -> None:
    x = rng.standard_normal((4, 12))
    np.testing.assert_allclose(run(accumulated(name, to, saved=saved), x)[0], function(x), rtol=1e-9, atol=1e-12)


def test_a_tile_that_is_not_looped_is_added_once_per_iteration(rng: np.random.Generator) -> None:
    x = rng.standard_normal((4, 12))
    graph = accumulated("nored", (2, 12), fmap=-1, saved=(4, 12))
    np.testing.assert_allclose(run(graph, x)[0], 3 * x, rtol=1e-12)
    graph = accumulated("red_ld_sum", (2, 1), fmap=-1, saved=(4, 1))
    np.testing.assert_allclose(run(graph, x)[0], 3 * x.sum(-1, keepdims=True), rtol=1e-9, atol=1e-12)


def test_running_max_and_rescaled_accumulators_make_a_safe_softmax(rng: np.random.Generator) -> None:
    writer = Writer()
    logits, values = writer.input(3, 12), writer.input(12, 5)
    block = Block(writer, (1, 1, 1), 4)
    tile, right = block.load(logits, (3, 3), fmap=1), block.load(values, (3, 5), fmap=0)
    maximum, shift = block.op("tb_reduction_1_max_op", [tile], (3, 1), (3, 1), reduce_dim=1, reduce_size=1)
    (difference,) = block.op("tb_sub_op", [tile, maximum], (3, 3))
    (weights,) = block.op("tb_exp_op", [difference], (3, 3))
    (factor,) = block.op("tb_exp_op", [shift], (3, 1))
    (product,) = block.op("tb_matmul_op", [weights, right], (3, 5))
    (kept,) = block.op("tb_forloop_accum_nored_rescale_op", [product, factor], (3, 5), after=True)
    (total,) = block.op("tb_forloop_accum_red_ld_sum_rescale_op", [weights, factor], (3, 1), after=True)
    (best,) = block.op("tb_forloop_accum_max_op", [maximum], (3, 1), after=True)
    (quotient,) = block.op("tb_div_op", [kept, total], (3, 5), after=True)
    first, second = block.save(quotient, (3, 5)), block.save(best, (3, 1))
    block.finish()
    writer.output(second, first)
    graph = writer.graph()
    kinds = [node.kind for node in graph.graph_defined[0].block.accumulators]
    assert kinds == [AccumulatorKind.RESCALE, AccumulatorKind.RESCALE_SUM, AccumulatorKind.MAX]
    assert any(isinstance(node, RunningMax) for node in graph.graph_defined[0].block.nodes)
    s, v = 300 * rng.standard_normal((3, 12)), rng.standard_normal((12, 5))
    e = np.exp(s - s.max(-1, keepdims=True))
    found_max, found = run(graph, s, v)  # in the order of the kn_output_ops
    np.testing.assert_array_equal(found_max, s.max(-1, keepdims=True))
    np.testing.assert_allclose(found, e @ v / e.sum(-1, keepdims=True), rtol=1e-9)


def test_concat_then_matmul_and_reductions_inside_a_block(rng: np.random.Generator) -> None:
    writer = Writer()
    shapes = [(3, 4), (3, 2), (4, 6), (2, 6)]
    tensors = [writer.input(*shape) for shape in shapes]
    block = Block(writer, (1, 1, 1), 1, dimx=3)
    tiles = [block.load(tensor, shape) for tensor, shape in zip(tensors, shapes, strict=True)]
    (product,) = block.op("tb_concat_then_matmul_op", tiles, (3, 6))
    (columns,) = block.op("tb_reduction_1_to_dimx_op", [product], (3, 3), reduce_dim=1, reduce_size=3)
    (row,) = block.op("tb_reduction_0_op", [columns], (1, 3), reduce_dim=0, reduce_size=1)
    (joined,) = block.op("tb_concat_0_op", [row, columns], (4, 3), concat_dim=0)
    (result,) = block.op("tb_forloop_accum_nored_op", [joined], (4, 3), after=True)
    made = block.save(result, (4, 3))
    block.finish()
    writer.output(made)
    a, b, c, d = (rng.standard_normal(shape) for shape in shapes)
    p = a @ c + b @ d
    q = p[:, :3] + p[:, 3:]
    expected = np.concatenate([q.sum(0, keepdims=True), q])
    np.testing.assert_allclose(run(writer.graph(), a, b, c, d)[0], expected, rtol=1e-9, atol=1e-12)


def test_results_are_matched_by_guid_not_by_position(rng: np.random.Generator) -> None:
    writer = Writer()
    block = Block(writer, (1, 1, 1), 1)
    tile = block.load(writer.input(2, 3), (2, 3))
    (doubled,) = block.op("tb_add_op", [tile, tile], (2, 3))
    (squared,) = block.op("tb_square_op", [tile], (2, 3))
    results = [block.op("tb_forloop_accum_nored_op", [t], (2, 3), after=True)[0] for t in (doubled, squared)]
    first, second = (block.save(result, (2, 3)) for result in results)
    block.outputs.reverse()
    block.finish()
    writer.output(first, second)
    x = rng.standard_normal((2, 3))
    found = run(writer.graph(), x)
    np.testing.assert_allclose(found[0], 2 * x)
    np.testing.assert_allclose(found[1], x**2)


def test_strides_of_an_output_are_kept() -> None:
    writer = Writer()
    (made,) = writer.op("kn_exp_op", [writer.input(3, 4)], (3, 4))
    writer.add("kn_output_op", [made], [], output_strides=[1, 3], output_map=dims(-1, -1, -1))
    assert writer.graph().outputs[0].strides == (1, 3)


def test_a_single_graph_and_an_empty_file() -> None:
    operators = rms_linear(Writer()).operators
    assert loads(json.dumps(operators)) == loads(json.dumps([operators]))
    assert loads("[]") == []


# ---------------------------------------------------------------------------------------------------------- broken files
def broken(change: Callable[[list[Any]], None]) -> KernelGraph:
    operators = copy.deepcopy(rms_linear(Writer()).operators)
    operators = json.loads(json.dumps(operators))  # no object is shared any more
    change(operators)
    (graph,) = loads(json.dumps([operators]))
    return graph


def set_at(*path: Any, to: Any) -> Callable[[list[Any]], None]:
    def change(value: Any) -> None:
        for key in path[:-1]:
            value = value[key]
        value[path[-1]] = to

    return change


TB = (2, "bgraph", "operators")
OUT = ("output_tensors", 0)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda ops: ops.insert(0, ops.pop(2)), FormatError, r"\[0\]\[0\].input_tensors\[0\]: guid \d+ is made only later"),
        (set_at(*TB, 5, "input_tensors", 0, "guid", to=5), FormatError, r"\[2\].bgraph.operators\[5\].*: guid 5 is made by no"),
        (lambda ops: ops[2]["bgraph"]["operators"].insert(2, ops[2]["bgraph"]["operators"].pop(5)), FormatError, "form a cycle"),
        (set_at(3, "input_tensors", 0, "guid", to=7), FormatError, "guid 7 is made by no operator"),
        (set_at(*TB, 0, "dtensor", "guid", to=7), FormatError, r"\[0\] \(tb_input_op\): reads guid 7, the kernel's operands"),
        (set_at(*TB, 6, "dtensor", "guid", to=7), FormatError, r"\[0\]\[2\] \(kn_customized_op\): it makes guids .*store \[7\]"),
        (set_at(*TB, 5, *OUT, "dim", to=[2, 5, 0, 0]), FormatError, r"\(tb_div_op\): shape \(2, 5\) is recorded, .*\(2, 4\)"),
        (set_at(*TB, 5, *OUT, "after_accum", to=False), FormatError, "after_accum is false, by its wiring .* after the loop"),
        (set_at(*TB, 3, *OUT, "after_accum", to=True), FormatError, r"\(tb_matmul_op\): after_accum is true, .* tile is loop"),
        (set_at(*TB, 3, "input_tensors", to=[]), FormatError, r"\(tb_matmul_op\): takes 2 tensors here, got 0"),
        (set_at(*TB, 3, "op_type", to="tb_customized_op"), FormatError, "does not record what it computes"),
        (set_at(*TB, 6, "output_map", "x", to=-1), OmapError, r"\[6\] \(tb_output_op\): output saver of t\d: the 3 blocks"),
        (set_at(*TB, 6, "output_map", "x", to=4), OmapError, "dimension 4 of a tile of rank 2"),
        (set_at(*TB, 0, "input_map", "x", to=3), LegalityError, "imap: .*dimension 3"),
        (set_at(*TB, 5, "input_tensors", to="none"), FormatError, "input_tensors: expected a list"),
        (set_at(2, "bgraph", "grid_dim", to={"x": 3}), FormatError, r"grid_dim: field 'y' is missing"),
        (set_at(2, "bgraph", "forloop_range", to=0), LegalityError, "forloop_range 0 must be at least 1"),
        (set_at(2, "bgraph", "graph_level", to="thread_graph"), FormatError, "expected 'thread_block_graph'"),
        (set_at(2, "bgraph", to=None), FormatError, "bgraph: expected an object"),
        (lambda ops: ops.pop(), FormatError, r"\[0\]: the graph has no kn_output_op"),
        (set_at(0, "output_tensors", 0, "num_dims", to=9), FormatError, "num_dims: expected a number of dimensions up to 4"),
        (set_at(0, "output_tensors", 0, "dim", to=[2, 0, 0, 0]), ShapeError, "extent of axis 1 is 0"),
        (set_at(0, "input_strides", to=[1, 1]), ShapeError, r"\[0\]\[0\] \(kn_input_op\): .*overlap"),
        (set_at(0, to=3), FormatError, r"\[0\]\[0\]"),
        (set_at(0, "op_type", to=1001), FormatError, "op_type: expected a string, found 1001"),
        (lambda ops: ops.append(copy.deepcopy(ops[0])), FormatError, r"\[0\]\[4\] \(kn_input_op\): guid \d+ is made twice"),
    ],
)  # fmt: skip
def test_broken_graphs_are_refused_with_the_place(
    change: Callable[[list[Any]], None], error: type[WorkbenchError], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        broken(change)
    assert "\n" not in str(caught.value)


def parts(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, child in children for found in parts(child, (*path, key)))]


@pytest.mark.parametrize("junk", [None, -1, 0, 7, "x", [], {}, [1], True, 1.5, 10**30], ids=repr)
def test_junk_in_any_place_is_refused_or_harmless(junk: Any) -> None:
    text = json.dumps(rms_linear(Writer()).operators)
    refused = 0
    for path in parts(json.loads(text))[1:]:
        operators = json.loads(text)
        set_at(*path, to=junk)(operators)
        try:
            loads(json.dumps([operators]))
        except WorkbenchError:
            refused += 1
    assert refused > 50
