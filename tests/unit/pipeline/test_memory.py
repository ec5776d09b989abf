"""What measurements leave behind: the store that answers a second call, and how well the model foresaw them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import workbench as wb
from workbench.commands.measure import schedule_of
from workbench.cost.hardware import hardware
from workbench.cost.presets import preset
from workbench.pipeline import memory, superoptimize
from workbench.pipeline.candidate import Candidate, Measured
from workbench.pipeline.superoptimize import Options
from workbench.pipeline.tuning import Target
from workbench.records.candidates import candidate_store, find_candidates
from workbench.search.space import Space
from workbench.ugraph.kernel_graph import KernelGraph

H200 = hardware("h200")
SPACE = Space(max_block_ops=6)
SIZES: dict[str, Any] = {"batch": 16, "hidden": 256, "out": 192}


class Gpu:
    """Stands in for a GPU: a candidate takes twice its modelled time, the model's order turned around for the first two."""

    def __init__(self) -> None:
        self.calls = 0

    def measure(
        self, program: KernelGraph, candidates: Sequence[Candidate], *given: object, **more: object
    ) -> tuple[list[Candidate], list[object]]:
        self.calls += 1
        times = [2.0 * one.cost_us for one in candidates]
        times[:2] = reversed(times[:2])
        timed = [
            Measured(cold_us=us, warm_us=us, spread_us=0.1, relative_error=1e-3, device="a GPU", date="2026-01-01")
            for us in times
        ]
        return [replace(one, measured=time) for one, time in zip(candidates, timed, strict=True)], []


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Gpu:
    found = Gpu()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(superoptimize, "device_is_here", lambda device: True)
    monkeypatch.setattr(superoptimize, "measure_candidates", found.measure)
    return found


def run(program: KernelGraph, folder: Path, **more: Any) -> Any:
    return superoptimize.superoptimize(program, measure=True, out=folder, options=Options(space=SPACE, keep=10, **more))


def test_a_second_call_answers_from_the_store_and_measure_finds_the_best(gpu: Gpu, tmp_path: Path) -> None:
    program = wb.programs.get("rms_norm_linear", **SIZES)
    first = run(program, tmp_path / "one")
    assert gpu.calls == 1
    assert not first.cached
    again = run(program, tmp_path / "two")  # another folder: nothing but the store knows
    assert gpu.calls == 1
    assert again.cached
    assert again.best.graph.hash == first.best.graph.hash
    assert again.best.measured.is_cached
    assert again.best.kernel_choices == first.best.kernel_choices
    assert again.best.schedules == first.best.schedules
    kept = find_candidates([memory.own_store()], program, device="h200", version=wb.__version__)
    assert kept[0].cold_us == first.best.time_us
    schedules = {name: schedule_of(fields) for name, fields in kept[0].schedules.items()}
    assert schedules == first.best.schedules


def test_the_store_does_not_answer_other_requests_nor_fresh_ones(gpu: Gpu, tmp_path: Path) -> None:
    program = wb.programs.get("rms_norm_linear", **SIZES)
    run(program, tmp_path / "one")
    assert not run(program, tmp_path / "two", without=("order",)).cached
    assert not run(wb.programs.get("rms_norm_linear", **{**SIZES, "batch": 8}), tmp_path / "three").cached
    fresh = superoptimize.superoptimize(
        program, measure=True, out=tmp_path / "four", options=Options(space=SPACE, keep=10), fresh=True
    )
    assert not fresh.cached
    assert gpu.calls == 4


def test_the_fit_of_the_model_is_told(gpu: Gpu, tmp_path: Path) -> None:
    result = run(wb.programs.get("rms_norm_linear", **SIZES), tmp_path)
    assert result.fit is not None
    assert result.fit.rows == sum(one.measured is not None for one in result.candidates)
    assert 0.5 < result.fit.rank_correlation < 1.0  # two neighbours changed places
    assert result.fit.median_error == pytest.approx(0.5)
    assert result.fit.refitted_median_error < 0.5
    assert "rank correlation" in result.describe()
    values = result.to_json()["fit"]
    assert memory.ModelFit(**values) == result.fit


def test_few_measurements_are_not_judged(gpu: Gpu, tmp_path: Path) -> None:
    result = superoptimize.superoptimize(
        wb.programs.get("softmax"), measure=True, out=tmp_path, options=Options(space=SPACE, keep=3)
    )
    assert result.fit is None


def test_only_new_measurements_are_kept(gpu: Gpu, tmp_path: Path) -> None:
    result = run(wb.programs.get("rms_norm_linear", **SIZES), tmp_path / "run")
    store = candidate_store(tmp_path / "own.jsonl")
    assert memory.keep_measured(result.program, result.candidates, request="r", store=store) == len(result.candidates)
    target = Target("h200", H200, preset("calibrated"))
    kept = memory.recall(result.program, target, request="r", store=store)
    assert len(kept) == len(result.candidates)
    assert memory.keep_measured(result.program, kept, request="r", store=store) == 0
    assert memory.recall(result.program, target, request="another", store=store) == []
