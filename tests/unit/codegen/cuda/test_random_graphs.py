"""100 random legal block graphs by quota: each is emitted and agrees with float64 on the host, or is refused with a reason.

The same recipes run on a GPU (tests/gpu/test_random_graphs.py), with another seed.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.gpu.cases import random_cases
from tests.gpu.random_graphs import KINDS, Features, features
from tests.unit.codegen.cuda.host_check import problems_on_host
from workbench.codegen.cuda.host_run import HostOptions
from workbench.device.check_inputs import InputKind
from workbench.errors import EmitError

pytestmark = pytest.mark.timeout(240)  # seconds when nothing else runs
COUNT, SEED, PARTS = 100, 3, 4


@pytest.mark.parametrize("part", range(PARTS))
def test_random_graphs_on_the_host(part: int, host_cache: Path) -> None:
    bad: dict[str, list[str]] = {}
    refused: dict[str, EmitError] = {}
    ran: list[Features] = []
    kinds = tuple(InputKind)
    for number, case in enumerate(random_cases(COUNT, SEED)):
        if number % PARTS != part:
            continue
        options = HostOptions(seed=number, cache_folder=host_cache)
        kind = kinds[number // PARTS % len(kinds)]  # one kind each: the GPU tests run both
        try:
            found = problems_on_host(case.job, kinds=(kind,), options=options)
        except EmitError as error:
            refused[case.label] = error
            continue
        ran.append(features(case.job.graph))
        if found:
            bad[case.label] = found
    assert not bad
    assert all(error.rule and error.cure for error in refused.values())
    assert len(ran) >= 0.8 * COUNT / PARTS


def test_quotas() -> None:
    """What 100 graphs contain, so that a change of the recipes cannot hollow out the test above."""
    found = [features(case.job.graph) for case in random_cases(COUNT, SEED)]
    kinds = Counter(kind for one in found for kind in one.kinds)
    assert sum(one.products >= 1 for one in found) >= 0.48 * COUNT
    assert sum(one.products >= 2 for one in found) >= 0.24 * COUNT
    assert sum(one.is_ragged for one in found) >= 0.24 * COUNT
    assert all(kinds[kind] >= 5 for kind in KINDS)
