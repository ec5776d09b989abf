"""Commands whose names and arguments are fixed but which this version does not have yet.

Invariant: a command leaves this table when it gets a module of its own.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from workbench.commands.answer import Answer, Call
from workbench.errors import NotBuiltError


def _lab(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("notebook", nargs="?", metavar="NOTEBOOK")


_ARGUMENTS: dict[str, Callable[[argparse.ArgumentParser], None]] = {
    "lab": _lab,
}


class Promised:
    """The command of a name that is not built yet; it has the shape of a command module."""

    def __init__(self, name: str) -> None:
        self.name = name

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the command's arguments."""
        _ARGUMENTS[self.name](parser)

    def run(self, call: Call) -> Answer:
        """Raises: NotBuiltError, always."""
        raise NotBuiltError(
            f"the command {self.name} is not built yet in this version; see workbench --help for those that are"
        )
