"""How long `workbench optimize` takes on all programs at their default batch and 8 times it, without a GPU.

    python benchmarks/optimize_programs.py [--only NAME,...] [--times 1,8] [--out FILE.json]

Each run is a process of its own that starts afresh. Prints processor and wall seconds, the best candidate's modelled time, the
lower bound, the certificate. Exit status 1 if one finds nothing, or takes more processor time than `--most` (default 20 s).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from workbench.programs.registry import names, parameters  # noqa: E402


def run(name: str, times: int, folder: Path) -> dict[str, Any]:
    """Return what one run printed, with its seconds."""
    defaults = {parameter.name: parameter.default for parameter in parameters(name)}
    command = [sys.executable, "-m", "workbench", "optimize", name, "--no-measure", "--fresh", "--json"]
    command += ["--out", str(folder / f"{name}_{times}")]
    if "batch" in defaults:
        command += ["--set", f"batch={defaults['batch'] * times}"]
    before, start = os.times(), time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    after = os.times()
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    row: dict[str, Any] = {"program": name, "times": times, "cpu_s": cpu_s, "wall_s": time.perf_counter() - start}
    if done.returncode == 0:
        values = json.loads(done.stdout)
        best = values["best"]
        row |= {key: best[key] for key in ("cost_us", "lower_bound_us", "origin")}
        row |= {
            "candidates": values["candidates"],
            "verdict": best["certificate"]["verdict"],
            "proved": best["certificate"]["proved"],
        }
    else:
        row["problem"] = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
    return row


def main() -> int:
    """Run and print; return 1 if a run found nothing or took too long."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="names of programs, after commas")
    parser.add_argument("--times", default="1,8", help="multiples of the default batch (default 1,8)")
    parser.add_argument("--most", type=float, default=20.0, help="processor seconds of a run (default 20)")
    parser.add_argument("--out", type=Path, help="file for the rows")
    options = parser.parse_args()
    wanted = options.only.split(",") if options.only else list(names())
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in wanted:
            for times in map(int, options.times.split(",")):
                row = run(name, times, Path(folder))
                rows.append(row)
                found = (
                    f"{row['cost_us']:8.2f} us modelled, bound {row['lower_bound_us']:6.2f} us, {row['verdict']}"
                    f"{' (proved)' if row['proved'] else ''}, {row['candidates']} candidates, {row['origin']}"
                    if "cost_us" in row
                    else str(row["problem"])
                )
                print(f"{name:20} x{times} {row['cpu_s']:6.1f} s CPU {row['wall_s']:6.1f} s wall  {found}", flush=True)
    if options.out:
        options.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 1 if any("cost_us" not in row or row["cpu_s"] > options.most for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
