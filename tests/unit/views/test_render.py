"""Which program draws: dot from the PATH, else the built-in one, else a clear error."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from graphviz.backend import dot_command

from workbench.errors import DrawingError
from workbench.views.render import drawing_program, render_dot

needs_sh = pytest.mark.skipif(sys.platform == "win32", reason="the stand-in for dot is a shell script")


def stand_in(folder: Path, body: str) -> Path:
    """Write a program named dot and return it."""
    program = folder / "dot"
    program.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    program.chmod(0o755)
    return program


def test_without_dot_the_built_in_program_draws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert Path(drawing_program()).stem == "graphviz-pure"
    assert "<svg" in render_dot("digraph { a -> b }")


@needs_sh
def test_dot_on_the_path_is_preferred(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = stand_in(tmp_path, "cat > /dev/null; echo '<svg>from dot</svg>'")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert drawing_program() == str(program)
    assert render_dot("digraph { }").strip() == "<svg>from dot</svg>"


@needs_sh
def test_a_program_that_fails_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stand_in(tmp_path, "cat > /dev/null; echo 'no such font' >&2; exit 3")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    with pytest.raises(DrawingError, match="no such font"):
        render_dot("digraph { }")


def test_a_source_that_is_no_graph_is_refused() -> None:
    with pytest.raises(DrawingError, match="failed"):
        render_dot("digraph { a -> ")


def test_no_program_at_all_names_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_args, **_options: None)
    with pytest.raises(DrawingError, match="pip install graphviz-pure"):
        drawing_program()


def test_the_graphviz_package_is_left_as_it_was(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    before = dot_command.DOT_BINARY
    render_dot("digraph { a }")
    with pytest.raises(DrawingError):
        render_dot("digraph {")
    assert before == dot_command.DOT_BINARY
