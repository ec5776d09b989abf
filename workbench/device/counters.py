"""How many bytes a kernel moves and what it waits for: hardware counters by Nsight Compute, else the cost model's counts.

Invariant: a number that was not read from the hardware says so (`is_measured` is False); the profiled run is a process of
its own, so that no time elsewhere is taken under a profiler.
"""

from __future__ import annotations

import csv
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from workbench.cost.estimate import estimate
from workbench.cost.hardware import Hardware
from workbench.device.counters_run import MARKER, CountTarget
from workbench.device.toolkit import find_tool
from workbench.device.worker import child_environment
from workbench.errors import KernelCompileError
from workbench.ugraph.kernel_graph import KernelGraph

PROFILE_S = 180.0
METRICS = {
    "time_ns": "gpu__time_duration.sum",
    "device_read_bytes": "dram__bytes_read.sum",
    "device_written_bytes": "dram__bytes_write.sum",
    "l2_bytes": "lts__t_bytes.sum",
    "device_utilisation": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "l2_utilisation": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "sm_utilisation": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "occupancy": "sm__warps_active.avg.pct_of_peak_sustained_active",
}
"""What is read, under our names; utilisations and occupancy in per cent."""

STALLS = (
    "long_scoreboard", "short_scoreboard", "barrier", "membar", "mio_throttle", "lg_throttle", "math_pipe_throttle",
    "wait", "sleeping", "no_instruction", "not_selected", "dispatch_stall",
)  # fmt: skip
STALL_METRIC = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
"""Warps that wait for a reason, on average, whenever one issues."""

METRIC_NAMES = (*METRICS.values(), *(STALL_METRIC.format(stall) for stall in STALLS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Counts of one run of a program, over all its kernels, L2 cold.

    Attributes: device_bytes: read from and written to device memory; l2_bytes: through the L2 cache; is_measured: by
    counters, else by the cost model; values: further counters of the longest kernel, by the names of `METRICS`; stalls:
    its reasons to wait, the largest first; kernels: how many ran; note: why there are no counters, "" where there are.
    """

    device_bytes: float
    l2_bytes: float
    is_measured: bool
    values: Mapping[str, float] = field(default_factory=dict)
    stalls: Mapping[str, float] = field(default_factory=dict)
    kernels: int = 0
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object; "device" and "L2" are what a roofline takes."""
        levels = {"device": self.device_bytes, "L2": self.l2_bytes}
        told = {name: {"bytes": count, "measured": self.is_measured} for name, count in levels.items()}
        return told | {
            "counters": {key: value for key, value in asdict(self).items() if key not in ("device_bytes", "l2_bytes")}
        }

    def describe(self) -> str:
        """Return it as one line."""
        how = "measured" if self.is_measured else f"modelled{f' ({self.note})' if self.note else ''}"
        parts = [f"{self.device_bytes / 1e6:.2f} MB device memory, {self.l2_bytes / 1e6:.2f} MB L2, {how}"]
        if "device_utilisation" in self.values:
            parts.append(f"device memory {self.values['device_utilisation']:.0f}% busy")
        if self.stalls:
            name = next(iter(self.stalls))
            parts.append(f"waits mostly for {name} ({self.stalls[name]:.1f} warps)")
        return "; ".join(parts)


def modelled_traffic(graph: KernelGraph, hardware: Hardware, note: str = "") -> Traffic:
    """Return the bytes that the cost model counts: device memory sees each input and output once, L2 all that blocks ask for.

    Intermediates stay in the L2 cache as far as they fit. Raises: MissingRuleError.
    """
    facts = [kernel.facts for kernel in estimate(graph, hardware=hardware).kernels]
    handed = sum(fact["handed_bytes"] for fact in facts)
    ends = sum(fact["unique_bytes"] + fact["stored_bytes"] for fact in facts)
    loads = sum(fact.get("requested_bytes", fact["unique_bytes"] + fact["made_bytes"]) for fact in facts)
    return Traffic(
        device_bytes=ends + 2 * max(0.0, handed - hardware.l2_bytes),
        l2_bytes=loads + sum(fact["stored_bytes"] + fact["handed_bytes"] for fact in facts),
        is_measured=False,
        kernels=len(facts),
        note=note,
    )


def count_targets(targets: Sequence[CountTarget], hardware: Hardware, *, timeout_s: float = PROFILE_S) -> list[Traffic]:
    """Return the counters of each target, in order, read in one profiled process; modelled where they cannot be read.

    Raises: MissingRuleError where the model has to stand in and lacks an operator.
    """
    groups, why = _profile(targets, timeout_s)
    found = []
    for number, target in enumerate(targets):
        kernels = groups[number] if number < len(groups) else []
        if kernels:
            found.append(summarize(kernels))
        else:
            found.append(modelled_traffic(target.graph, hardware, why or "no kernel of it was profiled"))
    return found


def _profile(targets: Sequence[CountTarget], timeout_s: float) -> tuple[list[list[dict[str, float]]], str]:
    """Return the counters of each target's kernels, or none and why."""
    try:
        tool = find_tool("ncu")
    except KernelCompileError:
        return [], "Nsight Compute (ncu) is not installed"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "targets.pickle"
        path.write_bytes(pickle.dumps(list(targets)))
        why = ""
        for metrics in (METRIC_NAMES, tuple(METRICS.values())):  # a GPU may lack one of the reasons to wait
            command = [
                tool, "--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none",
                "--profile-from-start", "off", "--metrics", ",".join(metrics), sys.executable, "-m",
                "workbench.device.counters_run", str(path),
            ]  # fmt: skip
            try:
                ran = subprocess.run(
                    command, capture_output=True, text=True, check=False, timeout=timeout_s, env=child_environment()
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                return [], f"Nsight Compute did not end: {type(error).__name__}"
            said = last_line(ran.stderr) or last_line(ran.stdout)
            try:
                return parse_report(ran.stdout), said if ran.returncode else ""
            except KernelCompileError as error:
                why = why or f"Nsight Compute: {said or error}"
        return [], why


def parse_report(text: str) -> list[list[dict[str, float]]]:
    """Return the counters of each kernel, grouped by the marker kernels between targets, from ncu's raw CSV page.

    Raises: KernelCompileError when there is no table.
    """
    lines = [line for line in text.splitlines() if line.startswith('"')]
    rows = list(csv.reader(lines))
    if len(rows) < 3 or "Kernel Name" not in rows[0]:
        raise KernelCompileError("no table of counters")
    head = rows[0]
    names = {metric: name for name, metric in METRICS.items()}
    names |= {STALL_METRIC.format(stall): stall for stall in STALLS}
    groups: list[list[dict[str, float]]] = []
    for row in rows[2:]:  # the second row holds units
        told = dict(zip(head, row, strict=False))
        if MARKER in told["Kernel Name"]:
            groups.append([])
            continue
        if not groups:  # ran before the first marker
            continue
        counters = {}
        for column, value in told.items():
            number = as_number(value) if column in names else None
            if number is not None:
                counters[names[column]] = number
        groups[-1].append(counters)
    return groups


def as_number(text: str) -> float | None:
    """Return a number as ncu prints it ("1,234.5"), None for what is none ("n/a")."""
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None


def summarize(kernels: Sequence[Mapping[str, float]]) -> Traffic:
    """Return the counts of a run from those of its kernels: bytes add up, the rest is that of the longest."""
    longest = max(kernels, key=lambda kernel: kernel.get("time_ns", 0.0))
    stalls = sorted(((name, longest[name]) for name in STALLS if name in longest), key=lambda pair: -pair[1])
    device = sum(k.get("device_read_bytes", 0.0) + k.get("device_written_bytes", 0.0) for k in kernels)
    return Traffic(
        device_bytes=device,
        l2_bytes=sum(kernel.get("l2_bytes", 0.0) for kernel in kernels),
        is_measured=all("device_read_bytes" in kernel for kernel in kernels),
        values={name: longest[name] for name in METRICS if name in longest},
        stalls=dict(stalls),
        kernels=len(kernels),
    )


def last_line(text: str) -> str:
    """Return the last line that says something, at most 200 characters."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith('"')]
    return lines[-1][:200] if lines else ""
