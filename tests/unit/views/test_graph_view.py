"""View data against counts and maps taken from the graphs by hand."""

from __future__ import annotations

import pytest

from tests.unit.views import example_graphs
from workbench.core.levels import Level
from workbench.errors import UsageError
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.views.graph_collapse import clusters_to_collapse
from workbench.views.graph_view import GraphView, Kind, view_graph


def kinds(view: GraphView) -> list[str]:
    return [node.kind.value for node in view.nodes]


def test_nodes_of_a_block_graph_in_order() -> None:
    view = view_graph(example_graphs.rms_norm_linear())
    assert kinds(view) == [
        "input", "input", "input iterator", "input iterator", "operator", "accumulator", "accumulator", "operator",
        "output saver", "output",
    ]  # fmt: skip
    assert view.hidden == 0
    assert view.notes == ()
    assert [node.title for node in view.nodes if node.kind is Kind.ACCUMULATOR] == ["accumulate sum", "accumulate rms"]


def test_loop_body_lies_in_the_loop_and_accumulators_do_not() -> None:
    view = view_graph(example_graphs.rms_norm_linear())
    loop = next(cluster for cluster in view.clusters if cluster.is_loop)
    block = next(cluster for cluster in view.clusters if not cluster.is_loop)
    assert loop.parent == block.id
    assert "64 iterations" in loop.title
    assert [node.title for node in view.nodes if node.cluster == loop.id] == ["load X", "load W", "matmul"]
    assert {node.title for node in view.nodes if node.cluster == block.id} == {
        "accumulate sum", "accumulate rms", "div", "save",
    }  # fmt: skip
    assert block.lines == ("grid 64 · loop 64 · threads 128",)


def test_maps_and_shapes_stand_on_the_edges() -> None:
    view = view_graph(example_graphs.rms_norm_linear())
    titles = {node.id: node.title for node in view.nodes}
    edges = {(titles[edge.source], titles[edge.target]): (edge.shape, edge.maps) for edge in view.edges}
    assert edges["X", "load X"] == ("16×4096", ("imap x→φ", "fmap i→1"))
    assert edges["W", "load W"] == ("4096×4096", ("imap x→1", "fmap i→0"))
    assert edges["load W", "matmul"] == ("64×64", ())
    assert edges["accumulate rms", "div"] == ("16×1", ())
    assert edges["save", "O"] == ("16×4096", ("omap x→1",))


def test_thread_graph_is_a_level_of_its_own() -> None:
    view = view_graph(example_graphs.gated_with_threads())
    inside = [node for node in view.nodes if node.level is Level.THREAD]
    assert [node.title for node in inside] == ["silu", "constant", "add", "mul"]
    (cluster,) = {node.cluster for node in inside}
    assert next(c for c in view.clusters if c.id == cluster).level is Level.THREAD
    titles = {node.id: node.title for node in view.nodes}
    pairs = [(titles[edge.source], titles[edge.target]) for edge in view.edges]
    assert ("accumulate sum", "silu") in pairs
    assert ("mul", "save") in pairs


def test_outputs_keep_their_order() -> None:
    view = view_graph(example_graphs.gated_with_threads())
    assert [node.title.partition(" ")[2] for node in view.nodes if node.kind is Kind.OUTPUT] == [
        " (output 0)", " (output 1)",
    ]  # fmt: skip
    sources = {edge.target: edge.source for edge in view.edges}
    titles = {node.id: node.title for node in view.nodes}
    assert [titles[sources[output]] for output in ("o0", "o1")] == ["exp", "save"]


def test_ragged_tiles_and_strides_are_marked() -> None:
    view = view_graph(example_graphs.ragged())
    assert {edge.shape for edge in view.edges} == {"3×22", "3×≤6"}
    assert view.nodes[0].lines == ("float16 3×22", "strides 1, 3")


@pytest.mark.parametrize("graph", [example_graphs.rms_norm_linear(), example_graphs.gated_with_threads()])
def test_every_edge_has_its_ends_and_every_node_its_cluster(graph: KernelGraph) -> None:
    for limit in (None, 3, 5, 8, 12):
        view = view_graph(graph, max_nodes=limit)
        ids = [node.id for node in view.nodes]
        assert len(ids) == len(set(ids))
        assert {edge.source for edge in view.edges} | {edge.target for edge in view.edges} <= set(ids)
        clusters = {cluster.id for cluster in view.clusters}
        assert {node.cluster for node in view.nodes} | {cluster.parent for cluster in view.clusters} <= clusters | {""}


# 18 nodes: 3 inputs, 12 in the block graph (4 of them in its thread graph), 1 operator, 2 outputs
@pytest.mark.parametrize(
    ("limit", "shown", "hidden"),
    [(None, 18, 0), (18, 18, 0), (17, 15, 4), (15, 15, 4), (14, 7, 12), (7, 7, 12), (5, 5, 14)],
)
def test_collapse_from_the_inside_out(limit: int | None, shown: int, hidden: int) -> None:
    view = view_graph(example_graphs.gated_with_threads(), max_nodes=limit)
    assert (len(view.nodes), view.hidden) == (shown, hidden)
    if hidden:
        assert view.notes == (
            f"{hidden} of 18 nodes are hidden in the dashed boxes; raise max_nodes (now {limit}) to see all",
        )
        assert sum(node.hidden for node in view.nodes) == hidden
        lines = " ".join(line for node in view.nodes if node.hidden for line in node.lines)
        assert "nodes hidden" in lines


def test_collapse_on_request() -> None:
    view = view_graph(example_graphs.gated_with_threads(), collapse=["n0"], max_nodes=None)
    assert view.hidden == 12
    assert view.notes == ("12 of 18 nodes are hidden in the dashed boxes; expand them to see all",)
    assert len(view.edges) == 3 + 1 + 2


def test_long_kernel_graph_hides_its_middle() -> None:
    view = view_graph(example_graphs.chain(500), max_nodes=6)
    assert [node.title for node in view.nodes] == ["X", "exp", "exp", "exp", "…", "t499"]
    assert view.hidden == 497
    assert view.notes == ("497 of 502 nodes are hidden in the dashed boxes; raise max_nodes (now 6) to see all",)
    assert len(view.edges) == 5


@pytest.mark.parametrize("limit", [2, 0, -1])
def test_a_limit_that_shows_nothing_is_refused(limit: int) -> None:
    with pytest.raises(UsageError, match="at least 3"):
        view_graph(example_graphs.chain(1), max_nodes=limit)


def test_thread_graphs_collapse_before_block_graphs() -> None:
    graph = example_graphs.gated_with_threads()
    assert clusters_to_collapse(graph, 18, set()) == set()
    (thread,) = clusters_to_collapse(graph, 17, set())
    assert thread.startswith("n0.")
    assert clusters_to_collapse(graph, 14, set()) == {thread, "n0"}
    assert clusters_to_collapse(graph, 14, {"n0"}) == {"n0"}
