"""The answer of a superoptimization as HTML: a fragment for notebooks, a whole page that opens without a server.

Invariant: no script, nothing fetched, every text escaped; a table that is cut says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from workbench.cost.time_model import PARTS
from workbench.pipeline.candidate import Candidate
from workbench.pipeline.result import Result
from workbench.units import counted
from workbench.views.html import graph_html
from workbench.views.palette import PART_COLOURS
from workbench.views.verdict_html import verdict_html

MAX_ROWS = 200
BAR_WIDTH, BAR_HEIGHT = 640, 26

_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 76rem; margin: 2rem auto; padding: 0 1.5rem; }}
h1 {{ font-size: 1.5rem; margin-bottom: .2rem; }} h2 {{ font-size: 1.15rem; margin-top: 2rem; }}
table {{ border-collapse: collapse; }} td, th {{ padding: .2rem .8rem .2rem 0; text-align: left; vertical-align: top; }}
th {{ border-bottom: 1px solid #8888; font-weight: 600; }} td.number, th.number {{ text-align: right; }}
tr.best td {{ font-weight: 600; }} pre {{ overflow-x: auto; padding: .8rem; border: 1px solid #8886; border-radius: 6px; }}
.big {{ font-size: 1.25rem; margin: .4rem 0 1rem; }} .quiet {{ opacity: .7; }}
</style></head><body>
{body}
</body></html>
"""


def result_html(result: Result) -> str:
    """Return the answer as one HTML element: the best candidate, its cost, the others, what was refused."""
    return f'<div class="workbench-result">{"".join(_summary(result))}{_candidates(result)}{_refused(result)}</div>\n'


def candidate_html(candidate: Candidate) -> str:
    """Return a candidate as one HTML element: its time by parts, its certificate, its graph."""
    title = f"{candidate.time_us:.2f} us ({'measured' if candidate.measured is not None else 'modelled'}), {candidate.origin}"
    return (
        f'<div class="workbench-candidate"><p><b>{escape(title)}</b></p>{cost_bar(list(candidate.cost.parts.items()))}'
        f"{verdict_html(candidate.certificate)}{_passes(candidate)}{graph_html(candidate.graph)}</div>\n"
    )


def report_html(result: Result) -> str:
    """Return the answer as a page of its own, with the best graph's picture, certificate and source."""
    name = result.program.name or "program"
    body = [f"<h1>{escape(name)} on {escape(result.device)}</h1>", *_summary(result)]
    if result.candidates:
        best = result.best
        body += ["<h2>The µGraph</h2>", graph_html(best.graph)]
        body += ["<h2>What the optimizer's passes did</h2>", _passes(best)]
        body += ["<h2>Why it may be trusted</h2>", verdict_html(best.certificate)]
    body += ["<h2>Candidates</h2>", _candidates(result), "<h2>Left out, and why</h2>", _refused(result)]
    body += ["<h2>The space</h2>", f"<pre>{escape(result.space.describe())}</pre>"]
    body += ["<h2>The program</h2>", graph_html(result.program)]
    if result.candidates:
        source = escape(result.best.source())
        body.append(
            f"<h2>CUDA</h2><details><summary>the kernels, self-contained</summary><pre>{source}</pre></details>"
        )
    return _PAGE.format(title=escape(f"{name} on {result.device}"), body="\n".join(body))


def _passes(candidate: Candidate) -> str:
    """Return what every pass did: its headline, what it changed, what the verifier said."""
    rows = []
    for note in candidate.passes:
        changes = "<br>".join(escape(line) for line in note.changes)
        _, _, headline = note.headline.partition(": ")
        rows.append(f"<tr><td>{escape(note.name)}</td><td>{escape(headline)}</td><td>{changes}</td></tr>")
    head = "<tr><th>pass</th><th>in numbers</th><th>in words</th></tr>"
    return f"<table><thead>{head}</thead><tbody>{''.join(rows)}</tbody></table>" if rows else "<p>none</p>"


def cost_bar(parts: Sequence[tuple[str, float]], *, bound_us: float | None = None) -> str:
    """Return a bar of the parts of a time, in microseconds, as SVG; a line marks the lower bound."""
    shown = [(name, value) for name, value in parts if value > 0]
    total = sum(value for _, value in shown)
    if not total:
        return ""
    scale = BAR_WIDTH / max(total, bound_us or 0.0)
    x, bars, keys = 0.0, [], []
    for number, (name, value) in enumerate(shown):
        place = PARTS.index(name) if name in PARTS else number  # a part has one colour in every bar
        colour = PART_COLOURS[place % len(PART_COLOURS)]
        width = value * scale
        label = f"{name}: {value:.2f} us, {value / total:.0%}"
        bars.append(
            f'<rect x="{x:.1f}" y="8" width="{width:.1f}" height="{BAR_HEIGHT}" fill="{colour}">'
            f"<title>{escape(label)}</title></rect>"
        )
        column, row = number % 3, number // 3
        keys.append(
            f'<rect x="{column * 215}" y="{BAR_HEIGHT + 22 + row * 20}" width="11" height="11" fill="{colour}"/>'
            f'<text x="{column * 215 + 17}" y="{BAR_HEIGHT + 32 + row * 20}" font-size="12" fill="currentColor">'
            f"{escape(label)}</text>"
        )
        x += width
    mark = ""
    if bound_us is not None:
        at = bound_us * scale
        mark = (
            f'<line x1="{at:.1f}" x2="{at:.1f}" y1="2" y2="{BAR_HEIGHT + 14}" stroke="currentColor" stroke-width="2" '
            f'stroke-dasharray="4 3"><title>lower bound {bound_us:.2f} us</title></line>'
        )
    height = BAR_HEIGHT + 24 + 20 * ((len(shown) + 2) // 3)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-2 0 {BAR_WIDTH + 6} {height}" width="{BAR_WIDTH}" '
        f'role="img" aria-label="parts of {total:.2f} us">{"".join(bars)}{mark}{"".join(keys)}</svg>'
    )


def _summary(result: Result) -> list[str]:
    if not result.candidates:
        return ["<p class='big'>Nothing was found.</p>"]
    best = result.best
    how = "measured" if best.measured is not None else "modelled"
    bound = result.lower_bound.total_us
    notes = [
        f"{counted(result.structures, 'structure')} from {counted(result.states, 'state')}, "
        f"{counted(len(result.candidates), 'candidate')}, "
        f"{sum(refusal.count for refusal in result.refused):,} left out, {result.seconds:.1f} s"
    ]
    if result.interrupted:
        notes.append("interrupted: the same call continues")
    if result.cached:
        notes.append("from an earlier run")
    modelled = f"<p>Modelled {best.cost_us:.2f} us:</p>" if best.measured is not None else ""
    return [
        f"<p class='big'><b>{best.time_us:.2f} us</b> ({how}); no kernel can take less than {bound:.2f} us "
        f"(dashed), {result.gap:.0%} above it</p>",
        modelled,
        f"<div>{cost_bar(list(best.cost.parts.items()), bound_us=bound)}</div>",
        f"<p class='quiet'>{escape('; '.join(notes))}</p>",
    ]


def _candidates(result: Result) -> str:
    measured = any(one.measured is not None for one in result.candidates)
    head = [
        "",
        "us (model)",
        "kernels",
        "grid",
        "loop",
        "cluster",
        "threads",
        "stages",
        "certificate",
        "origin",
        "hash",
    ]
    if measured:
        head.insert(1, "us (measured)")
    rows = [
        _row(_cells(number, one, measured=measured), is_best=number == 0)
        for number, one in enumerate(result.candidates[:MAX_ROWS])
    ]
    cut = len(result.candidates) - MAX_ROWS
    note = f"<p>showing {MAX_ROWS} of {len(result.candidates)}</p>" if cut > 0 else ""
    header = "".join(f"<th>{escape(title)}</th>" for title in head)
    return f"<table><thead><tr>{header}</tr></thead><tbody>{''.join(rows)}</tbody></table>{note}"


def _cells(number: int, one: Candidate, *, measured: bool) -> list[str]:
    certificate = one.certificate
    trust = "proved" if certificate.proved else f"{certificate.kind}, {certificate.error_bound or 0:.1e}"
    blocks = [node.block for node in one.graph.graph_defined]
    cells = [
        str(number),
        f"{one.cost_us:.2f}",
        str(len(one.cost.kernels)),
        "; ".join("×".join(map(str, block.grid_dims)) for block in blocks),
        "; ".join(str(block.forloop_range) for block in blocks),
        "; ".join(str(choice.cluster) for choice in one.choices),
        "; ".join(str(choice.threads) for choice in one.choices),
        "; ".join(str(choice.stages) for choice in one.choices),
        trust,
        one.origin,
        one.graph.hash[:12],
    ]
    if measured:
        cells.insert(1, f"{one.measured.cold_us:.2f}" if one.measured is not None else "")
    return cells


def _row(cells: Sequence[str], *, is_best: bool = False) -> str:
    style = ' class="best"' if is_best else ""
    return f"<tr{style}>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"


def _refused(result: Result) -> str:
    if not result.refused:
        return "<p>nothing</p>"
    shown = result.refused[:MAX_ROWS]
    rows = [_row([one.stage, f"{one.count:,}", one.what, one.reason]) for one in shown]
    cut = len(result.refused) - len(shown)
    note = f"<p>showing {len(shown)} of {len(result.refused)}</p>" if cut else ""
    return (
        "<details><summary>"
        + escape(", ".join(f"{reason} {count:,}" for reason, count in result.refused_counts.items()))
        + "</summary><table><thead><tr><th>stage</th><th>how many</th><th>what (first of them)</th><th>why</th></tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table>{note}</details>"
    )
