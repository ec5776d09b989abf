"""The cheap lower bound that a search may prune by never exceeds an exact memory plan, nor what the emitter takes."""

from __future__ import annotations

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.property.strategies import Options, kernel_graphs
from workbench import programs
from workbench.codegen.cuda.kernel import emit_block
from workbench.codegen.cuda.schedule import Schedule
from workbench.cost.shared_memory import shared_bytes_at_least
from workbench.errors import EmitError
from workbench.optimize.optimizer import PASSES, optimize
from workbench.ugraph.kernel_graph import KernelGraph


def check(graph: KernelGraph, stages: int) -> None:
    for without in ((), ("layouts",), ("threads", "layouts"), PASSES):
        result = optimize(graph, without, verifier=None, stages=stages)
        for launch in result.graph.graph_defined:
            plan = result.blocks[launch.results[0].name].memory
            bound = shared_bytes_at_least(launch.block, stages=stages)
            assert bound <= plan.total, f"bound {bound}, plan {plan.describe()}"
            assert plan.lower_bound <= plan.total


@pytest.mark.parametrize("name", programs.names())
def test_known_good_graphs(name: str) -> None:
    for graph in programs.known_good(name):
        check(graph, 2)
        for launch in graph.graph_defined:
            try:
                kernel = emit_block(
                    launch, schedule=Schedule(stages=2) if launch.block.forloop_range > 1 else Schedule()
                )
            except EmitError:
                continue
            assert shared_bytes_at_least(launch.block, stages=2) <= kernel.launch.shared_bytes


@settings(max_examples=30, deadline=None, phases=[Phase.generate])
@given(kernel_graphs(Options()), st.integers(2, 4))
def test_random_graphs(graph: KernelGraph, stages: int) -> None:
    check(graph, stages)
