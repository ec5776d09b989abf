"""How long `workbench search` takes per program: wall time of a process minus that of its imports, median of some runs.

Prints seconds, the limit, CPU seconds (which load of the machine disturbs less), verified structures, whether a known good
one is among them, and the peak memory in megabytes. Exit code 1 when a program took longer than its limit.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from statistics import median

from workbench.programs.registry import names

PROGRAMS = (
    "rms_norm_linear", "gated_mlp", "gated_mlp_down", "lora", "gqa", "mha", "mqa", "gqa_decode", "qk_norm_attention",
    "softmax", "attention_safe", "ntrans:--max-block-ops:8",
)  # fmt: skip
LIMIT_S = {"rms_norm_linear": 0.3, "ntrans:--max-block-ops:8": 5.0}
DEFAULT_LIMIT_S = 1.0
RUNS = 3


def timed(command: list[str]) -> tuple[float, float, str]:
    """Return wall seconds, CPU seconds and standard output of a process. Raises: SystemExit with its error when it failed."""
    before, start = os.times(), time.perf_counter()
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    wall, after = time.perf_counter() - start, os.times()
    if done.returncode > 1:  # 1 is an answer: nothing found
        raise SystemExit(done.stderr.strip() or f"the process ended with exit code {done.returncode}")
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return wall, cpu, done.stdout


def measure(program: str, runs: int) -> tuple[float, float, dict[str, object]]:
    """Return the median wall and CPU seconds without imports, and what the search answered."""
    name, *options = program.split(":")
    main = "import sys; from workbench.cli import main; import workbench.commands.search"
    bare = [sys.executable, "-c", main]
    full = [sys.executable, "-c", f"{main}; sys.exit(main({['search', name, *options, '--json']!r}))"]
    made = []
    for _ in range(runs):
        imports, search = timed(bare), timed(full)
        made.append((search[0] - imports[0], search[1] - imports[1], search[2]))
    return median(run[0] for run in made), median(run[1] for run in made), json.loads(made[-1][2])


def arguments() -> argparse.Namespace:
    """Return the arguments of the command line, programs checked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "programs", nargs="*", metavar="PROGRAM[:OPTION...]",
        help=f"studied programs, options of `search` after colons, as in {PROGRAMS[-1]} (default: {' '.join(PROGRAMS)})",
    )  # fmt: skip
    parser.add_argument("--runs", type=int, default=RUNS, metavar="N", help=f"runs per program (default {RUNS})")
    given = parser.parse_args()
    for program in given.programs:
        if program.split(":")[0] not in names():
            parser.error(f"no program {program.split(':')[0]!r}; there are {', '.join(names())}")
    if given.runs < 1:
        parser.error(f"--runs {given.runs}: at least one is needed")
    return given


def main() -> int:
    """Print a line per program; return 1 if one took longer than its limit."""
    given = arguments()
    late = False
    print(f"{'program':<32}{'wall s':>8}{'limit':>7}{'CPU s':>8}{'verified':>10}{'known good':>12}{'peak MB':>9}")
    for program in given.programs or PROGRAMS:
        wall, cpu, answer = measure(program, given.runs)
        limit = LIMIT_S.get(program, DEFAULT_LIMIT_S)
        late |= wall > limit
        print(
            f"{program:<32}{wall:>8.2f}{limit:>7.1f}{cpu:>8.2f}{answer['verified']:>10}"
            f"{answer['known_good']!s:>12}{answer['peak_mb']:>9.0f}",
            flush=True,
        )
    return int(late)


if __name__ == "__main__":
    sys.exit(main())
