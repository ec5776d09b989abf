"""240 random legal block graphs on a GPU: each is right, or refused with a reason; none is wrong, none kills the process."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from tests.gpu.cases import random_cases
from tests.gpu.random_graphs import KINDS, features
from workbench.device.check_worker import CheckOutcome, Finding, check_in_worker
from workbench.device.worker import Worker

COUNT = 240
pytestmark = [pytest.mark.gpu, pytest.mark.slow, pytest.mark.timeout(900)]


def test_random_graphs(checker: Worker, device: str) -> None:
    outcomes: dict[str, CheckOutcome] = {}
    ran = []
    for case in random_cases(COUNT):
        outcomes[case.label] = check_in_worker(replace(case.job, device=device), worker=checker)
        if outcomes[case.label].finding is Finding.RIGHT:
            ran.append(features(case.job.graph))
    bad = {
        label: f"{outcome.finding.value}: {outcome.reason}"
        for label, outcome in outcomes.items()
        if outcome.finding in (Finding.WRONG, Finding.FAULTED)
    }
    assert not bad
    assert all(outcome.reason for outcome in outcomes.values() if outcome.finding is Finding.REFUSED)
    # the quotas hold among those that ran, so that refusals cannot hollow them out
    kinds = Counter(kind for found in ran for kind in found.kinds)
    assert len(ran) >= 200
    assert sum(found.products >= 1 for found in ran) >= 0.48 * len(ran)
    assert sum(found.products >= 2 for found in ran) >= 0.24 * len(ran)
    assert sum(found.is_ragged for found in ran) >= 0.24 * len(ran)
    assert all(kinds[kind] >= 10 for kind in KINDS)
