"""The last stage: where there is a GPU it decides; candidates are compiled, checked and timed side by side.

Invariant: everything that touches the GPU runs in a process of its own; a candidate that faults is found, listed with its
reason and left out, and the others are timed.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from workbench.codegen.cuda.kernel_level import emit_program
from workbench.codegen.cuda.schedule import Schedule
from workbench.cost.hardware import Hardware
from workbench.device.architecture import architecture
from workbench.device.check import cases_for
from workbench.device.check_worker import CheckJob, Finding, check_in_worker
from workbench.device.compile import CompileRequest
from workbench.device.compile_many import compile_many
from workbench.device.contenders import TimingReport, contender_of
from workbench.device.executable import compile as compile_graph
from workbench.device.executable import for_architecture
from workbench.device.launch import load_cupy
from workbench.device.measure_program import hardware_limit
from workbench.device.timing import TimingOptions, time_contenders
from workbench.device.timing_gpu import CupyGpu
from workbench.device.traps import HardwareLimit
from workbench.device.worker import Worker
from workbench.errors import KernelCompileError, LaunchError
from workbench.pipeline.candidate import Candidate, Measured, Refusal, refused_graph
from workbench.pipeline.progress import Progress, Stage
from workbench.ugraph.kernel_graph import KernelGraph

TIMEOUT_S = 120.0
DROP_FACTOR = 1.25
"""A candidate that is this much slower than the fastest after one turn is not timed further."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialJob:
    """Candidates of one program to be timed side by side; what a worker process is sent."""

    program: KernelGraph
    names: tuple[str, ...]
    graphs: tuple[KernelGraph, ...]
    schedules: tuple[Mapping[str, Schedule], ...]
    device: str
    limit: HardwareLimit
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialReport:
    """What came of a trial: the times, and what they were taken on."""

    timing: TimingReport
    device_name: str
    date: str


def run_trial(job: TrialJob) -> TrialReport:
    """Check and time a job's candidates in this process. Raises: LaunchError when the device faults, or is missing."""
    executables = [
        compile_graph(graph, job.device, schedules=schedules)
        for graph, schedules in zip(job.graphs, job.schedules, strict=True)
    ]
    cases = cases_for(job.program, job.graphs[0], seed=job.seed)
    contenders = [contender_of(one, name) for one, name in zip(executables, job.names, strict=True)]
    timing = time_contenders(
        job.program, contenders, cases, CupyGpu(), limit=job.limit, options=TimingOptions(drop_factor=DROP_FACTOR)
    )
    cupy = load_cupy()
    name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return TrialReport(timing=timing, device_name=name, date=date)


def device_is_here(device: str) -> bool:
    """Return whether this machine's GPU has the architecture that a device's kernels are made for."""
    try:
        cupy = load_cupy()
        if cupy.cuda.runtime.getDeviceCount() < 1:
            return False
        properties = cupy.cuda.runtime.getDeviceProperties(0)
    except Exception:  # no library, no driver, no device: all mean that nothing can be timed
        return False
    wanted = architecture(device).name.rstrip("a").removeprefix("sm_")
    return f"{properties['major']}{properties['minor']}" == wanted


def measure_candidates(
    program: KernelGraph,
    candidates: Sequence[Candidate],
    hardware: Hardware,
    *,
    seed: int,
    progress: Progress,
    is_over: Callable[[], bool],
) -> tuple[list[Candidate], list[Refusal]]:
    """Return the candidates with their times where they have one, and those that do not compile, are wrong or fault.

    Raises: LaunchError when no candidate can be timed because there is no usable GPU.
    """
    total = len(candidates)
    progress(Stage("compile", 0, total))
    left, refused = _compiled(candidates)
    progress(Stage("time", 0, len(left)))
    limit = hardware_limit(program, hardware)
    with Worker() as worker:
        while left and not is_over():
            job = TrialJob(
                program=program,
                names=tuple(f"{number}" for number in range(len(left))),
                graphs=tuple(one.graph for one in left),
                schedules=tuple(one.schedules for one in left),
                device=left[0].device,
                limit=limit,
                seed=seed,
            )
            outcome = worker.run(run_trial, TIMEOUT_S, job)
            if outcome.value is not None:
                timed, wrong = _read(left, outcome.value)
                progress(Stage("time", len(left), len(left)))
                return timed, [*refused, *wrong]
            sound, faulty = _sorted_out(program, left, seed, worker, progress)
            refused += faulty
            if len(sound) == len(left):
                raise LaunchError(
                    f"the candidates run one by one, but not side by side: {outcome.kind}: {outcome.reason}"
                )
            left = sound
    return list(left), refused


def _compiled(candidates: Sequence[Candidate]) -> tuple[list[Candidate], list[Refusal]]:
    """Compile all kernels in parallel into the cache; return those whose kernels all compiled."""
    requests: dict[CompileRequest, None] = {}
    needs: list[list[CompileRequest]] = []
    for one in candidates:
        target = architecture(one.device)
        program = emit_program(one.graph, schedules=for_architecture(one.graph, one.schedules, target))
        own = [CompileRequest(source=kernel.source, arch=target.name) for kernel in program.kernels]
        needs.append(own)
        requests.update(dict.fromkeys(own))
    results = dict(zip(requests, compile_many(list(requests), workers=os.cpu_count()), strict=True))
    left, refused = [], []
    for one, own in zip(candidates, needs, strict=True):
        faults = [result for result in map(results.get, own) if isinstance(result, KernelCompileError)]
        if faults:
            refused.append(refused_graph("compile", one.graph, str(faults[0])))
        else:
            left.append(one)
    return left, refused


def _read(candidates: Sequence[Candidate], report: TrialReport) -> tuple[list[Candidate], list[Refusal]]:
    timed, refused = [], []
    for number, one in enumerate(candidates):
        timing, reason = report.timing.timing(f"{number}"), report.timing.refusal(f"{number}")
        if timing is not None:
            measured = Measured(
                cold_us=timing.cold_us,
                warm_us=timing.warm_us,
                spread_us=timing.cold_spread_us,
                relative_error=timing.relative_error,
                device=report.device_name,
                date=report.date,
            )
            timed.append(replace(one, measured=measured))
        elif reason is not None:
            refused.append(refused_graph("check" if reason.trap else "measure", one.graph, reason.describe()))
    return timed, refused


def _sorted_out(
    program: KernelGraph, candidates: Sequence[Candidate], seed: int, worker: Worker, progress: Progress
) -> tuple[list[Candidate], list[Refusal]]:
    """Return the candidates that run, and those that fault, each tried alone."""
    sound, faulty = [], []
    for number, one in enumerate(candidates):
        progress(Stage("check", number, len(candidates)))
        job = CheckJob(graph=one.graph, reference=program, schedules=one.schedules, device=one.device, seed=seed)
        outcome = check_in_worker(job, worker=worker)
        if outcome.finding is Finding.RIGHT:
            sound.append(one)
        else:
            faulty.append(refused_graph("check", one.graph, f"{outcome.finding.value}: {outcome.reason}"))
    return sound, faulty
