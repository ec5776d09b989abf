from __future__ import annotations

import json
import re
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.strategies import Options, kernel_graphs
from workbench.errors import WorkbenchError
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import ThreadNode
from workbench.ugraph.serialize import dumps, from_json, loads, to_json
from workbench.ugraph.text import parse_graph, print_graph

ODD = kernel_graphs(Options(odd_names=True))


@settings(max_examples=80)
@given(ODD)
def test_text_parses_to_the_graph_it_was_printed_from(graph: KernelGraph) -> None:
    again = parse_graph(print_graph(graph))
    assert again == graph
    assert print_graph(again) == print_graph(graph)
    assert again.hash == graph.hash


@settings(max_examples=60)
@given(ODD)
def test_json_loads_to_the_graph_it_was_saved_from(graph: KernelGraph) -> None:
    assert loads(dumps([graph, graph])) == [graph, graph]
    again = from_json(json.loads(json.dumps(to_json(graph))))
    assert again == graph
    assert (again.hash, again.structure_hash) == (graph.hash, graph.structure_hash)


@given(kernel_graphs())
def test_block_and_thread_graphs_round_trip_alone(graph: KernelGraph) -> None:
    for node in graph.graph_defined:
        assert parse_graph(print_graph(node.block)) == node.block
        for inner in node.block.nodes:
            if isinstance(inner, ThreadNode):
                assert parse_graph(print_graph(inner.graph)) == inner.graph


@given(kernel_graphs(Options(mixed_types=False)))
def test_types_of_results_may_be_left_out(graph: KernelGraph) -> None:
    lines = []
    for line in print_graph(graph).splitlines():
        results, equals, rest = line.partition(" = ")
        lines.append(re.sub(r": \w+\[[^\]]*\]", "", results) + equals + rest if equals else line)
    assert parse_graph("\n".join(lines)) == graph


@settings(max_examples=150)
@given(kernel_graphs(Options(max_steps=2)), st.data())
def test_a_damaged_text_is_refused_or_still_a_graph(graph: KernelGraph, data: st.DataObject) -> None:
    text = print_graph(graph)
    start = data.draw(st.integers(0, len(text) - 1))
    length = data.draw(st.integers(0, 12))
    damaged = (
        text[:start]
        + data.draw(st.sampled_from(["", "-1", "(", '"', "x", "\n", "99", "=", "0"]))
        + text[start + length :]
    )
    try:
        parse_graph(damaged)
    except WorkbenchError as error:
        assert re.search(r"line \d+, column \d+", str(error)), error  # noqa: PT017 - either outcome is right


def _parts(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, child in children for found in _parts(child, (*path, key)))]


@settings(max_examples=120)
@given(kernel_graphs(Options(max_steps=2)), st.data())
def test_a_damaged_document_is_refused_or_still_a_graph(graph: KernelGraph, data: st.DataObject) -> None:
    document: Any = json.loads(dumps(graph))
    path = data.draw(st.sampled_from(_parts(document)))
    junk = data.draw(
        st.sampled_from([None, -1, 0, 7, "x", "1/0", [], {}, [1], True, 1.5, {"kind": "load"}, "sum", 10**30])
    )
    if path:
        parent = document
        for key in path[:-1]:
            parent = parent[key]
        parent[path[-1]] = junk
    else:
        document = junk
    try:
        loads(json.dumps(document))
    except WorkbenchError as error:
        assert "\n" not in str(error)  # noqa: PT017 - either outcome is right


@given(kernel_graphs(Options(max_steps=2)), st.data())
def test_a_truncated_document_is_refused(graph: KernelGraph, data: st.DataObject) -> None:
    text = dumps(graph)
    cut = text[: data.draw(st.integers(0, len(text) - 1))]
    try:
        loads(cut)
    except WorkbenchError as error:
        assert "line " in str(error)  # noqa: PT017
    else:
        raise AssertionError("a truncated document was read")
