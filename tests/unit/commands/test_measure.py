"""`workbench measure`: rows with all their keys, kept one by one and resumed, replayed without a GPU, faults as rows."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.commands.calling import answer, ask, complaint
from tests.unit.records.measured_rows import made_rows
from workbench.codegen.cuda.schedule import WarpLayout
from workbench.commands import measure
from workbench.device import peers
from workbench.device.ceilings import Ceilings, measure_ceilings
from workbench.device.contenders import Refusal, Timing, TimingReport
from workbench.device.counters import Traffic
from workbench.device.machine import Machine
from workbench.device.measure_program import Measured, MeasureJob, PreparedJob, prepare_job
from workbench.device.peer_warmup import load_torch, warm_peers
from workbench.device.worker import Outcome
from workbench.errors import LaunchError
from workbench.records.candidates import StoredCandidate, candidate_store, save_candidate
from workbench.records.measurements import REQUIRED, measurement_store

SIZES = ["--set", "batch=2", "hidden=64", "out=32", "rank=4"]
MACHINE = Machine(
    gpu="NVIDIA H200", driver="580", clocks={"sm": "1980 MHz"}, temperature_c="40", power_w="", cores=16,
    versions={"torch": "2.11"}, date="2026-11-29T12:00:00+00:00", commit="abc",
)  # fmt: skip
KEYS = {
    "program", "parameters", "table", "ours_us", "peers", "best_peer", "best_peer_us", "ratio", "floor_us", "relative_error",
    "correct",
}  # fmt: skip
"""DESIGN section 10."""


def timing(name: str, cold_us: float) -> Timing:
    return Timing(
        name=name, cold_us=cold_us, cold_spread_us=0.1, warm_us=cold_us * 0.8, warm_spread_us=0.1, call_us=9.0, replays=50,
        relative_error=3e-4,
    )  # fmt: skip


class Gpu:
    """Stands in for the worker processes and the GPU behind them; `behaviour` makes outcomes of jobs."""

    def __init__(self, behaviour: Callable[[MeasureJob], Outcome[Measured]]) -> None:
        self.behaviour, self.measured, self.warmed = behaviour, list[MeasureJob](), list[tuple[str, ...]]()
        self.ceilings: Outcome[Ceilings] = Outcome(kind="done", reason="", elapsed_s=0.1, value=Ceilings(4.6, 660.0))

    def __enter__(self) -> Gpu:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def run(self, function: Callable[..., Any], timeout_s: float, *arguments: Any) -> Any:
        if function is load_torch:
            return Outcome(kind="done", reason="", elapsed_s=0.1, value=True)
        if function is measure_ceilings:
            return self.ceilings
        prepared, device = arguments
        assert device == "h200"
        self.measured.append(prepared.job)
        return self.behaviour(prepared.job)


def right(job: MeasureJob) -> Outcome[Measured]:
    """Ours takes 10 and 8 us, eager 20, compile 12, the unfused program 6; flash cannot."""
    ours = tuple(candidate.label for candidate in job.candidates)
    timings = [timing(label, 10.0 - 2.0 * number) for number, label in enumerate(ours[:2])]
    timings += [timing("eager", 20.0), timing("compile", 12.0), timing(peers.CUBLAS, 6.0)]
    report = TimingReport(
        timings=tuple(timings), refused=(Refusal("sdpa flash", "", "RuntimeError: no kernel"),), node_us=1.2, sets=8,
        set_bytes=100, l2_bytes=60 << 20, rounds=5, elapsed_s=1.0,
    )  # fmt: skip
    needs = {label: ({"name": "k", "registers": 99},) for label in ours}
    measured = Measured(report=report, ours=ours, machine=MACHINE, needs=needs, parts={"X @ W": 5.0}, elapsed_s=2.0)
    return Outcome(kind="done", reason="", elapsed_s=2.0, value=measured)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Gpu:
    """A GPU machine on which everything goes well."""
    made = Gpu(right)

    def prepare(function: Any, jobs: list[Any], *, workers: int, timeout_s: float) -> list[Outcome[Any]]:
        if function is warm_peers:
            made.warmed += [names for _, names, _ in jobs]
            return [Outcome(kind="crash", reason="torch is broken", elapsed_s=0.1) for _ in jobs]
        assert function is prepare_job
        return [
            Outcome(
                kind="done", reason="", elapsed_s=0.1,
                value=PreparedJob(job=job, cases=(), rounding_error=1e-3, refused=(), parts=(), elapsed_s=0.1),
            )
            for job in jobs
        ]  # fmt: skip

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(measure, "read_machine", lambda: MACHINE)
    monkeypatch.setattr(measure, "Worker", lambda: made)
    monkeypatch.setattr(measure, "run_in_workers", prepare)
    return made


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Machine:
        raise LaunchError("no CUDA device here")

    monkeypatch.setattr(measure, "read_machine", missing)


def test_a_row_has_every_key_and_the_fastest_of_ours(
    capsys: pytest.CaptureFixture[str], gpu: Gpu, tmp_path: Path
) -> None:
    out = tmp_path / "h200.jsonl"
    told = answer(capsys, "measure", "lora", *SIZES, "--out", out)
    (row,) = told["rows"]
    assert row.keys() >= KEYS | REQUIRED
    assert row["parameters"] == {"batch": 2, "hidden": 64, "out": 32, "rank": 4}
    assert (row["ours_us"], row["best_peer"], row["best_peer_us"], row["ratio"]) == (8.0, "compile", 12.0, 1.5)
    assert row["peers"] == {"eager": 20.0, "compile": 12.0}
    assert row["references"] == {peers.CUBLAS: 6.0, "cublas X @ W": 5.0}  # not what anybody else runs, so no peer
    assert row["refused"] == {"sdpa flash": "RuntimeError: no kernel"}
    assert row["correct"] is True
    assert row["table"] is False
    assert row["floor_us"] == pytest.approx(row["bytes"] / 4.6e6, rel=1e-6)
    assert row["traffic"]["device"]["measured"] is False
    assert (row["gpu"], row["driver"], row["commit"]) == ("NVIDIA H200", "580", "abc")
    assert told["geomean"] == 1.5
    assert told["replayed"] is False
    assert measurement_store(out).records() == (row,)


def test_all_rows_resume_one_by_one(capsys: pytest.CaptureFixture[str], gpu: Gpu, tmp_path: Path) -> None:
    out = tmp_path / "h200.jsonl"
    only = ["measure", "--all", "--only", "ntrans,lora", "--out", str(out)]
    assert len(answer(capsys, *only)["rows"]) == 4
    assert len(gpu.measured) == 4
    lines = out.read_text().splitlines()
    out.write_text("\n".join(lines[:2]) + "\n" + lines[2][:100])  # killed while the third was written
    told = answer(capsys, *only)
    assert [row["table"] for row in told["rows"]] == [True] * 4
    assert len(gpu.measured) == 6
    assert len(measurement_store(out).records()) == 4
    answer(capsys, *only)
    assert len(gpu.measured) == 6
    answer(capsys, *only, "--fresh")
    assert len(gpu.measured) == 10


def test_rows_of_other_kernels_or_peers_are_not_kept(
    capsys: pytest.CaptureFixture[str], gpu: Gpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = ["measure", "lora", *SIZES, "--out", str(tmp_path / "a.jsonl")]
    answer(capsys, *call, "--peers", "eager")
    answer(capsys, *call, "--peers", "eager")
    assert len(gpu.measured) == 1
    answer(capsys, *call, "--peers", "eager,compile")
    assert len(gpu.measured) == 2
    answer(capsys, *call, "--peers", "eager")  # more peers than asked for are there
    assert len(gpu.measured) == 2
    monkeypatch.setattr(measure, "source_hash", lambda candidates, device: "another emitter")
    answer(capsys, *call, "--peers", "eager")
    assert len(gpu.measured) == 3


def test_a_fault_is_a_row_and_the_others_go_on(capsys: pytest.CaptureFixture[str], gpu: Gpu, tmp_path: Path) -> None:
    def behaviour(job: MeasureJob) -> Outcome[Measured]:
        if job.program.name == "lora":
            return Outcome(kind="device fault", reason="illegal address", elapsed_s=1.0)
        return right(job)

    gpu.behaviour = behaviour
    call = ["measure", "--all", "--only", "ntrans,lora", "--out", str(tmp_path / "a.jsonl")]
    told = answer(capsys, *call, code=1)
    assert [row["correct"] for row in told["rows"]] == [False, False, True, True]
    assert told["rows"][0]["refused"] == {"all": "device fault: illegal address"}
    assert told["rows"][0]["ratio"] is None
    assert told["geomean"] is None
    gpu.behaviour = right
    assert all(row["correct"] for row in answer(capsys, *call)["rows"])  # only those that failed are tried again
    assert len(gpu.measured) == 6


def test_ours_that_is_wrong_is_a_row_without_a_time(
    capsys: pytest.CaptureFixture[str], gpu: Gpu, tmp_path: Path
) -> None:
    def behaviour(job: MeasureJob) -> Outcome[Measured]:
        measured = right(job).value
        assert measured is not None
        report = TimingReport(
            timings=(timing("eager", 20.0),), refused=(Refusal("known good 0", "wrong result", "off by 0.2"),), node_us=1.0,
            sets=8, set_bytes=1, l2_bytes=1, rounds=1, elapsed_s=1.0,
        )  # fmt: skip
        told = Measured(report=report, ours=measured.ours, machine=MACHINE, needs={}, parts={}, elapsed_s=1.0)
        return Outcome(kind="done", reason="", elapsed_s=1.0, value=told)

    gpu.behaviour = behaviour
    code, out, _ = ask(capsys, "measure", "lora", *SIZES, "--out", tmp_path / "a.jsonl")
    assert code == 1
    assert "NOT RIGHT: lora" in out
    (row,) = measurement_store(tmp_path / "a.jsonl").records()
    assert (row["ours_us"], row["best_peer"], row["ratio"], row["correct"]) == (None, "eager", None, False)
    assert row["refused"] == {"known good 0": "wrong result: off by 0.2"}


def test_ceilings_that_cannot_be_measured_come_from_the_hardware_record(
    capsys: pytest.CaptureFixture[str], gpu: Gpu, tmp_path: Path
) -> None:
    gpu.ceilings = Outcome(kind="error", reason="no cuBLAS", elapsed_s=0.1)
    (row,) = answer(capsys, "measure", "lora", *SIZES, "--out", tmp_path / "a.jsonl")["rows"]
    assert "no cuBLAS" in row["ceilings"]["source"]
    assert row["floor_us"] > 0


def test_kept_candidates_go_before_known_good_ones(
    capsys: pytest.CaptureFixture[str], gpu: Gpu, tmp_path: Path
) -> None:
    from workbench import __version__, programs

    sizes: dict[str, Any] = {"batch": 2, "hidden": 64, "out": 32, "rank": 4}
    program, good = programs.get("lora", **sizes), programs.known_good("lora", **sizes)
    schedules = {good[1].nodes[0].results[0].name: {"threads": 256, "layouts": {"t": {"rows": 2}}, "unknown": 1}}
    candidate = StoredCandidate(graph=good[1], cold_us=3.0, schedules=schedules)
    store = candidate_store(tmp_path / "cache" / "mugraph-workbench" / "records" / "candidates.jsonl")
    save_candidate(store, program, candidate, device="h200", version=__version__)
    answer(capsys, "measure", "lora", *SIZES, "--out", tmp_path / "a.jsonl")
    (job,) = gpu.measured
    assert [one.label for one in job.candidates][:2] == ["stored 0", "known good 0"]
    assert job.candidates[0].graph.hash == good[1].hash
    (schedule,) = job.candidates[0].schedules.values()
    assert schedule.threads == 256
    assert schedule.layouts["t"] == WarpLayout(rows=2)


def test_peers_are_compiled_ahead_where_there_are_cores(
    capsys: pytest.CaptureFixture[str], gpu: Gpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = ["measure", "--all", "--only", "ntrans", "--peers", "eager,compile", "--out", str(tmp_path / "a.jsonl")]
    monkeypatch.setattr(measure, "_cores", lambda: 2)
    answer(capsys, *call)
    assert gpu.warmed == []
    monkeypatch.setattr(measure, "_cores", lambda: 16)
    answer(capsys, *call, "--fresh")  # a warm-up that fails costs time only
    assert gpu.warmed == [("eager", "compile")] * 2


def test_counters_are_added_to_rows_that_lack_them(
    capsys: pytest.CaptureFixture[str], gpu: Gpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, asked = tmp_path / "a.jsonl", list[str]()

    def count(targets: list[Any], hardware: Any) -> list[Traffic]:
        asked.extend(target.label for target in targets)
        assert all(len(target.inputs) == len(target.graph.inputs) for target in targets)
        return [Traffic(device_bytes=1e6, l2_bytes=2e6, is_measured=True, kernels=1) for _ in targets]

    monkeypatch.setattr(measure, "count_targets", count)
    call = ["measure", "--all", "--only", "ntrans", "--out", str(out)]
    assert not any(row["traffic"]["device"]["measured"] for row in answer(capsys, *call)["rows"])
    rows = answer(capsys, *call, "--counters")["rows"]
    assert [row["traffic"]["device"] for row in rows] == [{"bytes": 1e6, "measured": True}] * 2
    assert len(asked) == 2
    assert len(measurement_store(out).records()) == 4
    assert len(gpu.measured) == 2
    answer(capsys, *call, "--counters")
    assert len(asked) == 2


def test_without_a_gpu_it_says_so_and_names_the_way_out(capsys: pytest.CaptureFixture[str], no_gpu: None) -> None:
    assert "--replay tells what was measured before" in complaint(capsys, "measure", "lora")


def test_records_replay_without_a_gpu(capsys: pytest.CaptureFixture[str], no_gpu: None, tmp_path: Path) -> None:
    path = tmp_path / "kept.jsonl"
    store = measurement_store(path)
    for row in made_rows():
        store.append(row)
    told = answer(capsys, "measure", "--all", "--replay", "--out", path)
    assert len(told["rows"]) == 16
    assert told["replayed"] is True
    assert told["geomean"] == pytest.approx(1.5, abs=0.2)
    assert len(answer(capsys, "measure", "ntrans", "--replay", "--out", path)["rows"]) == 1  # at its own sizes
    code, out, _ = ask(capsys, "measure", "--all", "--replay", "--table", "--out", path)
    assert code == 0
    assert out.startswith("| program |")
    assert "One NVIDIA H200" in out
    drawn = answer(capsys, "measure", "--all", "--replay", "--out", path, "--figures", tmp_path / "figures")["figures"]
    assert len(drawn) == 6
    assert all(Path(name).is_file() for name in drawn)
    assert "has no record" in complaint(capsys, "measure", "softmax", "--replay", "--out", path)
    assert "there are no records here" in complaint(
        capsys, "measure", "gqa", "--replay", "--out", tmp_path / "missing.jsonl"
    )
    for other in (["--style", "mirage"], ["--dtype", "bfloat16"]):  # another program at the same sizes
        assert "has no record" in complaint(capsys, "measure", "ntrans", "--replay", "--out", path, *other)


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (["measure"], "name one program, or give --all"),
        (["measure", "gqa", "--all"], "name one program, or give --all"),
        (["measure", "--all", "--set", "batch=2"], "leave --set"),
        (["measure", "--all", "--only", "nothing of this"], "no row of the speed table"),
        (["measure", "gqa", "--only", "x"], "--only chooses rows of --all"),
        (["measure", "gqa", "--peers", "tensorrt"], "unknown peer 'tensorrt'"),
        (["measure", "gqq"], "did you mean gqa"),
        (["measure", "gqa", "--device", "h900"], "no GPU 'h900'"),
    ],
)
def test_mistakes_are_one_line(capsys: pytest.CaptureFixture[str], gpu: Gpu, tokens: list[str], message: str) -> None:
    assert message in complaint(capsys, *tokens)


def test_the_command_needs_nothing_that_a_gpu_machine_lacks() -> None:
    code = "import sys, json, workbench.commands.measure\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stdout))
    assert not loaded & {"z3", "matplotlib", "ipywidgets", "IPython", "graphviz", "scipy", "pandas", "torch", "cupy"}
