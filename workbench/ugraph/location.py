"""Where in a file or a text an error arose. Invariant: an error keeps its class; only its message gains the place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from workbench.errors import FormatError, LegalityError, WorkbenchError


def at_place(error: WorkbenchError, place: str) -> WorkbenchError:
    """Return the error with `place` before what it says, of the same class wherever its class allows it."""
    if isinstance(error, LegalityError):
        where = f"{place}: {error.node}" if error.node else place
        return type(error)(error.message, where, error.cure)
    if len(error.args) == 1 and isinstance(error.args[0], str):
        return type(error)(f"{place}: {error.args[0]}")
    return FormatError(f"{place}: {error}")


@contextmanager
def located(place: str) -> Iterator[None]:
    """Let every error of the workbench raised inside name `place`; nested places read from the outside inwards."""
    try:
        yield
    except WorkbenchError as error:
        placed = at_place(error, place)
        for note in getattr(error, "__notes__", ()):
            placed.add_note(note)
        raise placed from error.__cause__
