from __future__ import annotations

from hypothesis import given, settings

from tests.property.strategies import Options, kernel_graphs
from workbench.ugraph.dataflow import flatten
from workbench.ugraph.hashes import wiring_hash
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import OutputSaver
from workbench.ugraph.rewrite import FreshNames, Rewriter, dense_strides


@settings(max_examples=40)
@given(kernel_graphs(Options(max_steps=5, odd_names=True)))
def test_a_copy_equals_its_original(graph: KernelGraph) -> None:
    assert Rewriter().rewrite(graph) == graph


@settings(max_examples=40)
@given(kernel_graphs(Options(max_steps=5, odd_names=True)))
def test_a_dataflow_has_every_step_after_what_it_reads(graph: KernelGraph) -> None:
    flow = flatten(graph)
    made: set[int] = set()
    for step in flow.steps:
        assert made.issuperset(step.operands)
        made.update(step.results)
    assert made == set(range(len(flow.shapes))) == set(flow.makers())
    assert len({step.path for step in flow.steps}) == len(flow.steps)
    assert [flow.paths[value][0] for value in flow.outputs] == list(graph.output_names)
    for value, path in enumerate(flow.paths):
        if len(path) == 1:
            assert flow.shapes[value] == graph.tensor(path[0]).shape
        elif len(path) == 2:
            launch = next(node for node in flow.launches if node.results[0].name == path[0])
            assert flow.shapes[value] == launch.block.tiles[path[1]].shape
    savers = [step for step in flow.steps if isinstance(step.node, OutputSaver)]
    assert len(savers) == sum(len(node.results) for node in flow.launches)


def test_copies_do_not_need_the_original_names() -> None:
    names = FreshNames(["a", "a_1", "b"])
    assert [names("a"), names("a"), names("c")] == ["a_2", "a_3", "c_1"]


def test_strides_keep_the_order_of_axes() -> None:
    assert dense_strides((4, 6), (6, 1), (3, 5)) == (5, 1)
    assert dense_strides((4, 6), (1, 4), (3, 5)) == (1, 3)
    assert dense_strides((4, 6), (8, 1), (3, 5)) == (5, 1)  # padding is left out
    assert dense_strides((4, 6), (8, 1), (4, 6)) == (8, 1)  # unless nothing changes
    assert dense_strides((2, 4, 6), (1, 12, 2), (3, 5, 7)) == (1, 21, 3)
    assert dense_strides((4, 1), (1, 1), (4, 5)) == (5, 1)


def test_two_copies_are_one_graph() -> None:
    from workbench import programs

    graph = programs.known_good("gqa")[0]
    assert wiring_hash(Rewriter().rewrite(graph)) == wiring_hash(graph)
