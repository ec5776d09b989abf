"""Measured rows as text and as Markdown: ours, every peer, what the hardware allows. Invariant: a loss stands like a win."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from workbench.records.measurements import geometric_mean, label_of

Row = Mapping[str, Any]


def text_table(rows: Sequence[Row]) -> str:
    """Return aligned lines: cold microseconds of ours and of the best peer, their ratio, the floor; then each row's peers."""
    width = max((len(label_of(row)) for row in rows), default=10)
    lines = [
        f"{'':{width}}  {'ours':>8}  {'best peer':>9}  {'ratio':>6}  {'floor':>7}  peers, us with the L2 cache cold"
    ]
    for row in rows:
        peers = ", ".join(f"{name} {_us(time)}" for name, time in sorted(row["peers"].items(), key=lambda one: one[1]))
        if row["refused"]:
            peers += f"; without a time: {', '.join(sorted(row['refused']))}"
        ratio = "-" if row["ratio"] is None else f"{row['ratio']:.2f}"
        lines.append(
            f"{label_of(row):{width}}  {_us(row['ours_us']):>8}  {_us(row['best_peer_us']):>9}  {ratio:>6}  "
            f"{_us(row['floor_us']):>7}  {peers}"
        )
    mean = geometric_mean(rows)
    if len(rows) > 1:
        lines.append(f"geometric mean of the ratios: {'none, a row lacks one' if mean is None else f'{mean:.3f}'}")
    return "\n".join(lines)


def markdown_table(rows: Sequence[Row]) -> str:
    """Return a Markdown table of the rows, with a line that says on what, when and with which versions they were taken."""
    head = "| program | ours, µs | best peer, µs | ratio | floor, µs | of the floor | error |"
    lines = [head, "|---|---|---|---|---|---|---|"]
    for row in rows:
        best = "-" if row["best_peer"] is None else f"{_us(row['best_peer_us'])} {row['best_peer']}"
        ratio = "-" if row["ratio"] is None else f"{row['ratio']:.2f}"
        ratio = f"**{ratio}**" if row["ratio"] is not None and row["ratio"] < 1 else ratio
        share = "-" if row["ours_us"] is None else f"{100 * row['floor_us'] / row['ours_us']:.0f}%"
        error = "-" if row["relative_error"] is None else f"{row['relative_error']:.1e}"
        ours = _us(row["ours_us"]) if row["correct"] else "not right"
        lines.append(f"| {label_of(row)} | {ours} | {best} | {ratio} | {_us(row['floor_us'])} | {share} | {error} |")
    mean = geometric_mean(rows)
    if mean is not None and len(rows) > 1:
        lines.append(f"| geometric mean | | | {mean:.2f} | | | |")
    return "\n".join([*lines, "", provenance_line(rows)])


def provenance_line(rows: Sequence[Row]) -> str:
    """Return one sentence with GPU, driver, versions, dates and commits of the rows."""
    if not rows:
        return "No rows."
    versions = rows[-1]["versions"]
    shown = ", ".join(f"{name} {versions[name]}" for name in ("torch", "triton", "cupy", "python") if name in versions)
    dates = sorted(row["date"] for row in rows)
    when = dates[0][:10] if dates[0][:10] == dates[-1][:10] else f"{dates[0][:10]} to {dates[-1][:10]}"
    gpus = ", ".join(dict.fromkeys(f"{row['gpu']}, driver {row['driver']}" for row in rows))
    commits = ", ".join(dict.fromkeys(str(row["commit"])[:12] for row in rows if row.get("commit")))
    return (
        f"One {gpus}; {shown}; {when}" + (f"; commit {commits}" if commits else "") + ". "
        "Median of CUDA-graph replays, L2 cache cold, float16, peers in the same process."
    )


def _us(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}" if value < 10 else f"{value:.1f}"
