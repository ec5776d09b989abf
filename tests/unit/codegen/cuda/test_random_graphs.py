"""100 random legal block graphs by quota: each is emitted and agrees with float64 on the host, or is refused with a reason.

The same recipes run on a GPU (tests/gpu/test_random_graphs.py), with another seed.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.gpu.cases import random_cases
from tests.gpu.random_graphs import KINDS, Features, features, random_graph, recipes
from tests.unit.codegen.cuda.host_check import problems_on_host
from workbench.codegen.cuda.host_run import HostOptions
from workbench.core.dtypes import DType
from workbench.device.check_inputs import InputKind
from workbench.device.check_worker import CheckJob
from workbench.errors import EmitError
from workbench.ugraph.nodes import AccumulatorKind

pytestmark = pytest.mark.timeout(240)  # seconds when nothing else runs
COUNT, SEED, PARTS = 100, 3, 4
RESCALED = 88
"""A recipe whose graph has a rescaled product of little depth."""

UNSET = ("-ftrivial-auto-var-init=zero", "-ftrivial-auto-var-init=pattern")
"""What a register holds that nothing was written to: either way the results must be right."""


@pytest.mark.parametrize("part", range(PARTS))
def test_random_graphs_on_the_host(part: int, host_cache: Path) -> None:
    bad: dict[str, list[str]] = {}
    refused: dict[str, EmitError] = {}
    ran: list[Features] = []
    kinds = tuple(InputKind)
    for number, case in enumerate(random_cases(COUNT, SEED)):
        if number % PARTS != part:
            continue
        fill = UNSET[number // PARTS // len(kinds) % len(UNSET)]
        options = HostOptions(seed=number, flags=(fill,), cache_folder=host_cache)
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


@pytest.mark.parametrize("fill", UNSET)
def test_warps_without_the_maxima_rescale_all_the_same(fill: str, host_cache: Path) -> None:
    """One warp has the rows' maxima, two share the depth of the product that is rescaled by them."""
    graph = random_graph(recipes(RESCALED + 1)[RESCALED]).graph
    assert AccumulatorKind.RESCALE in features(graph).kinds
    job = CheckJob(graph=graph, tolerances={DType.FLOAT32: 1e-4})
    assert not problems_on_host(job, options=HostOptions(flags=(fill,), cache_folder=host_cache))


def test_quotas() -> None:
    """What 100 graphs contain, so that a change of the recipes cannot hollow out the test above."""
    found = [features(case.job.graph) for case in random_cases(COUNT, SEED)]
    kinds = Counter(kind for one in found for kind in one.kinds)
    assert sum(one.products >= 1 for one in found) >= 0.48 * COUNT
    assert sum(one.products >= 2 for one in found) >= 0.24 * COUNT
    assert sum(one.is_ragged for one in found) >= 0.24 * COUNT
    assert all(kinds[kind] >= 5 for kind in KINDS)
