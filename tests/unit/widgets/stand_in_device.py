"""A device for the launchpad: what `pipeline.trial` and the check ask of a GPU, in a worker process, on host memory.

Everything around it is the real thing: the process, the pickles, compilation, the timing rounds with their checks of each
result against float64, the sorting out after a fault. A candidate's "kernel" is its graph evaluated, and takes the
microseconds that it is told to. Environment variables, which a child inherits, name the candidates that misbehave.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import workbench as wb
from tests.unit.device.fake_timing_gpu import FakeTimingGpu, contender
from workbench.device.check import CheckReport
from workbench.device.check_inputs import make_cases
from workbench.device.check_worker import CheckJob
from workbench.device.timing import TimingOptions, time_contenders
from workbench.pipeline.trial import TrialJob, TrialReport
from workbench.ugraph.kernel_graph import KernelGraph

FAULTS, WRONG, SLEEPS = "STAND_IN_FAULTS", "STAND_IN_WRONG", "STAND_IN_SLEEPS"
FIRST_US, STEP_US = 40.0, 3.0
"""The first candidate takes so long, each further one less by the step: the model's order turned around."""
DEVICE = "host memory"
_OPTIONS = TimingOptions(rounds=3, round_s=1e-9, least_launches=4, sets=2)


def run_trial(job: TrialJob) -> TrialReport:
    """Time a job's candidates; faults, sleeps or lets one compute something wrong, as the environment says."""
    time.sleep(float(os.environ.get(SLEEPS, "0")))
    for graph in job.graphs:
        _fault(graph)
    gpu = FakeTimingGpu()
    contenders = [
        contender(name, gpu, _computes(graph), FIRST_US - STEP_US * int(name))
        for name, graph in zip(job.names, job.graphs, strict=True)
    ]
    timing = time_contenders(job.program, contenders, make_cases(job.program, seed=job.seed), gpu, options=_OPTIONS)
    return TrialReport(timing=timing, device_name=DEVICE, date="2026-01-01T00:00:00+00:00")


def run_check(job: CheckJob) -> CheckReport:
    """Check one candidate alone."""
    assert job.graph is not None
    _fault(job.graph)
    return CheckReport(cases=(_RIGHT,), elapsed_s=0.0)


class _Right:
    """A case without problems."""

    name, problems, outputs = "small", (), ()


_RIGHT: Any = _Right()


def _fault(graph: KernelGraph) -> None:
    if graph.hash == os.environ.get(FAULTS):
        raise RuntimeError("CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered")


def _computes(graph: KernelGraph) -> Callable[..., Any]:
    factor = 1.5 if graph.hash == os.environ.get(WRONG) else 1.0

    def compute(*inputs: np.ndarray[Any, Any]) -> Any:
        return factor * wb.evaluate(graph, [array.astype(np.float64) for array in inputs])[0]

    return compute
