"""How long `workbench search` takes per program: wall time of a process minus that of its imports, median of three.

Run: python benchmarks/search_programs.py [PROGRAM[:OPTION...] ...], for instance ntrans:--max-block-ops:8. Prints seconds, CPU
seconds, verified structures, whether a known good one is among them, and the peak memory in megabytes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from statistics import median

PROGRAMS = (
    "rms_norm_linear", "gated_mlp", "gated_mlp_down", "lora", "gqa", "mha", "mqa", "gqa_decode", "qk_norm_attention",
    "softmax", "attention_safe", "ntrans:--max-block-ops:8",
)  # fmt: skip
LIMIT_S = {"rms_norm_linear": 0.3, "ntrans:--max-block-ops:8": 5.0}
RUNS = 3


def timed(command: list[str]) -> tuple[float, float, str]:
    """Return wall seconds, CPU seconds and standard output of a process."""
    before, start = os.times(), time.perf_counter()
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    wall, after = time.perf_counter() - start, os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return wall, cpu, done.stdout


def measure(program: str) -> tuple[float, float, dict[str, object]]:
    """Return the median wall and CPU seconds without imports, and what the search answered."""
    name, *options = program.split(":")
    main = "import sys; from workbench.cli import main; import workbench.commands.search"
    bare = [sys.executable, "-c", main]
    full = [sys.executable, "-c", f"{main}; sys.exit(main({['search', name, *options, '--json']!r}))"]
    runs = []
    for _ in range(RUNS):
        imports, search = timed(bare), timed(full)
        runs.append((search[0] - imports[0], search[1] - imports[1], search[2]))
    return median(run[0] for run in runs), median(run[1] for run in runs), json.loads(runs[-1][2])


def main() -> None:
    """Print a line per program."""
    print(f"{'program':<32}{'wall s':>8}{'limit':>7}{'CPU s':>8}{'verified':>10}{'known good':>12}{'peak MB':>9}")
    for program in sys.argv[1:] or PROGRAMS:
        wall, cpu, answer = measure(program)
        print(
            f"{program:<32}{wall:>8.2f}{LIMIT_S.get(program, 1.0):>7.1f}{cpu:>8.2f}{answer['verified']:>10}"
            f"{answer['known_good']!s:>12}{answer['peak_mb']:>9.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
