"""Other tilings compute the same: known good µGraphs, Mirage's, random ones; axes are found by what they do."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.strategies import TAME, Options, kernel_graphs
from workbench import programs
from workbench.errors import NotApplicableError, UnknownNameError
from workbench.interpret import evaluate
from workbench.ugraph.builder import KernelBuilder
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.reinstantiate import reduction
from workbench.ugraph.retile import Counts, Retiler, Tiling, retile, tilings
from workbench.ugraph.serialize import load
from workbench.ugraph.text import parse_kernel_graph

ODD: list[tuple[str, dict[str, Any]]] = [
    ("rms_norm_linear", {"batch": 7, "hidden": 100, "out": 33}),
    ("gated_mlp", {"batch": 6, "hidden": 60, "out": 35}),
    ("gated_mlp_down", {"batch": 7, "hidden": 50, "inner": 34, "out": 33}),
    ("lora", {"batch": 7, "hidden": 64, "out": 33, "rank": 5}),
    ("gqa", {"heads": 3, "rows": 10, "head_dim": 8, "context": 96}),
    ("gqa_decode", {"heads": 2, "rows": 3, "head_dim": 16, "context": 200}),
    ("mqa", {"rows": 20, "head_dim": 8, "context": 96}),
    ("mha", {"batch": 2, "heads": 3, "rows": 4, "head_dim": 8, "context": 72}),
    ("qk_norm_attention", {"heads": 2, "rows": 9, "head_dim": 8, "context": 96}),
    ("attention_safe", {"heads": 2, "rows": 9, "head_dim": 8, "context": 96}),
    ("moe_expert", {"experts": 3, "rows": 7, "hidden": 60, "inner": 33, "out": 35}),
    ("ntrans", {"batch": 7, "hidden": 33}),
    ("softmax", {"batch": 9, "hidden": 33}),
]


def arrays(graph: KernelGraph, seed: int, scale: float = 0.4) -> list[Any]:
    """Return inputs whose rows differ in scale."""
    rng = np.random.default_rng(seed)
    found = []
    for tensor in graph.inputs:
        rows = rng.uniform(0.5, 2, (*tensor.shape[:-1], 1)) if tensor.shape else 1.0
        found.append(rng.normal(0, scale, tensor.shape) * rows)
    return found


def random_counts(tiling: Tiling, chance: random.Random) -> Counts:
    """Return counts that an optimizer might ask for; few divide the extents."""
    axes = chance.sample(tiling.free, min(len(tiling.free), chance.randint(0, tiling.room)))
    loop = chance.randint(1, 9) if tiling.loop else 1
    if tiling.loop:
        loop = min(loop, tiling.extents[tiling.loop])
    cluster = chance.choice([1, min(2, loop)]) if tiling.can_cluster else 1
    split = chance.choice([1, 2, 3, 5]) if tiling.split else 1
    return Counts({axis: min(chance.choice([2, 3, 4, 7]), tiling.extents[axis]) for axis in axes}, loop, split, cluster)


def check_same(graph: KernelGraph, seed: int, tries: int, *, same_counts: bool = True) -> int:
    """Compare random tilings with the graph; return how many were legal."""
    chance, inputs = random.Random(seed), arrays(graph, seed)
    expected = evaluate(graph, inputs)
    retiler = Retiler(graph)
    legal = 0
    for _ in range(tries):
        wanted = {tiling.kernel: random_counts(tiling, chance) for tiling in retiler.tilings}
        try:
            made = retiler.build(wanted)
        except NotApplicableError:
            continue
        legal += 1
        for mine, theirs in zip(evaluate(made, inputs), expected, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-11)
        for tiling, cut in wanted.items() if same_counts else ():
            present = Retiler(made).tilings[tiling].counts
            named = {axis: count for axis, count in cut.grid.items() if count > 1}
            assert (dict(present.grid), present.loop, present.cluster) == (named, cut.loop, cut.cluster)
    return legal


@pytest.mark.parametrize("style", ["standard", "mirage"])
@pytest.mark.parametrize(("name", "sizes"), ODD)
def test_known_good_graphs_compute_the_same_however_they_are_cut(name: str, sizes: dict[str, Any], style: str) -> None:
    for graph in programs.known_good(name, style=style, **sizes):
        assert check_same(graph, seed=len(name), tries=8) >= 2


@pytest.mark.parametrize(
    "file", ["rmsnorm_bs1", "gated_mlp", "lora", "gqa_bs1", "mqa_bs1", "ntrans_bs1", "qknorm_gqa_bs1"]
)
def test_graphs_of_mirage_compute_the_same_however_they_are_cut(shared_data: Path, file: str) -> None:
    graphs = load(shared_data / "mirage_mugraphs" / f"{file}.json")
    rng = np.random.default_rng(0)
    legal = 0
    for graph in graphs[:: max(1, len(graphs) // 4)]:
        legal += check_same(reduction(graph, rng), seed=3, tries=6)
    assert legal >= 4


@settings(max_examples=40, deadline=None)
@given(kernel_graphs(Options(max_steps=5, operators=TAME)), st.integers(0, 1 << 20))
def test_random_graphs_compute_the_same_or_are_refused(graph: KernelGraph, seed: int) -> None:
    check_same(graph, seed, tries=3, same_counts=False)


def test_an_axis_that_was_whole_is_split() -> None:
    graph = programs.known_good("rms_norm_linear", batch=256, hidden=128, out=128)[0]
    (tiling,) = tilings(graph)
    assert set(tiling.free) == {"a", "c"}  # rows, columns; b is the hidden axis
    assert (tiling.loop, tiling.split, tiling.can_cluster) == ("b", None, True)
    made = retile(graph, Counts({"a": 5, "c": 3}, loop=7, cluster=2))
    block = made.graph_defined[0].block
    assert (sorted(block.grid_dims), block.forloop_range, block.cluster_dims) == ([1, 3, 5], 7, (2, 1, 1))
    assert {tile.shape for name, tile in block.tiles.items() if name == "x"} == {(52, 19)}
    inputs = arrays(graph, 1)
    np.testing.assert_allclose(evaluate(made, inputs)[0], evaluate(graph, inputs)[0], rtol=1e-10)


def test_what_a_block_folds_is_not_split() -> None:
    soft = programs.known_good("softmax", batch=8, hidden=32)[0]
    assert tilings(soft)[0].free == ("a",)
    with pytest.raises(NotApplicableError, match="cannot split axis 'b'; it can split: a"):
        retile(soft, Counts({"b": 2}))


def test_a_product_with_itself_is_not_cut_through_its_copy() -> None:
    kernel = KernelBuilder()
    X = kernel.input("X", (12, 8), "float64")
    block = kernel.block(X)
    x = block.load(X)
    block.save(x @ block.apply("transpose", x))
    kernel.output(*block.finish())
    graph = kernel.build()
    for axis in tilings(graph)[0].free:
        with pytest.raises(NotApplicableError):
            retile(graph, Counts({axis: 3}))


SPLIT = """kernel_graph "split" {
  input Q: float64[2, 16, 8]
  input K: float64[2, 8, 96]
  input V: float64[2, 96, 8]
  products: float64[2, 16, 32], sums: float64[2, 16, 4] = block_graph(Q, K, V) grid(2, 1, 4) loop(3) threads(128) {
    q: float64[1, 16, 8] = load(Q) imap(x: 0)
    k: float64[1, 8, 8] = load(K) imap(x: 0, z: 2) fmap(2)
    v: float64[1, 8, 8] = load(V) imap(x: 0, z: 1) fmap(1)
    t0: float64[1, 16, 8] = matmul(q, k)
    t1: float64[1, 16, 8] = exp(t0)
    t2: float64[1, 16, 8] = matmul(t1, v)
    t3: float64[1, 16, 8] = accumulate sum(t2)
    save(t3) omap(x: 0, z: 2)
    t4: float64[1, 16, 1] = accumulate sum_dim(t1)
    save(t4) omap(x: 0, z: 2)
  }
  O: float64[2, 16, 8] = block_graph(products, sums) grid(2) loop(1) threads(128) {
    products: float64[1, 16, 32] = load(products) imap(x: 0)
    sums: float64[1, 16, 4] = load(sums) imap(x: 0)
    t0: float64[1, 16, 8] = %s(products, columns=8)
    t1: float64[1, 16, 1] = sum(sums, axis=-1)
    t2: float64[1, 16, 8] = div(t0, t1)
    save(t2) omap(x: 0)
  }
  output O
}"""


def test_splits_of_a_reduced_axis_tie_the_kernel_that_folds_them() -> None:
    graph = parse_kernel_graph(SPLIT % "sum_to_columns")
    first, second = tilings(graph)
    assert (first.split, first.loop, first.room, first.counts.split) == ("d", "d", 2, 4)
    assert second.split is None
    made = retile(graph, {0: Counts({"a": 2}, loop=3, split=5)})
    assert [tensor.shape for tensor in made.graph_defined[0].results] == [(2, 16, 40), (2, 16, 5)]
    assert Retiler(graph).split_names == {"d.z0": 0}
    inputs = arrays(graph, 2)
    np.testing.assert_allclose(evaluate(made, inputs)[0], evaluate(graph, inputs)[0], rtol=1e-10)


def test_a_split_whose_parts_are_bent_before_they_are_added_up_keeps_its_count() -> None:
    bent = SPLIT.replace("t3: float64[1, 16, 8] = accumulate sum(t2)", "t9: float64[1, 16, 8] = accumulate sum(t2)")
    bent = bent.replace("    save(t3) omap", "    t3: float64[1, 16, 8] = square(t9)\n    save(t3) omap")
    (first, _) = tilings(parse_kernel_graph(bent % "sum_to_columns"))
    assert (first.split, first.loop) == (None, "d")


def test_axes_keep_their_names_under_every_tiling() -> None:
    for name, sizes in ODD:
        graph = programs.known_good(name, **sizes)[0]
        before = tilings(graph)
        try:
            made = retile(graph, {0: random_counts(before[0], random.Random(1))})
        except NotApplicableError:
            continue
        for mine, theirs in zip(tilings(made), before, strict=True):
            assert (mine.free, mine.loop, mine.split, mine.extents) == (
                theirs.free,
                theirs.loop,
                theirs.split,
                theirs.extents,
            )


MEAN_OF_PARTS = """kernel_graph "program" {
  input X: float64[6, 12]
  input W: float64[12, 4]
  t1: float64[6, 4] = block_graph(X, W) grid(1) loop(3) threads(128) {
    x: float64[6, 4] = load(X) fmap(1)
    w: float64[4, 4] = load(W) fmap(0)
    t0: float64[6, 4] = matmul(x, w)
    t1: float64[6, 4] = %s(t0)
    t2: float64[6, 4] = accumulate sum(t1)
    save(t2)
  }
  output t1
}"""


@pytest.mark.parametrize(("op", "loop"), [("neg", "b"), ("exp", None), ("square", None), ("relu", None)])
def test_a_loop_whose_parts_are_bent_before_they_are_added_up_keeps_its_count(op: str, loop: str | None) -> None:
    graph = parse_kernel_graph(MEAN_OF_PARTS % op)
    (tiling,) = tilings(graph)
    assert tiling.loop == loop
    if loop is None:
        with pytest.raises(NotApplicableError, match="no loop whose count may change"):
            retile(graph, Counts({}, loop=2))
    assert check_same(graph, seed=1, tries=6) >= 2  # the grid may still change


def test_a_mean_of_parts_depends_on_how_many_there_are() -> None:
    text = MEAN_OF_PARTS.replace("accumulate sum(t1)", "accumulate mean(t1)") % "neg"
    for tensor in ("t2: float64[6, 4] = acc", "t1: float64[6, 4] = block"):
        text = text.replace(tensor, tensor.replace("[6, 4]", "[6, 1]"))
    assert tilings(parse_kernel_graph(text))[0].loop is None


TWICE = """kernel_graph "program" {
  input I0: float64[5, 5]
  t1: float64[5, 3] = block_graph(I0) grid(3, 3) loop(2) threads(256) {
    i0: float64[2 of 5/x:3, 3 of 5/loop:2] = load(I0) imap(x: 0) fmap(1)
    i0_2: float64[3 of 5/loop:2, 2 of 5/y:3] = load(I0) imap(y: 1) fmap(0)
    t0: float64[2 of 5/x:3, 2 of 5/y:3] = matmul(i0, i0_2)
    i0_3: float64[3 of 5/loop:2, 2 of 5/y:3] = load(I0) imap(y: 1) fmap(0)
    t1: float64[2 of 5/x:3, 3 of 5/loop:2] = rms_norm(i0, eps=0)
    t2: float64[3 of 5/loop:2, 2 of 5/y:3] = rms_norm(i0_3, eps=0)
    t3: float64[2 of 5/x:3, 1] = accumulate mean(t0)
    save(t3) omap(x: 0, y: 1)
  }
  output t1
}"""


def test_an_axis_that_a_tensor_has_twice_is_not_cut_anew() -> None:
    graph = parse_kernel_graph(TWICE.replace("output t1", "t2: float64[5, 5] = transpose(I0)\n  output t1"))
    (tiling,) = tilings(graph)
    assert (tiling.free, tiling.loop, tiling.split) == ((), None, None)
    assert retile(graph, {}).graph_defined[0].block.forloop_range == 2
    check_same(graph, seed=4, tries=5, same_counts=False)


def test_refusals_say_why() -> None:
    graph = programs.known_good("rms_norm_linear", batch=16, hidden=64, out=64)[0]
    with pytest.raises(UnknownNameError, match="cannot split axis 'q'"):
        retile(graph, Counts({"q": 2}))
    with pytest.raises(UnknownNameError, match="no graph-defined operator 3"):
        retile(graph, {3: Counts()})
    with pytest.raises(NotApplicableError, match="4 blocks of a cluster cannot share 2"):
        retile(graph, Counts({}, loop=2, cluster=4))
    with pytest.raises(NotApplicableError, match="no split"):
        retile(graph, Counts({}, split=2))
    with pytest.raises(NotApplicableError, match="at least 1"):
        retile(graph, Counts({"a": 0}))
    with pytest.raises(NotApplicableError, match="17 blocks cannot share axis a of 16"):
        retile(graph, Counts({"a": 17}))
    down = programs.known_good("gated_mlp_down", batch=4, hidden=16, inner=16, out=16)[0]
    with pytest.raises(UnknownNameError, match="2 graph-defined operators"):
        retile(down, Counts())
    running = programs.known_good("attention_safe", heads=1, rows=4, head_dim=8, context=32)[1]
    with pytest.raises(NotApplicableError, match="shared by a cluster"):
        retile(running, Counts({}, loop=4, cluster=2))
