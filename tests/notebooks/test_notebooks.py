"""Every notebook runs from a clean kernel, warnings as errors; its exercises take right answers only; all are fast enough."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("nbclient")
pytest.importorskip("matplotlib")
pytest.importorskip("latex2mathml")

import nbformat

from benchmarks.notebook_html import write_html, write_index
from benchmarks.run_notebooks import execute, notebooks, titles
from tests.notebooks.exercises import check_cell, with_checks

pytestmark = pytest.mark.notebook
TOTAL_S = 480
"""Seconds that all notebooks together may take on two cores."""

seconds: dict[str, float] = {}


@pytest.mark.parametrize("path", notebooks(), ids=lambda path: path.stem)
def test_it_runs_without_error_or_warning(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    checks = with_checks(notebook, path.name[:2], nbformat.v4.new_code_cell)
    run = execute(path, notebook=notebook)
    seconds[path.name] = run.counted_seconds
    run.notebook.cells = [cell for cell in run.notebook.cells if cell not in checks]
    if folder := os.environ.get("WORKBENCH_NOTEBOOK_HTML"):
        write_html(run.notebook, Path(folder) / f"{path.stem}.html")
        write_index(titles(notebooks()), Path(folder))
    assert not run.fault, run.fault


def test_all_together_are_fast_enough() -> None:
    if len(seconds) < len(notebooks()):
        pytest.skip("only where this run has executed all of them")
    assert sum(seconds.values()) < TOTAL_S, seconds


@pytest.mark.parametrize(
    ("check", "right", "wrong"),
    [("x == 2", "2", "3"), ("x > 0", "2", "-1")],
)
def test_a_check_is_tried_with_both_answers(check: str, right: str, wrong: str) -> None:
    source = f"x = ...\nAnswer({check})"
    names = {"Answer": lambda holds: type("Answer", (), {"right": holds})}
    exec(check_cell(source, "x", right, wrong), dict(names))
    for same in (right, wrong):
        with pytest.raises(AssertionError):
            exec(check_cell(source, "x", same, same), dict(names))


@pytest.mark.parametrize("source", ["x = 2\ncheck(x)", "y = ...\ncheck(y)", "x = ..."])
def test_a_cell_that_is_no_exercise_is_refused(source: str) -> None:
    with pytest.raises(LookupError):
        check_cell(source, "x", "1", "2")
