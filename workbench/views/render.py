"""How a DOT text becomes an SVG text. Invariant: it works with no system package; without `dot`, graphviz-pure draws."""

from __future__ import annotations

import shutil
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from workbench.errors import DrawingError

_BUILT_IN = "graphviz-pure"


def drawing_program() -> str:
    """Return the program that draws: `dot` from the PATH, else the one that the package graphviz-pure brings.

    Raises: DrawingError when there is neither.
    """
    on_path = shutil.which("dot")
    if on_path is not None:
        return on_path
    beside = Path(sysconfig.get_path("scripts"))
    found = shutil.which(_BUILT_IN, path=str(beside)) or shutil.which(_BUILT_IN)
    if found is None:
        raise DrawingError(
            f"nothing draws graphs here: no `dot` on the PATH and no {_BUILT_IN} in {beside}; "
            f"`pip install {_BUILT_IN}`, or use the text form (`print(graph.describe())`)"
        )
    return found


def render_dot(source: str) -> str:
    """Return the SVG of a graph in the DOT language, as the drawing program writes it.

    Raises: DrawingError when there is no drawing program or it refuses the source.
    """
    import graphviz  # here, since only drawing needs it

    with _program(drawing_program()):
        try:
            drawn: bytes = graphviz.pipe("dot", "svg", source.encode(), quiet=True)
        except graphviz.CalledProcessError as error:
            reason = (error.stderr or b"").decode(errors="replace").strip().splitlines()
            raise DrawingError(f"the drawing program failed: {reason[0] if reason else error}") from error
    return drawn.decode()


@contextmanager
def _program(path: str) -> Iterator[None]:
    """Let the `graphviz` package call this program while a picture is drawn; it has no argument for that."""
    from graphviz.backend import dot_command

    before = dot_command.DOT_BINARY
    dot_command.DOT_BINARY = Path(path)
    try:
        yield
    finally:
        dot_command.DOT_BINARY = before
