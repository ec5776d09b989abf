"""The repository names no path of the machine it was written on and no host of a package registry."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

# pieces are joined so that this file does not contain what it looks for
HOSTS = [
    "py" + "pi.org",
    "python" + "hosted.org",
    "npm" + "js.org",
    "deb" + "ian.org",
    "ana" + "conda.org",
    "crates" + ".io",
]
PATHS = ["/" + "home/", "/" + "root/", "/" + "work/", "/" + "Users/", "/" + "tmp/tmp"]
BUILT = {"build", "dist", "__pycache__", "carry"}
FOREIGN = re.compile(
    "|".join([re.escape(host) for host in HOSTS] + [rf"(?<![\w.}}/]){re.escape(path)}" for path in PATHS])
)


def repository_files(repository: Path) -> list[Path]:
    """The files under version control; in a copy without git, all files outside hidden and built folders."""
    try:
        done = subprocess.run(["git", "-C", str(repository), "ls-files", "-z"], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return sorted(_files_below(repository))
    return [repository / name for name in done.stdout.decode().split("\0") if name and (repository / name).is_file()]


def _files_below(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        if path.is_file():
            yield path
        elif path.name[0] != "." and path.name not in BUILT and not (path / "pyvenv.cfg").exists():
            yield from _files_below(path)


def test_no_foreign_words(repository: Path) -> None:
    found = []
    for path in repository_files(repository):
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:  # a picture
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if match := FOREIGN.search(line):
                found.append(f"{path.relative_to(repository)}:{number}: {match.group()}")
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "text", ["see " + PATHS[2] + "notes", "open('" + PATHS[0] + "me/x')", "https://" + HOSTS[0] + "/simple"]
)
def test_planted_words_are_caught(text: str) -> None:
    assert FOREIGN.search(text)


@pytest.mark.parametrize("text", ["data" + PATHS[2] + "x", "{root}" + PATHS[2], "homework/", "../shared" + PATHS[0]])
def test_ordinary_words_pass(text: str) -> None:
    assert not FOREIGN.search(text)


def test_a_copy_without_git_is_read_too(tmp_path: Path) -> None:
    for name in ("kept.py", "folder/kept.md", "venv/pyvenv.cfg", "venv/lib.py", ".hidden/x.py", "build/x.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x", encoding="utf-8")
    assert [str(path.relative_to(tmp_path)) for path in repository_files(tmp_path)] == ["folder/kept.md", "kept.py"]
