"""Keep the fastest right variants of a tuning run as candidates: what `workbench measure` times beside known good µGraphs.

    python benchmarks/keep_variants.py TUNE.json [--best N] [--out data/records/candidates.jsonl]

TUNE.json is written by `benchmarks/gpu_tune.py`. Each variant is verified against its program before it is kept; one that
is not equal stops the run with exit status 1.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

import workbench as wb  # noqa: E402
from benchmarks.gpu_variants import Variant, target_row, unlisted_rows  # noqa: E402
from workbench.codegen.cuda.schedule import Schedule  # noqa: E402
from workbench.records.candidates import StoredCandidate, candidate_store, save_candidate  # noqa: E402
from workbench.records.table_rows import TABLE_ROWS  # noqa: E402
from workbench.verify.compare import verify  # noqa: E402

FIELDS = ("threads", "stages", "cluster", "fast_math", "programmatic", "releases")


def fields_of(schedule: Schedule) -> dict[str, Any]:
    """Return what a schedule decides, as a record keeps it."""
    found = {name: getattr(schedule, name) for name in FIELDS if getattr(schedule, name, None) not in (None, False)}
    if schedule.layouts:
        found["layouts"] = {name: asdict(layout) for name, layout in schedule.layouts.items()}
    return found


def main() -> int:
    """Keep the variants; return 1 if one is not equal to its program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tune", type=Path)
    parser.add_argument("--best", type=int, default=2, help="variants of a row (default 2)")
    parser.add_argument("--device", default="h200")
    parser.add_argument("--out", type=Path, default=REPOSITORY / "data" / "records" / "candidates.jsonl")
    options = parser.parse_args()
    store = candidate_store(options.out)
    told = {
        row["row"]: (row.get("best") or {}).get("times", {}) for row in json.loads(options.tune.read_text())["rows"]
    }
    bad = 0
    for row in [*(target_row(row) for row in TABLE_ROWS), *unlisted_rows()]:
        times = {name: pair[0] for name, pair in told.get(row.label, {}).items() if not name.startswith("peer ")}
        names = sorted(times, key=lambda name: times[name])[: options.best]
        variants: dict[str, Variant] = {variant.name: variant for variant in row.variants}
        for name in names:
            if name.startswith("known good") or name not in variants:
                print(f"--   {row.label}: {name}: {'measured anyway' if name in variants else 'no longer a variant'}")
                continue
            variant = variants[name]
            verdict = verify(row.reference, variant.graph)
            certificate = {
                "verdict": verdict.kind, "error_bound": verdict.error_bound, "proved": verdict.proved, "tests": verdict.tests
            }  # fmt: skip
            if verdict.kind != "equal":
                print(f"BAD  {row.label}: {name}: {verdict.kind}: {verdict.reason}")
                bad = 1
                continue
            candidate = StoredCandidate(
                graph=variant.graph,
                schedules={kernel: fields_of(schedule) for kernel, schedule in variant.schedules.items()},
                cold_us=times[name],
                certificate=certificate,
                provenance={"by": f"benchmarks/gpu_tune.py, {name}"},
            )
            save_candidate(store, row.reference, candidate, device=options.device, version=wb.__version__)
            print(f"kept {row.label}: {name}: {times[name]:.2f} us")
    return bad


if __name__ == "__main__":
    sys.exit(main())
