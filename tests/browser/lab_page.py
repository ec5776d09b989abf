"""A JupyterLab or Voila server on this machine, and a notebook open in headless Chromium.

What a front end needs before it can be driven, each learnt from a failure: the status bar says idle before the kernel takes
cells, so the session's own signal is awaited; cells outside the view leave the page unless windowing is off; news and update
checks would reach for the network.
"""

from __future__ import annotations

import ast
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import nbformat
from playwright.sync_api import Browser, Page

from workbench.commands.lab import free_port, lab_command

CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
)  # fmt: skip
TOKEN = "a-token-of-the-tests"
_READY = """async () => {
    const context = window.jupyterapp.shell.currentWidget.sessionContext;
    const late = new Promise((_, fail) => setTimeout(() => fail(new Error("the kernel does not start")), 60000));
    await Promise.race([late, context.ready]); await Promise.race([late, context.session.kernel.info]); }"""
_ASK = """async (code) => {
    const kernel = window.jupyterapp.shell.currentWidget.sessionContext.session.kernel;
    const asked = kernel.requestExecute({code: '', user_expressions: {it: code}, store_history: false});
    const late = new Promise((_, fail) => setTimeout(() => fail(new Error('no answer to ' + code)), 20000));
    const reply = await Promise.race([late, asked.done]);
    const it = reply.content.user_expressions.it;
    return it.status === 'ok' ? it.data['text/plain'] : 'error: ' + it.evalue; }"""


def environment(work: Path) -> dict[str, str]:
    """Return an environment in which a server keeps all its files below a folder."""
    return dict(
        os.environ,
        JUPYTER_CONFIG_DIR=str(work / "conf"),
        JUPYTER_DATA_DIR=str(work / "data"),
        JUPYTER_RUNTIME_DIR=str(work / "run"),
        IPYTHONDIR=str(work / "ipy"),
        JUPYTERLAB_SETTINGS_DIR=str(work / "settings"),
        JUPYTERLAB_WORKSPACES_DIR=str(work / "ws"),
        JUPYTER_PLATFORM_DIRS="1",
        JUPYTER_TOKEN=TOKEN,
        XDG_CACHE_HOME=str(work / "cache"),
    )


def write_settings(work: Path) -> None:
    """Turn off what would reach for the network or take cells off the page."""
    for extension, name, values in (
        (
            "apputils-extension",
            "notification",
            {"checkForUpdates": False, "doNotDisturbMode": True, "fetchNews": "false"},
        ),
        ("notebook-extension", "tracker", {"windowingMode": "none"}),
    ):
        folder = work / "settings" / "@jupyterlab" / extension
        folder.mkdir(parents=True)
        (folder / f"{name}.jupyterlab-settings").write_text(json.dumps(values))


def write_notebook(path: Path, cells: Sequence[str]) -> None:
    """Write a notebook of code cells."""
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}  # without it JupyterLab asks
    notebook = nbformat.v4.new_notebook(
        metadata={"kernelspec": kernel}, cells=[nbformat.v4.new_code_cell(cell) for cell in cells]
    )
    nbformat.write(notebook, path)


@contextlib.contextmanager
def serving(command: Sequence[str], work: Path, port: int) -> Iterator[None]:
    """Run a server until the block ends; returns once it takes connections."""
    log = work / "server.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=subprocess.STDOUT, env=environment(work), start_new_session=True
        )
    try:
        end = time.monotonic() + 60
        while True:
            with contextlib.closing(socket.socket()) as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            alive = process.poll() is None and time.monotonic() < end
            assert alive, log.read_text(errors="replace")[-3000:]
            time.sleep(0.1)
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(8)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(8)


@contextlib.contextmanager
def lab_server(work: Path) -> Iterator[str]:
    """Run the server that `workbench lab` starts on a folder; yield its address."""
    write_settings(work)
    port = free_port()
    root = work / "root"
    root.mkdir()
    command = [*lab_command(root, port), "--LabApp.expose_app_in_browser=True", "--LabApp.extension_manager=readonly"]
    with serving(command, work, port):
        address = f"http://127.0.0.1:{port}"
        end = time.monotonic() + 60
        while time.monotonic() < end:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"{address}/api/status?token={TOKEN}", timeout=5).read()
                break
            time.sleep(0.1)
        yield address


class LabPage:
    """One notebook open in JupyterLab.

    Attributes: page; errors: of the console and of scripts; outside: requests that left this machine.
    """

    def __init__(self, browser: Browser, address: str, notebook: str, *, size: tuple[int, int] = (1400, 1500)) -> None:
        self.errors: list[str] = []
        self.outside: list[str] = []
        self.page: Page = browser.new_page(viewport={"width": size[0], "height": size[1]})
        self.page.on("pageerror", self._note)
        self.page.on("console", lambda m: self.errors.append(m.text) if m.type == "error" else None)
        self.page.on("request", self._request)
        self.page.goto(
            f"{address}/lab/tree/{notebook}?token={TOKEN}&reset", timeout=90_000, wait_until="domcontentloaded"
        )
        self.page.wait_for_selector(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Notebook", timeout=90_000)
        self.page.wait_for_selector("#jupyterlab-splash", state="detached", timeout=60_000)
        self.page.evaluate(_READY)
        self.errors.clear()  # what JupyterLab itself says while it starts

    def _note(self, error: Any) -> None:
        """Keep an exception that went through a widget's script; JupyterLab's own, whose stack is in its files, are not ours."""
        stack = str(getattr(error, "stack", None) or "")
        if "blob:" in stack or "/static/lab/" not in stack:
            self.errors.append(f"{error}\n{stack}")

    def _request(self, request: Any) -> None:
        if not request.url.startswith(("http://127.0.0.1", "data:", "blob:", "ws://127")):
            self.outside.append(request.url)

    def run_all(self) -> None:
        """Run all cells and wait for their end."""
        self.page.evaluate("() => window.jupyterapp.commands.execute('notebook:run-all-cells')")

    def run_first(self, count: int) -> None:
        """Run the first cells, one after the other; the one after them is selected then."""
        self.page.evaluate(
            """async (count) => {
                window.jupyterapp.shell.currentWidget.content.activeCellIndex = 0;
                for (let n = 0; n < count; n++)
                    await window.jupyterapp.commands.execute('notebook:run-cell-and-select-next'); }""",
            count,
        )

    def ask(self, expression: str) -> Any:
        """Return the value of a Python expression in the kernel: a literal, or its text."""
        text = self.page.evaluate(_ASK, expression)
        assert not text.startswith("error: "), f"{expression}: {text}"
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError):
            return text

    def theme(self, name: str) -> None:
        """Switch JupyterLab's theme: "light" or "dark"."""
        full = f"JupyterLab {name.capitalize()}"
        self.page.evaluate("(theme) => window.jupyterapp.commands.execute('apputils:change-theme', {theme})", full)
        self.page.wait_for_selector(
            f'body[data-jp-theme-light="{"true" if name == "light" else "false"}"]', state="attached"
        )

    def close(self) -> None:
        """Shut the kernel down and close the page."""
        with contextlib.suppress(Exception):
            self.page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.shutdown()")
        self.page.close()


def voila_command(page: Path, port: int) -> list[str]:
    """Return the command of a Voila server without a token, for the tests alone."""
    return [sys.executable, "-m", "voila", str(page), "--no-browser", f"--port={port}", "--Voila.ip=127.0.0.1"]
