"""Emit, compile and check a candidate in a process of its own: whatever it does, the caller goes on and knows why.

Invariant: every candidate ends as right, wrong (with what is wrong), refused (by the emitter, the compiler or the
launch, with the reason), or faulted (illegal address, timeout, crash).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from workbench.codegen.cuda.emitted import EmittedProgram
from workbench.codegen.cuda.schedule import Schedule
from workbench.core.dtypes import DType
from workbench.device.architecture import architecture
from workbench.device.check import CheckReport, cases_for, check_executable
from workbench.device.check_inputs import InputKind
from workbench.device.comparison import TOLERANCES
from workbench.device.executable import DEFAULT_OPTIONS, CompileOptions, Executable, compile, compile_program
from workbench.device.worker import Outcome, Worker, run_in_workers
from workbench.errors import EmitError, KernelCompileError, LaunchError
from workbench.ugraph.kernel_graph import KernelGraph

CHECK_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckJob:
    """A candidate to be checked.

    Attributes: graph; reference: what it should compute (None: itself); program: emitted before, else it is emitted with
    `schedules` and `library`; device; seed and kinds of the inputs; options of the compiler.
    """

    graph: KernelGraph
    reference: KernelGraph | None = None
    program: EmittedProgram | None = None
    schedules: Mapping[str, Schedule] = field(default_factory=dict)
    library: bool = True
    device: str = "h200"
    seed: int = 0
    kinds: tuple[InputKind, ...] = tuple(InputKind)
    tolerances: Mapping[DType, float] = field(default_factory=lambda: dict(TOLERANCES))
    options: CompileOptions = DEFAULT_OPTIONS


class Finding(Enum):
    """How a check ended."""

    RIGHT = "right"
    WRONG = "wrong"
    REFUSED = "refused"
    FAULTED = "faulted"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOutcome:
    """How a candidate's check ended, why if it is not right, and the report where it ran."""

    finding: Finding
    reason: str
    elapsed_s: float
    report: CheckReport | None = None


def build(job: CheckJob) -> Executable:
    """Return a job's program compiled. Raises: EmitError, KernelCompileError, UnknownNameError."""
    if job.program is not None:
        return compile_program(job.program, job.graph, architecture(job.device).name, job.options)
    return compile(job.graph, job.device, schedules=job.schedules, library=job.library, options=job.options)


def run_check(job: CheckJob) -> CheckReport:
    """Emit, compile and check in this process. Raises: what they raise."""
    executable = build(job)
    cases = cases_for(job.reference or job.graph, job.graph, seed=job.seed, kinds=job.kinds)
    return check_executable(executable, job.reference, cases=cases, tolerances=job.tolerances)


def judge(outcome: Outcome[CheckReport]) -> CheckOutcome:
    """Return what became of a candidate from what became of its process."""
    report = outcome.value
    if report is not None:
        finding = Finding.RIGHT if report.is_right else Finding.WRONG
        return CheckOutcome(finding=finding, reason=report.reason, elapsed_s=outcome.elapsed_s, report=report)
    if outcome.kind == "error" and isinstance(outcome.error, EmitError | KernelCompileError | LaunchError):
        return CheckOutcome(finding=Finding.REFUSED, reason=str(outcome.error), elapsed_s=outcome.elapsed_s)
    return CheckOutcome(
        finding=Finding.FAULTED, reason=f"{outcome.kind}: {outcome.reason}", elapsed_s=outcome.elapsed_s
    )


def check_in_worker(job: CheckJob, *, timeout_s: float = CHECK_TIMEOUT_S, worker: Worker | None = None) -> CheckOutcome:
    """Return how a candidate's check ended, at most `timeout_s` later; never raises for what the candidate does.

    worker: one that is kept for many checks, else a process is started for this one (seconds).
    """
    if worker is not None:
        return judge(worker.run(run_check, timeout_s, job))
    with Worker() as fresh:
        return judge(fresh.run(run_check, timeout_s, job))


def check_many(jobs: Sequence[CheckJob], *, workers: int = 1, timeout_s: float = CHECK_TIMEOUT_S) -> list[CheckOutcome]:
    """Return how each candidate's check ended, in order, by `workers` processes side by side on one GPU."""
    return [judge(outcome) for outcome in run_in_workers(run_check, jobs, workers=workers, timeout_s=timeout_s)]
