"""The launchpad where there is a device: timing with progress, stopping, candidates that misbehave, speedups, export.

The device is a stand-in at the boundary of the worker process (`stand_in_device.py`); the rest is the path of a GPU.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.widgets import stand_in_device as stand_in
from workbench.device import check_worker
from workbench.device.nvrtc import load_nvrtc
from workbench.errors import KernelCompileError
from workbench.pipeline import superoptimize, trial
from workbench.pipeline.result import Result
from workbench.widgets import launchpad as launchpad_module
from workbench.widgets.launchpad import Launchpad

SIZES = "batch=16 hidden=256 out=192"


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where compiled kernels are kept."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def device(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the device be here."""
    try:
        load_nvrtc()
    except KernelCompileError as error:
        pytest.skip(str(error).partition("(")[0])
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    for module in (superoptimize, launchpad_module):
        monkeypatch.setattr(module, "device_is_here", lambda device: True)
    monkeypatch.setattr(trial, "run_trial", stand_in.run_trial)
    monkeypatch.setattr(check_worker, "run_check", stand_in.run_check)


SEARCHED: list[Result] = []


@pytest.fixture
def found(device: None) -> Result:
    """What a search of the launchpad found, timings left away."""
    if not SEARCHED:
        test_a_search_measures_what_it_found(device)
    timed = SEARCHED[0]
    candidates = sorted((replace(one, measured=None) for one in timed.candidates), key=lambda one: one.cost_us)
    return replace(timed, candidates=tuple(candidates), measured=False)


@pytest.fixture
def pad(found: Result) -> Iterator[Launchpad]:
    """A launchpad on a machine that has the device, with candidates that are not timed yet."""
    made = Launchpad("rms_norm_linear", sizes=SIZES, max_block_ops=7, keep=3)
    made.result, made.candidates = found, len(found.candidates)
    assert made.candidates == 3
    assert made.has_gpu
    yield made
    made.close()


def test_a_search_measures_what_it_found(device: None) -> None:
    pad = Launchpad("rms_norm_linear", sizes=SIZES, max_block_ops=7, keep=3, fresh=True)
    try:
        pad.search()
        result = pad.wait(60)
        assert result is not None, pad.status
        assert [one.measured is not None for one in result.candidates] == [True] * 3
        assert result.measured
        assert {"search", "schedule", "certify", "compile", "time"} <= set(pad._stages)
        assert "(measured)" in pad.status
        SEARCHED.append(result)
    finally:
        pad.close()


def test_stopping_a_measurement_keeps_the_candidates_and_the_next_one_ranks_them(
    pad: Launchpad, found: Result, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert "profile" in [spec.get("label") for spec in pad.controls]
    assert pad.notice == ""  # nothing to excuse: the device is here
    seen: list[str] = []
    pad.observe(lambda change: seen.append(change["new"]), "status")
    monkeypatch.setenv(stand_in.SLEEPS, "60")
    pad.set_state({"command": {"do": "profile", "n": 1}})
    end = time.monotonic() + 40
    while pad.stage != "time" and time.monotonic() < end:
        time.sleep(0.02)
    assert pad.stage == "time"
    time.sleep(0.2)
    start = time.thread_time()
    pad.set_state({"command": {"do": "cancel", "n": 2}})
    assert time.thread_time() - start < 0.1  # besides the 0.4 s that it waits for the thread, at most
    assert pad._worker.wait(5), "the measuring process is still waited for"
    assert not pad.running
    assert pad.result is found
    assert pad.candidates == 3
    assert "profile stopped; the candidates are kept" in pad.panels["progress"]

    monkeypatch.setenv(stand_in.SLEEPS, "0")
    pad.do_profile()
    result = pad.wait(60)
    assert result is not None
    assert [one.measured is not None for one in result.candidates] == [True] * 3, pad.panels["refused"]
    # the model's order turned around, at the times that the stand-in tells
    assert [one.graph.hash for one in result.candidates] == [one.graph.hash for one in reversed(found.candidates)]
    expected = [stand_in.FIRST_US - stand_in.STEP_US * place for place in (2, 1, 0)]
    assert [one.time_us for one in result.candidates] == pytest.approx(expected)
    assert {one.measured.device for one in result.candidates if one.measured} == {stand_in.DEVICE}
    assert any(re.fullmatch(r"compile \d of 3", text) for text in seen), seen
    assert any(re.fullmatch(r"time \d of 3", text) for text in seen), seen
    assert pad.status == f"best {expected[0]:.2f} us (measured); 3 candidates"
    assert pad.panels["candidates"].count("measured") == 3
    # bars: each time with how often faster it is than the program as written
    written = pad._as_written(result)
    assert written is not None
    for us in expected:
        assert f"{us:.2f} us measured, {written / us:.2f}×" in pad.panels["times"]
    assert pad.panels["roofline"].count(" us measured</title>") == 3
    pad.chosen = 1
    pad.folder = str(tmp_path / "exported")
    pad.set_state({"command": {"do": "export", "n": 3}})
    pad.wait(20)
    text = (tmp_path / "exported" / "kernel.cu").read_text()
    assert result.candidates[1].source("cuda").strip().splitlines()[-1] in text


def test_candidates_that_fault_or_compute_something_else_are_left_out_with_the_reason(
    pad: Launchpad, found: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong, faulty = (found.candidates[place].graph.hash for place in (0, 1))
    monkeypatch.setenv(stand_in.WRONG, wrong)
    monkeypatch.setenv(stand_in.FAULTS, faulty)
    stages: list[str] = []
    pad.observe(lambda change: stages.append(change["new"]), "stage")
    pad.do_profile()
    result = pad.wait(90)
    assert result is not None
    assert [one.graph.hash for one in result.candidates] == [found.candidates[2].graph.hash]
    assert result.candidates[0].measured is not None
    reasons = [one.reason for graph in (faulty, wrong) for one in result.refused if graph[:12] in one.what]
    assert len(reasons) == 2
    assert "ILLEGAL_ADDRESS" in reasons[0]
    assert "wrong result: output O is off by 5.00e-01" in reasons[1]  # one and a half times the right one
    assert "check" in stages  # after the fault each was tried alone
    assert "ILLEGAL_ADDRESS" in pad.panels["refused"]
    assert wrong[:12] in pad.panels["refused"]
    assert "1 candidate timed; 2 left out" in pad.panels["progress"]
    assert not pad.running
