"""docs/extending.md stays true: the files it names exist, and its pruner runs and drops what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def guide(repository: Path) -> str:
    """The text of docs/extending.md."""
    return (repository / "docs" / "extending.md").read_text(encoding="utf-8")


def test_files_exist(guide: str, repository: Path) -> None:
    places = set(re.findall(r"`((?:workbench|tests|data|notebooks|docs)/[\w./]*[\w/])`", guide))
    assert len(places) > 15
    missing = [place for place in places if "NAME" not in place and not (repository / place).exists()]
    assert not missing


def test_benchmarks_exist(guide: str, repository: Path) -> None:
    modules = re.findall(r"python -m (benchmarks\.\w+)", guide)
    assert modules
    assert all((repository / f"{module.replace('.', '/')}.py").is_file() for module in modules)


def test_the_pruner_drops_exponentials_only_and_loses_nothing(guide: str) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(code, "extending.md", "exec"), names)
    finished = names["finished"]
    assert finished.pruned["no_exp"] > 0
    wb, program, space = names["wb"], names["program"], names["space"]
    *_, without = wb.search(program, space=space, pruners=["abstract_expression"])
    assert finished.verified == without.verified > 0
