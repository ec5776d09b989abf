"""Abstract expressions of finished µGraphs: right ones have distance 0, whatever their launches cut."""

from __future__ import annotations

import pytest

import workbench as wb
from workbench.domains.abstract_distance import FAR
from workbench.errors import NotApplicableError
from workbench.search.events import Verified
from workbench.search.graph_expressions import distances
from workbench.ugraph.kernel_graph import KernelGraph


@pytest.mark.parametrize("name", ["rms_norm_linear", "gqa", "gated_mlp", "gated_mlp_down", "moe_expert", "mqa"])
def test_right_graphs_have_distance_0(name: str) -> None:
    program = wb.programs.get(name)
    found = [event.graph for event in wb.search(program) if isinstance(event, Verified)]
    assert len(found) >= 3
    for graph in [*wb.programs.known_good(name), *found]:
        assert [output.distance for output in distances(program, graph)] == [0], graph.describe()


def test_a_copied_axis_and_a_reduced_one_split_over_blocks() -> None:
    program = wb.trace(lambda X: wb.exp(X @ wb.transpose(X)), X=(6, 512))
    found = [event.graph for event in wb.search(program) if isinstance(event, Verified)]
    assert any(len(graph.graph_defined) == 2 for graph in found)
    for graph in found:
        (output,) = distances(program, graph)
        assert output.distance == 0, graph.describe()
        assert "X·X" in output.expression


def forgot_gain(columns: int = 10) -> KernelGraph:
    """RMSNorm + Linear in one kernel without the gain, the lecture's mistake."""
    kernel = wb.KernelBuilder("forgot_gain")
    x_in, _ = kernel.input("X", (4, 24)), kernel.input("G", (24,))
    w_in = kernel.input("W", (24, columns))
    block = kernel.block(x_in, w_in, grid=(5,), loop=3)
    x, w = block.load(x_in, fmap=1), block.load(w_in, imap=(1,), fmap=0)
    block.save(block.accumulate(x @ w) / block.accumulate(x, "rms", eps=1e-6), omap=(1,))
    kernel.output(*block.finish())
    return kernel.build()


def test_a_wrong_graph_is_no_part_of_the_program() -> None:
    program = wb.programs.get("rms_norm_linear", batch=4, hidden=24, out=10)
    (output,) = distances(program, forgot_gain())
    assert output.distance == FAR
    assert output.expression == "Σ_{b.l,b.t}[X·W] / √(1 / 1000000 + Σ_{b.l,b.t}[X·X] / 24)"
    assert output.goal == "Σ_{b.l,b.t}[X·G·W] / √(1 / 1000000 + Σ_{b.l,b.t}[X·X] / 24)"
    without = wb.trace(lambda X, G, W: wb.rms_norm(X) @ W, X=(4, 24), G=(24,), W=(24, 10))
    assert [output.distance for output in distances(without, forgot_gain())] == [0]


def test_a_sum_over_half_the_loop_is_not_the_sum() -> None:
    program = wb.trace(lambda X: wb.sum(X), X=(4, 24))
    assert [o.distance for o in distances(program, wb.trace(lambda X: wb.sum(X) + wb.sum(X), X=(4, 24)))] == [FAR]
    assert [o.distance for o in distances(program, wb.trace(lambda X: X, X=(4, 24)))] == [1]


def test_running_maxima_have_no_expression_here() -> None:
    safe = [graph for graph in wb.programs.known_good("attention_safe") if "running_max" in graph.describe()]
    assert safe
    with pytest.raises(NotApplicableError, match="running maximum"):
        distances(wb.programs.get("attention_safe"), safe[0])
