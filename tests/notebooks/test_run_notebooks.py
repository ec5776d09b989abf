"""What runs notebooks finds faults of every kind, and writes HTML that holds the outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat")
pytest.importorskip("nbclient")

from benchmarks.run_notebooks import execute, write_html  # noqa: E402

pytestmark = pytest.mark.notebook


def notebook(*sources: str) -> Any:
    made: Any = nbformat.v4.new_notebook()
    made.cells = [nbformat.v4.new_code_cell(source) for source in sources]
    return made


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("1 + 1", ""),
        ("import warnings; warnings.warn('old')", "UserWarning"),
        ("import sys; print('lost', file=sys.stderr)", "cell 1 wrote to stderr: lost"),
        ("raise ValueError('no')", "ValueError"),
        ("import time; time.sleep(60)", "stopped after 12 s"),
    ],
)
def test_faults_are_found(source: str, expected: str) -> None:
    run = execute(Path("unused.ipynb"), notebook=notebook("x = 1", source), limit_s=12)
    assert (expected in run.fault) if expected else not run.fault
    assert len(run.notebook.cells) == 2


def test_cells_after_a_fault_run_if_asked_for() -> None:
    run = execute(Path("unused.ipynb"), notebook=notebook("raise ValueError('no')", "print('on')"), go_on=True)
    assert run.notebook.cells[1].outputs[0].text == "on\n"


def test_html_holds_outputs(tmp_path: Path) -> None:
    made = notebook("print(6 * 7)", "secret = 1")
    made.cells[1].metadata["jupyter"] = {"source_hidden": True}
    run = execute(Path("unused.ipynb"), notebook=made)
    write_html(run.notebook, tmp_path / "folder" / "x.html")
    text = (tmp_path / "folder" / "x.html").read_text(encoding="utf-8")
    assert "42" in text[: text.index("<details>")]
    assert "secret" in text[text.index("<details>") : text.index("</details>")]
