"""The known good kernels at the sizes of the speed table, compiled without a GPU: no warnings, no spills, tensor cores,
a bounded time.

Invariant: whoever makes a kernel that spills, loses its tensor cores or takes long to compile learns it here, not on a GPU.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.gpu.cases import TARGET_ROWS, good_cases
from workbench import programs
from workbench.codegen.cuda.emitted import KernelSource
from workbench.codegen.cuda.kernel_level import emit_program
from workbench.core.dtypes import DType
from workbench.device.compile import compile_cubin, disassemble

CEILING_S = 2.0
"""Processor time of one cold compilation; the target is 0.5 s on a quiet core, which a test cannot promise itself."""


@cache
def kernels_of(dtype: DType) -> tuple[tuple[str, KernelSource], ...]:
    """One row of the speed table a program, else the program's own sizes; every kernel of its known good graphs, once.

    In bfloat16, which differs in the instructions alone, of its first known good graph.
    """
    found: dict[str, tuple[str, KernelSource]] = {}
    for label, kernel in labelled_kernels(dtype):
        found.setdefault(kernel.body, (label, kernel))
    return tuple(found.values())


def labelled_kernels(dtype: DType) -> Iterator[tuple[str, KernelSource]]:
    rows = {row.program: row.sizes for row in TARGET_ROWS}
    for name in programs.names():
        cases = good_cases(name, dict(rows.get(name, {})), dtype)
        for case in cases if dtype is DType.FLOAT16 else cases[:1]:
            for kernel in emit_program(case.job.graph).kernels:
                yield f"{case.label} {kernel.name}", kernel


def shared_left_registers(sass: str) -> set[str]:
    """Registers from which warpgroups take the left factors of several products.

    ptxas of CUDA 13.0 keeps fragments that were loaded before a loop in registers that it also gives to the next product of
    the loop: the second iteration then multiplies the wrong numbers (seen on an H200 and in SASS). So fragments that are
    held over a loop are loaded in its first iteration, and here their registers must stay their own.
    """
    users: dict[str, set[str]] = {}
    for result, left in re.findall(r"HGMMA\.\S+ (R\d+), (R\d+), gdesc", sass):
        users.setdefault(left, set()).add(result)
    return {left for left, results in users.items() if len(results) > 1}


def test_registers_of_two_products_are_told_apart() -> None:
    first = "HGMMA.64x64x16.F32 R24, R88, gdesc[UR12].tnspB, RZ, !UPT ;\nHGMMA.64x64x16.F32 R24, R92, gdesc[UR12].tnspB, R24 ;\n"
    assert shared_left_registers(first + "HGMMA.64x64x16.F32 R56, R32, gdesc[UR12].tnspB, R56 ;") == set()
    assert shared_left_registers(first + "HGMMA.64x64x16.F32 R56, R88, gdesc[UR12].tnspB, R56 ;") == {"R88"}


DTYPES = pytest.mark.parametrize(
    "dtype", [DType.FLOAT16, pytest.param(DType.BFLOAT16, marks=pytest.mark.slow)], ids=lambda dtype: dtype.value
)


@pytest.mark.timeout(240)
@DTYPES
def test_no_warnings_no_spills_and_a_bounded_time(dtype: DType, cubin_cache: Path) -> None:
    found, slow = list[str](), list[str]()
    for label, kernel in kernels_of(dtype):
        started = time.process_time()
        compiled = compile_cubin(kernel.source, "sm_90a", cache_folder=cubin_cache)
        seconds = time.process_time() - started
        slow += [f"{label}: {seconds:.2f} s"] if seconds > CEILING_S else []
        if "warning" in compiled.log:
            found.append(f"{label}: {compiled.log.strip()}")
        if compiled.spills:
            found.append(f"{label}: {compiled.spills} bytes spilled")
    assert len(kernels_of(dtype)) >= (21 if dtype is DType.FLOAT16 else len(programs.names()))
    assert found == []
    assert slow == []


@pytest.mark.timeout(240)
@DTYPES
def test_tensor_cores_and_held_fragments(dtype: DType, cubin_cache: Path, disassembler: None) -> None:
    """Of every kernel that holds fragments, and of one kernel with a product a program (disassembling takes half a second)."""
    found, held, programs_seen = list[str](), 0, set[str]()
    for label, kernel in kernels_of(dtype):
        holds = re.search(r"u32 \w+_left\[", kernel.body) is not None
        program = label.partition("[")[0]
        if not holds and (not kernel.products or program in programs_seen):
            continue
        programs_seen.add(program)
        sass = disassemble(compile_cubin(kernel.source, "sm_90a", cache_folder=cubin_cache).cubin)
        if "HMMA" not in sass and "HGMMA" not in sass:
            found.append(f"{label}: no tensor-core instruction")
        if holds:
            held += "HGMMA" in sass
            if shared_left_registers(sass):
                found.append(f"{label}: held fragments in registers of another product")
    assert held > 0
    assert found == []


@pytest.mark.parametrize("name", ["rms_norm_linear", "gqa", "ntrans", "lora"])
def test_the_same_text_compiles_for_ampere(name: str, cubin_cache: Path) -> None:
    """Kernels without a cluster need nothing of Hopper."""
    for case in good_cases(name, {}):
        for kernel in emit_program(case.job.graph).kernels:
            if kernel.launch.cluster_blocks == 1:
                compile_cubin(kernel.source, "sm_80", cache_folder=cubin_cache)
