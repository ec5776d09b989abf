"""How a long run tells how far it is: one line that is written over, in a terminal and in a notebook.

Invariant: nothing is written unless somebody can see it come: no terminal, no notebook, no line.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

EVERY_S = 0.1
WIDTH, BAR = 100, 20


@dataclass(frozen=True, slots=True)
class Stage:
    """How far a run is. Attributes: name: of the stage; done, total: in the stage's own units; note: what is at hand."""

    name: str
    done: int
    total: int
    note: str = ""

    def describe(self) -> str:
        """Return a bar with counts."""
        filled = BAR * self.done // max(self.total, 1)
        note = f"  {self.note}" if self.note else ""
        return f"{self.name:<10} [{'#' * filled}{'.' * (BAR - filled)}] {self.done}/{self.total}{note}"[:WIDTH]


Progress = Callable[[Stage], None]


def silent(stage: Stage) -> None:
    """Tell nobody."""


class ProgressLine:
    """Writes stages over each other, at most ten a second."""

    def __init__(self) -> None:
        """Start with nothing written."""
        self._last = 0.0
        self._name = ""

    def __call__(self, stage: Stage) -> None:
        """Write a stage."""
        now = time.perf_counter()
        if stage.name == self._name and stage.done < stage.total and now - self._last < EVERY_S:
            return
        self._last, self._name = now, stage.name
        print(f"\r{stage.describe():<{WIDTH}}", end="", file=sys.stderr, flush=True)

    def close(self) -> None:
        """End the line."""
        if self._name:
            print(f"\r{'':<{WIDTH}}\r", end="", file=sys.stderr, flush=True)


def default_progress() -> ProgressLine | None:
    """Return a line where a person looks on: a terminal or a notebook; else None."""
    in_notebook = "ipykernel" in sys.modules
    return ProgressLine() if in_notebook or sys.stderr.isatty() else None
