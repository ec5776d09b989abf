"""What a notebook must look like. Invariant: `breaches` names every rule that is broken, and in which cell.

A notebook shows, the package does: short cells, no classes, small functions, public names only. Each opens with title,
question, running time, hardware and source, and ends with a claim that is asserted, what to remember, and what comes next.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

import workbench as wb

MAX_LINES = 15
MAX_FUNCTION = 5
LITERATE = "00"
"""Number of the notebook that writes everything out: cells, functions and classes of any length."""

OTHERS = {"numpy", "matplotlib", "z3", "ipywidgets", "IPython", "pandas", "time", "math", "itertools", "functools",
          "collections", "pathlib", "random", "re", "json", "fractions", "dataclasses", "tempfile", "operator",
          "__future__"}  # fmt: skip
"""What a notebook may import beside `workbench`."""

OPENING = ("Question", "Time", "Hardware", "Source")
QUANTITY = re.compile(
    r"\d+\.\d+|\d[\d,.]*\s*(?:%|[µu]s\b|ms\b|ns\b|[kKMGT]i?B\b|[GTP]?FLOP|times\b|x faster|seconds\b|prefixes\b|graphs\b)"
)
"""A number with a unit, or with decimals: in prose it must come from a variable."""


def tagged(notebook: Any, tag: str) -> list[Any]:
    """Return the cells that have a tag, `exercise` also standing for `exercise-3` and the like."""
    return [cell for cell in notebook["cells"] if any(t == tag or t.startswith(f"{tag}-") for t in tags(cell))]


def tags(cell: Any) -> list[str]:
    """Return the tags of a cell."""
    return list(cell["metadata"].get("tags", []))


def breaches(name: str, notebook: Any) -> list[str]:
    """Return what is wrong with a notebook, by its file name; an empty list if nothing is."""
    cells = notebook["cells"]
    return [
        *_opening(name, cells),
        *_ending(cells),
        *_prose(cells),
        *_marks(notebook),
        *(problem for number, cell in enumerate(cells) if cell["cell_type"] == "code"
          for problem in _code(name, number, cell["source"])),
    ]  # fmt: skip


def _opening(name: str, cells: list[Any]) -> Iterator[str]:
    first = cells[0]["source"] if cells and cells[0]["cell_type"] == "markdown" else ""
    if not re.match(rf"# {name[:2]}\b", first):
        yield f"the first cell is not markdown that starts with '# {name[:2]} title'"
    for word in OPENING:
        if f"**{word}.**" not in first:
            yield f"the opening has no **{word}.**"


def _ending(cells: list[Any]) -> Iterator[str]:
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    if not code or "claim" not in tags(code[-1]):
        yield "the last code cell is not tagged 'claim'"
    elif not any(_is_computed(node) for node in ast.walk(_parsed(code[-1]["source"]))):
        yield "the last code cell asserts nothing that was computed"
    last = cells[-1]["source"] if cells and cells[-1]["cell_type"] == "markdown" else ""
    if "## What to remember" not in last:
        yield "the last cell has no '## What to remember'"
    if "**Next.**" not in last:
        yield "the last cell does not name the next notebook (**Next.**)"
    if not any(cell["source"].startswith("## What people get wrong") for cell in cells):
        yield "no cell '## What people get wrong'"


def _is_computed(node: ast.AST) -> bool:
    return isinstance(node, ast.Assert) and any(isinstance(part, ast.Name) for part in ast.walk(node.test))


def _prose(cells: list[Any]) -> Iterator[str]:
    for number, cell in enumerate(cells):
        if number == 0 or cell["cell_type"] != "markdown":
            continue
        plain = re.sub(r"```.*?```|`[^`]*`|\$[^$]*\$|\([^)]*\.ipynb\)", "", cell["source"], flags=re.DOTALL)
        for found in QUANTITY.findall(plain):
            yield f"cell {number}: {found!r} is typed into prose; let a variable print it"


def _marks(notebook: Any) -> Iterator[str]:
    mutation = notebook["metadata"].get("workbench", {}).get("mutation", {})
    if set(mutation) != {"name", "value"}:
        yield "metadata workbench.mutation does not name an input and its other value"
    if len(tagged(notebook, "input")) != 1:
        yield "not exactly one cell is tagged 'input'"
    if not tagged(notebook, "exercise"):
        yield "no exercise"
    for number, cell in enumerate(notebook["cells"]):
        if "answer" in tags(cell) and not cell["metadata"].get("jupyter", {}).get("source_hidden"):
            yield f"cell {number}: the answer is not hidden (metadata jupyter.source_hidden)"
    if len(tagged(notebook, "answer")) < len(
        {tag for cell in notebook["cells"] for tag in tags(cell) if tag.startswith("exercise")}
    ):
        yield "an exercise has no answer"


def _parsed(source: str) -> ast.Module:
    return ast.parse(re.sub(r"^(\s*)[%!].*$", r"\1pass", source, flags=re.MULTILINE))


def _lines(source: str) -> int:
    return sum(bool(line.strip()) and not line.strip().startswith("#") for line in source.splitlines())


def _code(name: str, number: int, source: str) -> Iterator[str]:
    tree = _parsed(source)
    if not name.startswith(LITERATE):
        if _lines(source) > MAX_LINES:
            yield f"cell {number}: {_lines(source)} lines of code, {MAX_LINES} are allowed"
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                yield f"cell {number}: class {node.name}"
            if isinstance(node, ast.FunctionDef):
                length = _lines("\n".join(source.splitlines()[node.lineno - 1 : node.end_lineno]))
                if length > MAX_FUNCTION:
                    yield f"cell {number}: function {node.name} has {length} lines, {MAX_FUNCTION} are allowed"
    for node in ast.walk(tree):
        yield from (f"cell {number}: {problem}" for problem in _names(node))


def _names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            if alias.name != "workbench" and alias.name.partition(".")[0] not in OTHERS:
                yield f"imports {alias.name}; use public names (wb.*)"
    if isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] not in OTHERS:
        yield f"imports from {node.module}; use public names (wb.*)"
    if isinstance(node, ast.Attribute):
        if node.attr.startswith("_") and not node.attr.startswith("__"):
            yield f"uses the private name {node.attr}"
        if isinstance(node.value, ast.Name) and node.value.id == "wb" and node.attr not in wb.__all__:
            yield f"wb.{node.attr} is not public"
