"""A µGraph as an SVG picture: kernel, block and thread graphs nested as boxes, tensors as labelled arrows.

Invariant: the same graph gives the same text (with one drawing program); ids are of the drawing's own, so that several
pictures stand in one page; every text of the user's is escaped, and what is shortened or hidden says so.
"""

from __future__ import annotations

import copy
import hashlib
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from workbench.core.levels import Level
from workbench.errors import UsageError
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.views.graph_labels import RAGGED, REPLICA, printable
from workbench.views.graph_view import (
    DEFAULT_MAX_NODES,
    ClusterView,
    EdgeView,
    GraphView,
    Kind,
    NodeView,
    view_graph,
)
from workbench.views.palette import DARK, LEVEL_WORDS, LIGHT, Role, level_role
from workbench.views.render import render_dot

Theme = Literal["auto", "light", "dark"]
THEMES: tuple[Theme, ...] = ("auto", "light", "dark")

_SVG = "http://www.w3.org/2000/svg"
_FONT = "Helvetica"  # the drawing programs know its widths; the picture names its usual stand-ins too
_FONT_FAMILY = "Helvetica,Arial,Liberation Sans,sans-serif"
# Texts are measured larger than they are drawn, since the reader's font may be wider than Helvetica (DejaVu Sans is).
_MEASURED_POINTS = {"node": 12.5, "edge": 10.5, "cluster": 13.5}
_TITLE_POINTS, _LINE_POINTS = 10.5, 9.0
_LONGEST_TEXT = 48  # characters of one label line; longer ones end in an ellipsis, the tooltip has the whole
_NOTE_POINTS, _EDGE_POINTS = 13.0, 6  # height of a note below the drawing, space around everything
_WIDTH_OF_LETTER = 0.55  # of the font's size, on average; only the notes rely on it
_MAP_LEGEND = (
    "x, y, z: axes of the grid; i: the for-loop",
    f"x→1: x splits dimension 1; x→{REPLICA}: all of it for every x",
)
_RAGGED_LEGEND = f"{RAGGED}: the last tiles along this dimension are shorter"


def graph_svg(
    graph: KernelGraph | GraphView, *, max_nodes: int | None = DEFAULT_MAX_NODES, theme: Theme = "auto"
) -> str:
    """Return the picture of a kernel graph (or of view data made from one) as SVG text.

    max_nodes: how many nodes to show, None for all; the picture says how many it hides (see `view_graph`).
    theme: `light`, `dark`, or `auto`, which follows the page (JupyterLab's theme, else the reader's system).
    Raises: UsageError for an unknown theme or a limit below 3, DrawingError when nothing can draw.
    """
    if theme not in THEMES:
        raise UsageError(f"unknown theme {theme!r}; use one of {', '.join(THEMES)}")
    view = graph if isinstance(graph, GraphView) else view_graph(graph, max_nodes=max_nodes)
    source = dot_source(view)
    prefix = "wb" + hashlib.sha256(f"{theme} {source}".encode()).hexdigest()[:10]
    return _finish(render_dot(source), view, prefix, theme)


# ------------------------------------------------------------------------------------------------------------- to DOT
def dot_source(view: GraphView) -> str:
    """Return the picture in the DOT language, in the light colours; the kernel graph is the whole drawing."""
    kernel, edge = LIGHT[Role.KERNEL], LIGHT[Role.EDGE]
    lines = [
        "digraph picture {",
        f'graph [fontname="{_FONT}" fontsize={_MEASURED_POINTS["cluster"]} fontcolor="{kernel.ink}" bgcolor="transparent" '
        f"pad=0.15 nodesep=0.2 ranksep=0.32 outputorder=edgesfirst labelloc=t labeljust=l "
        f"label={_label(_kernel_lines(view), left=True)}]",
        f'node [fontname="{_FONT}" fontsize={_MEASURED_POINTS["node"]} fontcolor="{kernel.ink}" shape=box style=filled '
        f'margin="0.08,0.04" height=0.3 width=0.3]',
        f'edge [fontname="{_FONT}" fontsize={_MEASURED_POINTS["edge"]} fontcolor="{edge.ink}" color="{edge.line}" '
        f"arrowsize=0.55]",
        *_cluster_body(view, ""),
        *(_edge(number, edge) for number, edge in enumerate(view.edges)),
        "}",
    ]
    return "\n".join(lines) + "\n"


def _kernel_lines(view: GraphView) -> list[str]:
    return [f"{LEVEL_WORDS[Level.KERNEL]} {view.name}".strip()]


def _cluster_body(view: GraphView, cluster: str) -> Iterator[str]:
    for node in view.nodes:
        if node.cluster == cluster:
            yield _node(node)
    for inner in view.clusters:
        if inner.parent == cluster:
            attributes = _cluster_attributes(inner.id, _cluster_role(inner), [inner.title, *inner.lines])
            yield f'subgraph "cluster_{inner.id}" {{ {attributes}'
            yield from _cluster_body(view, inner.id)
            yield "}"


def _cluster_role(cluster: ClusterView) -> Role:
    return Role.LOOP if cluster.is_loop else level_role(cluster.level)


def _cluster_attributes(key: str, role: Role, lines: Sequence[str]) -> str:
    paint = LIGHT[role]
    style = '"rounded,filled,dashed"' if role is Role.LOOP else '"rounded,filled"'
    return (
        f'id="cluster-{key}" class="{role.value}" style={style} fillcolor="{paint.ground}" color="{paint.line}" '
        f'fontsize={_MEASURED_POINTS["cluster"]} fontcolor="{paint.ink}" labelloc=t labeljust=l margin=9 '
        f"label={_label(lines, left=True)};"
    )


def _node(node: NodeView) -> str:
    role = _node_role(node)
    paint = LIGHT[role]
    ground = paint.ground if role in (Role.TENSOR, Role.HIDDEN) else LIGHT[Role.CANVAS].ground
    style = {Role.TENSOR: '"filled,rounded"', Role.HIDDEN: '"filled,dashed"'}.get(role, "filled")
    width = 2 if node.kind in (Kind.ACCUMULATOR, Kind.RUNNING_MAX) else 1
    return (
        f'"{node.id}" [id="node-{node.id}" class="{role.value}" style={style} fillcolor="{ground}" color="{paint.line}" '
        f"penwidth={width} label={_label([node.title, *node.lines])}];"
    )


def _node_role(node: NodeView) -> Role:
    if node.kind in (Kind.INPUT, Kind.OUTPUT):
        return Role.TENSOR
    return Role.HIDDEN if node.kind is Kind.HIDDEN else level_role(node.level)


def _edge(number: int, edge: EdgeView) -> str:
    lines = [f" {text} " for text in (edge.shape, *edge.maps) if text]  # the blanks keep neighbours apart
    return f'"{edge.source}" -> "{edge.target}" [id="edge-{number}" class="tensor" label={_label(lines)}];'


def _label(lines: Sequence[str], *, left: bool = False, limit: int | None = _LONGEST_TEXT) -> str:
    """Return lines of text as a quoted, escaped DOT string, centred or to the left."""
    end = "\\l" if left else "\\n"
    return '"' + "".join(_escaped(line, limit) + end for line in lines if line) + '"'


def _escaped(text: str, limit: int | None) -> str:
    """Return a text that DOT draws letter by letter: no escapes, no entities, control characters shown as U+FFFD."""
    shown = printable(text)
    if limit is not None and len(shown) > limit:
        shown = shown[: limit - 1] + "…"
    return shown.replace("&", "&amp;").replace("\\", "\\\\").replace('"', "&quot;")


# ------------------------------------------------------------------------------------------------------------- to SVG
def _finish(drawn: str, view: GraphView, prefix: str, theme: Theme) -> str:
    """Return the drawing with ids of its own, tooltips, text styles, both themes' colours, and no trace of the program."""
    ElementTree.register_namespace("", _SVG)
    root = ElementTree.fromstring(drawn)
    picture = root.find(f"{{{_SVG}}}g")
    assert picture is not None, "the drawing programs write one group"
    tooltips = _tooltips(view)
    titles = []
    for number, group in enumerate(picture.iter(f"{{{_SVG}}}g")):
        key = group.get("id", "")
        what = key.partition("-")[0] if group is not picture else "cluster"
        group.set("id", f"{prefix}-{key}" if key in tooltips else f"{prefix}-part-{number}")
        tooltip = group.find(f"{{{_SVG}}}title")
        if tooltip is not None:
            tooltip.text = _tooltip(tooltips.get(key) or _kernel_lines(view))
        for position, text in enumerate(group.findall(f"{{{_SVG}}}text")):
            is_title = position == 0 and what != "edge"
            _set(text, {"font-size": f"{_TITLE_POINTS if is_title else _LINE_POINTS:.2f}", "font-family": _FONT_FAMILY})
            if is_title:
                text.set("font-weight", "bold")
            if what == "cluster":
                group.remove(text)
                titles += _with_halo(text, f"{group.get('class')} {Role.KERNEL.value if group is picture else ''}")
    picture.extend(titles)  # above the edges that cross them
    for background in picture.findall(f"{{{_SVG}}}polygon"):
        picture.remove(background)
    _set(root, {"id": prefix, "class": "workbench-graph", "role": "img", "aria-label": printable(_summary(view))})
    _add_frame_and_notes(root, view, prefix)
    style = ElementTree.Element(f"{{{_SVG}}}style")
    style.text = _style(prefix, theme)
    root.insert(0, style)
    return ElementTree.tostring(root, encoding="unicode").strip() + "\n"


def _add_frame_and_notes(root: ElementTree.Element, view: GraphView, prefix: str) -> None:
    """Put the canvas and the kernel graph's box behind the drawing, and the notes below it; nothing lies outside."""
    _, _, width, height = (float(part) for part in root.get("viewBox", "").split())
    notes = _notes(view)
    wide = max(width, *(len(note) * _LINE_POINTS * _WIDTH_OF_LETTER for note in notes), 0)
    tall = height + len(notes) * _NOTE_POINTS
    left, top, full, high = -_EDGE_POINTS, -_EDGE_POINTS, wide + 2 * _EDGE_POINTS, tall + 2 * _EDGE_POINTS
    _set(root, {"viewBox": f"{left} {top} {full:.0f} {high:.0f}", "width": f"{full:.0f}pt", "height": f"{high:.0f}pt"})
    canvas = _element("rect", {
        "class": Role.CANVAS.value, "x": str(left), "y": str(top), "width": f"{full:.0f}", "height": f"{high:.0f}",
        "fill": LIGHT[Role.CANVAS].ground,
    })  # fmt: skip
    frame = _element("g", {"id": f"{prefix}-cluster-kernel", "class": f"cluster {Role.KERNEL.value}"})
    title = _element("title", {})
    title.text = _tooltip(_kernel_lines(view))
    box = _element("rect", {
        "width": f"{wide:.0f}", "height": f"{height:.0f}", "rx": "10", "fill": LIGHT[Role.KERNEL].ground,
        "stroke": LIGHT[Role.KERNEL].line,
    })  # fmt: skip
    frame.extend([title, box])
    root.insert(0, frame)
    root.insert(0, canvas)
    for number, note in enumerate(notes, 1):
        text = _element("text", {
            "class": "note", "x": "2", "y": f"{height + number * _NOTE_POINTS:.1f}", "font-size": f"{_LINE_POINTS:.2f}",
            "font-family": _FONT_FAMILY, "fill": LIGHT[Role.EDGE].ink,
        })  # fmt: skip
        text.text = note
        root.append(text)


def _notes(view: GraphView) -> list[str]:
    notes = list(view.notes)
    notes += _MAP_LEGEND if any(edge.maps for edge in view.edges) else ()
    return notes + ([_RAGGED_LEGEND] if any(RAGGED in edge.shape for edge in view.edges) else [])


def _element(tag: str, attributes: Mapping[str, str]) -> ElementTree.Element:
    return ElementTree.Element(f"{{{_SVG}}}{tag}", dict(attributes))


def _set(element: ElementTree.Element, attributes: Mapping[str, str]) -> None:
    for name, value in attributes.items():
        element.set(name, value)


def _tooltip(lines: Sequence[str]) -> str:
    return "\n".join(printable(line) for line in lines if line)


def _with_halo(text: ElementTree.Element, classes: str) -> list[ElementTree.Element]:
    """Return the text twice: first as a thick line in the colour of its cluster's ground, so that edges do not cross it."""
    role = next(role for role in Role if role.value in classes.split())
    halo, ground = copy.deepcopy(text), LIGHT[role].ground
    _set(halo, {
        "class": f"halo {role.value}", "aria-hidden": "true", "fill": ground, "stroke": ground, "stroke-width": "4",
        "stroke-linejoin": "round",
    })  # fmt: skip
    return [halo, text]


def _summary(view: GraphView) -> str:
    shown = len(view.nodes)
    return f"µGraph {view.name or 'without a name'}: {shown} nodes, {len(view.edges)} edges, {view.hidden} nodes hidden"


def _tooltips(view: GraphView) -> dict[str, list[str]]:
    tips = {f"cluster-{cluster.id}": [cluster.title, *cluster.lines] for cluster in view.clusters}
    for node in view.nodes:
        wiring = f"{', '.join(node.operands)} → {', '.join(node.results)}" if node.operands or node.results else ""
        tips[f"node-{node.id}"] = [f"{node.kind.value}: {node.title}", wiring, node.place]
    for number, edge in enumerate(view.edges):
        tips[f"edge-{number}"] = [f"{edge.tensor} {edge.shape}".strip(), *edge.maps]
    return tips


def _style(prefix: str, theme: Theme) -> str:
    """Return the CSS of the dark colours: always, never, or where the page is dark; light ones are in the drawing itself.

    `auto`: the reader's system decides, unless JupyterLab says which theme it has.
    """
    if theme == "light":
        return f"#{prefix} {{ background: {LIGHT[Role.CANVAS].ground}; }}"
    if theme == "dark":
        return _dark_rules(f"#{prefix}")
    system = _dark_rules(f":root:not(:has([data-jp-theme-light])) #{prefix}, svg#{prefix}:root")
    jupyter = _dark_rules(f'[data-jp-theme-light="false"] #{prefix}')
    return f"@media (prefers-color-scheme: dark) {{\n{system}\n}}\n{jupyter}"


def _dark_rules(scope: str) -> str:
    scopes = [part.strip() for part in scope.split(", ")]

    def rule(selectors: str, declarations: str) -> str:
        pairs = [f"{part} {selector}" for part in scopes for selector in selectors.split(", ")]
        return f"{', '.join(pairs)} {{ {declarations} }}"

    canvas = DARK[Role.CANVAS]
    lines = DARK[Role.EDGE]
    rules = [
        rule(f".{Role.CANVAS.value}", f"fill: {canvas.ground};"),
        rule("text", f"fill: {canvas.ink};"),
        rule(".edge > path", f"stroke: {lines.line};"),
        rule(".edge > polygon", f"stroke: {lines.line}; fill: {lines.line};"),
        rule(".edge text, .note", f"fill: {lines.ink};"),
    ]
    for role in (Role.KERNEL, Role.BLOCK, Role.THREAD, Role.LOOP):
        ground = DARK[role].ground
        rules.append(rule(f".cluster.{role.value} > *", f"fill: {ground}; stroke: {DARK[role].line};"))
        rules.append(rule(f".halo.{role.value}", f"fill: {ground}; stroke: {ground};"))
    for role in (Role.KERNEL, Role.BLOCK, Role.THREAD, Role.TENSOR, Role.HIDDEN):
        ground = DARK[role].ground if role in (Role.TENSOR, Role.HIDDEN) else canvas.ground
        rules.append(rule(f".node.{role.value} > :is(path,polygon)", f"fill: {ground}; stroke: {DARK[role].line};"))
    return "\n".join(rules)
