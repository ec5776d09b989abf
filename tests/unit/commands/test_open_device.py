"""A device that is opened: live where it is, else its records, and it says which."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from workbench.commands import measure, open_device
from workbench.commands.answer import Answer, Call
from workbench.errors import LaunchError, UnknownNameError
from workbench.records.measurements import REQUIRED, measurement_store

SIZES = {"batch": 8, "hidden": 4096}


@pytest.fixture
def records(tmp_path: Path) -> Path:
    row: dict[str, Any] = dict.fromkeys(REQUIRED)
    row |= {
        "program": "ntrans", "parameters": SIZES, "ours_us": 2.5, "peers": {"eager": 5.0}, "ratio": 2.0, "floor_us": 0.1,
        "gpu": "NVIDIA H200", "driver": "580", "versions": {}, "date": "2026-11-29T00:00:00+00:00", "device": "h200",
    }  # fmt: skip
    path = tmp_path / "h200.jsonl"
    measurement_store(path).append(row)
    return path


def test_without_the_gpu_records_answer_and_say_so(records: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_device, "device_is_here", lambda device: False)
    device = open_device.open_device("h200", replay=records)
    assert not device.is_live
    assert device.measure("ntrans", **SIZES)["ours_us"] == 2.5
    assert "replayed from h200.jsonl" in device.describe()
    assert "NVIDIA H200, driver 580" in device.describe()


def test_what_is_not_recorded_is_not_made_up(records: Path) -> None:
    device = open_device.open_device("h200", replay=records, live=False)
    with pytest.raises(
        UnknownNameError, match="no record of ntrans batch=9 hidden=4096 on h200; recorded: ntrans 8x4096"
    ):
        device.measure("ntrans", batch=9, hidden=4096)
    with pytest.raises(UnknownNameError, match="recorded: ntrans"):
        device.measure("gqa")


def test_records_of_another_device_are_none(records: Path) -> None:
    with pytest.raises(UnknownNameError, match="holds no measurements of one"):
        open_device.open_device("h100", replay=records, live=False)


def test_live_may_be_insisted_on(records: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_device, "device_is_here", lambda device: False)
    with pytest.raises(LaunchError, match="no h200 here"):
        open_device.open_device("h200", replay=records, live=True)


def test_an_unknown_gpu_is_told() -> None:
    with pytest.raises(UnknownNameError, match="no GPU 'z9'"):
        open_device.open_device("z9")


def test_on_the_gpu_the_command_measures_anew(records: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Call] = []

    def run(call: Call) -> Answer:
        calls.append(call)
        return Answer("", {"rows": [{"ours_us": 1.25}]})

    monkeypatch.setattr(open_device, "device_is_here", lambda device: device == "h200")
    monkeypatch.setattr(measure, "run", run)
    device = open_device.open_device("h200", replay=records)
    assert device.is_live
    assert device.measure("ntrans", **SIZES) == {"ours_us": 1.25}
    (call,) = calls
    assert call.arguments.fresh
    assert (call.arguments.program, call.arguments.device) == ("ntrans", "h200")
    assert call.settings == {"batch": "8", "hidden": "4096"}
    assert "measured now" in device.describe()
