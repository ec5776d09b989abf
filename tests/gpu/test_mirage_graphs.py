"""Mirage's 103 right graphs at their full shapes on a GPU: emitted, run, and compared with their programs in float64."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.gpu.cases import MIRAGE_FILES, mirage_cases
from workbench.device.check_worker import Finding, check_in_worker
from workbench.device.worker import Worker

pytestmark = [pytest.mark.gpu, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.mark.parametrize("file", MIRAGE_FILES)
def test_every_right_graph_runs_and_agrees(file: str, shared_data: Path, checker: Worker, device: str) -> None:
    folder = shared_data / "mirage_mugraphs"
    if not folder.is_dir():
        pytest.skip(f"no folder mirage_mugraphs in {shared_data}")
    bad = {}
    cases = [case for case in mirage_cases(folder) if case.label.startswith(f"{file}[")]
    for case in cases:
        outcome = check_in_worker(replace(case.job, device=device), worker=checker)
        if outcome.finding is not Finding.RIGHT:
            bad[case.label] = f"{outcome.finding.value}: {outcome.reason}"
    assert not bad
    assert cases
