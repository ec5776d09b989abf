"""Hardware counters: ncu's table is read and grouped by target, sums are right; without ncu, modelled and said so."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

import workbench as wb
from workbench.cost.hardware import hardware
from workbench.device import counters
from workbench.device.counters import METRICS, STALL_METRIC, STALLS, count_targets, modelled_traffic, parse_report
from workbench.device.counters_run import MARKER, CountTarget
from workbench.errors import KernelCompileError

COLUMNS = [*METRICS.values(), *(STALL_METRIC.format(stall) for stall in STALLS)]


def report(*kernels: tuple[str, dict[str, str]]) -> str:
    """Return what `ncu --csv --page raw` prints for kernels: name and some columns; the others are 1."""
    head = ["ID", "Kernel Name", "Grid Size", *COLUMNS]
    lines = ["==PROF== Connected to process 12", "a line of the program's own", ",".join(f'"{name}"' for name in head)]
    lines.append(",".join(['""'] * 3 + ['"byte"'] * len(COLUMNS)))
    for number, (name, values) in enumerate(kernels):
        cells = [str(number), name, "(1, 1, 1)", *(values.get(column, "1") for column in COLUMNS)]
        lines.append(",".join(f'"{cell}"' for cell in cells))
    return "\n".join([*lines, "==PROF== Disconnected"])


LONG = {METRICS["time_ns"]: "9,000", METRICS["device_read_bytes"]: "33,554,432", METRICS["l2_bytes"]: "n/a"}
LONG |= {STALL_METRIC.format("barrier"): "7.5"}
MARK = (f"{MARKER}()", dict[str, str]())


def test_kernels_are_grouped_by_marker() -> None:
    groups = parse_report(report(("warm_up", {}), MARK, ("first", LONG), ("second", {}), MARK, MARK, ("third", {})))
    assert [len(group) for group in groups] == [2, 0, 1]
    assert groups[0][0]["device_read_bytes"] == 33554432
    assert "l2_bytes" not in groups[0][0]


def test_sums_and_the_longest_kernel() -> None:
    (kernels,) = parse_report(report(MARK, ("short", {}), ("long", LONG)))
    traffic = counters.summarize(kernels)
    assert (traffic.device_bytes, traffic.l2_bytes) == (33554432 + 1 + 2, 1)
    assert traffic.is_measured
    assert traffic.kernels == 2
    assert traffic.values["time_ns"] == 9000
    assert next(iter(traffic.stalls)) == "barrier"
    assert "measured" in traffic.describe()
    assert "waits mostly for barrier" in traffic.describe()
    told = traffic.to_json()
    assert told["device"] == {"bytes": 33554435.0, "measured": True}
    assert told["counters"]["stalls"]["barrier"] == 7.5


@pytest.mark.parametrize("text", ["", "==ERROR== no permission", '"ID","Kernel Name"'])
def test_no_table_is_said(text: str) -> None:
    with pytest.raises(KernelCompileError, match="no table"):
        parse_report(text)


def target(number: int = 0) -> CountTarget:
    return CountTarget(label="lora", graph=wb.programs.known_good("lora")[number])


def test_without_ncu_the_bytes_are_modelled_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise KernelCompileError(f"{name} is not installed")

    monkeypatch.setattr(counters, "find_tool", missing)
    (traffic,) = count_targets([target()], hardware("h200"))
    assert not traffic.is_measured
    assert traffic.note == "Nsight Compute (ncu) is not installed"
    program = wb.programs.get("lora")
    compulsory = sum(tensor.nbytes for tensor in (*program.inputs, *program.outputs))
    assert compulsory <= traffic.device_bytes <= 1.1 * compulsory
    assert traffic.l2_bytes >= compulsory
    assert "modelled (Nsight Compute" in traffic.describe()
    assert traffic.to_json()["L2"]["measured"] is False


def test_ncu_that_fails_is_told_and_targets_keep_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []
    refusal = ("==ERROR== ERR_NVGPUCTRPERM: no permission", 1)
    outcomes = [refusal, refusal, ("==ERROR== Failed to find metric", 1), (report(MARK, MARK, ("k", LONG)), 0)]

    def run(command: list[str], **options: Any) -> Any:
        commands.append(command)
        stdout, code = outcomes.pop(0)
        return subprocess.CompletedProcess(command, code, stdout, "")

    monkeypatch.setattr(counters, "find_tool", lambda name: "/opt/ncu")
    monkeypatch.setattr(subprocess, "run", run)
    found = count_targets([target(0), target(1)], hardware("h200"))
    assert [one.is_measured for one in found] == [False, False]
    assert "ERR_NVGPUCTRPERM" in found[0].note
    assert commands[0][commands[0].index("--clock-control") + 1] == "none"
    assert "barrier" in commands[0][commands[0].index("--metrics") + 1]
    assert "barrier" not in commands[1][commands[1].index("--metrics") + 1]
    found = count_targets([target(0), target(1)], hardware("h200"))
    assert [one.is_measured for one in found] == [False, True]
    assert found[0].note == "no kernel of it was profiled"


def test_the_model_counts_more_for_blocks_that_read_the_same() -> None:
    graph = wb.programs.known_good("rms_norm_linear")[0]
    traffic = modelled_traffic(graph, hardware("h200"))
    assert traffic.l2_bytes > traffic.device_bytes * 1.05
