"""Candidates that go wrong on purpose, on a GPU: each ends with its reason, and this process' CUDA context lives on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.gpu.cases import FAULTS, fault_job
from workbench.device.check_worker import Finding, check_in_worker, check_many
from workbench.device.launch import load_cupy
from workbench.device.worker import Worker

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(180)]
LIMIT_S = 12.0  # a fresh process needs some seconds for its CUDA context


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_ends_its_candidate_only(name: str, checker: Worker, device: str) -> None:
    ours = load_cupy().arange(1000)
    _, _, finding, reason = FAULTS[name]
    outcome = check_in_worker(replace(fault_job(name), device=device), worker=checker, timeout_s=LIMIT_S)
    assert (outcome.finding, reason in outcome.reason) == (finding, True), outcome
    assert int((ours + 1).sum()) == 500500
    after = check_in_worker(replace(fault_job("right"), device=device), worker=checker, timeout_s=60)
    assert after.finding is Finding.RIGHT, after.reason


def test_faults_side_by_side(device: str) -> None:
    names = list(FAULTS)
    outcomes = check_many([replace(fault_job(name), device=device) for name in names], workers=4, timeout_s=20)
    assert {name: outcome.finding for name, outcome in zip(names, outcomes, strict=True)} == {
        name: finding for name, (_, _, finding, _) in FAULTS.items()
    }
