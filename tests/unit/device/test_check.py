"""Checks find what is wrong: values, rows, what was not written, changed inputs, stray writes, unsteady results."""

from __future__ import annotations

import ctypes
import itertools
from pathlib import Path

import numpy as np
import pytest

from tests.unit.device.hand_made import product_and_input, thrice
from tests.unit.device.host_gpu import HostGpu
from workbench.device.check import check_executable
from workbench.device.check_inputs import InputKind, make_cases
from workbench.device.check_worker import CheckJob, Finding, check_in_worker, judge, run_check
from workbench.device.executable import CompileOptions, Executable
from workbench.device.launch import load_cupy
from workbench.device.worker import Outcome
from workbench.errors import EmitError, KernelCompileError, LaunchError
from workbench.ugraph.tracing import trace

COUNT = 3 * 70


def halves(address: int, count: int = COUNT) -> np.ndarray[tuple[int], np.dtype[np.float16]]:
    """Return the float16 numbers at an address."""
    return np.ctypeslib.as_array((ctypes.c_uint16 * count).from_address(address)).view(np.float16)


def add(a: int, b: int, y: int) -> None:
    halves(y)[:] = halves(a) + halves(b)


def test_a_right_program(gpu: HostGpu, thrice_x: Executable) -> None:
    report = check_executable(thrice_x)
    assert report.is_right, report.describe()
    assert [case.name for case in report.cases] == ["random", "hard"]
    assert 0 < report.relative_error < 1e-3
    assert report.reason == ""
    assert report.to_json()["is_right"] is True
    assert report.describe().startswith("right\n  random inputs, Y: error ")


def test_strides_broadcasts_and_several_outputs(gpu: HostGpu) -> None:
    program, graph = product_and_input()
    report = check_executable(Executable(graph, program, gpu.compiled(program), "sm_90a"))
    assert report.is_right, report.describe()
    assert [len(case.outputs) for case in report.cases] == [4, 4]


def test_another_reference(gpu: HostGpu, thrice_x: Executable) -> None:
    assert check_executable(thrice_x, trace(lambda X: X * 3, X=(3, 70))).is_right
    report = check_executable(thrice_x, trace(lambda X: X * 3.02, X=(3, 70)))
    assert not report.is_right
    assert report.reason.startswith("random inputs: output Y is off by ")


def test_a_kernel_that_does_nothing(gpu: HostGpu, thrice_x: Executable) -> None:
    gpu.behaviours["added"] = lambda a, b, y: None
    assert "210 elements that are not finite" in check_executable(thrice_x).reason


def test_intermediates_of_an_earlier_run_are_not_used(gpu: HostGpu, thrice_x: Executable) -> None:
    thrice_x(np.zeros((3, 70), np.float16))  # leaves a right intermediate
    gpu.behaviours["twice"] = lambda x, y: None
    assert "not finite" in check_executable(thrice_x).reason


def test_a_row_with_the_statistic_of_another(gpu: HostGpu, thrice_x: Executable) -> None:
    def wrong(a: int, b: int, y: int) -> None:
        add(a, b, y)
        halves(y)[70:140] *= np.float16(1.01)

    gpu.behaviours["added"] = wrong
    assert "is off by" in check_executable(thrice_x).reason


def test_a_changed_input(gpu: HostGpu, thrice_x: Executable) -> None:
    def wrong(a: int, b: int, y: int) -> None:
        add(a, b, y)
        halves(b)[0] = 7

    gpu.behaviours["added"] = wrong
    report = check_executable(thrice_x)
    assert any("input X was changed" in problem for case in report.cases for problem in case.problems)


@pytest.mark.parametrize("place", [-1, COUNT])
def test_a_stray_write(gpu: HostGpu, thrice_x: Executable, place: int) -> None:
    def wrong(a: int, b: int, y: int) -> None:
        add(a, b, y)
        halves(y + 2 * place, 1)[0] = 0

    gpu.behaviours["added"] = wrong
    assert check_executable(thrice_x).reason == "random inputs: memory around output Y was written"


def test_results_that_differ_from_run_to_run(gpu: HostGpu, thrice_x: Executable) -> None:
    number = itertools.count()

    def wrong(a: int, b: int, y: int) -> None:
        add(a, b, y)
        halves(y)[5] *= np.float16(1 + 0.002 * (next(number) % 2))

    gpu.behaviours["added"] = wrong
    assert check_executable(thrice_x).reason == "random inputs: output Y differs from run to run"


def test_cases_can_be_shared(gpu: HostGpu, thrice_x: Executable) -> None:
    cases = make_cases(thrice_x.graph, kinds=[InputKind.HARD])
    report = check_executable(thrice_x, cases=cases)
    assert [case.name for case in report.cases] == ["hard"]


# ----------------------------------------------------------------------------------------------------- in a worker
def test_what_becomes_of_candidates(gpu: HostGpu, thrice_x: Executable) -> None:
    report = check_executable(thrice_x)
    done = judge(Outcome(kind="done", reason="", elapsed_s=1.0, value=report))
    assert (done.finding, done.reason, done.report) == (Finding.RIGHT, "", report)
    gpu.behaviours["added"] = lambda a, b, y: None
    wrong = judge(Outcome(kind="done", reason="", elapsed_s=1.0, value=check_executable(thrice_x)))
    assert wrong.finding is Finding.WRONG
    assert "not finite" in wrong.reason
    for error in (EmitError("no rule", "t3"), KernelCompileError("no"), LaunchError("too much shared memory")):
        refused = judge(Outcome(kind="error", reason="r", elapsed_s=1.0, error=error))
        assert (refused.finding, refused.reason) == (Finding.REFUSED, str(error))
    fault = judge(Outcome(kind="device fault", reason="illegal address", elapsed_s=1.0, error=LaunchError("illegal")))
    assert (fault.finding, fault.reason) == (Finding.FAULTED, "device fault: illegal address")
    late = judge(Outcome(kind="timeout", reason="not ended", elapsed_s=9.0))
    assert (late.finding, late.reason, late.elapsed_s) == (Finding.FAULTED, "timeout: not ended", 9.0)
    assert judge(Outcome(kind="error", reason="ValueError: x", elapsed_s=1.0)).finding is Finding.FAULTED


def has_gpu() -> bool:
    try:
        load_cupy()
    except LaunchError:
        return False
    return True


def test_a_candidate_in_a_process_of_its_own(cubin_cache: Path) -> None:
    """Without a GPU the kernels are compiled and the launch is refused; with one the candidate is right."""
    program, graph = thrice()
    options = CompileOptions(cache_folder=cubin_cache)
    outcome = check_in_worker(CheckJob(graph=graph, program=program, options=options), timeout_s=50)
    if has_gpu():
        assert outcome.finding is Finding.RIGHT
    else:
        assert (outcome.finding, outcome.reason) == (
            Finding.REFUSED,
            "no CUDA device here; compile works without one, a launch does not",
        )
    assert len(list(cubin_cache.glob("*.cubin"))) >= 2


def test_a_job_is_built_with_its_program(gpu: HostGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    program, graph = thrice()
    made = Executable(graph, program, gpu.compiled(program), "sm_90a")
    seen = []

    def compile_program(*arguments: object) -> Executable:
        seen.append(arguments[2])
        return made

    monkeypatch.setattr("workbench.device.check_worker.compile_program", compile_program)
    assert run_check(CheckJob(graph=graph, program=program, device="a100", seed=2)).is_right
    assert seen == ["sm_80"]
