from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

import workbench as wb
from workbench.errors import NotApplicableError
from workbench.programs.rms_norm_linear import RMS_NORM_LINEAR
from workbench.ugraph.builder import KernelBuilder, ThreadBuilder
from workbench.ugraph.expand import expand
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.reinstantiate import reduction
from workbench.ugraph.structure import structure_hash, structure_text
from workbench.ugraph.value import Value, exp, reshape, rms_norm, silu, sum_to_columns

H = 24
Fn = Callable[..., object]


def traced(fn: Fn) -> str:
    return structure_text(wb.trace(fn, X=(4, H), Y=(4, H), W=(H, 6)))


def rms_linear(
    *,
    batch: int = 4,
    hidden: int = H,
    out: int = 6,
    grid: tuple[int, ...] = (2,),
    rows: int | None = None,
    loop: int = 4,
    threads: int = 128,
    gain: str = "x",
    root: str = "rms",
) -> KernelGraph:
    """(X * G) @ W / rms(X) in one block; `gain` says what G multiplies, `root` how the root mean square is spelt."""
    kernel = KernelBuilder("rms")
    x_in, g_in, w_in = (
        kernel.input("X", (batch, hidden)),
        kernel.input("G", (hidden,)),
        kernel.input("W", (hidden, out)),
    )
    block = kernel.block(x_in, g_in, w_in, grid=grid, loop=loop, threads=(threads,))
    x = block.load(x_in, imap=(None, rows), fmap=1)
    g = block.load(g_in, fmap=0)
    w = block.load(w_in, imap=(1,), fmap=0)
    products = {"x": lambda: (x * g) @ w, "w": lambda: x @ (reshape(g, (*g.shape, 1)) * w), "forgotten": lambda: x @ w}
    total = block.accumulate(products[gain]())
    match root:
        case "rms":
            result = total / block.accumulate(x, "rms", eps=1e-5)
        case "mean":
            result = total / wb.sqrt(block.accumulate(x * x, "mean") + 1e-5)
        case "scaled":
            result = total / wb.sqrt(block.accumulate(wb.square(x), "sum_dim") * (1 / hidden) + 1e-5)
        case "scaled first":
            result = total * wb.rsqrt(block.accumulate(wb.sum(wb.square(x) / hidden)) + 1e-5)
        case "forgot the count":
            result = total / wb.sqrt(block.accumulate(x * x, "sum_dim") + 1e-5)
        case _:
            result = total / wb.sqrt(block.accumulate(x * x, "sum_dim") * (1 / (hidden + 1)) + 1e-5)
    block.save(result, omap=(1, rows))
    kernel.output(*block.finish())
    return kernel.build()


# ------------------------------------------------------------------------------------------------------------ joined
JOINED: list[tuple[str, Sequence[Fn]]] = [
    ("square", [lambda X, Y, W: wb.square(X), lambda X, Y, W: X * X, lambda X, Y, W: wb.pow(X, 2)]),
    (
        "root mean square norm",
        [
            lambda X, Y, W: wb.rms_norm(X, eps=1e-5),
            lambda X, Y, W: X / wb.sqrt(wb.mean(X * X) + 1e-5),
            lambda X, Y, W: X * wb.rsqrt(1e-5 + wb.sum(wb.square(X)) * (1 / H)),
            lambda X, Y, W: X / wb.sqrt(wb.sum(X / H * X) + 1e-5),
            lambda X, Y, W: X / wb.rms(X, eps=1e-5),
        ],
    ),
    (
        "gate",
        [
            lambda X, Y, W: wb.silu(X) * Y,
            lambda X, Y, W: Y * (X * wb.sigmoid(X)),
            lambda X, Y, W: X / (1 + wb.exp(-X)) * Y,
        ],
    ),
    (
        "constants move out of products",
        [
            lambda X, Y, W: (X * 2) @ W,
            lambda X, Y, W: X @ (2 * W),
            lambda X, Y, W: (X @ W) * 2,
            lambda X, Y, W: (4 * X) @ W / 2,
            lambda X, Y, W: -(X @ (W * -2)),
        ],
    ),
    ("constants move out of sums", [lambda X, Y, W: X / 2 + Y / 2, lambda X, Y, W: (Y + X) * 0.5]),
    ("constants move out of roots", [lambda X, Y, W: wb.sqrt(X * 4), lambda X, Y, W: 2 * wb.sqrt(X)]),
    ("and back in where they cannot", [lambda X, Y, W: wb.exp((3 * X) @ W), lambda X, Y, W: wb.exp(X @ (W * 3))]),
    ("a difference", [lambda X, Y, W: X - Y, lambda X, Y, W: -Y + X]),
    ("equal values", [lambda X, Y, W: wb.softmax(X), lambda X, Y, W: wb.exp(X) / wb.sum(wb.exp(X))]),
    ("a count in another place", [lambda X, Y, W: wb.mean(X) * wb.sum(Y), lambda X, Y, W: wb.sum(X) * wb.sum(Y / H)]),
]  # fmt: skip


@pytest.mark.parametrize(("what", "spellings"), JOINED, ids=[what for what, _ in JOINED])
def test_spellings_join(what: str, spellings: Sequence[Fn]) -> None:
    texts = {traced(fn) for fn in spellings}
    assert len(texts) == 1, "\n\n".join(sorted(texts))


def test_sizes_and_schedule_join() -> None:
    variants = [
        rms_linear(),
        rms_linear(batch=8, hidden=48, out=12),
        rms_linear(grid=(3,)),
        rms_linear(grid=(3, 2), rows=0),
        rms_linear(loop=8),
        rms_linear(loop=1),
        rms_linear(loop=5, grid=(4,)),
        rms_linear(threads=256),
    ]
    assert len({structure_hash(graph) for graph in variants}) == 1


@pytest.mark.parametrize("root", ["mean", "scaled", "scaled first"])
def test_the_count_is_recognised_in_blocks(root: str) -> None:
    for hidden, loop in ((H, 4), (H, 5), (48, 8), (7, 2)):
        assert structure_text(rms_linear(root=root, hidden=hidden, loop=loop)) == structure_text(rms_linear())


def test_the_root_of_a_count_is_recognised() -> None:
    """1/sqrt(d) beside a product over d, at sizes where it is a decimal and where it is exact."""

    def attention(depth: int, factor: float) -> str:
        shapes = {"Q": (8, depth), "K": (depth, 16), "V": (16, depth)}
        return structure_text(wb.trace(lambda Q, K, V: wb.softmax(Q @ K * factor) @ V, **shapes))  # type: ignore[arg-type]

    assert attention(64, 1 / 8) == attention(128, 128**-0.5) == attention(256, 256**-0.5)
    assert attention(64, 1 / 8) != attention(64, 1 / 7)
    assert "n(t2)^-1/2" in attention(64, 1 / 8)


def test_thread_graphs_and_trivial_loops_are_erased() -> None:
    def graph(variant: str) -> str:
        kernel = KernelBuilder()
        x_in = kernel.input("X", (4, 6))
        block = kernel.block(x_in, grid=(2,))
        x = block.load(x_in, imap=(0,))
        match variant:
            case "threads":
                tree = ThreadBuilder()
                register = tree.input("r", x.shape)
                x = block.thread(tree.build(silu(exp(register))), x)
            case "accumulated":
                x = silu(block.accumulate(exp(x)))
            case _:
                x = silu(exp(x))
        block.save(x, omap=(0,))
        kernel.output(*block.finish())
        return structure_text(kernel.build())

    assert graph("plain") == graph("threads") == graph("accumulated")


def test_renamed_reordered_and_commuted_graphs_join() -> None:
    first = wb.trace(lambda X, Y: wb.exp(X) * wb.silu(Y), X=(4, 4), Y=(4, 4))

    def second(A: Value, B: Value) -> Value:
        gate = wb.silu(B)
        return gate * wb.exp(A)

    assert structure_hash(first) == structure_hash(wb.trace(second, A=(8, 2), B=(8, 2)))


# --------------------------------------------------------------------------------------------------------- separated
SEPARATED: list[tuple[str, Sequence[Fn]]] = [
    ("division", [lambda X, Y, W: X / Y, lambda X, Y, W: Y / X]),
    ("inputs", [lambda X, Y, W: wb.exp(X) * Y, lambda X, Y, W: X * wb.exp(Y)]),
    ("outputs", [lambda X, Y, W: (wb.exp(X), Y), lambda X, Y, W: (Y, wb.exp(X))]),
    ("sum and mean", [lambda X, Y, W: wb.mean(X), lambda X, Y, W: wb.sum(X), lambda X, Y, W: wb.sum(X) / (H + 1)]),
    ("eps", [lambda X, Y, W: wb.rms_norm(X, eps=0), lambda X, Y, W: wb.rms_norm(X, eps=1e-6)]),
    ("constants", [lambda X, Y, W: wb.exp(X * 2), lambda X, Y, W: wb.exp(X * 3), lambda X, Y, W: wb.exp(X)]),
    ("signs", [lambda X, Y, W: wb.relu(X), lambda X, Y, W: -wb.relu(-X)]),
    ("axes", [lambda X, Y, W: wb.sum(X, axis=0), lambda X, Y, W: wb.sum(X, axis=1)]),
    ("stretching", [lambda X, Y, W: X * wb.sum(Y, axis=0), lambda X, Y, W: X * wb.sum(Y, axis=1)]),
    ("count of another axis", [lambda X, Y, W: wb.sum(X, axis=1) / H, lambda X, Y, W: wb.sum(X, axis=0) / H]),
    ("linear and quadratic", [lambda X, Y, W: (2 * X) * X, lambda X, Y, W: (2 * X) * (2 * X)]),
]  # fmt: skip


@pytest.mark.parametrize(("what", "programs"), SEPARATED, ids=[what for what, _ in SEPARATED])
def test_what_separates(what: str, programs: Sequence[Fn]) -> None:
    assert len({traced(fn) for fn in programs}) == len(programs)


def test_where_the_gain_goes_separates() -> None:
    structures = {structure_hash(rms_linear(gain=gain)) for gain in ("x", "w", "forgotten")}
    roots = {structure_hash(rms_linear(root=root)) for root in ("rms", "forgot the count", "wrong count")}
    assert (len(structures), len(roots)) == (3, 3)


def test_the_known_graphs_of_rms_norm_differ() -> None:
    program = wb.programs.get(RMS_NORM_LINEAR.name)
    graphs = [program, *wb.programs.known_good(RMS_NORM_LINEAR.name)]
    assert len({structure_hash(graph) for graph in graphs}) == 3


def stretched(shape: tuple[int, int]) -> str:
    return structure_text(wb.trace(lambda G, W: G * W, G=shape, W=(6, 6)))


def test_which_dimension_is_stretched_separates() -> None:
    assert len({stretched((6, 1)), stretched((1, 6)), stretched((6, 6))}) == 3


def split_rows(*, grid: int, loop: int | None, splits: int, form: str) -> KernelGraph:
    """Column sums of X in two kernels: the first sums parts of the rows, the second adds the parts."""
    kernel = KernelBuilder()
    x_in = kernel.input("X", (6, 48))
    block = kernel.block(x_in, grid=(grid, splits), loop=loop or 1)
    x = block.load(x_in, imap=(0, 1), fmap=None if loop is None else 1)
    block.save(block.accumulate(wb.sum(x)) if loop else wb.sum(x), omap=(0, 1))
    (partial,) = block.finish()
    if form == "kernel":
        kernel.output(sum_to_columns(partial, 1))
        return kernel.build()
    second = kernel.block(partial, grid=(grid,))
    second.save(sum_to_columns(second.load(partial, imap=(0,)), 1), omap=(0,))
    kernel.output(*second.finish())
    return kernel.build()


def test_a_split_reduced_axis_is_kept_and_its_count_is_not() -> None:
    same = {structure_text(split_rows(grid=g, loop=2, splits=s, form="block")) for g, s in ((2, 4), (3, 2), (1, 8))}
    assert len(same) == 1
    assert "split -1" in same.pop()
    different = [
        split_rows(grid=2, loop=2, splits=4, form="block"),
        split_rows(grid=2, loop=None, splits=4, form="block"),
        split_rows(grid=2, loop=2, splits=4, form="kernel"),
    ]
    assert len({structure_text(graph) for graph in different}) == 3


def test_what_is_launched_together_counts() -> None:
    def graph(together: bool) -> str:
        kernel = KernelBuilder()
        x_in = kernel.input("X", (4, 6))
        values: list[Value] = []
        blocks = [kernel.block(x_in)] * 2 if together else []
        for number, op in enumerate((exp, silu)):
            block = blocks[number] if together else kernel.block(x_in)
            block.save(op(block.load(x_in)))
            if not together:
                values += block.finish()
        if together:
            values += blocks[0].finish()
        kernel.output(*values)
        return structure_text(kernel.build())

    assert graph(True) != graph(False)


def test_equal_results_of_launches_that_differ_stay_apart() -> None:
    """exp is stored by both launches, each with another companion; it is not the same result of one launch."""

    def graph(second: tuple[Callable[[Value], Value], ...]) -> str:
        kernel = KernelBuilder()
        x_in = kernel.input("X", (4, 6))
        made = []
        for ops in ((exp, silu), second):
            block = kernel.block(x_in)
            x = block.load(x_in)
            for op in ops:
                block.save(op(x))
            made.append(block.finish())
        (first_exp, first_silu), others = made
        kernel.output(first_exp, first_silu, others[0] if len(others) > 1 else first_exp, others[-1])
        return structure_text(kernel.build())

    assert graph((exp, wb.relu)) != graph((wb.relu,))
    assert graph((exp, silu)).count("store") == 2  # the same launch twice is one


def test_which_dimension_is_looped_separates() -> None:
    def graph(fmap: int | None) -> str:
        kernel = KernelBuilder()
        x_in = kernel.input("X", (8, 8))
        block = kernel.block(x_in, loop=2)
        block.save(block.accumulate(block.load(x_in, fmap=fmap)))
        kernel.output(*block.finish())
        return structure_text(kernel.build())

    assert len({graph(0), graph(1), graph(None)}) == 3


def test_adding_the_parts_of_blocks_is_not_adding_columns() -> None:
    """4 blocks leave 6 columns each: summed to 6 columns the blocks are added, summed to 3 columns halves of them too."""

    def graph(columns: int, splits: int = 4) -> str:
        kernel = KernelBuilder()
        x_in, w_in = kernel.input("X", (2, 24)), kernel.input("W", (24, 6))
        block = kernel.block(x_in, w_in, grid=(splits,))
        block.save(block.load(x_in, imap=(1,)) @ block.load(w_in, imap=(0,)), omap=(1,))
        (partial,) = block.finish()
        kernel.output(sum_to_columns(partial, columns))
        return structure_text(kernel.build())

    assert graph(6) == graph(6, splits=3)
    assert len({graph(6), graph(3)}) == 2


def test_a_constant_is_a_count_only_behind_its_sum() -> None:
    """X / 24 is summed over 24 in one place and meets exp in another; there it is a number."""

    def program(X: Value, Y: Value, W: Value) -> tuple[Value, Value]:
        scaled = X / H
        return wb.sum(scaled), wb.exp(scaled)

    assert traced(program).splitlines()[1:] == [
        "t0 = input 0",
        "t1 = sum -1 (t0)",
        "output 0 = n(t1)^-1 * t1",
        "t2 = exp (1/24 * t0)",
        "output 1 = t2",
    ]


# ------------------------------------------------------------------------------------------------------------ in general
def test_the_text() -> None:
    graph = wb.trace(lambda X, W: rms_norm(X, eps=0.5) @ W, X=(2, 3), W=(3, 4))
    assert structure_text(graph).splitlines() == [
        "inputs of rank 2 2",
        "t0 = input 0",
        "t1 = mul (t0, t0)",
        "t2 = sum -1 (t1)",
        "t3 = add (1/2 * n(t2), t2)",
        "t4 = sqrt (t3)",
        "t5 = div (t0, t4 stretched -1)",
        "t6 = input 1",
        "t7 = matmul (t5, t6)",
        "output 0 = n(t2)^1/2 * t7",
    ]


@pytest.mark.parametrize("name", wb.programs.names())
def test_instances_and_expansions_of_the_programs_join(name: str) -> None:
    for graph in (wb.programs.get(name), *wb.programs.known_good(name)):
        text = structure_text(graph)
        assert structure_text(expand(graph, keep_means=True)) == text
        assert structure_text(expand(graph)) == text
        for ragged in (False, True):
            try:
                small = reduction(graph, np.random.default_rng(3), ragged=ragged)
            except NotApplicableError:
                assert ragged  # nothing may end early
                continue
            assert structure_text(small) == text


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("gated_mlp", [16, 16]),
        ("rmsnorm_bs1", [2, 16]),
        ("lora", [4]),
        ("ntrans_bs1", [3, 6]),
        ("mqa_bs1", [2, 2, 2, 2, 2, 2]),
        ("gqa_bs1", [2, 2, 5, 5, 7, 7]),
    ],
)
def test_saved_graphs_fall_into_few_structures(shared_data: Path, name: str, counts: list[int]) -> None:
    """Gated MLP and nTrans: the last operator inside the kernel or a kernel of its own; RMSNorm: looped over the hidden

    axis or not; grouped and multi-query attention: three ways to sum the weights, times the second kernel with a loop
    over the parts or without.
    """
    graphs = wb.load(shared_data / "mirage_mugraphs" / f"{name}.json")
    assert sorted(Counter(structure_hash(graph) for graph in graphs).values()) == counts


def test_the_good_gated_mlp_is_among_the_saved(shared_data: Path) -> None:
    graphs = wb.load(shared_data / "mirage_mugraphs" / "gated_mlp.json")
    (good,) = wb.programs.known_good("gated_mlp")
    assert structure_hash(good) in {structure_hash(graph) for graph in graphs}
