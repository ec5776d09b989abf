"""Two graphs side by side: what differs, first in words, then line by line. Invariant: equal graphs show no difference."""

from __future__ import annotations

import re
from difflib import SequenceMatcher

from workbench.ugraph.kernel_graph import KernelGraph
from workbench.views.markup import paragraph, words

_PIECES = re.compile(r"\w+|\s+|[^\w\s]")


def difference_in_words(first: KernelGraph, second: KernelGraph) -> str:
    """Return how two graphs relate: equal, another schedule, or another structure."""
    if first.hash == second.hash:
        return "the same graph"
    if first.structure_hash == second.structure_hash:
        return "the same structure with other sizes, maps or launch counts"
    return "different structures"


def diff_lines(first: KernelGraph, second: KernelGraph) -> list[tuple[str, str, str]]:
    """Return rows (mark, line of the first, line of the second); marks: "" same, "~" changed, "-" only first, "+" only second."""
    left, right = first.describe().split("\n"), second.describe().split("\n")
    rows: list[tuple[str, str, str]] = []
    for tag, a, b, c, d in SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        ours, theirs = left[a:b], right[c:d]
        if tag == "equal":
            rows += [("", one, two) for one, two in zip(ours, theirs, strict=True)]
            continue
        for place in range(max(len(ours), len(theirs))):
            one = ours[place] if place < len(ours) else ""
            two = theirs[place] if place < len(theirs) else ""
            rows.append(("~" if one and two else "-" if one else "+", one, two))
    return rows


def diff_html(first: KernelGraph, second: KernelGraph) -> str:
    """Return the comparison as HTML."""
    rows = diff_lines(first, second)
    body = "".join(_row(mark, one, two) for mark, one, two in rows)
    count = sum(1 for mark, _, _ in rows if mark)
    head = paragraph(f"{difference_in_words(first, second)}; {count} of {len(rows)} lines differ")
    titles = "".join(f"<th>{words(graph.name or 'graph')} {graph.hash[:10]}</th>" for graph in (first, second))
    return f'{head}<table class="wb-diff"><thead><tr><th></th>{titles}</tr></thead><tbody>{body}</tbody></table>'


def _row(mark: str, one: str, two: str) -> str:
    left, right = changed_words(one, two) if mark == "~" else ([(one, False)], [(two, False)])
    old, fresh = ("wb-old" if mark in ("-", "~") else ""), ("wb-fresh" if mark in ("+", "~") else "")
    return (
        f'<tr class="{"wb-differ" if mark else ""}"><td>{mark}</td><td class="{old}">{_code(left)}</td>'
        f'<td class="{fresh}">{_code(right)}</td></tr>'
    )


def changed_words(one: str, two: str) -> tuple[list[tuple[str, bool]], list[tuple[str, bool]]]:
    """Return two lines as pieces, each with whether the other line lacks it."""
    left, right = _PIECES.findall(one), _PIECES.findall(two)
    sides: tuple[list[tuple[str, bool]], list[tuple[str, bool]]] = ([], [])
    for tag, a, b, c, d in SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        for side, piece in ((0, "".join(left[a:b])), (1, "".join(right[c:d]))):
            if piece:
                sides[side].append((piece, tag != "equal"))
    return sides


def _code(pieces: list[tuple[str, bool]]) -> str:
    return f"<code>{''.join(f'<b>{words(text)}</b>' if differs else words(text) for text, differs in pieces)}</code>"
