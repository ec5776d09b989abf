"""Pieces of HTML that panels are made of. Invariant: every text is escaped here, so a caller passes plain words."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from workbench.views.graph_labels import printable


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table. Attributes: text; is_number: to the right; css: further classes; html: used instead of the text."""

    text: str = ""
    is_number: bool = False
    css: str = ""
    html: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """A row. Attributes: cells; css; action: attributes of `setting` or `doing`, "" for none; link: names it stands for."""

    cells: Sequence[Cell | str]
    css: str = ""
    action: str = ""
    link: str = ""


def words(text: str) -> str:
    """Return a text escaped for HTML, control characters shown."""
    return escape(printable(text))


def lines(text: str) -> str:
    """Return a text of several lines, escaped."""
    return "<br>".join(words(line) for line in text.split("\n"))


def pre(text: str) -> str:
    """Return a text of several lines as it stands."""
    return f"<pre>{chr(10).join(words(line) for line in text.split(chr(10)))}</pre>"


def paragraph(text: str, css: str = "") -> str:
    """Return a paragraph."""
    return f'<p class="{css}">{lines(text)}</p>' if css else f"<p>{lines(text)}</p>"


def setting(trait: str, value: object) -> str:
    """Return attributes that set a trait of the widget when the element is clicked."""
    return f'data-set="{escape(trait)}" data-value="{escape(json.dumps(value))}"'


def doing(command: str, value: object = None) -> str:
    """Return attributes that call a command of the widget when the element is clicked."""
    return f'data-do="{escape(command)}" data-value="{escape(json.dumps(value))}"'


def table(head: Sequence[Cell | str], rows: Iterable[Row], css: str = "") -> str:
    """Return a table. A row with an action can be reached by the keyboard."""
    top = "".join(_cell(cell, "th") for cell in head)
    body = "".join(_row(row) for row in rows)
    return f'<table class="{css}"><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>'


def _row(row: Row) -> str:
    attributes = [f'class="{row.css}"'] if row.css else []
    if "wb-now" in row.css:
        attributes.append("data-into-view")
    if row.action:
        attributes += [row.action, 'tabindex="0"']
    if row.link:
        attributes.append(f'data-link="{escape(row.link)}"')
    return f"<tr {' '.join(attributes)}>{''.join(_cell(cell, 'td') for cell in row.cells)}</tr>"


def _cell(cell: Cell | str, tag: str) -> str:
    if isinstance(cell, str):
        return f"<{tag}>{words(cell)}</{tag}>"
    css = " ".join(part for part in ("wb-number" if cell.is_number else "", cell.css) if part)
    return f"<{tag}{f' class={chr(34)}{css}{chr(34)}' if css else ''}>{cell.html or words(cell.text)}</{tag}>"


def number(text: object, css: str = "") -> Cell:
    """Return a cell whose text stands to the right; whole numbers get commas."""
    return Cell(f"{text:,}" if isinstance(text, int) else str(text), is_number=True, css=css)


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Return names and texts as a table without a head; pairs with an empty text are left out."""
    rows = (Row((Cell(name, css="wb-quiet"), text)) for name, text in pairs if text)
    return f"<table><tbody>{''.join(_row(row) for row in rows)}</tbody></table>"


def showing(shown: int, total: int, what: str, cure: str) -> str:
    """Return the notice of a cut, "" where nothing is cut: `showing 400 of 12,310 nodes; raise tree_limit`."""
    return f"showing {shown:,} of {total:,} {what}; {cure}" if shown < total else ""
