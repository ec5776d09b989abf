"""One program measured whole: our candidates and all peers, prepared on the CPU side by side, timed on the GPU in one process.

Invariant: nothing is compiled by us while something is timed; a candidate that cannot be built has a reason and stops no other.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from workbench.codegen.cuda.content_cache import content_hash
from workbench.codegen.cuda.kernel_level import emit_program
from workbench.codegen.cuda.schedule import Schedule
from workbench.codegen.cuda.storage import from_storage
from workbench.cost.hardware import Hardware, hardware
from workbench.cost.lower_bound import lower_bound
from workbench.device.architecture import architecture
from workbench.device.check_inputs import CheckCase, InputKind, make_cases
from workbench.device.comparison import ELEMENT_FACTOR, ROW_FACTOR, TOLERANCES, compare
from workbench.device.contenders import Contender, Refusal, TimingReport, contender_of
from workbench.device.executable import Executable, for_architecture
from workbench.device.executable import compile as compile_graph
from workbench.device.machine import Machine, read_machine
from workbench.device.peers import find_peers, product_parts
from workbench.device.timing import DEFAULT_TIMING, TimingOptions, time_contenders
from workbench.device.timing_gpu import CupyGpu
from workbench.device.traps import HardwareLimit
from workbench.errors import EmitError, KernelCompileError, LaunchError, UsageError
from workbench.interpret.rounded import evaluate_rounded
from workbench.ugraph.expand import expand_composites
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import OpNode

PEER_MARGIN = 2.0
"""A peer may be off by this times what rounding every tensor of the program to its type costs, if that is more than ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A µGraph of ours under a label; schedules: by the name of a node's first result."""

    label: str
    graph: KernelGraph
    schedules: Mapping[str, Schedule] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureJob:
    """What is measured: a program of predefined operators, our candidates, the names of the peers, a seed, options.

    parts: also time the program's products alone by cuBLAS.
    """

    program: KernelGraph
    candidates: tuple[Candidate, ...]
    device: str = "h200"
    peers: tuple[str, ...] = ()
    seed: int = 0
    parts: bool = False
    options: TimingOptions = DEFAULT_TIMING


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedJob:
    """A job with all that needs no GPU: inputs and right outputs, what rounding costs, refusals by emitter and compiler."""

    job: MeasureJob
    cases: tuple[CheckCase, ...]
    rounding_error: float
    refused: tuple[Refusal, ...]
    parts: tuple[tuple[str, KernelGraph, tuple[CheckCase, ...]], ...]
    elapsed_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What came of a job.

    Attributes: report: times and refusals of candidates and peers; ours: labels of the candidates; machine, after the
    timed rounds; needs: per candidate, each kernel's launch and resources; parts: microseconds, cold, of each product.
    """

    report: TimingReport
    ours: tuple[str, ...]
    machine: Machine
    needs: Mapping[str, tuple[Mapping[str, object], ...]]
    parts: Mapping[str, float]
    elapsed_s: float


def source_hash(candidates: Sequence[Candidate], device: str) -> str:
    """Return a hash of the kernels' texts and launches: the same kernels have been measured if it is the same.

    Candidates that the emitter refuses count by their graph. No compiler and no GPU is needed.
    """
    parts = []
    for candidate in candidates:
        try:
            schedules = for_architecture(candidate.graph, candidate.schedules, architecture(device))
            program = emit_program(candidate.graph, schedules=schedules)
        except EmitError as error:
            parts.append(f"{candidate.graph.hash} {error}")
            continue
        parts += [f"{kernel.source} {kernel.launch}" for kernel in program.kernels]
        parts += [str(call) for call in program.library_calls]
    return content_hash(*parts)


@dataclass(frozen=True, slots=True)
class ProgramWork:
    """What a program cannot do without: bytes, each used input read and each output written once; operations.

    Attributes: flops: of all operators as written; product_flops: of its products, which tensor cores do.
    """

    bytes: int
    flops: int
    product_flops: int

    def floor_us(self, read_tb_s: float, product_tflops: float) -> float:
        """Return microseconds at two ceilings; what other units do meanwhile, and the launch, are left out."""
        return max(self.bytes / read_tb_s, self.product_flops / product_tflops) * 1e-6


def compulsory_work(program: KernelGraph, gpu: Hardware) -> ProgramWork:
    """Return the work of a program of predefined operators. Raises: UsageError for one with graph-defined kernels."""
    bound = lower_bound(program, gpu)
    flops = 0
    for node in program.nodes:
        if not isinstance(node, OpNode):
            raise UsageError(
                f"{program.name} has a graph-defined kernel; count the work of the program it was made from"
            )
        shapes = tuple(program.tensor(name).shape for name in node.operands)
        flops += node.spec.work(shapes, node.attribute_map).flops
    return ProgramWork(bound.bytes, flops, int(bound.flops))


def hardware_limit(program: KernelGraph, gpu: Hardware) -> HardwareLimit:
    """Return what no kernel can undercut: compulsory bytes at the data sheet's bandwidth.

    Operations do not count: another order of the same products may need fewer, and is what is looked for.
    """
    rate = max(*gpu.tensor_tflops.values(), gpu.fp32_tflops)
    return HardwareLimit(lower_bound(program, gpu).bytes, 0, gpu.memory_tb_s * 1e12, rate * 1e12)


def prepare_job(job: MeasureJob) -> PreparedJob:
    """Return a job made ready without a GPU: kernels compiled into the cache, inputs drawn, right outputs evaluated.

    Raises: UsageError for a program with graph-defined kernels, and as `make_cases`.
    """
    started = time.perf_counter()
    if job.program.graph_defined:
        raise UsageError(f"{job.program.name} has graph-defined kernels; measure the program it was made from")
    refused = []
    for candidate in job.candidates:
        try:
            build(candidate, job.device)
        except (EmitError, KernelCompileError) as error:
            refused.append(Refusal(candidate.label, "", str(error)))
    plain = expand_composites(job.program)  # its exponentials are where a kernel without a maximum would overflow
    cases = make_cases(job.program, [plain], seed=job.seed, kinds=tuple(InputKind))
    parts = []
    if job.parts:
        for label, product in product_parts(job.program):
            parts.append((label, product, make_cases(product, seed=job.seed, kinds=tuple(InputKind))))
    return PreparedJob(
        job=job,
        cases=cases,
        rounding_error=max(rounding_error(job.program, case) for case in cases),
        refused=tuple(refused),
        parts=tuple(parts),
        elapsed_s=time.perf_counter() - started,
    )


def build(candidate: Candidate, device: str) -> Executable:
    """Return a candidate compiled. Raises: EmitError, KernelCompileError, UnknownNameError."""
    return compile_graph(candidate.graph, device, schedules=candidate.schedules)


def rounding_error(program: KernelGraph, case: CheckCase) -> float:
    """Return how far the outputs move, as `compare` measures, when every tensor of the program is rounded to its type."""
    inputs = [from_storage(array, tensor.dtype) for array, tensor in zip(case.inputs, program.inputs, strict=True)]
    worst = 0.0
    for tensor, found, expected in zip(program.outputs, evaluate_rounded(program, inputs), case.expected, strict=True):
        distance = compare(tensor.name, found.astype(np.float64), expected, 1.0)
        if distance.not_finite:
            return float("inf")
        scaled = distance.worst_row / ROW_FACTOR, distance.worst_element / ELEMENT_FACTOR
        worst = max(worst, distance.relative_error, *scaled)
    return worst


def measure_prepared(prepared: PreparedJob, limits_of: str | None = None) -> Measured:
    """Return the times of a prepared job's candidates and peers on the current GPU.

    limits_of: the GPU's name among the hardware records, so that times which it cannot reach are refused.

    Raises: LaunchError when there is no GPU, or it has faulted (then this process' CUDA context is lost: run it in a worker).
    """
    started = time.perf_counter()
    job, program = prepared.job, prepared.job.program
    unbuilt = {refusal.name for refusal in prepared.refused}
    refused = list(prepared.refused)
    contenders: list[Contender] = []
    needs: dict[str, tuple[Mapping[str, object], ...]] = {}
    for candidate in job.candidates:
        if candidate.label in unbuilt:
            continue
        try:
            executable = build(candidate, job.device)
            executable.load()
            contenders.append(contender_of(executable, candidate.label))
        except (EmitError, KernelCompileError, LaunchError) as error:
            refused.append(Refusal(candidate.label, "", str(error)))
            continue
        needs[candidate.label] = kernel_needs(executable)
    peers = find_peers(program, device=job.device, names=job.peers, tolerance=_peer_tolerance(prepared))
    limit = None if limits_of is None else hardware_limit(program, hardware(limits_of))
    report = time_contenders(
        program, [*contenders, *peers.contenders], prepared.cases, CupyGpu(), limit=limit, options=job.options
    )
    machine = read_machine()  # right after the rounds, so that the clocks are those of a GPU at work
    parts = {}
    for label, product, cases in prepared.parts:
        short = replace(job.options, rounds=2)
        (made,) = find_peers(product, device=job.device, names=("cublas and own kernels",)).contenders
        alone = time_contenders(product, [made], cases, CupyGpu(), options=short)
        parts[label] = alone.timings[0].cold_us if alone.timings else float("nan")
    return Measured(
        report=replace(report, refused=(*refused, *peers.refused, *report.refused)),
        ours=tuple(candidate.label for candidate in job.candidates),
        machine=machine,
        needs=needs,
        parts=parts,
        elapsed_s=time.perf_counter() - started,
    )


def _peer_tolerance(prepared: PreparedJob) -> float | None:
    """Return what a peer, which rounds every intermediate, may be off by; None for the tolerance of everyone."""
    types = [tensor.dtype for tensor in prepared.job.program.tensors.values() if tensor.dtype in TOLERANCES]
    own = max((TOLERANCES[dtype] for dtype in types), default=max(TOLERANCES.values()))
    allowed = PEER_MARGIN * prepared.rounding_error
    return allowed if own < allowed < float("inf") else None


def kernel_needs(executable: Executable) -> tuple[Mapping[str, object], ...]:
    """Return launch and resources of each kernel, in order."""
    return tuple(
        {
            "name": report.name, "grid": list(report.launch.grid), "threads": report.launch.threads,
            "cluster": list(report.launch.cluster), "registers": report.registers, "spills": report.spills,
            "shared_bytes": report.shared_bytes,
        }
        for report in executable.kernels
    )  # fmt: skip
