"""Fit the `calibrated` preset of the cost model to the log of a tuning run on a GPU.

    python benchmarks/calibrate_cost.py [LOG.jsonl] [--candidates SO.jsonl] [--hold-out 3] [--out data/cost/calibrated.json]

Without a log the rows that ship are fitted again: `data/cost/h200_rows.jsonl`, from which `calibrated` comes; --rows names
another such file. --candidates adds what `gpu_superoptimize.py` wrote, each row counting threefold; --save keeps all rows as
such a file. --hold-out N fits without every N-th program and tells how well those left out are foreseen.

The log is what `gpu_tune.py` writes: one line per variant with its kernels as launched and its time with a cold L2 cache.
Prints rank correlation, median error, and per program which variant the model would have picked. Invariant: variants are
found by name among those of `gpu_variants.py`, so the log and the code must be of one version; what is not found is told.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu_variants import Variant, all_rows
from workbench.cost.calibration import Calibration, Predictor, Row, calibrate, median_error, spearman
from workbench.cost.estimate import features
from workbench.cost.hardware import Hardware, hardware
from workbench.cost.launch import LaunchChoice, own_choice
from workbench.cost.measured_rows import read_rows, row_to_json, write_rows
from workbench.cost.presets import save_preset
from workbench.pipeline.kernel_schedules import choice_from_json
from workbench.ugraph.json_reader import read_graph
from workbench.ugraph.json_value import JsonValue

WHOLE_WEIGHT = 3
"""How often a superoptimizer's candidate counts: it is a whole program, and such are to be ranked against each other."""


def choices_of(variant: Variant, kernels: list[dict[str, Any]]) -> list[LaunchChoice] | None:
    """Return how the kernels were launched, None when the log has other kernels or grids than the graph."""
    nodes = variant.graph.graph_defined
    if len(nodes) != len(kernels):
        return None
    found = []
    for node, kernel in zip(nodes, kernels, strict=True):
        if prod(kernel["grid"]) != prod(node.block.grid_dims) * kernel["cluster"]:
            return None
        schedule = variant.schedules.get(node.results[0].name)
        stages = schedule.stages if schedule is not None and schedule.stages else own_choice(node.block).stages
        found.append(LaunchChoice(kernel["threads"], stages, kernel["cluster"]))
    return found


def rows_of(log: Path, chip: Hardware) -> list[Row]:
    """Return a row per right and timed variant of the log."""
    variants = {(variant.row, variant.name): variant for row in all_rows() for variant in row.variants}
    rows, lost = [], 0
    for line in log.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        if entry.get("status") != "right" or "cold_us" not in entry:
            continue
        variant = variants.get((entry["row"], entry["variant"]))
        choices = choices_of(variant, entry["kernels"]) if variant is not None else None
        if variant is None or choices is None:
            lost += 1
            continue
        found = features(variant.graph, chip, choices)
        rows.append(Row(found, entry["cold_us"], True, f"{entry['row']} | {entry['variant']}"))
    print(f"{len(rows)} rows, {lost} of the log are not among the variants of this version")
    return rows


def by_program(fit: Calibration) -> str:
    """Return, per program, how the model ranks its variants."""
    groups: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for label, predicted, measured in zip(fit.labels, fit.predicted_us, fit.measured_us, strict=True):
        groups[label.split(" | ")[0]].append((predicted, measured))
    lines = []
    for program, pairs in groups.items():
        mine, theirs = [p for p, _ in pairs], [m for _, m in pairs]
        order = np.argsort(mine, kind="stable")
        rank = spearman(mine, theirs) if len(pairs) > 1 else float("nan")
        top = min(theirs[place] for place in order[:8])
        lines.append(
            f"{program}: {len(pairs)} variants, rank correlation {rank:.2f}, median error {median_error(mine, theirs):.0%}, "
            f"best {min(theirs):.2f} us, best of the model's first {top:.2f} us of 8, {theirs[order[0]]:.2f} us of 1"
        )
    return "\n".join(lines)


def candidate_rows(path: Path, chip: Hardware) -> list[Row]:
    """Return a row per measured candidate of `gpu_superoptimize.py`."""
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        graph = read_graph(JsonValue(entry["graph"], "graph"))
        choices = [choice_from_json(choice) for choice in entry["choices"]]
        rows.append(Row(features(graph, chip, choices), entry["measured"]["cold_us"], True, entry["row"]))
    return rows


def held_out(rows: list[Row], chip: Hardware, every: int) -> str:
    """Return, for each share of the programs, how well a fit without them foresees them."""
    names = sorted({row.label.split()[0] for row in rows})
    lines = []
    for start in range(every):
        left = set(names[start::every])
        fit = calibrate([row for row in rows if row.label.split()[0] not in left], chip)
        tested = list({id(row): row for row in rows if row.label.split()[0] in left}.values())
        mine = list(Predictor(tested, chip).times(fit.preset.coefficients))
        theirs = [row.measured_us for row in tested]
        lines.append(
            f"without {', '.join(sorted(left))}: {len(tested)} rows of them, rank correlation {spearman(mine, theirs):.3f}, "
            f"median error {median_error(mine, theirs):.1%}"
        )
    return "\n".join(lines)


def main() -> None:
    """Fit and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("log", type=Path, nargs="?")
    parser.add_argument("--candidates", type=Path, action="append", default=[])
    parser.add_argument("--rows", type=Path, help="rows as --save keeps them (default: those that ship)")
    parser.add_argument("--save", type=Path)
    parser.add_argument("--hold-out", type=int, metavar="N")
    parser.add_argument("--hardware", default="h200")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    chip = hardware(given.hardware)
    plain = rows_of(given.log, chip) if given.log else [] if given.candidates else read_rows(given.rows)
    whole = [row for path in given.candidates for row in candidate_rows(path, chip)]
    rows = [*plain, *whole * WHOLE_WEIGHT]
    if given.hold_out:
        print(held_out(rows, chip, given.hold_out))
    fit = calibrate(rows, chip)
    print(fit.describe())
    print(by_program(fit))
    if given.save:
        kept = [row_to_json(row) for row in plain]
        write_rows(given.save, [*kept, *(row_to_json(row, weight=WHOLE_WEIGHT) for row in whole)])
    if given.out:
        save_preset(fit.preset, given.out)


if __name__ == "__main__":
    main()
