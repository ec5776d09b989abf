"""Records as plain view data, SVG and figures; no widgets."""

from __future__ import annotations

from workbench.views.cost_plots import (
    FoundCandidate,
    Prediction,
    plot_heatmap,
    plot_predictions,
    plot_search,
)
from workbench.views.graph_view import ClusterView, EdgeView, GraphView, NodeView, view_graph
from workbench.views.html import graph_html
from workbench.views.measured_plots import plot_floor_fraction, plot_speedups
from workbench.views.measured_table import markdown_table, text_table
from workbench.views.registration import register_views
from workbench.views.roofline import RooflinePoint, plot_roofline, roofline_points
from workbench.views.svg import graph_svg

__all__ = [
    "ClusterView",
    "EdgeView",
    "FoundCandidate",
    "GraphView",
    "NodeView",
    "Prediction",
    "RooflinePoint",
    "graph_html",
    "graph_svg",
    "markdown_table",
    "plot_floor_fraction",
    "plot_heatmap",
    "plot_predictions",
    "plot_roofline",
    "plot_search",
    "plot_speedups",
    "register_views",
    "roofline_points",
    "text_table",
    "view_graph",
]
