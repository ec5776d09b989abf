"""The panels of a stepper as HTML: one event, the tree, the counts by rule, two runs side by side.

Invariant: the words are those of the view data; what is cut is said in the panel itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from workbench.units import counted
from workbench.views.formula import mathml
from workbench.views.markup import Cell, Row, doing, facts, number, paragraph, pre, showing, table, words
from workbench.views.search_event import EventView, named
from workbench.views.search_tree import GLYPHS, OTHERS, PRUNED, REFUSED, SearchTree, TreeRow

_BAR, _LINE, _LABEL = 190, 22, 170


def event_html(view: EventView, axes: str = "") -> str:
    """Return what an event says: the operator, the expression, the goal with the matched part marked."""
    rule = f'<span class="wb-drops">dropped by {words(view.rule)}</span>' if view.rule else ""
    state = '<span class="wb-keeps">kept</span>' if view.kind == "Extended" else rule or words(view.kind)
    parts = [f'<p class="wb-event">{words(view.operator or view.text)} · {state}</p>']
    if view.latex:
        parts.append(f'<div data-role="value" aria-label="{words(view.expression)}">{mathml(view.latex)}</div>')
    elif view.expression:
        parts.append(f'<p data-role="value"><code>{words(view.expression)}</code></p>')
    if view.goal_latex:
        matched = "\\boxed" in view.goal_latex
        note = "the program, with the part that it matches marked" if matched else "the program; no part of it matches"
        parts.append(paragraph(note, "wb-quiet"))
        parts.append(f'<div aria-label="{words(view.goal)}">{mathml(view.goal_latex)}</div>')
    distance = "" if view.distance is None else f"at least {counted(view.distance, 'operator')}"
    told = [
        ("prefix", view.prefix),
        ("to the goal", distance),
        ("because", view.evidence),
        ("axes", axes if view.latex else ""),
    ]
    parts.append(facts(told))
    if view.graph is not None:
        parts.append(pre(view.graph.describe()))
    return "".join(parts)


def verdicts_html(view: EventView) -> str:
    """Return every pruner's verdict with its evidence."""
    if not view.verdicts:
        return paragraph("this event is of no single extension, so no pruner was asked", "wb-quiet")
    rows = [
        Row(
            (
                says.pruner,
                Cell("keeps ✓" if says.keeps else "drops ×", css="wb-keeps" if says.keeps else "wb-drops"),
                says.why,
            )
        )
        for says in view.verdicts
    ]
    return table(("pruner", "verdict", "evidence"), rows)


def tree_html(
    tree: SearchTree,
    position: int,
    *,
    limit: int,
    total: int,
    label_of: Callable[[str], str] = str,
    extents: Mapping[str, str] | None = None,
) -> tuple[str, str]:
    """Return the tree around an event as rows to click, and the notice of what is left out ("" if nothing).

    limit: rows at most; total: events that there are; label_of: the operator of a prefix, by its name; extents: what stands
    for the placeholder numbers of a search by prefixes.
    """
    rows, nodes = tree.rows(position, limit=limit)
    body = "".join(_tree_row(row, named(row.label or label_of(row.name), extents or {})) for row in rows)
    shown = sum(row.count for row in rows)
    notices = [showing(shown, nodes, "nodes of the tree", "click a node to open it, or raise tree_limit")]
    if tree.read < total:
        notices.append(f"the tree knows {tree.read:,} of {total:,} events so far")
    return f'<div class="wb-tree" role="tree">{body}</div>', "; ".join(filter(None, notices))


def _tree_row(row: TreeRow, label: str) -> str:
    now = ' class="wb-now" data-into-view aria-selected="true"' if row.is_now else ""
    css = "wb-drops" if row.state in (PRUNED, REFUSED) else "wb-keeps"
    rule = f' <span class="wb-quiet">{words(row.rule)}</span>' if row.rule else ""
    if row.label == OTHERS:
        label = f"{counted(row.count, 'other')} dropped"
    glyph = f'<span class="{css}" title="{row.state}">{GLYPHS[row.state]}</span>'
    return (
        f'<div role="treeitem" tabindex="{0 if row.is_now else -1}"{now} style="padding-left:{row.depth * 14 + 4}px" '
        f"{doing('jump', row.event)}>{glyph} {words(label)}{rule}</div>"
    )


def counts_svg(kept: int, dropped: Mapping[str, int]) -> str:
    """Return kept and dropped extensions by rule as bars, each with its number."""
    bars = [("kept", kept, True)] + [(rule, n, False) for rule, n in sorted(dropped.items(), key=lambda item: -item[1])]
    most = max((n for _, n, _ in bars), default=1) or 1
    height, width = len(bars) * _LINE + 4, _LABEL + _BAR + 80
    parts = []
    for place, (name, n, is_kept) in enumerate(bars):
        y = place * _LINE + 3
        long = max(1.0 if n else 0.0, _BAR * n / most)
        label = name if len(name) <= 26 else name[:25] + "…"
        parts.append(
            f'<text x="{_LABEL - 6}" y="{y + 12}" font-size="12" text-anchor="end"><title>{words(name)}</title>'
            f'{words(label)}</text><rect class="{"wb-bar-good" if is_kept else "wb-bar-bad"}" x="{_LABEL}" y="{y}" '
            f'width="{long:.1f}" height="15" rx="2"/><text x="{_LABEL + long + 6:.1f}" y="{y + 12}" font-size="12">{n:,}</text>'
        )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="kept and dropped by rule" '
        f'viewBox="0 0 {width} {height}" width="{width}" height="{height}">{"".join(parts)}</svg>'
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """One run for a comparison. Attributes: title; settings, in words; events; kept; dropped; complete; verified; ended."""

    title: str
    settings: str
    events: int
    kept: int
    dropped: Mapping[str, int]
    complete: int
    verified: int
    ended: str


def runs_html(runs: Sequence[RunSummary], parting: str = "") -> str:
    """Return runs side by side, one a column, and where the last two part."""
    if len(runs) < 2:
        return ""
    rules = dict.fromkeys(rule for run in runs for rule in run.dropped)
    lines: list[tuple[str, list[Cell | str]]] = [
        ("settings", [run.settings for run in runs]),
        ("state", [run.ended for run in runs]),
        ("events", [number(run.events) for run in runs]),
        ("kept", [number(run.kept) for run in runs]),
        ("complete graphs", [number(run.complete) for run in runs]),
        ("verified", [number(run.verified) for run in runs]),
    ]
    dropped: list[tuple[str, list[Cell | str]]] = [
        (f"dropped: {rule}", [number(run.dropped.get(rule, 0)) for run in runs]) for rule in rules
    ]
    lines[4:4] = dropped
    body = table(
        ("", *(run.title for run in runs)), (Row((Cell(name, css="wb-quiet"), *cells)) for name, cells in lines)
    )
    return body + (paragraph(parting) if parting else "")


def parting(first: SearchTree, second: SearchTree) -> str:
    """Return in words what two runs decided differently: prefixes that one kept and the other dropped."""
    only_first = [n for n in second.nodes.values() if n.state == PRUNED and _kept(first, n.name)]
    only_second = [n for n in first.nodes.values() if n.state == PRUNED and _kept(second, n.name)]
    if not only_first and not only_second:
        return "of the prefixes that both met, both decided the same"
    told = []
    for which, nodes in (
        ("the first run kept and the second dropped", only_first),
        ("the second run kept and the first dropped", only_second),
    ):
        if nodes:
            first_of = nodes[0]
            many = f"{len(nodes):,} prefixes, the first is" if len(nodes) > 1 else "one prefix,"
            told.append(f"{which}: {many} {first_of.name} ({first_of.rule})")
    return "; ".join(told)


def _kept(tree: SearchTree, name: str) -> bool:
    node = tree.nodes.get(name)
    return node is not None and node.state != PRUNED
