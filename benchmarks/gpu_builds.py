"""A variant emitted and compiled by a worker process, for `gpu_tune.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from benchmarks.gpu_variants import Variant
from workbench.codegen.cuda.emitted import EmittedProgram
from workbench.codegen.cuda.kernel_level import emit_program
from workbench.device.executable import compile_program
from workbench.errors import EmitError, KernelCompileError

ARCH = "sm_90a"


@dataclass(frozen=True, slots=True)
class Built:
    """A variant compiled: its program and what its kernels need, or why it was refused."""

    variant: Variant
    program: EmittedProgram | None
    needs: dict[str, Any]
    refusal: str = ""


def build_variant(variant: Variant) -> Built:
    """Emit and compile a variant; the cubins stay in the cache for the process that runs them."""
    try:
        program = emit_program(variant.graph, schedules=variant.schedules)
        made = compile_program(program, variant.graph, ARCH)
    except (EmitError, KernelCompileError) as error:
        return Built(variant, None, {}, f"{type(error).__name__}: {error}")
    kernels = [
        {
            "kernel": report.name, "grid": report.launch.grid, "threads": report.launch.threads,
            "cluster": report.launch.cluster[0], "registers": report.registers, "spills": report.spills,
            "shared_bytes": report.launch.shared_bytes, "compile_s": report.compile_s,
        }
        for report in made.kernels
    ]  # fmt: skip
    return Built(variant, program, {"kernels": kernels})
