"""What a run of `gpu_emitter.py` found: rows by part, printed where they are not right, and one JSON file with provenance.

Invariant: the file is what data/records/README.md says of `gpu_tests.json`, also after a part that broke.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import subprocess
import time
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from workbench.device.launch import load_cupy

REPOSITORY = Path(__file__).resolve().parent.parent
STATUSES = ("passed", "failed", "refused", "not run")
MOST_TOLD = 25
"""Failures that are told again at the end."""


class Report:
    """Rows by part; those that are not right are printed as they come."""

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.parts: dict[str, list[dict[str, Any]]] = {}
        self.seconds: dict[str, float] = {}

    @property
    def left_s(self) -> float:
        """Seconds until the deadline."""
        return self.deadline - time.time()

    def row(self, part: str, name: str, status: str, reason: str = "", **numbers: Any) -> None:
        """Keep a row, print it unless it passed; status: passed, failed, refused, not run."""
        self.parts.setdefault(part, []).append({"name": name, "status": status, "reason": reason, **numbers})
        if status == "passed":
            return
        shown = " ".join(
            f"{key}={value:.4g}" if isinstance(value, float) else f"{key}={value}"
            for key, value in numbers.items()
            if not isinstance(value, list | dict)
        )
        mark = {"failed": "FAIL", "refused": "ref ", "not run": "--  "}[status]
        print(f"{mark} {part}: {name} {shown} {' '.join(reason.split())[:200]}", flush=True)

    def count(self, part: str, status: str) -> int:
        """Return the number of rows of a status."""
        return sum(row["status"] == status for row in self.parts.get(part, []))


def output_of(*command: str) -> str:
    """Return what a command prints, "" where it is missing or fails."""
    if shutil.which(command[0]) is None:
        return ""
    ran = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    return ran.stdout.strip() if ran.returncode == 0 else ""


def provenance(commit: str) -> dict[str, Any]:
    """Return date, commit, GPU, driver, versions, clocks as found."""
    cupy = load_cupy()
    query = "name,driver_version,clocks.sm,clocks.mem,temperature.gpu"
    lines = output_of("nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader").splitlines()
    found = [field.strip() for field in lines[0].split(",")] if lines else [""] * 5
    versions = {"python": platform.python_version(), "numpy": np.__version__, "cupy": cupy.__version__}
    versions["cuda_runtime"] = str(cupy.cuda.runtime.runtimeGetVersion())
    versions["nvrtc"] = ".".join(map(str, cupy.cuda.nvrtc.getVersion()))
    with contextlib.suppress(metadata.PackageNotFoundError):
        versions["torch"] = metadata.version("torch")
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit or output_of("git", "rev-parse", "HEAD") or "unknown",
        "gpu": found[0],
        "driver": found[1],
        "clocks_as_found": {"sm": found[2], "memory": found[3]},
        "temperature_c": found[4],
        "cores": os.cpu_count(),
        "versions": versions,
    }


def write(path: Path, told: dict[str, Any], report: Report, seed: int) -> None:
    """Write what there is so far."""
    found = {part: list(rows) for part, rows in list(report.parts.items())}  # other threads may add rows meanwhile
    totals = {status: sum(report.count(part, status) for part in found) for status in STATUSES}
    parts = {
        part: {
            **{status.replace(" ", "_"): report.count(part, status) for status in STATUSES},
            "seconds": report.seconds.get(part, 0.0),
            "rows": rows,
        }
        for part, rows in found.items()
    }
    document = {"schema": "mugraph-workbench/gpu-tests", "version": 1, **told, "seed": seed}
    document |= {status.replace(" ", "_"): total for status, total in totals.items()}
    document["parts"] = parts
    path.write_text(json.dumps(nulled(document), indent=1) + "\n", encoding="utf-8")


def nulled(value: Any) -> Any:
    """Return the value with numbers that JSON lacks as null."""
    if isinstance(value, dict):
        return {key: nulled(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [nulled(inner) for inner in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value


def summarize(report: Report) -> int:
    """Print what failed and the counts; return the exit status."""
    failed = [(part, row) for part, rows in report.parts.items() for row in rows if row["status"] == "failed"]
    for part, row in failed[:MOST_TOLD]:
        print(f"  {part}: {row['name']}: {' '.join(row['reason'].split())[:200]}")
    if len(failed) > MOST_TOLD:
        print(f"  and {len(failed) - MOST_TOLD} more failures")
    for part in report.parts:
        counts = {status: report.count(part, status) for status in STATUSES}
        print(
            f"{part}: {', '.join(f'{n} {status}' for status, n in counts.items() if n)}, {report.seconds.get(part, 0):.0f} s"
        )
    return 1 if failed else 0
