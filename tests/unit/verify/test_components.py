from __future__ import annotations

import numpy as np

from workbench.interpret.cones import ConeAxes, Site, cone_sites
from workbench.ugraph import value as op
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.tracing import trace
from workbench.verify.components import Components


def components(graph: KernelGraph) -> tuple[Components, list[Site]]:
    axes = ConeAxes.of(graph)
    sites = cone_sites(graph, axes)
    made = Components(axes, [tensor.shape for tensor in graph.inputs])
    for name, cones in sites:
        if name == "sqrt":
            made.add(cones)
    return made, [(name, cones) for name, cones in sites if name == "sqrt"]


def test_rows_are_components_and_nested_roots_join_all_that_they_touch() -> None:
    graph = trace(lambda H, X: op.rms_norm(op.rms_norm(H) + X), H=(4, 3), X=(4, 3))
    made, sites = components(graph)
    mask = np.array([[False], [True], [False], [True]])
    for _, cones in sites:
        found = made.of(cones, mask)
        assert found is not None
        places = made.places(found)
        assert sorted(places) == [0, 1]
        for place in places.values():
            assert place[[1, 3]].all()
            assert not place[[0, 2]].any()
    assert made.most_together() == 2
    assert Components(ConeAxes.of(graph), [(4, 3)] * 2).most_together() == 0


def test_a_root_over_a_column_and_one_over_a_row_are_one_component() -> None:
    graph = trace(lambda X: op.sqrt(op.sum(X * X)) + op.sqrt(op.sum(X * X, axis=0)), X=(3, 4))
    made, sites = components(graph)
    found = made.of(sites[0][1], np.array([[True], [False], [False]]))
    assert found is not None
    assert made.places(found)[0].all()


def test_numbers_have_no_component() -> None:
    graph = trace(lambda X: X + op.sqrt(op.sum(0 * X) * 0 + 2), X=(3,))
    made, sites = components(graph)
    assert made.of(sites[0][1], np.ones((1,), dtype=bool)) is not None
    assert made.places([]) == {}
