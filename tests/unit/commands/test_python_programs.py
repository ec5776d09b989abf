"""Programs named as FILE.py:FUNCTION."""

from __future__ import annotations

from pathlib import Path

import pytest

import workbench as wb
from workbench.commands.python_programs import names_python, read_python
from workbench.errors import UnknownNameError, UsageError, WorkbenchError

SOURCE = """
import workbench as wb
from beside import FACTOR

@wb.program
def marked(X: "b h", W: "h d", eps=1e-6):
    return wb.rms_norm(X, eps=eps) @ W

def annotated(X: "b h", W: "h d"):
    return wb.exp(X) @ W * FACTOR

def plain(X, W):
    return wb.exp(X) @ W

def broken(X: "b h"):
    return X.nonsense

finished = wb.trace(plain, X=(2, 3), W=(3, 4))
number = 3
"""


@pytest.fixture
def module(tmp_path: Path) -> str:
    """A file with programs, and one that it imports."""
    (tmp_path / "beside.py").write_text("FACTOR = 2\n")
    path = tmp_path / "mine.py"
    path.write_text(SOURCE)
    return str(path)


def test_what_names_a_function() -> None:
    assert names_python("a/b.py:f")
    assert not any(names_python(target) for target in ("gqa", "a.py", "a.json:f", "a.py:", "a.py:f-g", "C:graph.json"))


def test_programs_functions_and_graphs(module: str) -> None:
    sizes = {"b": "2", "h": "6", "d": "5"}
    marked = read_python(f"{module}:marked", sizes, None)
    assert [tensor.shape for tensor in marked.inputs] == [(2, 6), (6, 5)]
    assert marked.hash == wb.trace(lambda X, W: wb.rms_norm(X) @ W, X=(2, 6), W=(6, 5)).hash
    other = read_python(f"{module}:marked", {**sizes, "eps": "0.5"}, "float32")
    assert other.hash == wb.trace(lambda X, W: wb.rms_norm(X, eps=0.5) @ W, X=(2, 6), W=(6, 5), dtype="float32").hash
    annotated = read_python(f"{module}:annotated", sizes, None)
    assert annotated.hash == wb.trace(lambda X, W: wb.exp(X) @ W * 2, X=(2, 6), W=(6, 5)).hash
    plain = read_python(f"{module}:plain", {"X": "2x6", "W": "6x5", "dtype": "float32"}, None)
    assert plain.hash == wb.trace(lambda X, W: wb.exp(X) @ W, X=(2, 6), W=(6, 5), dtype="float32").hash
    assert read_python(f"{module}:finished", {}, None).outputs[0].shape == (2, 4)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("plain", {}, "give a shape per parameter, --set X=16x64"),
        ("plain", {"X": "2x6"}, "no shape for W"),
        ("plain", {"X": "2xa", "W": "6x5"}, "'2xa' is no shape"),
        ("marked", {"b": "2"}, "no size for h, d"),
        ("marked", {"b": "two", "h": "6", "d": "5"}, "'two' is no number"),
        ("finished", {"b": "2"}, "sizes of its own"),
        ("number", {}, "is a int"),
        ("broken", {"b": "2", "h": "3"}, "fails when it is traced: AttributeError"),
    ],
)
def test_mistakes(module: str, name: str, settings: dict[str, str], message: str) -> None:
    with pytest.raises(WorkbenchError, match=message):
        read_python(f"{module}:{name}", settings, None)


def test_missing_things(module: str, tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="it has marked, annotated, plain, broken"):
        read_python(f"{module}:nothing", {}, None)
    with pytest.raises(UnknownNameError, match="No such file"):
        read_python(f"{tmp_path}/absent.py:f", {}, None)
    with pytest.raises(UsageError, match="dtype is given twice"):
        read_python(f"{module}:marked", {"dtype": "float16"}, "float32")
    (tmp_path / "bad.py").write_text("1 / 0\n")
    with pytest.raises(UsageError, match="fails when it is run: ZeroDivisionError"):
        read_python(f"{tmp_path}/bad.py:f", {}, None)
