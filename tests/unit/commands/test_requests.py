"""`--set NAME=VALUE ...`: where it ends, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.commands.calling import ask, complaint
from workbench.cli import COMMANDS
from workbench.commands.requests import split_settings
from workbench.errors import UsageError


def test_settings_end_at_the_first_token_without_an_equals_sign() -> None:
    assert split_settings(["--set", "a=1", "b=2", "gqa", "c=3"]) == (["gqa", "c=3"], {"a": "1", "b": "2"})
    assert split_settings(["gqa", "--set=a=1", "b=2", "-o", "x=y.svg"]) == (
        ["gqa", "-o", "x=y.svg"],
        {"a": "1", "b": "2"},
    )
    assert split_settings(["--set", "a=b=c", "--set", "d=1"]) == ([], {"a": "b=c", "d": "1"})
    assert split_settings(["x", "--", "--set", "a=1"]) == (["x", "--", "--set", "a=1"], {})
    with pytest.raises(UsageError):
        split_settings(["--set", "--json"])


def test_json_may_stand_before_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = ask(capsys, "--json", "programs", "gqa")
    assert code == 0
    assert json.loads(out)["programs"][0]["name"] == "gqa"


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_help_of_every_command(capsys: pytest.CaptureFixture[str], name: str) -> None:
    code, out, err = ask(capsys, name, "--help")
    assert (code, err) == (0, "")
    assert out.startswith(f"usage: workbench {name}")
    assert "--json" in out
    overview = ask(capsys, "--help")
    assert overview[0] == 0
    assert name in overview[1]


@pytest.mark.parametrize("command", ["optimize", "search", "emit", "show"])
def test_a_python_file_without_a_function_is_told_how_to_name_one(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str
) -> None:
    (tmp_path / "mine.py").write_text("x = 1\n")
    assert "mine.py:FUNCTION" in complaint(capsys, command, tmp_path / "mine.py")
