"""Records as plain view data, SVG and figures; no widgets."""

from __future__ import annotations

from workbench.views.graph_view import ClusterView, EdgeView, GraphView, NodeView, view_graph
from workbench.views.html import graph_html
from workbench.views.registration import register_views
from workbench.views.svg import graph_svg

__all__ = [
    "ClusterView",
    "EdgeView",
    "GraphView",
    "NodeView",
    "graph_html",
    "graph_svg",
    "register_views",
    "view_graph",
]
