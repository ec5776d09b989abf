"""One browser and one JupyterLab server for all browser tests; skipped with the reason where something is missing."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NEEDED = ("playwright", "jupyterlab", "voila", "nbformat")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Headless Chromium."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}: pip install 'mugraph-workbench[browser]'")
    from playwright.sync_api import sync_playwright

    from tests.browser.lab_page import CHROMIUM, FLAGS

    if not Path(CHROMIUM).exists():
        pytest.skip(f"there is no {CHROMIUM}: apt-get install chromium, or set CHROMIUM")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, headless=True, args=list(FLAGS))
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[tuple[str, Path]]:
    """The address of a JupyterLab server, and the folder of its notebooks."""
    from tests.browser.lab_page import lab_server

    work = tmp_path_factory.mktemp("lab")
    with lab_server(work) as address:
        yield address, work / "root"
