"""Every notebook runs from a clean kernel, warnings as errors; all together in the time that they promise."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("nbclient")
pytest.importorskip("matplotlib")
pytest.importorskip("latex2mathml")

from benchmarks.notebook_html import write_html, write_index
from benchmarks.run_notebooks import execute, notebooks, titles

pytestmark = pytest.mark.notebook
TOTAL_S = 480
"""Seconds that all notebooks together may take on two cores."""

seconds: dict[str, float] = {}


@pytest.mark.parametrize("path", notebooks(), ids=lambda path: path.stem)
def test_it_runs_without_error_or_warning(path: Path) -> None:
    run = execute(path)
    seconds[path.name] = run.seconds
    if folder := os.environ.get("WORKBENCH_NOTEBOOK_HTML"):
        write_html(run.notebook, Path(folder) / f"{path.stem}.html")
        write_index(titles(notebooks()), Path(folder))
    assert not run.fault, run.fault


def test_all_together_are_fast_enough() -> None:
    if len(seconds) < len(notebooks()):
        pytest.skip("only where this run has executed all of them")
    assert sum(seconds.values()) < TOTAL_S, seconds
