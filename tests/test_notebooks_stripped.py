"""Notebooks are stored without outputs and counters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


def leftovers(notebook: dict[str, Any]) -> list[int]:
    """Return the numbers of the cells that hold an output or a counter."""
    return [
        number
        for number, cell in enumerate(notebook["cells"])
        if cell.get("outputs") or cell.get("execution_count") is not None or cell.get("metadata", {}).get("execution")
    ]


def test_notebooks_are_stripped(repository: Path) -> None:
    for path in sorted((repository / "notebooks").rglob("*.ipynb")):
        if ".ipynb_checkpoints" not in path.parts:
            found = leftovers(json.loads(path.read_text(encoding="utf-8")))
            assert not found, f"{path.name}: cells {found} hold outputs; strip them before committing"


@pytest.mark.parametrize(
    "cell",
    [
        {"cell_type": "code", "source": "1", "metadata": {}, "execution_count": 3, "outputs": []},
        {
            "cell_type": "code",
            "source": "1",
            "metadata": {},
            "execution_count": None,
            "outputs": [{"output_type": "stream"}],
        },
        {"cell_type": "code", "source": "1", "metadata": {"execution": {"iopub.status.busy": "now"}}, "outputs": []},
    ],
)
def test_planted_leftovers_are_caught(cell: dict[str, Any]) -> None:
    clean: dict[str, Any] = {"cell_type": "code", "source": "1", "metadata": {}, "execution_count": None, "outputs": []}
    assert leftovers({"cells": [clean, cell]}) == [1]
