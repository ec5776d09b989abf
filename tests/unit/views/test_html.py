"""The HTML form: picture and tables, well formed, escaped, no script, no silent cut."""

from __future__ import annotations

from html.parser import HTMLParser

from tests.unit.views import example_graphs
from workbench.views.graph_view import view_graph
from workbench.views.html import graph_html, node_tables
from workbench.views.registration import register_views


class Outline(HTMLParser):
    """Collects tags and cells, and fails on tags that do not close in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.texts: dict[str, list[str]] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.tags.append(tag)
        self.texts.setdefault(tag, []).append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts[self.open[-1]][-1] += data


def outline(text: str) -> Outline:
    parser = Outline()
    parser.feed(text)
    parser.close()
    assert parser.open == []
    return parser


def test_picture_and_one_table_per_graph() -> None:
    found = outline(graph_html(example_graphs.gated_with_threads()))
    assert found.tags.count("svg") == 1
    assert found.texts["summary"] == [
        "kernel graph gated: 6 nodes",
        "block graph, grid 2 · loop 4 · threads 128: 8 nodes",
        "thread graph, result gated: 4 nodes",
    ]
    assert found.tags.count("tr") == 18 + 3


def test_rows_say_what_a_node_reads_and_makes() -> None:
    cells = outline(node_tables(view_graph(example_graphs.rms_norm_linear()))).texts["td"]
    rows = [cells[start : start + 6] for start in range(0, len(cells), 6)]
    assert ["X", "kernel input", "", "", "X: float16 16×4096", ""] in rows
    assert ["load X", "block input iterator", "", "X", "x: float16 16×64", "loop"] in rows
    assert ["accumulate rms", "block accumulator", "", "x", "length: float32 16×1", "after the loop"] in rows
    assert ["save", "block output saver", "", rows[-1][3], "", "after the loop"] in rows


def test_tables_list_nodes_that_the_picture_hides() -> None:
    found = outline(graph_html(example_graphs.gated_with_threads(), max_nodes=3))
    assert found.tags.count("tr") == 18 + 3


def test_a_cut_table_says_so() -> None:
    found = outline(node_tables(view_graph(example_graphs.chain(50), max_nodes=None), max_rows=10))
    assert found.tags.count("tr") == 10 + 1
    assert found.texts["p"] == ["42 of 52 nodes are not listed; raise max_rows (now 10)."]
    assert found.texts["summary"] == ["kernel graph chain: 52 nodes"]


def test_hostile_names_stay_text() -> None:
    found = outline(graph_html(example_graphs.hostile()))
    assert "script" not in found.tags
    assert "i" not in found.tags
    assert 'a"b\\N\\l<i>&amp;' in found.texts["td"]
    assert found.texts["summary"] == ['kernel graph </svg><script>alert("1")</script>: 4 nodes']


def test_graphs_show_themselves_once_views_are_registered() -> None:
    register_views()
    bundle = example_graphs.rms_norm_linear()._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html", "image/svg+xml"}
    assert bundle["image/svg+xml"].startswith("<svg ")
    assert bundle["image/svg+xml"].strip() in bundle["text/html"]
    assert "kernel_graph" in bundle["text/plain"]
