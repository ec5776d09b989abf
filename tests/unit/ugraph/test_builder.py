from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from workbench.core.dtypes import DType
from workbench.core.tensors import DeviceTensor, RaggedSplit, SharedTensor
from workbench.errors import (
    AccumulatorError,
    AttributeValueError,
    DTypeError,
    DuplicateNameError,
    FmapError,
    ImapError,
    LaunchDimsError,
    LegalityError,
    OmapError,
    PlaceError,
    RaggedTileError,
    ResultMismatchError,
    SaverError,
    ShapeError,
    ThreadGraphError,
    UnknownNameError,
    UnknownTensorError,
    UsageError,
    WorkbenchError,
)
from workbench.interpret import evaluate
from workbench.ugraph import builder as builder_module
from workbench.ugraph import value as op
from workbench.ugraph.builder import BlockBuilder, KernelBuilder, ThreadBuilder
from workbench.ugraph.inference import Place
from workbench.ugraph.nodes import InputIterator, OpNode
from workbench.ugraph.thread_graph import ThreadGraph
from workbench.ugraph.value import Value


def test_the_example_of_the_module_builds_rms_norm_and_matmul(rng: np.random.Generator) -> None:
    assert builder_module.__doc__ is not None
    names: dict[str, Any] = {"KernelBuilder": KernelBuilder}
    lines = builder_module.__doc__.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("kernel ="))
    exec("\n".join(lines[first:]).replace("4096", "128"), names)
    graph = names["graph"]
    x, w = rng.standard_normal((16, 128)), rng.standard_normal((128, 128))
    np.testing.assert_allclose(evaluate(graph, [x, w])[0], x / np.sqrt((x**2).mean(-1, keepdims=True)) @ w, rtol=1e-9)


# ------------------------------------------------------------------------------------------------------------- inference
def block_over(*shapes: tuple[int, ...], **counts: Any) -> tuple[KernelBuilder, BlockBuilder, list[Value]]:
    kernel = KernelBuilder()
    tensors = [kernel.input(f"I{number}", shape) for number, shape in enumerate(shapes)]
    return kernel, kernel.block(*tensors, **counts), tensors


@pytest.mark.parametrize(
    ("shape", "imap", "fmap", "tile", "ragged"),
    [
        # grid (2, 3, 1), loop 4; by hand: the grid cuts first, x before y, then the loop, each into ceil parts
        ((12, 24), (), None, (12, 24), (None, None)),
        ((12, 24), (0, 1), None, (6, 8), (None, None)),
        ((12, 24), (0, None), 1, (6, 6), (None, None)),
        ((12, 24), (1, 1), 1, (12, 1), (None, None)),
        ((12, 24), (-1, 0), -1, (4, 24), (None, None)),
        ((7, 24), (0, 1), 1, (4, 2), (RaggedSplit(7, ((0, 2),)), None)),
        ((12, 23), (1, 1), None, (12, 4), (None, RaggedSplit(23, ((0, 2), (1, 3))))),
        ((12, 10), (1, None), 1, (12, 2), (None, RaggedSplit(10, ((0, 2), (3, 4))))),
        ((12, 24), (0, 1, 0), None, (6, 8), (None, None)),  # z has one block: it cuts nothing
    ],
)
def test_tiles_of_input_iterators(
    shape: tuple[int, ...],
    imap: tuple[int | None, ...],
    fmap: int | None,
    tile: tuple[int, ...],
    ragged: tuple[RaggedSplit | None, ...],
) -> None:
    _, block, (x,) = block_over(shape, grid=(2, 3), loop=4)
    loaded = block.load(x, imap=imap, fmap=fmap)
    node = block.nodes[-1]
    assert isinstance(node, InputIterator)
    assert (loaded.shape, node.result.ragged) == (tile, ragged)
    assert node.fmap == (None if fmap == -1 else fmap)


@pytest.mark.parametrize(
    ("kind", "columns", "shape"),
    [("sum", None, (4, 6)), ("sum_dim", None, (4, 1)), ("sum_to_columns", 2, (4, 2)), ("max", None, (4, 6)),
     ("max_dim", None, (4, 1)), ("mean", None, (4, 1)), ("rms", None, (4, 1))],
)  # fmt: skip
def test_tiles_and_types_of_accumulators(kind: str, columns: int | None, shape: tuple[int, ...]) -> None:
    _, block, (x,) = block_over((4, 24), loop=4)
    result = block.accumulate(block.load(x, fmap=1), kind, columns=columns)
    assert result.shape == shape
    block.save(result)
    graph = block.build()
    assert graph.places[result.name] is Place.AFTER
    assert graph.tiles[result.name].dtype is DType.FLOAT32  # accumulation in float32, whatever the operands
    assert graph.result_shapes == (shape,)


def test_places_of_tiles() -> None:
    kernel, block, (x, bias) = block_over((4, 8), (8,), loop=2)
    looped, still = block.load(x, fmap=1), block.load(bias)
    body, invariant = op.exp(looped), op.exp(still)
    after = block.accumulate(body, "sum_dim")
    mixed = after + invariant
    block.save(mixed)
    kernel.output(*block.finish())
    places = kernel.build().graph_defined[0].block.places
    assert [places[value.name] for value in (looped, still, body, invariant, after, mixed)] == [
        Place.LOOP,
        Place.INVARIANT,
        Place.LOOP,
        Place.INVARIANT,
        Place.AFTER,
        Place.AFTER,
    ]


def test_saved_shapes_are_the_tiles_side_by_side() -> None:
    kernel, block, (x,) = block_over((7, 8), grid=(2, 4))
    tile = block.accumulate(block.load(x, imap=(0, 1)))
    block.save(tile, omap=(0, 1))
    block.save(block.apply("sum", tile, axis=-1), omap=(0, 1))
    first, second = block.finish(names=["O", "S"], dtypes=["float32", "bfloat16"])
    assert (first.shape, second.shape) == ((7, 8), (7, 4))
    kernel.output(second, first)
    graph = kernel.build()
    assert [(t.name, t.dtype) for t in graph.outputs] == [("S", DType.BFLOAT16), ("O", DType.FLOAT32)]


# ------------------------------------------------------------------------------------------------------- names and types
def test_types_widen_and_numbers_do_not_count() -> None:
    kernel = KernelBuilder()
    half, single = kernel.input("H", (2, 3)), kernel.input("S", (3,), "float32")
    mixed, kept = half + single, half + 0.5
    kernel.output(mixed, kept, half.builder.apply("constant", value=1))
    assert [tensor.dtype for tensor in kernel.build().outputs] == [DType.FLOAT32, DType.FLOAT16, DType.FLOAT32]
    with pytest.raises(DTypeError, match="float16 and bfloat16 meet"):
        _ = half + kernel.input("B", (3,), "bfloat16")


def test_equal_numbers_become_one_constant() -> None:
    kernel = KernelBuilder()
    x = kernel.input("X", (2,))
    kernel.output((x + 0.5) + Fraction(1, 2))
    nodes = [node for node in kernel.build().nodes if isinstance(node, OpNode)]
    assert [node.op for node in nodes] == ["constant", "add", "add"]


def test_names_are_given_or_fresh() -> None:
    kernel = KernelBuilder()
    x = kernel.input("t0", (4,))
    assert op.exp(x).name == "t1"
    assert kernel.apply("exp", x, name="E").name == "E"
    assert [value.name for value in kernel.apply_all("split", x, parts=2, name="p")] == ["p0", "p1"]
    _, block, (y,) = block_over((4,))
    assert [block.load(y).name, block.load(y).name] == ["i0", "i0_2"]
    with pytest.raises(DuplicateNameError, match="'t0' names two tensors"):
        kernel.input("t0", (4,))
    with pytest.raises(DuplicateNameError, match="'E'"):
        kernel.apply("exp", x, name="E")


def test_restating_names_types_and_strides() -> None:
    kernel = KernelBuilder()
    x = kernel.input("X", (2, 3))
    op.exp(x)
    (stated,) = kernel.restate(DeviceTensor("E", (2, 3), DType.FLOAT32, (1, 2)))
    kernel.output(op.square(stated))
    graph = kernel.build()
    assert graph.tensor("E").strides == (1, 2)
    assert graph.outputs[0].dtype is DType.FLOAT32
    assert graph.outputs[0].name == "t0"  # the name given up is free again
    with pytest.raises(ResultMismatchError, match=r"stated shape \(3, 2\)"):
        kernel.restate(DeviceTensor("F", (3, 2)))
    with pytest.raises(ResultMismatchError, match="2 results are stated, the node yields 1"):
        kernel.restate(DeviceTensor("F", (2, 3)), DeviceTensor("G", (2, 3)))
    with pytest.raises(DuplicateNameError):
        kernel.restate(DeviceTensor("X", (2, 3)))
    _, block, (y,) = block_over((5, 4), grid=(2,), loop=2)
    tile = block.load(y, imap=(0,), fmap=1)
    with pytest.raises(ResultMismatchError, match="stated as cut otherwise"):
        block.restate(SharedTensor("y", tile.shape))
    block.running_max(tile)
    best, shift = block.restate(
        *(SharedTensor(n, (3, 1), DType.FLOAT32, (RaggedSplit(5, ((0, 2),)), None)) for n in "ms")
    )
    assert (best.name, shift.name) == ("m", "s")
    block.save(block.accumulate(best, "max"), omap=(0,))
    assert block.build().places["s"] is Place.LOOP
    with pytest.raises(UsageError, match="output saver makes no tile"):
        block.restate()


# --------------------------------------------------------------------------------------------------------- broken rules
def rules() -> dict[str, tuple[type[WorkbenchError], str, Callable[[], Any]]]:
    """Return per case the error, a part of its message, and what breaks the rule."""

    def block(*shapes: tuple[int, ...], **counts: Any) -> tuple[BlockBuilder, list[Value]]:
        _, made, tensors = block_over(*shapes, **counts)
        return made, tensors

    b, (x, y) = block((4, 6), (6, 8), grid=(2,), loop=3)
    left, right, still = b.load(x, fmap=1), b.load(y, imap=(1,), fmap=0), b.load(x)
    product = left @ right
    done = b.accumulate(product)
    ragged, (z, zz) = block((7, 5), (5, 7), grid=(2,), loop=2)
    rows, columns = ragged.load(z, imap=(0,)), ragged.load(z, fmap=1)
    looped = ragged.load(zz, fmap=0)
    small, (v, w, o, c) = block((3,), (5,), (1,), (3, 2), grid=(4,))  # tiles of 1, the fourth one empty
    square, (sq,) = block((7, 4), grid=(2, 2))
    kernel = KernelBuilder()
    k = kernel.input("X", (2, 3))
    tree = ThreadBuilder()
    p = tree.input("p", (4, 6))
    e = tree.apply("exp", p)
    return {
        "imap rank": (ImapError, "grid axis x splits dimension 2 of I0, which has rank 2", lambda: b.load(x, imap=(2,))),
        "broadcast of a tile that may be empty": (
            RaggedTileError,
            "axis -1 of s, empty in some tiles, is broadcast; choose counts that divide the axis",
            lambda: small.load(v, imap=(0,), name="s") + small.load(w, name="f"),
        ),
        "product over a tile that may be empty": (
            RaggedTileError, "cut in different ways", lambda: op.reshape(small.load(o), (1, 1)) @ small.load(c, imap=(0,))
        ),
        "factor cut otherwise": (
            RaggedTileError,
            "axis -1 of the rescaling factor is cut otherwise than the operand's; cut both alike",
            lambda: small.accumulate(small.load(o), "rescale", rescale=small.load(v, imap=(0,))),
        ),
        "eps": (AccumulatorError, "kind sum takes no eps; give eps= with the kind rms", lambda: b.accumulate(left, eps=1e-6)),
        "negative eps": (AccumulatorError, "takes no negative eps", lambda: b.accumulate(left, "rms", eps=-1)),
        "NaN": (UsageError, "nan is not finite", lambda: b.accumulate(left * float("nan"))),
        "truth value": (UsageError, "True is neither a tensor of the graph nor a number", lambda: k + True),
        "text as a number": (UsageError, "'2' is neither a tensor of the graph nor a number", lambda: k * "2"),  # type: ignore[operator]
        "imap by name": (ImapError, "a map is a tuple with one entry per grid axis x, y, z, got 'x'", lambda: b.load(x, imap="x")),  # type: ignore[arg-type]
        "imap alone": (ImapError, "got 1; give at most three entries", lambda: b.load(x, imap=1)),  # type: ignore[arg-type]
        "imap of fractions": (ImapError, "got (0.5,)", lambda: b.load(x, imap=(0.5,))),  # type: ignore[arg-type]
        "omap length": (OmapError, "one entry per grid axis", lambda: b.save(done, omap=(0, 1, None, None))),
        "fmap by name": (FmapError, "'x' is no dimension of I0", lambda: b.load(x, fmap="x")),  # type: ignore[arg-type]
        "loop of fractions": (LaunchDimsError, "forloop_range 1.5 must be", lambda: block((2,), loop=1.5)),
        "columns of fractions": (AccumulatorError, "2.5 columns do not divide",
                                 lambda: b.accumulate(left, "sum_to_columns", columns=2.5)),  # type: ignore[arg-type]
        "names of results": (UsageError, "stores 1 results; give as many names", two_names_for_one_result),
        "imap length": (ImapError, "one entry per grid axis", lambda: b.load(x, imap=(0, 1, None, None))),
        "fmap rank": (FmapError, "the loop splits dimension 2 of I0", lambda: b.load(x, fmap=2)),
        "operand": (UnknownTensorError, "'I9' is not an operand", lambda: b.load("I9")),
        "position": (UnknownTensorError, "there is no operand 2", lambda: b.load(2)),
        "places": (PlaceError, "an operand of the loop body meets one of after the loop", lambda: done + product),
        "accumulated twice": (AccumulatorError, "accumulated before", lambda: b.accumulate(done)),
        "needs columns": (AccumulatorError, "needs a number of columns", lambda: b.accumulate(left, "sum_to_columns")),
        "takes no columns": (AccumulatorError, "takes no columns", lambda: b.accumulate(left, "sum", columns=2)),
        "columns divide": (AccumulatorError, "5 columns do not divide", lambda: b.accumulate(still, "sum_to_columns", columns=5)),
        "needs factor": (AccumulatorError, "needs a rescaling factor", lambda: b.accumulate(left, "rescale")),
        "takes no factor": (AccumulatorError, "takes no rescaling factor", lambda: b.accumulate(left, "sum", rescale=left)),
        "factor shape": (AccumulatorError, "does not broadcast", lambda: b.accumulate(left, "rescale", rescale=still)),
        "kind": (AttributeValueError, "unknown accumulator 'median'; use one of sum", lambda: b.accumulate(left, "median")),
        "store loop": (SaverError, "a value of the loop body is stored; accumulate it first", lambda: b.save(left, omap=(1,))),
        "omap missing": (OmapError, "the 2 blocks along grid axis x write the same elements", lambda: b.save(done)),
        "omap rank": (OmapError, "laid along dimension 2 of a tile of rank 2", lambda: b.save(done, omap=(2,))),
        "running max": (AccumulatorError, "accumulated before", lambda: b.running_max(done)),
        "stores nothing": (SaverError, "stores nothing", b.build),
        "no kernel": (UsageError, "belongs to no kernel graph", BlockBuilder([DeviceTensor("X", (2,))]).finish),
        "foreign tile": (UnknownTensorError, "is not a tile of this block", lambda: b.accumulate(rows)),
        "not a tile": (UsageError, "'x' is neither a tile of the block nor a number", lambda: b.apply("exp", "x")),  # type: ignore[arg-type]
        "kernel tensor in a block": (UnknownTensorError, "is not a tile of this block", lambda: b.apply("exp", x)),
        "grid": (LaunchDimsError, "one to three positive integers", lambda: block((2,), grid=(0,))),
        "grid of fractions": (LaunchDimsError, "one to three positive integers", lambda: block((2,), grid=(1.5,))),
        "grid alone": (LaunchDimsError, "one to three positive integers; give a tuple", lambda: block((2,), grid=4)),
        "grid length": (LaunchDimsError, "one to three positive integers", lambda: block((2,), grid=(1, 1, 1, 1))),
        "loop": (LaunchDimsError, "forloop_range 0 must be at least 1", lambda: block((2,), loop=0)),
        "ragged meets full": (RaggedTileError, "cut in different ways", lambda: columns @ ragged.load(zz, imap=(0,))),
        "ragged loop not folded": (RaggedTileError, "not folded", lambda: ragged.accumulate(columns)),
        "ragged reshape": (RaggedTileError, "a ragged axis is reshaped", lambda: op.reshape(rows, (-1,))),
        "ragged columns": (RaggedTileError, "ragged axis is folded to columns",
                           lambda: ragged.accumulate(columns, "sum_to_columns", columns=3)),
        "ragged omap": (RaggedTileError, "was cut along x:2 and is laid along nothing",
                        lambda: ragged.save(ragged.accumulate(rows), omap=(1,))),
        "ragged omap along another axis": (RaggedTileError, "was cut along x:2 and is laid along y:2",
                                           lambda: square.save(square.load(sq, imap=(0,)), omap=(1, 0))),
        "matmul shapes": (ShapeError, "matmul", lambda: rows @ looped),
        "kernel shapes": (ShapeError, "matmul", lambda: k @ k),
        "unknown operator": (UnknownNameError, "unknown operator 'sin'", lambda: kernel.apply("sin", k)),
        "convolution": (UnknownNameError, "convolutions are not part", lambda: kernel.apply("conv2d", k)),
        "unknown attribute": (AttributeValueError, "unknown attribute 'base'", lambda: kernel.apply("exp", k, base=2)),
        "attribute": (AttributeValueError, "'factor' is missing", lambda: kernel.apply("scale", k)),
        "axis": (ShapeError, "axis 2 does not exist", lambda: op.sum(k, axis=2)),
        "foreign tensor": (UnknownTensorError, "belongs to another graph", lambda: k + x),
        "not a tensor": (UsageError, "neither a tensor of the graph nor a number", lambda: kernel.apply("exp", np.ones(3))),  # type: ignore[arg-type]
        "strides": (ShapeError, "overlap", lambda: kernel.input("S", (2, 2), strides=(1, 1))),
        "float8": (DTypeError, "float8", lambda: kernel.input("S", (2, 2), "float8")),
        "no output": (UnknownTensorError, "the program has no output", kernel.build),
        "tree": (ThreadGraphError, "has 2 consumers; the graph must be a tree", lambda: tree.build(tree.apply("mul", e, e) + e)),
        "reduction in a thread": (ThreadGraphError, "needs other threads' elements", lambda: tree.build(tree.apply("sum", p))),
        "thread computes nothing": (ThreadGraphError, "it computes nothing", lambda: ThreadBuilder().build(p)),
        "product of computed values": (ThreadGraphError, "a contraction is not a leaf of the tree", chain_of_products),
        "two products": (ThreadGraphError, "2 contractions in one thread graph", sum_of_products),
        "thread operands": (ThreadGraphError, "takes 1 operands, got 2", lambda: b.thread(small_tree(), still, still)),
    }  # fmt: skip


def small_tree() -> Any:
    tree = ThreadBuilder()
    return tree.build(tree.apply("exp", tree.input("p", (4, 6))))


def two_names_for_one_result() -> Any:
    _, block, (x,) = block_over((4, 6))
    block.save(op.exp(block.load(x)))
    return block.finish(names=["P", "Q"])


def chain_of_products() -> ThreadGraph:
    tree = ThreadBuilder()
    p, q = tree.input("p", (4, 4)), tree.input("q", (4, 4))
    return tree.build(op.exp(p) @ q)


def sum_of_products() -> ThreadGraph:
    tree = ThreadBuilder()
    p, q = tree.input("p", (4, 4)), tree.input("q", (4, 4))
    return tree.build(p @ q + q @ p)


@pytest.mark.parametrize("case", rules())
def test_a_broken_rule_is_named(case: str) -> None:
    error, message, broken = rules()[case]
    if case == "thread computes nothing":
        tree = ThreadBuilder()
        root = tree.input("p", (2,))
        broken = lambda: tree.build(root)  # noqa: E731
    with pytest.raises(error) as caught:
        broken()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    if isinstance(caught.value, LegalityError):
        assert caught.value.rule != "legality"
        assert caught.value.node
        assert caught.value.cure


def test_too_many_threads_and_too_large_clusters() -> None:
    for counts, message in (
        ({"threads": (64, 32)}, "2048 threads in a block"),
        ({"loop": 32, "cluster": (32,)}, "32 blocks in a cluster"),
        ({"loop": 2, "cluster": (4,)}, "4 blocks of a cluster share 2 iterations"),
    ):
        _, block, (x,) = block_over((64, 4), **counts)
        block.save(block.accumulate(block.load(x, fmap=0), "sum_dim"))
        with pytest.raises(LaunchDimsError, match=message):
            block.build()
