"""Near misses: one mistake each, legal, the right shapes, and wrong by an independent computation."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import workbench as wb
from workbench.errors import WorkbenchError
from workbench.search.graph_expressions import distances
from workbench.search.mutations import mutations, without_dead
from workbench.search.near_misses import near_misses
from workbench.search.verdicts import Screening
from workbench.ugraph.kernel_graph import KernelGraph

PROGRAMS: dict[str, KernelGraph] = {
    "rms_norm_linear": wb.programs.get("rms_norm_linear", batch=4, hidden=24, out=10),
    "gqa": wb.programs.get("gqa", batch=1, heads=2, rows=6, head_dim=4, context=512),
    "gated_mlp": wb.programs.get("gated_mlp", batch=4, hidden=12, out=10),
    "lora": wb.programs.get("lora", batch=4, hidden=12, out=10, rank=3),
    "softmax": wb.programs.get("softmax", batch=4, hidden=512),
    "moe_expert": wb.programs.get("moe_expert", experts=2, rows=3, hidden=6, inner=5, out=4),
}
EXPECTED = {
    "rms_norm_linear": ["forgot to multiply by G", "forgot eps in rms_norm of X", "forgot 1/n (n = 24) of sum(X·X)"],
    "gqa": [
        "forgot to divide by Σ exp(Q@K)",
        "merged two sums, Σ (exp(Q@K)@V) and Σ sum(exp(Q@K)), into one sum under div",
    ],
    "gated_mlp": ["exchanged W1 and W2", "forgot silu of (X@W1)"],
    "lora": ["forgot to add (A@B)"],
    "softmax": ["took exp after the sum instead of before: exp(X)", "took the mean instead of the sum of exp(X)"],
    "moe_expert": ["forgot exp of (X@A)"],
}


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_near_misses_of_studied_programs(name: str) -> None:
    program = PROGRAMS[name]
    misses = near_misses(program)
    found = list(itertools.islice(misses, 24))
    words = [miss.words for miss in found]
    assert set(EXPECTED[name]) <= set(words), words
    assert misses.counts["refused"] == len(found) >= 3
    hashes = {graph.structure_hash for graph in misses.originals()}
    rng = np.random.default_rng(3)
    for miss in found:
        assert miss.distance > 0
        assert miss.verdict.kind == "different"
        assert miss.verdict.witness is not None  # type: ignore[attr-defined]
        assert [t.shape for t in miss.graph.inputs] == [t.shape for t in program.inputs]
        assert [t.shape for t in miss.graph.outputs] == [t.shape for t in program.outputs]
        assert miss.graph.structure_hash not in hashes
        hashes.add(miss.graph.structure_hash)
        assert wb.loads(wb.dumps(miss.graph)) == [miss.graph]  # what is read is checked for every rule again
    inputs = [rng.uniform(0.1, 0.4, tensor.shape) for tensor in program.inputs]
    (right,) = wb.evaluate(program, inputs)
    for miss in found:
        (wrong,) = wb.evaluate(miss.graph, inputs)
        assert not np.allclose(right, wrong, rtol=1e-7, atol=0.0), miss.words
    assert misses.describe().count("\n") > 2 * len(found)


def test_iterating_again_gives_the_same() -> None:
    misses = near_misses(PROGRAMS["softmax"])
    some = list(itertools.islice(misses, 3))
    every = list(misses)
    assert every[:3] == some
    assert list(misses) == every == misses.found


def test_what_turns_out_equal_is_dropped_and_counted() -> None:
    program = wb.trace(lambda X, Y: (X + Y) / (wb.exp(Y) + wb.exp(X)), X=(4, 8), Y=(4, 8))
    misses = near_misses(program, originals=[program])
    words = [miss.words for miss in misses]
    assert "exchanged X and Y" not in words  # it makes no difference
    assert misses.counts["met before"] + misses.counts["equal expression"] >= 1
    assert "forgot to add X" in words


def test_forgetting_what_does_nothing_is_no_mistake() -> None:
    original = wb.trace(lambda X, Y: wb.exp(X) * Y / Y, X=(4, 8), Y=(4, 8))
    misses = near_misses(wb.trace(lambda X, Y: wb.exp(X), X=(4, 8), Y=(4, 8)), originals=[original])
    words = [miss.words for miss in misses]
    assert "exchanged the operands of div: Y before (exp(X)·Y)" in words
    original = wb.trace(lambda X: wb.exp(X) + wb.sum(wb.sum(X)) * 0, X=(4, 8))
    misses = near_misses(wb.trace(lambda X: wb.exp(X), X=(4, 8)), originals=[original])
    assert "forgot the factor 0 of sum(sum(X))" in [miss.words for miss in misses]
    assert misses.counts["equal expression"] >= 1, misses.describe()


def test_a_verifier_that_is_fooled_drops_everything() -> None:
    misses = near_misses(PROGRAMS["softmax"], verifier=lambda program, candidate: Screening("equal", "fooled"))
    assert list(misses) == []
    assert misses.counts["equal"] > 5


def test_every_mutant_is_legal_or_refused() -> None:
    program = wb.programs.get("rms_norm_linear", batch=4, hidden=512, out=10)
    (original, *_) = wb.programs.known_good("rms_norm_linear", batch=4, hidden=512, out=10)
    assert original.graph_defined[0].block.forloop_range > 1
    words = []
    for mutation in mutations(original):
        try:
            graph = mutation.build()
        except WorkbenchError:
            continue
        words.append(mutation.words)
        assert [t.shape for t in graph.outputs] == [t.shape for t in program.outputs]
        assert distances(program, graph)[0].distance > 0, mutation.words
    assert {
        "forgot to multiply by G",
        "forgot eps in the root mean square of X",
        "forgot 1/n in the root mean square of X",
        "took the mean instead of the root mean square of X",
    } <= set(words), words


def test_dead_nodes_are_left_out() -> None:
    kernel = wb.KernelBuilder()
    x, y = kernel.input("X", (4, 8)), kernel.input("Y", (4, 8))
    kernel.apply("exp", y)
    block = kernel.block(x, y, grid=(2,), loop=1)
    a, b = block.load(x, imap=(0,)), block.load(y, imap=(0,))
    block.apply("mul", a, b)
    block.save(block.apply("exp", a), omap=(0,))
    kernel.output(*block.finish())
    graph = kernel.build()
    smaller = without_dead(graph)
    assert len(smaller.nodes) == 1
    (node,) = smaller.graph_defined
    assert (node.operands, len(node.block.nodes)) == (("X",), 3)
    inputs = [np.full((4, 8), 0.5), np.full((4, 8), 2.0)]
    np.testing.assert_array_equal(wb.evaluate(smaller, inputs)[0], wb.evaluate(graph, inputs)[0])
