"""Exported pages in a browser without a network: formulas are set, no line is cut, widgets' twins show, nothing is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("playwright")
pytest.importorskip("nbclient")
pytest.importorskip("latex2mathml")

import nbformat

from benchmarks.notebook_html import write_html
from benchmarks.run_notebooks import execute

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]
FORMULA = r"For $X W$: $$t \ge \max\left(\frac{\text{bytes}}{\text{rate}}, \frac{\text{flops}}{\text{rate}}\right)$$"
LONG = "total = " + " + ".join(f"{number:03}" for number in range(100, 180))
_CUT = """() => [...document.querySelectorAll('.jp-InputArea-editor')]
    .filter((editor) => editor.scrollWidth > editor.clientWidth + 2).map((editor) => editor.textContent.slice(0, 80))"""


def test_a_page_needs_no_network(tmp_path: Path, browser: Browser) -> None:
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [
        nbformat.v4.new_markdown_cell(FORMULA),
        nbformat.v4.new_code_cell(LONG),
        nbformat.v4.new_code_cell(
            "import workbench as wb\nwb.widgets.GraphExplorer(wb.programs.known_good('rms_norm_linear')[0])"
        ),
        nbformat.v4.new_code_cell("answer = 42", metadata={"jupyter": {"source_hidden": True}}),
    ]
    run = execute(Path("unused.ipynb"), notebook=notebook)
    assert not run.fault
    write_html(run.notebook, tmp_path / "page.html")
    page = browser.new_page(viewport={"width": 1100, "height": 900}, offline=True)
    asked, errors = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto((tmp_path / "page.html").as_uri(), wait_until="load")
    page.wait_for_timeout(500)
    assert [url for url in asked if not url.startswith("data:")] == [(tmp_path / "page.html").as_uri()]
    assert not errors
    fractions = page.locator("math mfrac")
    assert fractions.count() == 2
    box = fractions.first.bounding_box()
    assert box is not None
    assert box["height"] > 20, "a fraction is not set as one: numerator over denominator"
    assert not page.evaluate(_CUT)
    twin = page.locator(".wb-twin > .wb-root")
    assert twin.count() == 1
    assert twin.is_visible()
    assert not page.get_by_text("answer = 42").is_visible()
    page.locator("details.answer > summary").click()
    assert page.get_by_text("answer = 42").is_visible()
    page.close()
