"""A claim can fail: one named input of each notebook is changed, and the cell that asserts the claim raises."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat")
pytest.importorskip("nbclient")
pytest.importorskip("matplotlib")

from benchmarks.run_notebooks import execute, notebooks  # noqa: E402
from tests.notebooks.conventions import tagged  # noqa: E402


def changed(source: str, name: str, value: str) -> str:
    """Return a cell in which the assignment to a name has another value. Raises: LookupError if it has none."""
    lines = source.splitlines(keepends=True)
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == [name]:
            return "".join([*lines[: node.lineno - 1], f"{name} = {value}\n", *lines[node.end_lineno :]])
    raise LookupError(f"the input cell has no assignment {name} = ... on lines of its own")


@pytest.mark.notebook
@pytest.mark.parametrize("path", notebooks(), ids=lambda path: path.stem)
def test_the_claim_fails_when_its_input_is_changed(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    mutation = notebook.metadata.workbench.mutation
    (cell,) = tagged(notebook, "input")
    cell.source = changed(cell.source, mutation.name, mutation.value)
    # cells that only show, and those of exercises, are left out: the claim must not rest on them
    for shown in [*tagged(notebook, "show"), *tagged(notebook, "exercise")]:
        shown.source = ""
    run = execute(path, notebook=notebook, go_on=True)
    (claim,) = tagged(run.notebook, "claim")
    raised = [output.ename for output in claim.outputs if output.output_type == "error"]
    assert raised == ["AssertionError"], f"{mutation.name} = {mutation.value}: {raised or 'the claim still holds'}"


@pytest.mark.parametrize(
    ("source", "expected"), [("a = 1\nb = 2", "a = 7\nb = 2"), ("b = 2\na = (1,\n  2)\n", "b = 2\na = 7\n")]
)
def test_an_assignment_is_changed(source: str, expected: str) -> None:
    assert changed(source, "a", "7") == expected


def test_a_missing_assignment_is_an_error() -> None:
    with pytest.raises(LookupError, match="no assignment c"):
        changed("a = 1", "c", "7")
