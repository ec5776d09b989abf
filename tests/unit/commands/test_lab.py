"""`workbench lab`: what it would start, under which address, and that nobody edits an installed package."""

from __future__ import annotations

import importlib.util
import json
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
