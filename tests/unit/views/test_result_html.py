"""The answer of a superoptimization as HTML: whole, escaped, told by the same numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

import workbench as wb
from workbench.cost.time_model import PARTS
from workbench.pipeline.candidate import Refusal
from workbench.pipeline.result import Result
from workbench.pipeline.superoptimize import superoptimize
from workbench.views.result_html import MAX_ROWS, cost_bar, report_html, result_html

VOID = {"meta", "line", "rect", "br", "path", "polygon", "ellipse", "polyline"}


class Balanced(HTMLParser):
    """Fails where tags do not nest."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    program = wb.trace(lambda X, W: wb.silu(X @ W), X=(16, 64), W=(64, 48), dtype="float16")
    return superoptimize(program, measure=False, out=tmp_path_factory.mktemp("run"))


def is_balanced(html: str) -> bool:
    parser = Balanced()
    parser.feed(html)
    return not parser.open


def test_the_report_is_one_page_without_scripts_or_fetches(result: Result) -> None:
    page = report_html(result)
    assert is_balanced(page)
    assert "<script" not in page
    assert not re.findall(r'(?:src|href)="(?!#)', page)
    assert f"{result.best.cost_us:.2f} us" in page
    assert result.best.graph.hash[:12] in page
    assert "__global__" in page


def test_notebooks_show_results_and_candidates(result: Result) -> None:
    for shown in (result, result.best):
        bundle = shown._repr_mimebundle_()
        assert is_balanced(bundle["text/html"])
        assert bundle["text/plain"] == shown.describe()


def test_reasons_are_escaped_and_long_lists_say_that_they_are_cut(result: Result) -> None:
    many = tuple(Refusal(stage="emit", what="<b>graph</b>", reason="a < b & c") for _ in range(MAX_ROWS + 7))
    html = result_html(replace(result, refused=many))
    assert "&lt;b&gt;graph&lt;/b&gt;" in html
    assert "a &lt; b &amp; c" in html
    assert f"showing {MAX_ROWS} of {MAX_ROWS + 7}" in html


def test_the_bar_s_parts_are_as_long_as_their_times() -> None:
    bar = cost_bar([("memory", 6.0), ("launch", 2.0), ("nothing", 0.0)], bound_us=4.0)
    widths = [float(width) for width in re.findall(r'<rect x="[\d.]+" y="8" width="([\d.]+)"', bar)]
    assert widths[0] == pytest.approx(3 * widths[1], rel=1e-3)
    (mark,) = re.findall(r'<line x1="([\d.]+)"', bar)
    assert float(mark) == pytest.approx(sum(widths) / 2, rel=1e-3)


def test_every_part_of_the_cost_model_has_a_colour_of_its_own_in_every_bar() -> None:
    def colours(names: Sequence[str]) -> dict[str, str]:
        found = re.findall(r'fill="(#\w+)"><title>([^:]+):', cost_bar([(name, 1.0) for name in names]))
        return {name: colour for colour, name in found}

    every = colours(PARTS)
    assert len(set(every.values())) == len(PARTS) == len(every)
    assert colours(["barriers", "L2"]).items() <= every.items()


def test_nothing_found_is_said(result: Result) -> None:
    assert "Nothing was found" in result_html(replace(result, candidates=()))


def test_the_command_leaves_a_report(tmp_path: Path) -> None:
    from workbench.cli import main

    out = tmp_path / "run"
    assert main(["optimize", "softmax", "--set", "batch=4", "--out", str(out), "--no-measure", "--json"]) == 0
    assert is_balanced((out / "report.html").read_text())
