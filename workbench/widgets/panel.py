"""What every widget is: controls, panels of HTML, keys and a status line, drawn by one small script.

Invariant: whatever is on the page is in a trait, so it is read and set from Python, tested without a browser, and shown
as a static twin where there is no kernel. Nothing is fetched: script and styles travel with the widget.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any
from uuid import uuid4

import anywidget
import traitlets

from workbench.errors import UsageError, WorkbenchError
from workbench.views.markup import words
from workbench.views.panel_style import colour_rules

Spec = dict[str, Any]
_STATIC = files("workbench.widgets") / "static"
SETTLE_S = 1.0
"""Seconds that the static twin waits, at most, for work that is nearly done; the live widget is on the page before."""
STYLES = colour_rules() + (_STATIC / "panel.css").read_text(encoding="utf-8")


def button(do: str, label: str, *, value: object = None, hint: str = "", **more: object) -> Spec:
    """Return a button that calls a command."""
    return {"id": f"{do}:{value}", "kind": "button", "do": do, "value": value, "label": label, "hint": hint, **more}


def field(kind: str, trait: str, label: str, **more: object) -> Spec:
    """Return a control for a trait: "range", "number", "check", "select", "text" or "area"."""
    return {"id": trait, "kind": kind, "trait": trait, "label": label, **more}


def next_line() -> Spec:
    """Return what starts a new line of controls."""
    return {"id": "break", "kind": "break"}


def pane(name: str, title: str = "", *, grow: int = 1, basis: int = 260, height: int | None = None) -> Spec:
    """Return a place for a panel. grow, basis: share and least width; height: pixels after which it scrolls."""
    return {"id": name, "title": title, "grow": grow, "basis": basis, "height": height}


class Panel(anywidget.AnyWidget):
    """A widget made of panels; its subclasses say what stands in them."""

    _esm = (_STATIC / "panel.js").read_text(encoding="utf-8")
    _css = STYLES

    title = traitlets.Unicode().tag(sync=True)
    status = traitlets.Unicode().tag(sync=True)
    notice = traitlets.Unicode().tag(sync=True)
    theme = traitlets.Enum(("auto", "light", "dark"), "auto").tag(sync=True)
    selected = traitlets.Unicode().tag(sync=True)
    controls: traitlets.List[Spec] = traitlets.List().tag(sync=True)
    layout_rows: Sequence[Sequence[Spec]] = ()
    panels = traitlets.Dict().tag(sync=True)
    shortcuts = traitlets.Dict().tag(sync=True)
    command = traitlets.Dict().tag(sync=True)
    twin = traitlets.Unicode().tag(sync=True)
    rows: traitlets.List[list[Spec]] = traitlets.List().tag(sync=True)

    def __init__(self, **values: object) -> None:
        """Set up what all share."""
        self._guard = threading.RLock()
        self._drawing = 0
        self.is_closed = False
        super().__init__(twin=uuid4().hex, rows=[list(row) for row in self.layout_rows], **values)
        self.observe(self._obey, "command")

    # ------------------------------------------------------------------------------------------------------- commands
    def _obey(self, change: Mapping[str, Any]) -> None:
        asked = change["new"]
        if not asked or self.is_closed:
            return
        action = getattr(self, f"do_{asked.get('do')}", None)
        if action is None:
            self.status = f"unknown command {asked.get('do')!r}"
            return
        try:
            value = asked.get("value")
            action() if value is None else action(value)
        except (WorkbenchError, OSError) as error:
            self.status = " ".join(str(error).split())

    def do_unselect(self) -> None:
        """Select nothing."""
        self.selected = ""

    def set_state(self, sync_data: dict[str, Any]) -> None:
        """Take values from the page; not while another thread draws.

        A command comes last and without the guard, since one that stops a thread must not keep it from its end.
        """
        plain = {name: value for name, value in sync_data.items() if name != "command"}
        with self._guard:
            super().set_state(plain)
        if "command" in sync_data:
            self.command = sync_data["command"]

    # -------------------------------------------------------------------------------------------------------- drawing
    def draw(self) -> None:
        """Draw everything; what is read for it does not change meanwhile, so a later drawing is never overwritten."""
        with self._guard:
            if not self.is_closed:
                self.draw_all()

    def draw_all(self) -> None:
        """Draw every panel; subclasses say how."""

    def put(self, panels: Mapping[str, str], **traits: object) -> None:
        """Change panels and traits at once; panels that are not named stay."""
        with self._guard:
            if self.is_closed:
                return
            changed = {name: html for name, html in panels.items() if self.panels.get(name) != html}
            with self.hold_sync():
                if changed:
                    self.panels = {**self.panels, **changed}
                for name, value in traits.items():
                    setattr(self, name, value)

    def settle(self, timeout_s: float) -> None:
        """Wait for what is drawn beside the notebook, but not longer; subclasses that draw so say for what."""

    # ------------------------------------------------------------------------------------------------- without a page
    def describe(self) -> str:
        """Return the widget as plain text."""
        return f"{type(self).__name__}: {self.title}. {self.status}"

    def __repr__(self) -> str:
        """Return one line."""
        return f"<{self.describe()}>"

    def static_html(self) -> str:
        """Return the static twin: the panels as they are now, without controls and script."""
        theme = "" if self.theme == "auto" else f' data-theme="{self.theme}"'
        rows = []
        for row in self.rows:
            cells = [self._static_pane(place) for place in row if self.panels.get(place["id"])]
            if cells:
                rows.append(f'<div class="wb-row">{"".join(cells)}</div>')
        notice = f'<div class="wb-notice">{words(self.notice)}</div>' if self.notice else ""
        return (
            f'<div class="wb-twin" data-twin="{self.twin}"><style>{STYLES}</style><div class="wb-root"{theme}>'
            f'<div class="wb-head"><span class="wb-title">{words(self.title)}</span>'
            f'<span class="wb-status">{words(self.status)}</span></div><div class="wb-body">{"".join(rows)}</div>{notice}'
            "</div></div>"
        )

    def _static_pane(self, place: Mapping[str, Any]) -> str:
        title = f'<h4 class="wb-pane-title">{words(place["title"])}</h4>' if place["title"] else ""
        high = f' style="max-height:{place["height"]}px"' if place["height"] else ""
        return (
            f'<section class="wb-pane" data-pane="{escape(place["id"])}" style="flex-grow:{place["grow"]};'
            f'flex-basis:{place["basis"]}px">{title}<div class="wb-content"{high}>{self.panels[place["id"]]}</div></section>'
        )

    def _repr_mimebundle_(self, **_: object) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the live view beside its static twin as HTML and as text."""
        bundle, metadata = super()._repr_mimebundle_() or ({}, {})
        return {**bundle, "text/plain": self.describe(), "text/html": self.static_html()}, metadata

    def _ipython_display_(self) -> None:
        """Show the live widget, and below it the twin, which the live one hides.

        Two outputs, since a reader picks one form of each: nbconvert takes a stored widget's state and then needs a script
        from the net to draw it; the twin is there for such readers too.
        """
        from IPython.display import display

        bundle, metadata = self._repr_mimebundle_()
        del bundle["text/html"]
        display(bundle, raw=True, metadata=metadata)  # type: ignore[no-untyped-call]
        self.settle(SETTLE_S)
        twin = self.static_html()
        display({"text/html": twin, "text/plain": ""}, raw=True)  # type: ignore[no-untyped-call]

    def close(self) -> None:
        """Free observers and threads, and take the widget off the page. Closing twice is harmless."""
        if not hasattr(self, "_guard"):  # it never came to be
            return
        with self._guard:
            if self.is_closed:
                return
            self.is_closed = True
        self.free()
        self.unobserve_all()
        super().close()

    def free(self) -> None:
        """Stop what the widget started; subclasses that start something say how."""


def expect(value: object, kinds: type | tuple[type, ...], what: str) -> None:
    """Raises: UsageError unless the value is of one of these kinds."""
    if not isinstance(value, kinds):
        names = kinds.__name__ if isinstance(kinds, type) else " or ".join(kind.__name__ for kind in kinds)
        raise UsageError(f"{what} is {type(value).__name__}; give {names}")
