"""Every public name is documented, and the names that outside code builds on exist."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

import workbench as wb

OPERATORS = [
    "matmul", "exp", "log", "sqrt", "rsqrt", "square", "silu", "gelu", "sigmoid", "tanh", "relu", "abs",
    "clamp", "maximum", "minimum", "pow", "sum", "mean", "max", "rms_norm", "softmax", "l2_norm", "layer_norm",
    "transpose", "reshape", "concat", "split", "broadcast", "add", "sub", "mul", "div", "neg", "scale",
]  # fmt: skip
FIXED = ["programs", "trace", "program", "load", "evaluate", "search", "Space", "superoptimize", *OPERATORS]
"""Names of DESIGN section 10."""


def undocumented(source: str) -> Iterator[str]:
    """Yield every public module, class, function and method of a source text that has no docstring.

    Exempt: dunder methods, overloads of a documented property, and classes of enum members or protocols' stubs in one line.
    """
    tree = ast.parse(source)
    if ast.get_docstring(tree) is None:
        yield "the module"
    pending: list[tuple[str, ast.AST]] = [("", tree)]
    while pending:
        prefix, parent = pending.pop()
        for node in ast.iter_child_nodes(parent):
            if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) or node.name.startswith("_"):
                continue
            if ast.get_docstring(node) is None and not _is_stub(node):
                yield f"{prefix}{node.name}"
            if isinstance(node, ast.ClassDef):
                pending.append((f"{prefix}{node.name}.", node))


def _is_stub(node: ast.AST) -> bool:
    """A protocol's method `def f(...) -> T: ...`, whose class says what it is for."""
    return isinstance(node, ast.FunctionDef) and isinstance(node.body[-1], ast.Expr) and (
        isinstance(node.body[-1].value, ast.Constant) and node.body[-1].value.value is ...
    )  # fmt: skip


def test_every_public_name_of_the_package_has_a_docstring(repository: Path) -> None:
    found = [
        f"{path.relative_to(repository)}: {name}"
        for path in sorted((repository / "workbench").rglob("*.py"))
        if path.read_text(encoding="utf-8")
        for name in undocumented(path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = 1", ["the module"]),
        ('"""M."""\ndef f(): return 1', ["f"]),
        ('"""M."""\nclass C:\n    """C."""\n    def m(self): return 1\n    def _p(self): return 1', ["C.m"]),
        ('"""M."""\nclass C(Protocol):\n    """C."""\n    def m(self) -> int: ...', []),
    ],
)
def test_missing_docstrings_are_found(source: str, expected: list[str]) -> None:
    assert list(undocumented(source)) == expected


@pytest.mark.parametrize("name", sorted(set(wb.__all__) - {"__version__"}))
def test_names_of_the_namespace_load_and_are_documented(name: str) -> None:
    found = getattr(wb, name)
    if callable(found) or inspect.ismodule(found):
        assert inspect.getdoc(found)
    assert name in dir(wb)


@pytest.mark.parametrize("name", FIXED)
def test_fixed_names_exist(name: str) -> None:
    assert name in wb.__all__
    assert getattr(wb, name) is not None


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        getattr(wb, "no_such_name")  # noqa: B009


def test_graphs_have_the_fixed_attributes() -> None:
    graph = wb.programs.get("rms_norm_linear", batch=4, hidden=32, out=16)
    assert [tensor.name for tensor in graph.inputs] == ["X", "G", "W"]
    (output,) = graph.outputs
    assert output.shape == (4, 16)
    assert (output.name, str(output.dtype), output.strides) == (output.name, "float16", (16, 1))
    assert wb.programs.known_good("gqa")
