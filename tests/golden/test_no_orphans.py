"""Every golden file is read by the test module that its folder is named after, is small, and holds no machine's accidents."""

from __future__ import annotations

from pathlib import Path

import pytest

GOLDEN = Path(__file__).resolve().parent
TESTS = GOLDEN.parent
MAX_LINES = 150


def golden_files() -> list[Path]:
    """The golden files in order."""
    return sorted(path for path in GOLDEN.glob("*/*") if path.is_file() and "__pycache__" not in path.parts)


def test_folders_name_a_test_module() -> None:
    modules = {path.stem for path in TESTS.rglob("test_*.py")}
    for path in golden_files():
        assert f"test_{path.parent.name}" in modules, (
            f"{path.relative_to(TESTS)}: no test module of this name; delete it"
        )


def test_files_are_small() -> None:
    for path in golden_files():
        lines = len(path.read_text(encoding="utf-8").splitlines())
        assert lines <= MAX_LINES, f"{path.relative_to(TESTS)}: {lines} lines; nobody reads a difference that long"


def test_every_file_was_read(request: pytest.FixtureRequest) -> None:
    """Judged for the modules that ran whole: a run of a few tests reads only a few files."""
    plugin = next(p for p in request.config.pluginmanager.get_plugins() if hasattr(p, "golden_uses"))
    ran = {
        module
        for module in plugin.golden_uses.values()
        if module not in plugin.failed_modules and _ran_whole(request.session, module)
    }
    orphans = [
        str(path.relative_to(TESTS))
        for path in golden_files()
        if f"test_{path.parent.name}" in ran and path not in plugin.golden_uses
    ]
    assert not orphans, f"golden files that no test reads; delete them: {orphans}"


def _ran_whole(session: pytest.Session, module: str) -> bool:
    """True when no test of this module was deselected or named one by one."""
    if session.config.option.keyword:
        return False
    return not any("::" in argument for argument in session.config.args) and any(
        item.path.stem == module for item in session.items
    )
