"""`workbench show`: a program or a saved graph as text, and drawn."""

from __future__ import annotations

import argparse
from html import escape
from pathlib import Path

from workbench.commands import requests
from workbench.commands.answer import Answer, Call, Json
from workbench.commands.programs import tensor_values
from workbench.errors import UsageError
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import ThreadNode
from workbench.ugraph.serialize import dumps
from workbench.views import graph_html, graph_svg
from workbench.views.graph_view import DEFAULT_MAX_NODES

_SUFFIXES = (".svg", ".html", ".json", ".txt")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "target", metavar="GRAPH_OR_PROGRAM", help="a program's name, or a file of graphs (ours, Mirage's)"
    )
    parser.add_argument(
        "-o", "--out", type=Path, metavar="FILE", help="write into this file: a picture (.svg, .html), .json or .txt"
    )
    parser.add_argument(
        "--max-nodes",
        type=int,
        metavar="N",
        help=f"nodes that a picture shows at most (default {DEFAULT_MAX_NODES}; 0: all)",
    )
    parser.add_argument("--index", type=int, metavar="N", help="which graph of the file, from 0 (default 0)")
    parser.add_argument(
        "--known-good", type=int, nargs="?", const=0, metavar="N", help="the N-th known good µGraph of the program"
    )
    requests.add_program_arguments(parser)


def run(call: Call) -> Answer:
    """Return the graph as text, its hashes and its picture. Raises: as `requests.read_source`; OSError."""
    arguments = call.arguments
    out: Path | None = arguments.out
    if out is not None and out.suffix not in _SUFFIXES:
        raise UsageError(
            f"{out}: graphs are written as {', '.join(_SUFFIXES)}, not as {out.suffix or 'a name without suffix'}"
        )
    graphs, index = _choose(call)
    graph = requests.pick(graphs, index, what=arguments.target)
    call.progress("drawing")
    max_nodes = DEFAULT_MAX_NODES if arguments.max_nodes is None else arguments.max_nodes or None
    picture = graph_svg(graph, max_nodes=max_nodes)
    if out is not None:
        match out.suffix:
            case ".svg":
                written = picture
            case ".html":
                written = html_page(graph, max_nodes=max_nodes)
            case ".json":
                written = dumps(graph) + "\n"
            case _:
                written = graph.describe() + "\n"
        out.write_text(written, encoding="utf-8")
    levels = count_nodes(graph)
    text = graph.describe()
    values: dict[str, Json] = {
        "name": graph.name,
        "hash": graph.hash,
        "structure_hash": graph.structure_hash,
        "inputs": [tensor_values(tensor) for tensor in graph.inputs],
        "outputs": [tensor_values(tensor) for tensor in graph.outputs],
        "nodes": sum(levels.values()),
        "levels": {**levels},
        "graphs": len(graphs),
        "index": index,
        "text": text,
        "svg": str(out) if out is not None and out.suffix == ".svg" else picture,
        "out": None if out is None else str(out),
    }
    lines = [text, "", _summary(graph, levels)]
    if len(graphs) > 1:
        option = "--index" if arguments.known_good is None else "--known-good"
        lines.append(f"graph {index} of {len(graphs)}, counted from 0; {option} N chooses another")
    if out is not None:
        lines.append(f"written to {out}")
    return Answer("\n".join(lines), values)


def html_page(graph: KernelGraph, *, max_nodes: int | None) -> str:
    """Return a page that stands for itself, with the graph's picture and tables."""
    title = escape(f"µGraph {graph.name}".strip())
    body = graph_html(graph, max_nodes=max_nodes)
    head = f'<head><meta charset="utf-8"><title>{title}</title></head>'
    return f'<!doctype html>\n<html lang="en">{head}\n<body>{body}</body></html>\n'


def count_nodes(graph: KernelGraph) -> dict[str, int]:
    """Return how many nodes the graph has on each level."""
    blocks = [node.block for node in graph.graph_defined]
    threads = [node.graph for block in blocks for node in block.nodes if isinstance(node, ThreadNode)]
    return {
        "kernel": len(graph.nodes),
        "block": sum(len(block.nodes) for block in blocks),
        "thread": sum(len(thread.nodes) for thread in threads),
    }


def _choose(call: Call) -> tuple[tuple[KernelGraph, ...], int]:
    arguments = call.arguments
    source = requests.read_source(arguments.target, arguments, call.settings)
    if arguments.known_good is not None:
        if source.instance is None:
            raise UsageError(f"{arguments.target} is a file; only programs have known good µGraphs")
        if arguments.index is not None:
            raise UsageError("--index and --known-good exclude each other; --known-good takes the number itself")
        return tuple(source.instance.program.known_good(source.instance)), arguments.known_good
    return source.graphs, arguments.index or 0


def _summary(graph: KernelGraph, levels: dict[str, int]) -> str:
    counts = ", ".join(f"{count} on {level} level" for level, count in levels.items() if count)
    return f"hash {graph.hash}  structure {graph.structure_hash}  nodes: {counts or 'none'}"
