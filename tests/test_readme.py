"""README.md stays true: its places exist, its Python runs, its commands are commands, its programs are studied."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import workbench as wb
from workbench import cli


@pytest.fixture(scope="module")
def readme(repository: Path) -> str:
    """The text of README.md."""
    return (repository / "README.md").read_text(encoding="utf-8")


def test_places_exist(readme: str, repository: Path) -> None:
    places = set(re.findall(r"`((?:workbench|tests|data|notebooks|benchmarks|docs)/[\w./]*)`", readme))
    assert len(places) > 15
    missing = [place for place in places if not (repository / place).exists()]
    assert not missing, f"README.md names {missing}"


def test_every_page_of_the_documentation_is_named(readme: str, repository: Path) -> None:
    pages = {path.relative_to(repository).as_posix() for path in (repository / "docs").glob("*.md")}
    assert pages
    assert not [page for page in sorted(pages) if f"`{page}`" not in readme]


def test_table_names_every_folder_of_the_package(readme: str, repository: Path) -> None:
    table = readme[readme.index("## Where things are") : readme.index("## Glossary")]
    folders = [path.name for path in (repository / "workbench").iterdir() if (path / "__init__.py").is_file()]
    missing = [folder for folder in folders if f"{folder}/`" not in table]
    assert not missing, f"the structure table lacks {missing}"


def test_python_example_runs_and_its_two_graphs_agree(readme: str, rng: np.random.Generator) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(code, "README.md", "exec"), names)
    inputs = [rng.standard_normal(shape) for shape in ((16, 256), (256, 128))]
    (expected,), (found,) = wb.evaluate(names["program"], inputs), wb.evaluate(names["fused"], inputs)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_commands_and_programs_exist(readme: str) -> None:
    used = re.findall(r"\.venv/bin/workbench (\w+)(?: ([a-z]\w*))?", readme)
    assert {"check", "programs", "show", "doctor"} <= {command for command, _ in used} <= set(cli.COMMANDS)
    assert {program for _, program in used if program} <= set(wb.programs.names())
