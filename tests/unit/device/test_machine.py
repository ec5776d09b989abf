"""Provenance: what tools do not tell is empty, never an error; the commit is that of the checkout."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from workbench.device import machine


def test_commands_that_fail_or_are_missing_tell_nothing() -> None:
    assert machine.ask("no-such-command-here") == ""
    assert machine.ask("python3", "-c", "raise SystemExit(3)") == ""
    assert machine.ask("python3", "-c", "print(' a b ')") == "a b"


def test_the_commit_is_marked_where_files_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORKBENCH_COMMIT", raising=False)
    told = {"rev-parse": "0123456789ab", "status": ""}
    monkeypatch.setattr(machine, "ask", lambda *command: told[command[3]])
    monkeypatch.setattr(Path, "exists", lambda self: True)
    assert machine.commit_of_workbench() == "0123456789ab"
    told["status"] = " M workbench/cli.py"
    assert machine.commit_of_workbench() == "0123456789ab+"
    monkeypatch.setattr(Path, "exists", lambda self: False)
    assert machine.commit_of_workbench() == ""
    monkeypatch.setattr(Path, "exists", lambda self: True)
    monkeypatch.setenv("WORKBENCH_COMMIT", "from outside")
    assert machine.commit_of_workbench() == "from outside"


def fake_cupy() -> Any:
    runtime = SimpleNamespace(
        runtimeGetVersion=lambda: 13000,
        driverGetVersion=lambda: 13000,
        getDeviceProperties=lambda device: {"name": b"NVIDIA H200"},
    )
    return SimpleNamespace(cuda=SimpleNamespace(Device=lambda: SimpleNamespace(id=0), runtime=runtime))


def test_what_nvidia_smi_says_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    line = "NVIDIA H200, 580.159.04, 1980 MHz, 3201 MHz, 1980 MHz, 41, 180.50 W"
    monkeypatch.setattr(machine, "load_cupy", fake_cupy)
    monkeypatch.setattr(machine, "ask", lambda *command: line if command[0] == "nvidia-smi" else "")
    found = machine.read_machine()
    assert (found.gpu, found.driver, found.temperature_c, found.power_w) == (
        "NVIDIA H200",
        "580.159.04",
        "41",
        "180.50 W",
    )
    assert found.clocks == {"sm": "1980 MHz", "memory": "3201 MHz", "sm_max": "1980 MHz"}
    assert found.versions["cuda_runtime"] == "13000"
    assert "numpy" in found.versions
    assert found.date.endswith("+00:00")
    assert found.to_json()["gpu"] == "NVIDIA H200"


def test_without_nvidia_smi_the_name_comes_from_the_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "load_cupy", fake_cupy)
    monkeypatch.setattr(machine, "ask", lambda *command: "")
    found = machine.read_machine()
    assert (found.gpu, found.driver, found.clocks["sm"]) == ("NVIDIA H200", "", "")
