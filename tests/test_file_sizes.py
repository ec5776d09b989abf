"""No source file is over 600 lines; one over 400 says in its first lines why it is long ("Long because ...")."""

from __future__ import annotations

from pathlib import Path

import pytest

HARD_LIMIT, SOFT_LIMIT = 600, 400
REASON = "long because"
SUFFIXES = (".py", ".cuh", ".cu", ".h", ".js", ".css")
FOLDERS = ("workbench", "tests", "benchmarks")


def complaint(name: str, text: str) -> str | None:
    """Return what is wrong with a file's length, or None."""
    lines = text.splitlines()
    if len(lines) > HARD_LIMIT:
        return f"{name}: {len(lines)} lines, the limit is {HARD_LIMIT}; split it by concept"
    if len(lines) > SOFT_LIMIT and REASON not in "\n".join(lines[:30]).lower():
        return f"{name}: {len(lines)} lines; over {SOFT_LIMIT} its opening must say why: 'Long because ...'"
    return None


def test_files_are_short_or_say_why(repository: Path) -> None:
    paths = [path for folder in FOLDERS for path in sorted((repository / folder).rglob("*")) if path.suffix in SUFFIXES]
    complaints = [complaint(str(path.relative_to(repository)), path.read_text(encoding="utf-8")) for path in paths]
    found = [line for line in complaints if line]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("lines", "opening", "is_fine"),
    [
        (400, "", True),
        (401, "", False),
        (401, '"""Tables. Long because it is one table.', True),
        (601, "Long because", False),
    ],
)
def test_the_rule(lines: int, opening: str, is_fine: bool) -> None:
    text = opening + "x = 1\n" * lines
    assert (complaint("file.py", text) is None) is is_fine
