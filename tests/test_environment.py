"""environment.yml, pyproject.toml, README.md and .ci/run say the same; what ships is found in a clone and in a wheel."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from workbench.shipped import shipped_path


@pytest.fixture(scope="module")
def project(repository: Path) -> dict[str, Any]:
    """The [project] table of pyproject.toml."""
    table: dict[str, Any] = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return table


def test_environment_names_existing_extras(repository: Path, project: dict[str, Any]) -> None:
    environment = yaml.safe_load((repository / "environment.yml").read_text(encoding="utf-8"))
    (pip_part,) = [entry["pip"] for entry in environment["dependencies"] if isinstance(entry, dict)]
    requirement = re.fullmatch(r"-e \.\[([\w,]+)\]", pip_part[0])
    assert requirement
    assert set(requirement.group(1).split(",")) <= set(project["optional-dependencies"])
    (python,) = [entry for entry in environment["dependencies"] if str(entry).startswith("python=")]
    assert python.partition("=")[2] in ("3.11", "3.12", "3.13")


def test_extras_that_name_extras_exist(project: dict[str, Any]) -> None:
    extras = project["optional-dependencies"]
    for requirements in extras.values():
        for requirement in requirements:
            if match := re.fullmatch(rf"{project['name']}\[([\w,]+)\]", requirement):
                assert set(match.group(1).split(",")) <= set(extras)


def test_readme_and_ci_use_the_same_test_command(repository: Path) -> None:
    readme = (repository / "README.md").read_text(encoding="utf-8")
    ci = (repository / ".ci" / "run").read_text(encoding="utf-8")
    (command,) = re.findall(r"^pip install -q -e '\.\[test\]' && pytest$", ci, re.MULTILINE)
    assert command in readme


@pytest.mark.parametrize("folder", ["data", "notebooks"])
def test_shipped_folders_are_found(folder: Any) -> None:
    assert shipped_path(folder, "README.md").is_file()


def test_wheel_holds_everything(repository: Path, tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=repository, check=True, capture_output=True,
    )  # fmt: skip
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder, suffixes in {
        "workbench": (".py", ".cuh", ".h", ".js", ".css", ".typed"),
        "data": (),
        "notebooks": (),
    }.items():
        for path in (repository / folder).rglob("*"):
            hidden = {"__pycache__", ".ipynb_checkpoints"} & set(path.parts)
            if path.is_file() and not hidden and (not suffixes or path.suffix in suffixes or path.name == "py.typed"):
                inside = path.relative_to(repository).as_posix()
                assert (inside if folder == "workbench" else f"workbench/{inside}") in names
    assert not [name for name in names if name.startswith(("tests/", "data/", "notebooks/"))]
