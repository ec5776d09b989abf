"""Notebooks keep the conventions, planted breaches are found, and the lecture's exercises and figures are all there."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import workbench as wb
from tests.notebooks.conventions import breaches, tagged, tags

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
PATHS = sorted(FOLDER.glob("[0-9][0-9]_*.ipynb"))
LECTURE_EXERCISES = range(1, 9)


def read(path: Path) -> Any:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    for cell in notebook["cells"]:
        cell["source"] = "".join(cell["source"])
    return notebook


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_it_keeps_the_conventions(path: Path) -> None:
    found = breaches(path.name, read(path))
    assert not found, "\n".join(found)


def test_every_exercise_of_the_lecture_has_a_cell() -> None:
    if len(PATHS) < 13:
        pytest.skip("not all notebooks are there")
    present = {tag for path in PATHS for cell in tagged(read(path), "exercise") for tag in tags(cell)}
    assert not {f"exercise-{number}" for number in LECTURE_EXERCISES} - present


def markdown(source: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "source": source, "metadata": {}}


def code(source: str, *names: str, hidden: bool = False) -> dict[str, Any]:
    metadata: dict[str, Any] = {"tags": list(names)}
    if hidden:
        metadata["jupyter"] = {"source_hidden": True}
    return {"cell_type": "code", "source": source, "metadata": metadata, "outputs": [], "execution_count": None}


def thin() -> dict[str, Any]:
    return {
        "metadata": {"workbench": {"mutation": {"name": "a", "value": "2"}}},
        "cells": [
            markdown("# 01 Title\n\n**Question.** q\n**Time.** 10 s\n**Hardware.** any\n**Source.** the paper"),
            code("import workbench as wb\na = 1", "input"),
            code("b = a + 1", "exercise"),
            code("c = 2", "answer", hidden=True),
            markdown("## What people get wrong\n\nNothing."),
            code("assert a == 1", "claim"),
            markdown("## What to remember\n\nIt.\n\n**Next.** 02"),
        ],
    }


def test_a_thin_notebook_passes() -> None:
    assert breaches("01_title.ipynb", thin()) == []


def _replace(index: int, cell: dict[str, Any]) -> Callable[[Any], None]:
    def change(notebook: Any) -> None:
        notebook["cells"][index] = cell

    return change


LONG = "\n".join(f"x{n} = {n}" for n in range(16))
FUNCTION = "def f():\n" + "\n".join(f"    x{n} = {n}" for n in range(5))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (_replace(0, markdown("# Title")), "the first cell is not"),
        (_replace(0, markdown("# 01 Title\n**Question.** **Time.** **Source.**")), "no **Hardware.**"),
        (_replace(2, code(LONG, "exercise")), "16 lines of code"),
        (_replace(2, code("class C:\n    pass", "exercise")), "class C"),
        (_replace(2, code(FUNCTION, "exercise")), "function f has 6 lines"),
        (_replace(2, code("from workbench.core import shapes", "exercise")), "imports from workbench.core"),
        (_replace(2, code("import torch", "exercise")), "imports torch"),
        (_replace(2, code("wb.no_such_name", "exercise")), "wb.no_such_name is not public"),
        (_replace(2, code("a._private", "exercise")), "private name"),
        (_replace(2, code("b = 1")), "no exercise"),
        (_replace(3, code("c = 2", "answer")), "the answer is not hidden"),
        (_replace(3, code("c = 2")), "an exercise has no answer"),
        (_replace(4, markdown("It takes 12.5 µs.")), "'12.5' is typed into prose"),
        (_replace(4, markdown("All 40 MB of it.")), "'40 MB' is typed into prose"),
        (_replace(4, markdown("Nothing.")), "no cell '## What people get wrong'"),
        (_replace(5, code("assert True", "claim")), "asserts nothing that was computed"),
        (_replace(5, code("assert a == 1")), "not tagged 'claim'"),
        (_replace(6, markdown("The end.")), "no '## What to remember'"),
        (_replace(6, markdown("## What to remember")), "does not name the next"),
        (_replace(1, code("a = 1")), "not exactly one cell is tagged 'input'"),
        (lambda notebook: notebook["metadata"].clear(), "metadata workbench.mutation"),
    ],
)
def test_planted_breaches_are_found(change: Callable[[Any], None], expected: str) -> None:
    notebook = copy.deepcopy(thin())
    change(notebook)
    found = breaches("01_title.ipynb", notebook)
    assert any(expected in problem for problem in found), found


def test_the_literate_notebook_may_be_long() -> None:
    notebook = thin()
    notebook["cells"][0] = markdown("# 00 Title\n\n**Question.** **Time.** **Hardware.** **Source.**")
    notebook["cells"][2] = code(f"class C:\n    pass\n{LONG}\n{FUNCTION}", "exercise")
    assert breaches("00_title.ipynb", notebook) == []


def _figures() -> list[tuple[str, str, str]]:
    """Return (demonstration, printed figure, notebooks) of the table in notebooks/README.md."""
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    table = text[text.index("## The lecture's figures") :]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line.startswith("| ")
    ]
    return [(row[0], figure, row[2]) for row in rows[1:] for figure in re.findall(r"`([^`]+)`", row[1])]


def _asserted(path: Path) -> str:
    """Return the code of a notebook without exercises; where `wb.course.figures` are asserted, also what those print."""
    cells = [
        cell
        for cell in read(path)["cells"]
        if cell["cell_type"] == "code" and not tagged({"cells": [cell]}, "exercise")
    ]
    code = "\n".join(cell["source"] for cell in cells)
    if "is_reproduced" in cells[-1]["source"]:
        code += " ".join(f"{figure.printed:g}" for figure in wb.course.figures())
    return code.replace("_", "").replace(",", "")


@pytest.mark.parametrize(("demonstration", "figure", "places"), _figures())
def test_a_figure_of_the_lecture_is_where_the_table_says(demonstration: str, figure: str, places: str) -> None:
    paths = [path for path in PATHS if path.name[:2] in places.split(", ")]
    assert paths
    wanted = re.compile(rf"(?<![\w.]){re.escape(figure.replace('_', ''))}(?![\w])")
    missing = [path.name for path in paths if not wanted.search(_asserted(path))]
    assert len(missing) < len(paths), f"{demonstration}: {figure} stands in none of {places}"
