"""The known good µGraphs of every program on a GPU against float64: at full sizes, awkward sizes, in every data type."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.gpu.cases import GpuCase, known_good_cases, size_cases, unfused_cases
from workbench.device.check_worker import Finding, build, check_in_worker
from workbench.device.compile import disassemble
from workbench.device.worker import Worker

pytestmark = [pytest.mark.gpu, pytest.mark.slow]
CASES = {case.label: case for case in [*known_good_cases(), *size_cases(), *unfused_cases()]}


@pytest.mark.parametrize("label", CASES)
def test_agrees_with_float64(label: str, checker: Worker, device: str) -> None:
    outcome = check_in_worker(replace(CASES[label].job, device=device), worker=checker)
    assert outcome.finding is Finding.RIGHT, outcome.reason


@pytest.mark.parametrize("case", known_good_cases(), ids=lambda case: case.label)
def test_products_run_on_tensor_cores_and_nothing_spills(case: GpuCase, device: str) -> None:
    executable = build(replace(case.job, device=device))
    for kernel, report in zip(executable.program.kernels, executable.kernels, strict=True):
        assert report.spills == 0, kernel.name
        if kernel.products:
            assert "MMA." in disassemble(executable.compiled[kernel.name].cubin), kernel.name
