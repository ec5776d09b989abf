"""`workbench lab --voila`: the launchpad alone, under a token, and it works."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("playwright")

from playwright.sync_api import expect

from tests.browser.lab_page import environment

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]


def test_the_launchpad_alone(browser: Browser, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "workbench", "lab", "--voila", "--no-browser"]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment(tmp_path), cwd=tmp_path
    )
    assert process.stderr is not None
    try:
        url = ""
        for line in process.stderr:
            if line.startswith("    http"):
                url = line.strip()
                break
        assert url.startswith("http://127.0.0.1:")
        page = browser.new_page(viewport={"width": 1300, "height": 1400})
        refused = page.goto(url.partition("?")[0], timeout=60_000)
        assert refused is not None
        assert page.locator(".wb-root").count() == 0, "it opens without its token"
        page.goto(url, timeout=90_000, wait_until="domcontentloaded")
        root = page.locator(".wb-root:not(.wb-twin .wb-root)").first
        expect(root).to_be_visible(timeout=60_000)
        expect(root.locator(".wb-title")).to_have_text("launchpad")
        root.locator('select[data-trait="program"]').select_option("lora")
        expect(root.locator('[data-pane="request"]')).to_contain_text("lora")
        root.get_by_role("button", name="search", exact=True).click()
        expect(root.locator('[data-pane="candidates"] .wb-content')).to_contain_text("fastest", timeout=90_000)
        page.close()
    finally:
        process.terminate()
        process.wait(15)
        process.stderr.close()
