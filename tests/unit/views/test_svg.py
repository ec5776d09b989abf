"""The SVG picture: one element per node and edge, escaped, unique ids, deterministic, nothing outside the view box."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.views import example_graphs
from workbench.errors import UsageError
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.views.graph_view import view_graph
from workbench.views.svg import THEMES, Theme, dot_source, graph_svg

SVG = "{http://www.w3.org/2000/svg}"
GRAPHS = {
    "rms_norm_linear": example_graphs.rms_norm_linear,
    "gated_with_threads": example_graphs.gated_with_threads,
    "ragged": example_graphs.ragged,
    "hostile": example_graphs.hostile,
}


def groups(svg: str, name: str) -> list[ElementTree.Element]:
    """Return the groups of one class: node, edge or cluster."""
    return [g for g in ElementTree.fromstring(svg).iter(f"{SVG}g") if name in g.get("class", "").split()]


@pytest.mark.parametrize("build", GRAPHS.values(), ids=GRAPHS)
def test_everything_in_the_view_is_drawn(build: Callable[[], KernelGraph]) -> None:
    graph = build()
    view, svg = view_graph(graph), graph_svg(graph)
    assert len(groups(svg, "node")) == len(view.nodes)
    assert len(groups(svg, "edge")) == len(view.edges)
    assert len(groups(svg, "cluster")) == len(view.clusters) + 1


def test_labels_shapes_maps_and_legend_are_in_the_picture() -> None:
    texts = [element.text for element in ElementTree.fromstring(graph_svg(example_graphs.ragged())).iter(f"{SVG}text")]
    shown = {(text or "").strip() for text in texts}
    assert {"kernel graph ragged", "load X", "exp", "save", "3×22", "3×≤6", "imap x→1", "omap x→1"} <= shown
    assert any(text.startswith("≤: the last tiles") for text in shown)


def test_the_same_graph_gives_the_same_text() -> None:
    assert graph_svg(example_graphs.gated_with_threads()) == graph_svg(example_graphs.gated_with_threads())


def test_another_process_gives_the_same_text(repository: Path) -> None:
    code = (
        "from tests.unit.views import example_graphs as e; from workbench.views.svg import graph_svg; "
        "import sys; sys.stdout.buffer.write(graph_svg(e.gated_with_threads()).encode())"
    )
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(repository)},
        )
        assert done.stdout.decode() == graph_svg(example_graphs.gated_with_threads())


def test_ids_are_unique_within_and_between_pictures() -> None:
    found: list[str] = []
    for build in GRAPHS.values():
        svg = graph_svg(build())
        found += re.findall(r'\bid="([^"]*)"', svg)
    assert len(found) == len(set(found)) > 50


def test_themes_of_one_graph_have_ids_of_their_own() -> None:
    graph = example_graphs.rms_norm_linear()
    first = {ElementTree.fromstring(graph_svg(graph, theme=theme)).get("id") for theme in THEMES}
    assert len(first) == 3


def test_hostile_names_stay_text() -> None:
    svg = graph_svg(example_graphs.hostile())
    root = ElementTree.fromstring(svg)
    assert not [element for element in root.iter() if element.tag.lower().endswith(("script", "foreignobject"))]
    texts = ["".join(element.itertext()).strip() for element in root.iter(f"{SVG}text")]
    assert 'kernel graph </svg><script>alert("1")</script>' in texts
    assert 'a"b\\N\\l<i>&amp;' in texts
    assert "zero\ufffdnewline\ufffd" in texts


def test_a_long_name_is_shortened_visibly_and_whole_in_the_tooltip() -> None:
    svg = graph_svg(example_graphs.hostile())
    root = ElementTree.fromstring(svg)
    texts = ["".join(element.itertext()).strip() for element in root.iter(f"{SVG}text")]
    assert "n" * 47 + "…" in texts
    assert any("n" * 300 in (title.text or "") for title in root.iter(f"{SVG}title"))


@pytest.mark.parametrize("build", GRAPHS.values(), ids=GRAPHS)
def test_nothing_is_cut_off(build: Callable[[], KernelGraph]) -> None:
    """Every corner and every text's anchor lies inside the view box, once the drawing's shift is applied."""
    root = ElementTree.fromstring(graph_svg(build()))
    left, top, width, height = (float(part) for part in root.get("viewBox", "").split())
    assert root.get("width", "").removesuffix("pt") == f"{width:.0f}"
    frame, picture = root.findall(f"{SVG}g")
    box = frame.find(f"{SVG}rect")
    assert box is not None
    assert float(box.get("width", "nan")) <= width + left
    match = re.search(r"translate\(([-\d.]+)[ ,]([-\d.]+)\)", picture.get("transform", ""))
    assert match
    shift = float(match.group(1)), float(match.group(2))
    corners = []
    for element in picture.iter():
        numbers = [float(n) for n in re.findall(r"-?\d+\.?\d*", element.get("points", "") + element.get("d", ""))]
        corners += list(zip(numbers[::2], numbers[1::2], strict=True))
        if element.tag == f"{SVG}text":
            corners.append((float(element.get("x", "nan")), float(element.get("y", "nan"))))
    notes = [note for note in root.findall(f"{SVG}text") if note.get("class") == "note"]
    corners += [(float(note.get("x", "nan")) - shift[0], float(note.get("y", "nan")) - shift[1]) for note in notes]
    slack = 0.5
    for x, y in corners:
        assert left - slack <= x + shift[0] <= left + width + slack
        assert top - slack <= y + shift[1] <= top + height + slack


def test_hidden_nodes_are_announced() -> None:
    svg = graph_svg(example_graphs.gated_with_threads(), max_nodes=7)
    assert "12 of 18 nodes are hidden in the dashed boxes; raise max_nodes (now 7) to see all" in svg
    assert ElementTree.fromstring(svg).get("aria-label") == "µGraph gated: 7 nodes, 6 edges, 12 nodes hidden"


@pytest.mark.parametrize("theme", THEMES)
def test_themes(theme: Theme) -> None:
    style = ElementTree.fromstring(graph_svg(example_graphs.rms_norm_linear(), theme=theme)).find(f"{SVG}style")
    assert style is not None
    text = style.text or ""
    assert ("prefers-color-scheme: dark" in text) is (theme == "auto")
    assert ('[data-jp-theme-light="false"]' in text) is (theme == "auto")
    assert ("#161b22" in text) is (theme != "light")


def test_unknown_theme_is_refused() -> None:
    theme: Any = "sepia"
    with pytest.raises(UsageError, match="sepia"):
        graph_svg(example_graphs.ragged(), theme=theme)


def test_no_trace_of_the_drawing_program() -> None:
    svg = graph_svg(example_graphs.ragged())
    assert "<!--" not in svg
    assert "generated" not in svg.lower()
    assert svg.startswith("<svg ")


@pytest.mark.parametrize("name", ["rms_norm_linear", "gated_with_threads"])
def test_dot_source(name: str, golden: Callable[[str, str], None]) -> None:
    golden(f"{name}.dot", dot_source(view_graph(GRAPHS[name]())))


def test_picture_of_500_nodes_is_drawn_whole_on_request() -> None:
    assert len(groups(graph_svg(example_graphs.chain(498), max_nodes=None), "node")) == 500


@pytest.mark.skipif(
    shutil.which("dot") is None, reason="no dot on the PATH: the other drawing program was tested above"
)
def test_both_drawing_programs_draw_the_same_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = example_graphs.gated_with_threads()
    with_dot = graph_svg(graph)
    monkeypatch.setenv("PATH", "")
    assert len(groups(with_dot, "node")) == len(groups(graph_svg(graph), "node"))
