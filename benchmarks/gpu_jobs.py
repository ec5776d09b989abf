"""What the worker processes of `gpu_emitter.py` do: emit and compile a case, check a case, make and compile random graphs."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from tests.gpu.cases import GpuCase
from tests.gpu.random_graphs import Recipe, features, random_graph, tolerances_at
from workbench.device.check import CheckReport
from workbench.device.check_worker import CheckJob, build, run_check
from workbench.device.compile import disassemble
from workbench.device.executable import Executable
from workbench.device.nvrtc import load_nvrtc
from workbench.errors import EmitError, KernelCompileError

TENSOR_CORE_INSTRUCTIONS = ("HMMA", "HGMMA", "IMMA", "DMMA")


@dataclass(frozen=True, slots=True)
class Built:
    """A case emitted and compiled: a row for each kernel, or why it was refused."""

    case: GpuCase
    kernels: tuple[dict[str, Any], ...]
    refusal: str
    features: dict[str, Any]


def kernel_rows(executable: Executable) -> tuple[dict[str, Any], ...]:
    """Return what each kernel needs, and whether its SASS multiplies on tensor cores."""
    rows = []
    for kernel, report in zip(executable.program.kernels, executable.kernels, strict=True):
        cubin = executable.compiled[kernel.name].cubin
        sass = disassemble(cubin) if kernel.products else ""
        rows.append(
            {
                "kernel": report.name,
                "compile_s": report.compile_s,
                "registers": report.registers,
                "spills": report.spills,
                "shared_bytes": report.shared_bytes,
                "products": kernel.products,
                "tensor_cores": any(name in sass for name in TENSOR_CORE_INSTRUCTIONS),
            }
        )
    return tuple(rows)


def build_case(case: GpuCase) -> Built:
    """Emit and compile a case; no GPU is used."""
    load_nvrtc()
    try:
        return Built(case, kernel_rows(build(case.job)), "", {})
    except (EmitError, KernelCompileError) as error:
        return Built(case, (), f"{type(error).__name__}: {error}", {})


def build_random(item: tuple[Recipe, int]) -> Built:
    """Make the random graph of a recipe and compile it."""
    recipe, seed = item
    made = random_graph(recipe, seed)
    job = CheckJob(graph=made.graph, tolerances=tolerances_at(made.noise), seed=seed)
    case = GpuCase(f"random {recipe.number}", job)
    found = features(made.graph)
    told = {
        "products": found.products,
        "ragged": found.is_ragged,
        "accumulators": sorted(kind.value for kind in found.kinds),
        "dtype": recipe.dtype.value,
        "noise": made.noise,
    }
    built = build_case(case)
    return Built(case, built.kernels, built.refusal, told)


def build_item(item: GpuCase | tuple[Recipe, int]) -> Built:
    """Compile a case, or the random graph of a recipe and seed."""
    return build_case(item) if isinstance(item, GpuCase) else build_random(item)


def check_before(item: tuple[GpuCase, float]) -> CheckReport | None:
    """Check a case on the GPU; None when the deadline (`time.time()`) has passed before it began."""
    case, deadline = item
    return run_check(case.job) if time.time() < deadline else None
