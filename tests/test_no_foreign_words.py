"""The repository names no path of the machine it was written on and no host of a package registry."""

from __future__ import annotations

import re
import subprocess
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
FOREIGN = re.compile(
    "|".join([re.escape(host) for host in HOSTS] + [rf"(?<![\w.}}/]){re.escape(path)}" for path in PATHS])
)


def repository_files(repository: Path) -> list[Path]:
    """The files under version control; where git or its folder is missing, all files but those git would ignore."""
    command = ["git", "-C", str(repository), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, capture_output=True, check=True).stdout.decode().split("\0")
    except (OSError, subprocess.CalledProcessError):
        ignored = {"build", "dist", "__pycache__", "carry"}
        return [
            path
            for path in repository.rglob("*")
            if path.is_file() and not any(p in ignored or p[0] == "." for p in path.relative_to(repository).parts[:-1])
        ]
    return [repository / name for name in listed if name and (repository / name).is_file()]


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
