"""`workbench lab`: what it would start, under which address, and that nobody edits an installed package."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
import time
import webbrowser
from pathlib import Path

import pytest

import workbench
from tests.unit.commands.calling import answer, complaint
from workbench.commands import lab
from workbench.errors import UsageError


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let JupyterLab and Voila seem to be installed."""
    monkeypatch.setattr(lab, "find_spec", lambda name: importlib.util.find_spec("json"))


@pytest.mark.usefixtures("installed")
def test_lab_listens_here_only_and_under_a_new_token(capsys: pytest.CaptureFixture[str]) -> None:
    first = answer(capsys, "lab", "--dry-run")
    second = answer(capsys, "lab", "--dry-run")
    assert first["server"] == "jupyterlab"
    assert "--ip=127.0.0.1" in first["command"]
    assert first["url"].startswith("http://127.0.0.1:")
    token = first["url"].rpartition("token=")[2]
    assert len(token) == 48
    assert token != second["url"].rpartition("token=")[2]
    assert not [word for word in first["command"] if token in word], "others may read a command line"
    assert Path(first["folder"]).name == "notebooks"


@pytest.mark.usefixtures("installed")
def test_voila_shows_the_launchpad_alone(capsys: pytest.CaptureFixture[str]) -> None:
    values = answer(capsys, "lab", "--voila", "--dry-run", "--port", "8123")
    assert values["server"] == "voila"
    assert "--Voila.ip=127.0.0.1" in values["command"]
    assert values["url"].startswith("http://127.0.0.1:8123/?token=")
    assert not Path(values["folder"]).exists()
    (cell,) = json.loads(lab.launchpad_notebook())["cells"]
    assert "wb.widgets.Launchpad()" in cell["source"]


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (["nothing_like_it"], "no notebook 'nothing_like_it'"),
        (["--voila", "x"], "leave the notebook away"),
        (["--port", "99999"], "between 1 and 65535"),
        (["--set", "batch=3"], "takes no --set"),
    ],
)
def test_mistakes_are_one_line(capsys: pytest.CaptureFixture[str], tokens: list[str], message: str) -> None:
    assert message in complaint(capsys, "lab", *tokens)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("more", [(), ("--voila",)])
def test_a_port_that_is_taken_is_one_line(capsys: pytest.CaptureFixture[str], more: tuple[str, ...]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert f"--port {port} is taken" in complaint(capsys, "lab", "--port", str(port), *more)
    lab.check_port(port)  # free again


@pytest.mark.skipif(sys.platform == "win32", reason="signals of a process are Unix's")
def test_the_server_ends_with_its_command(tmp_path: Path) -> None:
    note = tmp_path / "server"
    server = f"import os, time; open({str(note)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    code = (
        "import sys; from workbench.commands.lab import serve; "
        f"sys.exit(serve([sys.executable, '-c', {server!r}], 'told', {lab.free_port()}, 'token', opens=None, quiet=True))"
    )
    command = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 30
        while not (note.exists() and note.read_text()) and time.monotonic() < end:
            time.sleep(0.02)
        child = int(note.read_text())
        command.terminate()
        assert command.wait(20) == 0
        with pytest.raises(ProcessLookupError):
            os.kill(child, 0)
    finally:
        command.kill()
        command.wait()


def test_the_address_is_told_when_the_server_answers_and_the_browser_opened(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    port, told_before = lab.free_port(), []

    def browse(url: str) -> None:
        told_before.append((url, capsys.readouterr().err))
        socket.create_connection(("127.0.0.1", port)).close()

    monkeypatch.setattr(webbrowser, "open", browse)
    server = (
        f"import socket; s = socket.create_server(('127.0.0.1', {port})); s.accept(); s.accept()"  # asked, then opened
    )
    assert lab.serve([sys.executable, "-c", server], "told", port, "token", opens="the address", quiet=True) == 0
    assert told_before == [("the address", "told\n")]


def test_a_server_that_ends_at_once_is_not_opened(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webbrowser, "open", pytest.fail)
    command = [sys.executable, "-c", "import sys; sys.exit(3)"]
    assert lab.serve(command, "told", lab.free_port(), "token", opens="the address", quiet=True) == 3
    assert capsys.readouterr().err == ""


def test_the_address_stands_in_a_line_of_its_own() -> None:
    assert "    http://127.0.0.1:8123/lab?token=x" in lab.invitation(
        "it", "http://127.0.0.1:8123/lab?token=x", 8123
    ).split("\n")


def test_without_jupyterlab_it_says_how_to_get_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lab, "find_spec", lambda name: None)
    assert "pip install 'mugraph-workbench[lab]'" in complaint(capsys, "lab")


def test_notebooks_of_an_installed_package_are_copied_and_nothing_is_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site" / "workbench"
    (package / "notebooks" / "deep").mkdir(parents=True)
    for name in ("01_first.ipynb", "02_second.ipynb", "deep/03_third.ipynb"):
        (package / "notebooks" / name).write_text("shipped")
    monkeypatch.setattr(workbench, "__file__", str(package / "__init__.py"))
    monkeypatch.setattr(lab, "shipped_path", lambda folder: package / folder)
    copies = tmp_path / "mine"
    copies.mkdir()
    (copies / "01_first.ipynb").write_text("edited")
    folder = lab.notebook_folder(copies)
    assert folder == copies.resolve()
    assert (copies / "01_first.ipynb").read_text() == "edited"
    assert (copies / "deep" / "03_third.ipynb").read_text() == "shipped"
    assert lab.find_notebook(folder, "2") == "02_second.ipynb"
    assert lab.find_notebook(folder, "03_third") == "deep/03_third.ipynb"
    with pytest.raises(UsageError, match=r"01_first\.ipynb, 02_second\.ipynb"):
        lab.find_notebook(folder, "4")
