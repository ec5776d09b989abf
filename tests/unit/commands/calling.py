"""Calling a command in this process or in one of its own, and what holds of every answer and every refusal."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from workbench.cli import main

SMALL = ["--set", "batch=3", "hidden=10", "out=7"]


def ask(capsys: pytest.CaptureFixture[str], *tokens: str | Path) -> tuple[int, str, str]:
    """Run a command in this process; return exit code, standard output, standard error."""
    capsys.readouterr()
    code = main([str(token) for token in tokens])
    out, err = capsys.readouterr()
    return code, out, err


def answer(capsys: pytest.CaptureFixture[str], *tokens: str | Path, code: int = 0) -> dict[str, Any]:
    """Run a command with --json, check that it prints exactly one object, and return it."""
    found, out, err = ask(capsys, *tokens, "--json")
    assert (found, err) == (code, "")
    assert out.count("\n") == 1
    values = json.loads(out)
    assert isinstance(values, dict)
    return values


def complaint(capsys: pytest.CaptureFixture[str], *tokens: str | Path) -> str:
    """Run a command that must be refused: exit code 2, nothing on standard output, one line on standard error."""
    for json_too in ([], ["--json"]):
        code, out, err = ask(capsys, *tokens, *json_too)
        assert (code, out) == (2, "")
        assert err.startswith("workbench: ")
        assert err.count("\n") == 1
        assert "Traceback" not in err
        assert "internal error" not in err
    return err


def run(*tokens: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own."""
    command = [sys.executable, "-m", "workbench", *tokens]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, **options)
