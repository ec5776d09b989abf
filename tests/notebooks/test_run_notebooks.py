"""What runs notebooks finds faults of every kind, and writes HTML that holds the outputs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat")
pytest.importorskip("nbclient")
pytest.importorskip("latex2mathml")

from benchmarks.notebook_html import mathml, write_html, write_index  # noqa: E402
from benchmarks.run_notebooks import Run, execute  # noqa: E402

pytestmark = pytest.mark.notebook


def notebook(*sources: str) -> Any:
    made: Any = nbformat.v4.new_notebook()
    made.cells = [nbformat.v4.new_code_cell(source) for source in sources]
    return made


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("1 + 1", ""),
        ("import warnings; warnings.warn('old')", "UserWarning"),
        ("import sys; print('lost', file=sys.stderr)", "cell 1 wrote to stderr: lost"),
        ("raise ValueError('no')", "ValueError"),
        ("import time; time.sleep(60)", "stopped after 12 s"),
    ],
)
def test_faults_are_found(source: str, expected: str) -> None:
    run = execute(Path("unused.ipynb"), notebook=notebook("x = 1", source), limit_s=12)
    assert (expected in run.fault) if expected else not run.fault
    assert len(run.notebook.cells) == 2


def test_cells_after_a_fault_run_if_asked_for() -> None:
    run = execute(Path("unused.ipynb"), notebook=notebook("raise ValueError('no')", "print('on')"), go_on=True)
    assert run.notebook.cells[1].outputs[0].text == "on\n"


def test_html_holds_outputs(tmp_path: Path) -> None:
    made = notebook("print(6 * 7)", "secret = 1")
    made.cells[1].metadata["jupyter"] = {"source_hidden": True}
    run = execute(Path("unused.ipynb"), notebook=made)
    write_html(run.notebook, tmp_path / "folder" / "x.html")
    text = (tmp_path / "folder" / "x.html").read_text(encoding="utf-8")
    folded = text.index('<details class="answer">')
    assert "42" in text[:folded]
    assert "secret" in text[folded : text.index("</details>")]


FORMULAS = r"""Inline $X W \odot G$, and

$$t \ge \max\left(\frac{\text{bytes}}{\text{rate}}, 1\right)$$

Next: [two](02_two.ipynb), [a part of three](03_three.ipynb#The-end), [elsewhere](https://example.org/a.ipynb)."""


def page_of(made: Any, folder: Path) -> str:
    write_html(made, folder / "x.html", folder=folder)
    return (folder / "x.html").read_text(encoding="utf-8")


def test_formulas_are_mathml_and_links_lead_to_pages(tmp_path: Path) -> None:
    made = notebook("1")
    made.cells.insert(0, nbformat.v4.new_markdown_cell(FORMULAS))
    text = page_of(made, tmp_path)
    assert text.count("<math") == 2
    assert "<mfrac>" in text
    assert "$" not in text[text.index("Inline") : text.index("Next:")]
    assert 'href="02_two.html"' in text
    assert 'href="03_three.html#The-end"' in text
    assert 'href="https://example.org/a.ipynb"' in text


def test_pictures_beside_a_notebook_are_part_of_its_page(tmp_path: Path) -> None:
    (tmp_path / "dot.png").write_bytes(b"picture")
    made = notebook()
    made.cells = [nbformat.v4.new_markdown_cell(text) for text in ("![a dot](dot.png)", '<img src="dot.png">')]
    text = page_of(made, tmp_path)
    assert text.count('src="data:image/png;base64,cGljdHVyZQ=="') == 2
    assert "dot.png" not in text


def test_headings_have_the_anchors_that_links_lead_to(tmp_path: Path) -> None:
    made = notebook()
    made.cells = [nbformat.v4.new_markdown_cell("## The end")]
    text = page_of(made, tmp_path)
    assert 'id="The-end"' in text
    assert 'href="#The-end"' in text


@pytest.mark.parametrize(
    ("formula", "unknown"), [(r"\nosuchcommand{x}", "nosuchcommand"), (r"a \unheardof b", "unheardof")]
)
def test_a_formula_without_mathml_is_an_error(formula: str, unknown: str) -> None:
    with pytest.raises(ValueError, match=unknown):
        mathml(formula)


def test_a_page_loads_nothing(tmp_path: Path) -> None:
    made = notebook("x = 1")
    made.metadata["widgets"] = {"application/vnd.jupyter.widget-state+json": {"version_major": 2, "state": {}}}
    text = page_of(made, tmp_path)
    assert not re.findall(r"<script[^>]*src=|<link[^>]*href=|@import|url\(['\"]?https?:|import\(", text)
    assert not re.findall(r"\b(?:cdnjs|unpkg|jsdelivr|mathjax)\b", text, re.IGNORECASE)


def test_of_a_widget_its_twin_is_shown_once(tmp_path: Path) -> None:
    made = notebook("widget")
    view = {
        "application/vnd.jupyter.widget-view+json": {"model_id": "a", "version_major": 2},
        "text/plain": "Stepper: on",
    }
    twin = {"text/html": '<div class="wb-twin"><div class="wb-root">step 1 of 7</div></div>', "text/plain": ""}
    made.cells[0].outputs = [nbformat.v4.new_output("display_data", data) for data in (view, twin)]
    assert "widget-view" in str(made)
    text = page_of(made, tmp_path)
    assert "step 1 of 7" in text
    assert "Stepper: on" not in text
    made.cells[0].outputs = made.cells[0].outputs[:1]  # one without a twin leaves its text
    assert "Stepper: on" in page_of(made, tmp_path)
    assert "widget-view" in str(made), "the notebook itself has changed"


def test_the_list_of_pages_links_them(tmp_path: Path) -> None:
    text = write_index({"00_a.html": "00 · A & B"}, tmp_path).read_text(encoding="utf-8")
    assert '<a href="00_a.html">00 · A &amp; B</a>' in text


@pytest.mark.parametrize(
    ("seconds", "cpu_seconds", "counted"), [(20.0, 19.0, 20.0), (80.0, 19.0, 48.0), (95.0, 90.0, 95.0)]
)
def test_a_busy_machine_is_not_held_against_a_notebook(seconds: float, cpu_seconds: float, counted: float) -> None:
    assert Run(None, seconds, cpu_seconds, "").counted_seconds == counted
