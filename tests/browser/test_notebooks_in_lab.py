"""Every notebook of the course, opened in JupyterLab and run from the menu: no error, no complaint, nothing from elsewhere.

The folder is copied, as `workbench lab` does for an installed package, so that nothing is written into the repository.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("playwright")
pytest.importorskip("nbformat")

from playwright.sync_api import expect

from tests.browser.lab_page import LabPage

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]
FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("[0-9][0-9]_*.ipynb"))
WITH_WIDGETS = {"02": 1, "05": 1, "06": 1, "07": 1}
"""How many widgets a notebook shows, by its number."""

SHOTS = os.environ.get("WORKBENCH_SCREENSHOTS", "")
LIMIT_S = 180
"""Seconds a notebook may take here, on a machine that runs other tests as well."""

_STATE = """() => {
    const panel = window.jupyterapp.shell.currentWidget;
    const kernel = panel.sessionContext.session.kernel;
    const cells = [...panel.content.model.sharedModel.cells].filter((cell) => cell.cell_type === 'code');
    const outputs = cells.flatMap((cell) => cell.getOutputs());
    const text = (value) => Array.isArray(value) ? value.join('') : String(value ?? '');
    return {
        idle: kernel.status === 'idle',
        cells: cells.length,
        run: cells.filter((cell) => cell.execution_count !== null).length,
        errors: outputs.filter((o) => o.output_type === 'error').map((o) => `${o.ename}: ${text(o.evalue)}`),
        complaints: outputs.filter((o) => o.name === 'stderr').map((o) => text(o.text).slice(0, 400)),
        widgets: outputs.filter((o) => o.data && 'application/vnd.jupyter.widget-view+json' in o.data).length,
    };
}"""


@pytest.fixture(scope="module")
def course(lab: tuple[str, Path]) -> tuple[str, str]:
    """The server's address, and the folder of the copies below its root."""
    address, root = lab
    shutil.copytree(FOLDER, root / "course")
    return address, "course"


def run_to_the_end(page: LabPage) -> dict[str, Any]:
    """Run all cells; return the notebook's state when all have run, or when one raised or the time is over."""
    page.run_all()
    waited = 0.0
    while True:
        state: dict[str, Any] = page.page.evaluate(_STATE)
        done = state["idle"] and state["run"] == state["cells"]
        if done or state["errors"] or waited > LIMIT_S:
            return state
        page.page.wait_for_timeout(200)
        waited += 0.2


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs_in_jupyterlab(path: Path, browser: Browser, course: tuple[str, str]) -> None:
    address, folder = course
    page = LabPage(browser, address, f"{folder}/{path.name}")
    try:
        state = run_to_the_end(page)
        assert not state["errors"], state["errors"]
        assert state["run"] == state["cells"] > 5, f"{state['run']} of {state['cells']} cells ran in {LIMIT_S} s"
        assert not state["complaints"], state["complaints"]
        live = page.page.locator(".jp-OutputArea .wb-root:not(.wb-twin .wb-root)")
        assert state["widgets"] == WITH_WIDGETS.get(path.name[:2], 0)
        expect(live).to_have_count(state["widgets"], timeout=20_000)
        for number in range(state["widgets"]):
            expect(live.nth(number)).to_be_visible()
        if SHOTS:
            for number in range(state["widgets"]):
                live.nth(number).screenshot(path=f"{SHOTS}/notebook_{path.name[:2]}_{number}.png")
        assert not page.errors, page.errors
        assert not page.outside, page.outside
    finally:
        page.close()


def test_a_cell_that_raises_is_found(browser: Browser, lab: tuple[str, Path]) -> None:
    from tests.browser.lab_page import write_notebook

    address, root = lab
    write_notebook(
        root / "raises.ipynb", ["1", "import sys; print('lost', file=sys.stderr); raise ValueError('no')", "2"]
    )
    page = LabPage(browser, address, "raises.ipynb")
    try:
        state = run_to_the_end(page)
    finally:
        page.close()
    assert state["errors"] == ["ValueError: no"]
    assert state["complaints"] == ["lost\n"]
    assert state["run"] < state["cells"]
