"""From a program to a measured best on a GPU: seconds, what the model said, what the GPU said, over the speed table's rows.

    python benchmarks/gpu_superoptimize.py [--only TEXT,...] [--keep 24] [--stable] [--out DIR]

Needs a GPU of the architecture of `--device`. Writes every candidate into DIR/candidates.jsonl.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from workbench.cost.calibration import spearman  # noqa: E402
from workbench.errors import WorkbenchError  # noqa: E402
from workbench.pipeline.superoptimize import Options, superoptimize  # noqa: E402
from workbench.programs.registry import instance  # noqa: E402
from workbench.records.table_rows import TABLE_ROWS  # noqa: E402


def main() -> int:
    """Run the rows; return 1 if one has no measured candidate."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="rows whose label holds one of these texts")
    parser.add_argument("--keep", type=int, default=24)
    parser.add_argument("--stable", action="store_true", help="stable forms of exponentials beside the others")
    parser.add_argument("--device", default="h200")
    parser.add_argument("--out", type=Path, default=Path(tempfile.gettempdir()) / "superoptimize")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    wanted = [text for text in options.only.split(",") if text]
    failed = 0
    for row in TABLE_ROWS:
        label = f"{row.program} {' '.join(f'{name}={value}' for name, value in row.sizes.items())}"
        if wanted and not any(text in label for text in wanted):
            continue
        start = time.perf_counter()
        try:
            program = instance(row.program, "standard", "float16", dict(row.sizes)).build()
            result = superoptimize(
                program, options.device, measure=True, options=Options(keep=options.keep, stable=options.stable), fresh=True,
                out=options.out / label.replace(" ", "_"),
            )  # fmt: skip
        except WorkbenchError as error:
            print(f"{label}: {type(error).__name__}: {error}", flush=True)
            failed += 1
            continue
        timed = [one for one in result.candidates if one.measured is not None]
        seconds = time.perf_counter() - start
        with (options.out / "candidates.jsonl").open("a", encoding="utf-8") as file:
            for one in timed:
                file.write(json.dumps({"row": label, **one.to_json()}) + "\n")
        reasons = ", ".join(
            f"{one.stage}: {one.reason[:90]}" for one in result.refused if one.stage in ("compile", "check", "measure")
        )
        if not timed:
            print(f"{label}: nothing measured in {seconds:.1f} s; {reasons}", flush=True)
            failed += 1
            continue
        rank = spearman([one.cost_us for one in timed], [one.time_us for one in timed])
        best = result.best
        stable = [one for one in timed if "stable" in one.origin]
        unsafe = [one for one in timed if "stable" not in one.origin]
        if stable and unsafe:
            fastest = [min(group, key=lambda one: one.time_us).time_us for group in (stable, unsafe)]
            reasons = f"stable form {fastest[0]:.2f} us, others {fastest[1]:.2f} us ({fastest[0] / fastest[1] - 1:+.0%}); {reasons}"
        print(
            f"{label}: {best.time_us:.2f} us measured, {best.cost_us:.2f} modelled, {len(timed)} timed, rank correlation "
            f"{rank:.2f}, {seconds:.1f} s; {'; '.join(str(entry) for entry in best.schedule)} {reasons}",
            flush=True,
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
