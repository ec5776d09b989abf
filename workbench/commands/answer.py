"""What a command answers, and what every command module provides."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


@dataclass(frozen=True, slots=True)
class Answer:
    """A command's answer.

    Attributes: text: for people; values: the JSON object; is_yes: False when the answer is no (exit code 1); interrupted:
    how to go on after Ctrl-C, one line for standard error (exit code 130), "" when there was none.
    """

    text: str
    values: dict[str, Json] = field(default_factory=dict)
    is_yes: bool = True
    interrupted: str = ""


@dataclass(frozen=True, slots=True)
class Call:
    """How a command was called: its parsed arguments, the `--set` values, and where progress is told."""

    arguments: argparse.Namespace
    settings: Mapping[str, str]
    progress: Callable[[str], None]


class Command(Protocol):
    """A module of this package."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the command's arguments."""
        ...

    def run(self, call: Call) -> Answer:
        """Do it. Raises: WorkbenchError, OSError."""
        ...
