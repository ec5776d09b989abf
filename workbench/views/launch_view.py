"""A superoptimization as panels: how far it is, the candidates with their reasons, what was left out, times side by side.

Invariant: times say whether they were measured, modelled or replayed; what is not listed is counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from workbench.pipeline.candidate import Candidate, Refusal
from workbench.pipeline.progress import Stage
from workbench.pipeline.result import Result
from workbench.views.markup import Cell, Row, doing, number, paragraph, showing, table, words


@dataclass(frozen=True, slots=True)
class Timed:
    """A time to draw. Attributes: label; time_us; how: "measured", "modelled", "replayed", "bound"; is_ours."""

    label: str
    time_us: float
    how: str
    is_ours: bool


def progress_html(stage: Stage | None, done: Sequence[str], note: str) -> str:
    """Return how far a run is: the stage's bar with its counts, and the stages that are done."""
    if stage is None:
        return paragraph(note) if note else ""
    share = min(100.0, 100.0 * stage.done / max(stage.total, 1))
    bar = (
        f'<div class="wb-progress" role="progressbar" aria-valuenow="{share:.0f}" aria-valuemin="0" aria-valuemax="100">'
        f'<div style="width:{share:.1f}%"></div></div>'
    )
    told = f"{stage.name}: {stage.done:,} of {stage.total:,}" + (f", {stage.note}" if stage.note else "")
    before = "".join(f'<span class="wb-tag">{words(name)} ✓</span>' for name in done if name != stage.name)
    return f"{paragraph(told)}{bar}<p>{before}</p>" + (paragraph(note, "wb-quiet") if note else "")


def candidates_html(result: Result, chosen: int, *, limit: int) -> str:
    """Return the candidates as rows to choose, each with why it may be trusted and why it is not the best."""
    rows = []
    for place, one in enumerate(result.candidates[:limit]):
        certificate = (
            "proved equal" if one.certificate.proved else f"equal, error ≤ {one.certificate.error_bound or 0:.1e}"
        )
        time = f"{one.time_us:.2f} us"
        how = "measured" if one.measured is not None else "modelled"
        rows.append(
            Row(
                (number(place), Cell(time, is_number=True), how, _launches(one), certificate, one.origin, _why(result, place)),
                "wb-now" if place == chosen else "", doing("choose", place),
            )
        )  # fmt: skip
    head = (Cell("#", is_number=True), Cell("time", is_number=True), "how", "launch", "certificate", "from", "why")
    notice = showing(min(limit, len(result.candidates)), len(result.candidates), "candidates", "raise `limit`")
    return table(head, rows) + (paragraph(notice, "wb-quiet") if notice else "")


def _launches(one: Candidate) -> str:
    told = []
    for entry in one.schedule:
        grid = entry["grid"]
        assert isinstance(grid, list)
        last = max((axis for axis, count in enumerate(grid) if count > 1), default=0)
        told.append(f"{'×'.join(map(str, grid[: last + 1]))} blocks, loop {entry['loop']}, {entry['threads']} threads")
    return "; ".join(told) or f"{len(one.graph.nodes)} library kernels"


def _why(result: Result, place: int) -> str:
    one, best = result.candidates[place], result.candidates[0]
    if place == 0:
        return f"fastest; {result.gap:.0%} above the lower bound {result.lower_bound.total_us:.2f} us"
    ours, theirs = best.cost.parts, one.cost.parts
    gaps = sorted(((theirs.get(n, 0.0) - ours.get(n, 0.0), n) for n in {*ours, *theirs}), reverse=True)
    worst = ", ".join(f"{name} +{gap:.2f} us" for gap, name in gaps[:2] if gap > 0.005)
    return f"{one.time_us / best.time_us:.2f}× the best: {worst or 'as fast by the model'}"


def refused_html(refused: Sequence[Refusal], counts: Mapping[str, int], *, limit: int) -> str:
    """Return what was left out: counts by rule, then each with its reason."""
    total = sum(counts.values())
    rows = [Row((stage, number(count))) for stage, count in sorted(counts.items(), key=lambda item: -item[1])]
    body = table(("left out by", Cell("how many", is_number=True)), rows)
    listed = [Row((one.stage, one.what, one.reason, number(one.count))) for one in refused[:limit]]
    notice = showing(len(listed), len(refused), "entries", "read `result.refused` for all")
    details = table(("stage", "what", "why", Cell("times", is_number=True)), listed)
    more = paragraph(notice, "wb-quiet") if notice else ""
    return f"{body}<details><summary>each of the {total:,} with its reason</summary>{details}{more}</details>"


def times_svg(times: Sequence[Timed], baseline: float | None) -> str:
    """Return times as bars, the shortest first; each says how it was got, and how often faster than the baseline it is."""
    if not times:
        return ""
    ranked = sorted(times, key=lambda one: one.time_us)
    most = ranked[-1].time_us
    parts = []
    for line, one in enumerate(ranked):
        y = 4 + 22 * line
        long = max(1.0, 200 * one.time_us / most)
        speedup = f", {baseline / one.time_us:.2f}×" if baseline else ""
        label = one.label if len(one.label) <= 26 else one.label[:25] + "…"
        css = "wb-bar-good" if one.is_ours else "wb-bar-bad"
        outline = ' fill-opacity="0.45"' if one.how != "measured" and one.how != "replayed" else ""
        parts.append(
            f'<text x="164" y="{y + 13}" font-size="11.5" text-anchor="end" font-weight="{600 if one.is_ours else 400}">'
            f'<title>{words(one.label)}</title>{words(label)}</text><rect class="{css}"{outline} x="170" y="{y + 2}" '
            f'width="{long:.1f}" height="15" rx="2"/><text x="{176 + long:.1f}" y="{y + 13}" font-size="11.5">'
            f"{one.time_us:.2f} us {one.how}{speedup}</text>"
        )
    height = 8 + 22 * len(ranked)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="times" viewBox="0 0 540 {height}" width="540" '
        f'height="{height}">{"".join(parts)}</svg>'
    )
