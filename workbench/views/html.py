"""A µGraph as an HTML fragment: its picture, and below it tables of all its nodes, folded per graph.

Invariant: no script, no colour of its own outside the picture, every text escaped; a table that is cut says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from workbench.ugraph.kernel_graph import KernelGraph
from workbench.units import counted
from workbench.views.graph_labels import printable
from workbench.views.graph_view import DEFAULT_MAX_NODES, ClusterView, GraphView, NodeView, view_graph
from workbench.views.palette import LEVEL_WORDS
from workbench.views.svg import Theme, graph_svg

DEFAULT_MAX_ROWS = 400
_CELL = '<td style="text-align:left">'  # JupyterLab sets cells to the right
_COLUMNS = ("node", "kind", "attributes", "reads", "makes", "when")


def graph_html(
    graph: KernelGraph,
    *,
    max_nodes: int | None = DEFAULT_MAX_NODES,
    max_rows: int = DEFAULT_MAX_ROWS,
    theme: Theme = "auto",
) -> str:
    """Return the picture and the tables of a kernel graph as one HTML element.

    max_nodes, theme: of the picture, see `graph_svg`; max_rows: rows over all tables, the rest is counted in words.
    Raises: UsageError, DrawingError.
    """
    picture = graph_svg(graph, max_nodes=max_nodes, theme=theme)
    tables = node_tables(view_graph(graph, max_nodes=None), max_rows=max_rows)
    return f'<div class="workbench-graph">\n<div style="overflow-x:auto">{picture}</div>\n{tables}</div>\n'


def node_tables(view: GraphView, *, max_rows: int = DEFAULT_MAX_ROWS) -> str:
    """Return one folded table per graph of a view: the kernel graph, then every graph inside it."""
    parts = []
    left = max_rows
    for title, nodes in _groups(view):
        shown = nodes[: max(left, 0)]
        left -= len(nodes)
        parts.append(_table(title, shown, hidden=len(nodes) - len(shown), max_rows=max_rows))
    return "".join(parts)


def _groups(view: GraphView) -> list[tuple[str, list[NodeView]]]:
    """Return heading and nodes of every graph; the nodes of a loop belong to the block graph around it."""
    loops = {cluster.id: cluster.parent for cluster in view.clusters if cluster.is_loop}
    graphs = [cluster for cluster in view.clusters if not cluster.is_loop]
    members: dict[str, list[NodeView]] = {"": [], **{cluster.id: [] for cluster in graphs}}
    for node in view.nodes:
        members[loops.get(node.cluster, node.cluster)].append(node)
    kernel = " ".join(("kernel graph", view.name)).strip()
    return [(kernel, members[""]), *((_heading(cluster), members[cluster.id]) for cluster in graphs)]


def _heading(cluster: ClusterView) -> str:
    return ", ".join((cluster.title, *cluster.lines))


def _table(title: str, nodes: Sequence[NodeView], *, hidden: int, max_rows: int) -> str:
    count = len(nodes) + hidden
    rows = "".join(
        f"<tr>{''.join(f'{_CELL}{escape(printable(cell))}</td>' for cell in _cells(node))}</tr>\n" for node in nodes
    )
    notice = f"<p>{hidden} of {count} nodes are not listed; raise max_rows (now {max_rows}).</p>\n" if hidden else ""
    head = "".join(f'<th style="text-align:left">{column}</th>' for column in _COLUMNS)
    return (
        f"<details><summary>{escape(printable(title))}: {counted(count, 'node')}</summary>\n"
        f"<table><thead><tr>{head}</tr></thead><tbody>\n{rows}</tbody></table>\n{notice}</details>\n"
    )


def _cells(node: NodeView) -> tuple[str, ...]:
    made = {result.partition(": ")[0] for result in node.results}
    attributes = [line for line in node.lines if "=" in line]
    kind = f"{LEVEL_WORDS[node.level].partition(' ')[0]} {node.kind.value}"
    makes = node.results or tuple(line for line in node.lines if not made and node.kind.value == "output")
    return (node.title, kind, ", ".join(attributes), ", ".join(node.operands), ", ".join(makes), node.place)
