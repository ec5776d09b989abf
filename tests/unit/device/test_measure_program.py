"""What is prepared without a GPU: work and limits of programs, right outputs, rounding, hashes of kernels, refusals."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import workbench as wb
from workbench.codegen.cuda.schedule import Schedule
from workbench.cost.hardware import hardware
from workbench.device.measure_program import (
    Candidate,
    MeasureJob,
    ProgramWork,
    compulsory_work,
    hardware_limit,
    prepare_job,
    rounding_error,
    source_hash,
)
from workbench.device.nvrtc import load_nvrtc
from workbench.device.peers import ALL_PEERS, CUBLAS, find_peers, product_parts
from workbench.device.traps import check_too_fast
from workbench.errors import EmitError, KernelCompileError, UsageError
from workbench.records.table_rows import TABLE_ROWS

SIZES: dict[str, Any] = {"batch": 4, "hidden": 64, "out": 48, "rank": 4}


def has_nvrtc() -> bool:
    try:
        load_nvrtc()
    except KernelCompileError:
        return False
    return True


needs_compiler = pytest.mark.skipif(not has_nvrtc(), reason="NVRTC is not installed")


@pytest.mark.parametrize("row", TABLE_ROWS, ids=lambda row: row.label)
def test_work_gives_the_floors_of_the_table(row: Any) -> None:
    work = compulsory_work(wb.programs.get(row.program, **row.sizes), hardware("h200"))
    assert work.floor_us(4.6, 661.0) == pytest.approx(row.floor_us, abs=0.06)  # the table has one decimal


def test_unused_inputs_do_not_count_and_a_used_one_counts_once() -> None:
    program = wb.trace(lambda X, Y, Z: X * X + Y, X=(8, 8), Y=(8, 8), Z=(800, 8))
    assert compulsory_work(program, hardware("h200")) == ProgramWork(bytes=3 * 64 * 2, flops=128, product_flops=0)
    with pytest.raises(UsageError, match="graph-defined kernel"):
        compulsory_work(wb.programs.known_good("lora")[0], hardware("h200"))


def test_the_limit_is_below_every_target_of_the_table_and_above_nothing() -> None:
    gpu = hardware("h200")
    for row in TABLE_ROWS:
        sizes: dict[str, Any] = {**row.sizes}
        limit = hardware_limit(wb.programs.get(row.program, **sizes), gpu)
        sets = 8
        assert check_too_fast(row.target_us * 1e-6, row.target_us * 1e-6, limit, sets, gpu.l2_bytes) == ""
    big = hardware_limit(wb.programs.get("gated_mlp", batch=8, hidden=4096, out=4096), gpu)
    assert "the hardware needs" in check_too_fast(5e-6, 5e-6, big, 4, gpu.l2_bytes)
    chain = hardware_limit(wb.trace(lambda A, B, x: (A @ B) @ x, A=(4096, 4096), B=(4096, 4096), x=(4096, 1)), gpu)
    assert check_too_fast(20e-6, 16e-6, chain, 4, gpu.l2_bytes) == ""  # A @ (B @ x): a thousandth of the operations
    assert big.cold_s(4, gpu.l2_bytes) < big.cold_s(400, gpu.l2_bytes) <= big.bytes / big.bytes_per_s


def test_hashes_follow_kernels_and_schedules() -> None:
    good = wb.programs.known_good("lora", **SIZES)
    name = good[0].nodes[0].results[0].name
    plain = source_hash([Candidate(label="a", graph=good[0])], "h200")
    assert plain == source_hash([Candidate(label="b", graph=good[0])], "h200")
    other = Candidate(label="a", graph=good[0], schedules={name: Schedule(threads=256)})
    made = [
        plain,
        source_hash([other], "h200"),
        source_hash([Candidate(label="a", graph=good[1])], "h200"),
        source_hash([Candidate(label="a", graph=graph) for graph in good], "h200"),
    ]
    assert len(set(made)) == 4


@needs_compiler
def test_a_job_is_prepared_without_a_gpu_and_travels() -> None:
    program, good = wb.programs.get("lora", **SIZES), wb.programs.known_good("lora", **SIZES)
    name = good[0].nodes[0].results[0].name
    impossible = {name: Schedule(shared_limit=64)}
    job = MeasureJob(
        program=program,
        candidates=(
            Candidate(label="good", graph=good[0]),
            Candidate(label="too small", graph=good[0], schedules=impossible),
        ),
        parts=True,
    )
    prepared = pickle.loads(pickle.dumps(prepare_job(pickle.loads(pickle.dumps(job)))))
    assert [refusal.name for refusal in prepared.refused] == ["too small"]
    assert prepared.refused[0].reason
    assert [case.name for case in prepared.cases] == ["random", "hard"]
    for case in prepared.cases:
        stored = [array.astype(np.float64) for array in case.inputs]
        np.testing.assert_allclose(case.expected[0], wb.evaluate(program, stored)[0], rtol=1e-9)
    assert 1e-5 < prepared.rounding_error < 2e-3
    assert [label for label, _, _ in prepared.parts] == ["X @ W", "X @ A", "t1 @ B"]


def test_rounding_costs_more_with_more_intermediates() -> None:
    short = wb.trace(lambda X: X + X, X=(16, 16))
    long = wb.trace(lambda X: wb.exp(X + X) * X - X / 3 + 1, X=(16, 16))
    errors = []
    for program in (short, long):
        prepared = prepare_job(MeasureJob(program=program, candidates=()))
        errors.append(max(rounding_error(program, case) for case in prepared.cases))
    assert errors[0] < 1e-3
    assert errors[0] < errors[1]


def test_attention_is_drawn_so_that_exponentials_stay_in_range() -> None:
    program = wb.programs.get("gqa", heads=2, rows=16, head_dim=32, context=128)
    prepared = prepare_job(MeasureJob(program=program, candidates=()))
    for case in prepared.cases:
        q, k, _ = (array.astype(np.float64) for array in case.inputs)
        assert np.abs(q @ k).max() <= 10.0


# --------------------------------------------------------------------------------------------------------------- peers
def test_parts_are_the_products_of_a_program() -> None:
    labels = [label for label, _ in product_parts(wb.programs.get("gated_mlp"))]
    assert labels == ["X @ W1", "X @ W2"]
    (_, part) = product_parts(wb.programs.get("gqa"))[0]
    assert [tensor.shape for tensor in part.inputs] == [(2, 256, 64), (2, 64, 4096)]
    with pytest.raises(EmitError, match="give the program itself"):
        product_parts(wb.programs.known_good("lora")[0])


class FakeTorch:
    """The parts of torch that making peers takes; compiling notes its options."""

    def __init__(self) -> None:
        self.compiled: list[dict[str, Any]] = []
        self.nn = self
        self.functional = object()

    def compile(self, function: Any, **options: Any) -> Any:
        self.compiled.append(options)
        return function


def test_peers_fit_the_program() -> None:
    torch = FakeTorch()
    names = tuple(name for name in ALL_PEERS if name != CUBLAS)
    plain = find_peers(wb.programs.get("rms_norm_linear"), device="h200", names=names, torch=torch)
    assert [one.name for one in plain.contenders] == ["eager", "compile", "compile max-autotune"]
    assert torch.compiled == [
        {"fullgraph": True, "dynamic": False},
        {"fullgraph": True, "dynamic": False, "mode": "max-autotune-no-cudagraphs"},
    ]
    gqa = find_peers(wb.programs.get("gqa"), device="h200", names=names, torch=torch, tolerance=5e-3)
    assert [one.name for one in gqa.contenders][3:] == ["sdpa flash", "sdpa cudnn", "sdpa efficient"]
    normed = find_peers(wb.programs.get("qk_norm_attention"), device="h200", names=names, torch=torch)
    assert [one.name for one in normed.contenders][-2:] == ["compile sdpa", "compile sdpa flash"]
    by_name = {one.name: one for one in gqa.contenders}
    assert by_name["sdpa flash"].layouts == {1: (64 * 4096, 1, 64)}
    assert by_name["eager"].layouts == {}
    assert {one.tolerance for one in gqa.contenders} == {5e-3}
    assert not gqa.refused


def test_without_torch_its_peers_are_listed_with_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    found = find_peers(wb.programs.get("lora"), device="h200", names=("eager", "compile"))
    assert not found.contenders
    assert [refusal.name for refusal in found.refused] == ["eager", "compile"]
    assert "pip install" in found.refused[0].reason


@needs_compiler
def test_the_unfused_program_on_cublas_is_there_where_it_has_products() -> None:
    lora = find_peers(wb.programs.get("lora", **SIZES), device="h200", names=(CUBLAS,))
    assert [one.name for one in lora.contenders] == [CUBLAS]
    assert not find_peers(wb.programs.get("softmax"), device="h200", names=(CUBLAS,)).contenders
