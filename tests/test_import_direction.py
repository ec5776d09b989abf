"""A module imports only from a lower rank, siblings of one rank not at all, and foreign libraries only where they belong."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

# DESIGN section 3, lowest rank first; each place is one or more modules below `workbench` ("" is the package itself).
# Modules of one place may import each other; places of one rank may not.
RANKS: list[list[tuple[str, ...]]] = [
    [("errors",), ("units",), ("display",), ("shipped",)],
    [("core",)],
    [("domains",)],
    [("ops",)],
    [("ugraph",)],
    [("interpret",)],
    [("programs",), ("verify",), ("cost",), ("optimize",), ("records",)],
    [("search",), ("codegen",)],
    [("device",)],
    [("pipeline",)],
    [("views",)],
    [("widgets",)],
    [("cli", "commands", "", "__main__")],
]

# libraries that only one place may import
HOMES = {
    "cupy": "device", "torch": "device", "cuda": "device", "pynvml": "device", "triton": "device",
    "ipywidgets": "widgets", "anywidget": "widgets", "IPython": "widgets",
    "matplotlib": "views", "graphviz": "views",
}  # fmt: skip

PLACES = {module: (rank, place) for rank, places in enumerate(RANKS) for place in places for module in place}


def place_of(module: str) -> tuple[int, tuple[str, ...]]:
    """Return rank and place of a module below `workbench`. Raises: KeyError for a module that the table does not know."""
    return PLACES[module.partition(".")[0]]


def imports(tree: ast.AST, module: str, known: set[str], *, is_package: bool) -> Iterator[tuple[int, str]]:
    """Yield line and full name of every import, those in functions and under TYPE_CHECKING too, relative ones resolved."""
    package = module.split(".") if is_package else module.split(".")[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = package[: len(package) - node.level + 1] if node.level else []
            name = ".".join([*source, *(node.module.split(".") if node.module else [])])
            for alias in node.names:  # `from workbench import errors` imports the module, not the package's doors
                yield node.lineno, f"{name}.{alias.name}" if f"{name}.{alias.name}" in known else name
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute | ast.Name)
            and (node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id)
            in ("import_module", "__import__")
            and node.args
            and isinstance(node.args[0], ast.Constant)
            and isinstance(node.args[0].value, str)
        ):
            yield node.lineno, node.args[0].value


def faults(source: str, module: str, known: set[str], *, is_package: bool = False) -> list[str]:
    """Return one line per import of `module` (full name) that goes upward, sideways, or to a library's wrong place."""
    below = module.partition(".")[2]
    rank, place = place_of(below)
    found = []
    for line, target in imports(ast.parse(source), module, known, is_package=is_package):
        top, _, rest = target.partition(".")
        if top == "workbench":
            other_rank, other = place_of(rest)
            if other != place and other_rank >= rank:
                way = "upward" if other_rank > rank else "to a sibling"
                found.append(f"{module}:{line} imports {way}: {target} (rank {rank} from rank {other_rank})")
        elif top in HOMES and HOMES[top] not in place:
            found.append(f"{module}:{line} imports {top}, which only workbench/{HOMES[top]} may")
    return found


def modules(repository: Path) -> dict[str, Path]:
    """Every module of the package by full name."""
    root = repository / "workbench"
    names = {path: ("workbench", *path.relative_to(root).with_suffix("").parts) for path in sorted(root.rglob("*.py"))}
    return {".".join(parts[:-1] if parts[-1] == "__init__" else parts): path for path, parts in names.items()}


def test_every_module_has_a_rank(repository: Path) -> None:
    for module in modules(repository):
        below = module.partition(".")[2]
        assert below.partition(".")[0] in PLACES, f"{module} is in no rank; add it to DESIGN section 3 and to RANKS"


def test_imports_go_down(repository: Path) -> None:
    known = modules(repository)
    found = [
        fault
        for module, path in known.items()
        for fault in faults(path.read_text(encoding="utf-8"), module, set(known), is_package=path.name == "__init__.py")
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("workbench.core.shapes", "from workbench.ops.spec import OpSpec"),
        ("workbench.core.shapes", "import workbench.ops.spec"),
        ("workbench.core.shapes", "def hidden():\n    from workbench.views.svg import graph_svg"),
        (
            "workbench.core.shapes",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from workbench import ugraph",
        ),
        ("workbench.core.shapes", "from ..ops import spec"),
        ("workbench.core.shapes", "import importlib\nimportlib.import_module('workbench.search')"),
        ("workbench.core.shapes", "import workbench"),
        ("workbench.verify.verdict", "from workbench.cost import roofline"),
        ("workbench.search.events", "from workbench.codegen.cuda import emit"),
        ("workbench.views.svg", "import ipywidgets"),
        ("workbench.search.events", "def f():\n    import cupy as cp"),
    ],
)
def test_planted_faults_are_caught(module: str, source: str) -> None:
    known = {"workbench", "workbench.ugraph", "workbench.ops.spec"}
    assert len(faults(source, module, known)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("workbench.ops.spec", "from workbench.core.shapes import Shape"),
        ("workbench.ops.spec", "from . import registry"),
        ("workbench.ops.spec", "from workbench import errors"),
        ("workbench.cli", "import workbench as wb"),
        ("workbench.device.launch", "import cupy"),
        ("workbench.search.space", "import numpy as np"),
    ],
)
def test_good_imports_pass(module: str, source: str) -> None:
    known = {"workbench", "workbench.errors", "workbench.ops", "workbench.ops.registry"}
    assert faults(source, module, known) == []
