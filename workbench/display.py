"""The hook through which rich display is registered. Invariant: classes below the views know no HTML; the doors do.

A class below rank 10 mixes in `Displayed` and gives `describe()`; `workbench/__init__` registers the richer forms once.
"""

from __future__ import annotations

from collections.abc import Callable

Formatter = Callable[[object], str]
_FORMATTERS: dict[str, list[tuple[type, Formatter]]] = {"image/svg+xml": [], "text/html": [], "text/latex": []}
_LOADERS: list[Callable[[], None]] = []


def register_formatter(mime: str, cls: type, formatter: Formatter) -> None:
    """Let objects of `cls` show themselves as `mime` through `formatter`. Raises: KeyError for an unknown mime type."""
    _FORMATTERS[mime] = [entry for entry in _FORMATTERS[mime] if entry[0] is not cls] + [(cls, formatter)]


def register_loader(loader: Callable[[], None]) -> None:
    """Call `loader` once, before the first rich display; it registers formatters (so that importing stays light)."""
    _LOADERS.append(loader)


class Displayed:
    """Mix-in for objects that notebooks show: text through `describe()`, more where a formatter is registered."""

    __slots__ = ()

    def describe(self) -> str:
        """Return the plain text form."""
        return repr(self)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """Return every registered form of the object, text always (IPython's display protocol)."""
        while _LOADERS:
            _LOADERS.pop()()
        bundle = {"text/plain": self.describe()}
        for mime, entries in _FORMATTERS.items():
            for cls, formatter in entries:
                if isinstance(self, cls):
                    bundle[mime] = formatter(self)
        return bundle
