from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import Phase, given, settings

from tests.property.strategies import Options, kernel_graphs
from workbench import programs
from workbench.errors import UnknownNameError
from workbench.interpret import evaluate
from workbench.optimize.ablation import ALL, ablation
from workbench.optimize.optimizer import PASSES, Optimized, optimize
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.verify.compare import verify
from workbench.verify.verdict import Verdict


def small(name: str) -> list[KernelGraph]:
    sizes = {parameter.name: min(parameter.default, 64) for parameter in programs.parameters(name)}
    return programs.known_good(name, "standard", "float16", **sizes)


def report(result: Optimized, name: str) -> object:
    return next(found for found in result.passes if found.name == name)


@pytest.mark.parametrize("name", ["gqa", "lora", "gated_mlp", "rms_norm_linear", "qk_norm_attention"])
def test_every_pass_is_verified_equal_again(name: str) -> None:
    for graph in small(name)[:2]:
        result = optimize(graph, verifier=verify, stable=True)
        assert [found.name for found in result.passes] == list(PASSES)
        assert all(
            found.verdict in ("", "not verified") or found.verdict.startswith("equal") for found in result.passes
        )
        assert verify(graph, result.graph).kind == "equal"
        for before, after in zip(result.passes, result.passes[1:], strict=False):
            assert before.after == after.before
        assert result.passes[-1].after == result.metrics


def test_passes_say_what_they_changed_and_each_can_be_switched_off() -> None:
    graph = small("gated_mlp")[0]
    whole = optimize(graph, verifier=None)
    text = whole.describe()
    for words in (
        "stays in registers: silu, mul",
        "shared, swizzled",
        "operators moved",
        "B of shared memory",
        "stable: off",
    ):
        assert words in text
    for name in PASSES[1:]:
        without = optimize(graph, (name,), verifier=None)
        found = next(each for each in without.passes if each.name == name)
        assert not found.is_on
        assert found.before == found.after
        assert f"{name}: off" in without.describe()
    nothing = optimize(graph, PASSES, verifier=None)
    assert nothing.graph is graph
    assert nothing.metrics == whole.passes[0].before


def test_each_pass_improves_what_it_is_for() -> None:
    graph = small("gated_mlp")[0]
    reports = {found.name: found for found in optimize(graph, verifier=None).passes}
    assert reports["threads"].after.register_bytes > reports["threads"].before.register_bytes
    assert reports["layouts"].after.passes < reports["layouts"].before.passes
    assert reports["order"].after.barriers < reports["order"].before.barriers
    combining = next(g for g in small("gqa") if len(g.nodes) == 2)
    alone = optimize(combining, ("threads", "layouts"), verifier=None)
    last = alone.passes[-1]
    assert last.after.shared_bytes < last.before.shared_bytes


@dataclass(frozen=True)
class Refusal:
    kind: str = "different"
    reason: str = "made up"


def test_what_the_verifier_does_not_call_equal_is_thrown_away() -> None:
    graph = small("gated_mlp")[0]
    result = optimize(graph, verifier=lambda program, candidate: Refusal())
    threads = next(found for found in result.passes if found.name == "threads")
    assert threads.verdict == "refused: different: made up"
    assert threads.before == threads.after
    assert result.graph == graph


def test_the_verifier_is_asked_about_the_graph_given() -> None:
    graph = small("gqa")[0]
    asked: list[KernelGraph] = []

    def spy(program: KernelGraph, candidate: KernelGraph) -> Verdict:
        assert program is graph
        asked.append(candidate)
        return verify(program, candidate, shapes="reduced")

    optimize(graph, verifier=spy, stable=True)
    assert len(asked) >= 2


def test_stable_runs_only_on_request() -> None:
    graph = small("gqa")[0]
    assert "off" in optimize(graph, verifier=None).passes[0].describe()
    assert optimize(graph, verifier=None, stable=True).passes[0].changes
    assert not optimize(graph, ("stable",), verifier=None, stable=True).passes[0].changes


def test_decisions_are_plain_data_for_every_launch() -> None:
    graph = next(g for g in small("gqa") if len(g.nodes) == 2)
    result = optimize(graph, verifier=None)
    assert set(result.blocks) == {"split_products", "O"}
    made = result.blocks["split_products"]
    assert sorted(made.order.positions) == list(range(len(result.graph.graph_defined[0].block.nodes)))
    assert {tile.name for tile in made.memory.lifetimes} == {"q", "k", "v"}
    assert [tile.name for tile in result.device_memory.lifetimes] == ["split_products", "split_sums"]
    plain = result.to_json()
    assert set(plain) == {"hash", "metrics", "passes"}


def test_a_pass_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="layouts, order"):
        optimize(small("gqa")[0], ("speed",), verifier=None)


@settings(max_examples=15, deadline=None, phases=[Phase.generate])
@given(kernel_graphs(Options()))
def test_random_graphs_keep_their_meaning(graph: KernelGraph) -> None:
    result = optimize(graph, verifier=None, stable=True)
    rng = np.random.default_rng(0)
    inputs = [rng.uniform(0.3, 1.2, tensor.shape) for tensor in graph.inputs]
    for a, b in zip(evaluate(graph, inputs), evaluate(result.graph, inputs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
    assert result.metrics.barriers <= result.passes[0].before.barriers


# ----------------------------------------------------------------------------------------------------------- ablation
def test_the_table_has_a_row_per_pass_and_takes_a_model() -> None:
    graph = small("gqa")[0]
    table = ablation(graph, verifier=None, cost=lambda optimized: 1.0 + optimized.metrics.barriers / 100)
    names = [row.name for row in table.rows]
    assert names == [ALL, "without layouts", "without order", "without memory", "without threads"]
    for row in table.rows[1:]:
        assert row.cost_us is not None
        assert row.cost_us >= (table.rows[0].cost_us or 0)
    loss = table.loss("without layouts")
    assert loss is not None
    assert loss > 0
    assert f"{loss:+.1%}" in table.describe()
    assert [(row["variant"], row["loss"]) for row in table.to_json()] == [(name, table.loss(name)) for name in names]
    with pytest.raises(UnknownNameError):
        table.loss("without luck")
    assert ablation(graph, verifier=None, passes=("order",)).rows[1].cost_us is None
