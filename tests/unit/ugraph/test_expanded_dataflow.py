from __future__ import annotations

import pytest
from hypothesis import given, settings

import workbench as wb
from tests.property.strategies import kernel_graphs
from workbench.ugraph.builder import KernelBuilder
from workbench.ugraph.dataflow import Dataflow, StepNode, flatten
from workbench.ugraph.expand import expand
from workbench.ugraph.expanded_dataflow import flatten_expanded
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import Accumulator, OpNode


def what(node: StepNode) -> object:
    """What a step does, without the tensors that its node names."""
    match node:
        case OpNode():
            return node.op, node.attributes
        case Accumulator():
            return node.kind, node.columns, node.rescale is None, node.eps
    return node


def steps(flow: Dataflow) -> list[object]:
    return [(what(step.node), step.operands, step.results, step.launch, step.place) for step in flow.steps]


def assert_same_flow(graph: KernelGraph) -> None:
    found, expected = flatten_expanded(graph), flatten(expand(graph, keep_means=True))
    assert steps(found) == steps(expected)
    assert found.shapes == expected.shapes
    assert found.outputs == expected.outputs
    assert len(found.launches) == len(expected.launches)


@pytest.mark.parametrize("name", wb.programs.names())
def test_programs_flow_as_their_expansions_do(name: str) -> None:
    for graph in (wb.programs.get(name), *wb.programs.known_good(name)):
        assert_same_flow(graph)


@settings(max_examples=60, deadline=None)
@given(kernel_graphs())
def test_random_graphs_flow_as_their_expansions_do(graph: KernelGraph) -> None:
    assert_same_flow(graph)


def test_power_one_makes_a_value_of_its_own() -> None:
    kernel = KernelBuilder()
    kernel.output(kernel.apply("power", kernel.input("X", (2, 3)), exponent=1))
    graph = kernel.build()
    assert [step.node.op for step in flatten_expanded(graph).steps if isinstance(step.node, OpNode)] == ["scale"]
    assert_same_flow(graph)
