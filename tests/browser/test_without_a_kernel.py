"""Where there is no kernel: an executed notebook shows the static twin of every widget, whatever its reader does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("playwright")
pytest.importorskip("nbclient")
pytest.importorskip("nbconvert")

import nbclient
import nbconvert
import nbformat

from tests.browser.lab_page import write_notebook

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]
CELLS = (
    "import workbench as wb\np = wb.programs.get('rms_norm_linear', batch=4, hidden=24, out=10)",
    "s = wb.widgets.SearchStepper(p, space=wb.Space(max_block_ops=3))\ns.step(30)\ns",
    "wb.widgets.GraphExplorer(wb.programs.known_good('rms_norm_linear')[0])",
    "v = wb.widgets.VerifierView(p, p)\nv.wait()\nv",
    "e = wb.widgets.ScheduleExplorer(wb.programs.known_good('rms_norm_linear')[0])\ne.wait()\ne",
    "wb.widgets.Launchpad()",
)
SHOWN = (
    "search of rms_norm_linear",
    "what this block reads and writes",
    "equal",
    "schedules of rms_norm_linear",
    "launchpad",
)


@pytest.mark.parametrize("stores_state", [False, True])
def test_an_executed_notebook_shows_every_twin(
    tmp_path: Path, browser: Browser, monkeypatch: pytest.MonkeyPatch, stores_state: bool
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "widgets.ipynb"
    write_notebook(path, CELLS)
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(notebook, timeout=100, store_widget_state=stores_state).execute()
    assert ("widgets" in notebook.metadata) == stores_state
    html, _ = nbconvert.HTMLExporter().from_notebook_node(notebook)
    page_file = tmp_path / "widgets.html"
    page_file.write_text(html, encoding="utf-8")
    page = browser.new_page(offline=True) if stores_state else browser.new_page()
    page.goto(page_file.as_uri(), wait_until="domcontentloaded")
    twins = page.locator(".wb-twin > .wb-root")
    assert twins.count() == len(SHOWN)
    for number, words in enumerate(SHOWN):
        assert twins.nth(number).is_visible()
        assert words.lower() in twins.nth(number).inner_text().lower()
    assert "the tree knows" not in twins.nth(0).inner_text()  # it waited until the tree had read all events
    cell = twins.nth(1).locator('[data-pane="levels"] td').first
    assert cell.evaluate("(cell) => getComputedStyle(cell).textAlign") in (
        "left",
        "start",
    )  # not as nbconvert's own tables
    page.close()
