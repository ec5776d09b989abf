"""Does this GPU run the device header right: one of its checks, compiled and run here (in a worker, since it may fault)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from workbench.codegen.cuda.selftest import intrinsic_cases
from workbench.device.compile import compile_cubin
from workbench.device.launch import run_on_device
from workbench.errors import UnknownNameError


@dataclass(frozen=True, slots=True)
class CaseResult:
    """What a check gave: what is wrong ("" if nothing), seconds to compile (0 from the cache), registers a thread."""

    complaint: str
    compile_s: float
    registers: int


def run_case(name: str, arch: str, cache_folder: Path | None = None) -> CaseResult:
    """Run the check of this name on the current device. Raises: UnknownNameError; what compile and launch raise."""
    cases = {case.name: case for case in intrinsic_cases()}
    if name not in cases:
        raise UnknownNameError(f"no check {name!r} of the device header; there are {sorted(cases)}")
    case = cases[name]
    compiled = compile_cubin(case.source, arch, cache_folder=cache_folder)
    run = run_on_device(compiled, case.launch, case.arguments, case.outputs, case.keep)
    return CaseResult(
        case.complaint(run.outputs), 0.0 if compiled.is_cached else compiled.compile_s, compiled.registers
    )
