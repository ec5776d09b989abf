"""The C++ launcher of an exported program: the fixed text of launcher.cu.txt with the program's arrays and steps put in.

Invariant: every placeholder of the text is replaced; the steps are launched in the program's order on one stream.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from workbench.codegen.cuda.emitted import (
    C_TYPES,
    Buffer,
    EmittedProgram,
    KernelParameter,
    KernelSource,
)
from workbench.codegen.cuda.export.description import unique_kernels
from workbench.codegen.cuda.storage import span

PORTABLE_CLUSTER, DEFAULT_SHARED_BYTES = 8, 48 * 1024
LIBRARY_INCLUDE = """#include <cublas_v2.h>
#define CHECK_CUBLAS(call)                                                          \\
  do {                                                                              \\
    const cublasStatus_t status_ = (call);                                          \\
    if (status_ != CUBLAS_STATUS_SUCCESS) {                                         \\
      std::fprintf(stderr, "%s:%d: %s: status %d\\n", __FILE__, __LINE__, #call, (int)status_); \\
      std::exit(2);                                                                 \\
    }                                                                               \\
  } while (0)
"""
LIBRARY_STATE = "static cublasHandle_t library;\nstatic const float one = 1, zero = 0;\n"
PREPARE_LIBRARY = """  CHECK_CUBLAS(cublasCreate(&library));
  CHECK_CUBLAS(cublasSetMathMode(library, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION));"""
LIBRARY_TYPES = {"float16": "CUDA_R_16F", "bfloat16": "CUDA_R_16BF", "float32": "CUDA_R_32F"}


def launcher_source(program: EmittedProgram, description: Mapping[str, Any]) -> str:
    """Return the text of launcher.cu for a described program that has a self check."""
    places = _places(program)
    has_library = bool(program.library_calls)
    prepare = [line for kernel in unique_kernels(program) for line in _prepare(kernel)]
    steps = [line for step in description["steps"] for line in _step(step, program, places)]
    steps += _copies(program)
    check = description["self_check"]
    replacements = {
        "NAME": program.name or "a program",
        "BUILD": build_command(program, str(description["arch"])),
        "LIBRARY_INCLUDE": LIBRARY_INCLUDE if has_library else "",
        "LIBRARY_STATE": LIBRARY_STATE if has_library else "",
        "INPUTS": "\n".join(_array(tensor) for tensor in description["inputs"]),
        "OUTPUTS": "\n".join(_array(tensor) for tensor in description["outputs"]),
        "SHIFTS": ", ".join(map(str, check["shifts"])) or "0",
        "TOLERANCE": repr(check["tolerance"]),
        "INPUT_COUNT": str(max(len(program.inputs), 1)),
        "OUTPUT_COUNT": str(len(program.outputs)),
        "WORKSPACE_BYTES": f"{program.workspace_bytes}LL",
        "PREPARE": "\n".join(([PREPARE_LIBRARY] if has_library else []) + prepare),
        "STEPS": "\n".join(steps),
    }
    text = (resources.files(__package__) / "launcher.cu.txt").read_text(encoding="utf-8")
    return re.sub(r"@([A-Z_]+)@", lambda match: replacements[match.group(1)], text)


def build_command(program: EmittedProgram, arch: str) -> str:
    """Return the command that builds launcher.cu in the folder it lies in. arch: "sm_90a"."""
    virtual = arch.replace("sm_", "compute_")
    build = f"nvcc -O2 -std=c++17 -gencode=arch={virtual},code={arch} launcher.cu -o launcher"
    return build + (" -lcublas" if program.library_calls else "")


def _places(program: EmittedProgram) -> dict[str, str]:
    """Return the C++ expression of each buffer's address."""
    places: dict[str, str] = {name: f"in[{number}]" for number, name in enumerate(program.inputs)}
    for number, name in enumerate(program.outputs):
        places.setdefault(name, f"out[{number}]")
    for buffer in program.buffers:
        places.setdefault(buffer.name, f"(workspace + {buffer.offset}LL)")
    return places


def _array(tensor: Mapping[str, Any]) -> str:
    shape, strides = (", ".join(f"{n}LL" for n in tensor[key]) for key in ("shape", "strides"))
    return f"    {{{json.dumps(tensor['name'])}, Type::{tensor['dtype']}, {{{shape}}}, {{{strides}}}}},"


def _prepare(kernel: KernelSource) -> list[str]:
    symbol, lines = kernel.launch.kernel, []
    if kernel.launch.shared_bytes > DEFAULT_SHARED_BYTES:
        lines.append(
            f"  CHECK(cudaFuncSetAttribute((const void*){symbol}, cudaFuncAttributeMaxDynamicSharedMemorySize, "
            f"{kernel.launch.shared_bytes}));"
        )
    if kernel.launch.cluster_blocks > PORTABLE_CLUSTER:
        lines.append(
            f"  CHECK(cudaFuncSetAttribute((const void*){symbol}, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));"
        )
    return lines


def _argument(parameter: KernelParameter, place: str) -> str:
    constant = "" if parameter.is_output else "const "
    return f"({constant}wb::{C_TYPES[parameter.dtype]}*){place}".replace("wb::float", "float")


def _step(step: Mapping[str, Any], program: EmittedProgram, places: Mapping[str, str]) -> Sequence[str]:
    if step["kind"] == "matmul":
        return _multiply(step, places)
    kernel = next(kernel for kernel in program.kernels if kernel.name == step["kernel"])
    launch = kernel.launch
    grid = ", ".join(map(str, launch.grid))
    arguments = ", ".join(
        _argument(parameter, places[name]) for parameter, name in zip(kernel.parameters, step["arguments"], strict=True)
    )
    comment = f"  // {', '.join(step['arguments'])}"
    if not kernel.schedule.programmatic:
        return [
            comment,
            f"  {launch.kernel}<<<dim3({grid}), {launch.threads}, {launch.shared_bytes}, stream>>>({arguments});",
        ]
    return [
        comment,
        "  {",
        "    cudaLaunchAttribute attribute = {};",
        "    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;",
        "    attribute.val.programmaticStreamSerializationAllowed = 1;",
        "    cudaLaunchConfig_t config = {};",
        f"    config.gridDim = dim3({grid});",
        f"    config.blockDim = dim3({launch.threads});",
        f"    config.dynamicSmemBytes = {launch.shared_bytes};",
        "    config.stream = stream;",
        "    config.attrs = &attribute;",
        "    config.numAttrs = 1;",
        f"    CHECK(cudaLaunchKernelEx(&config, {launch.kernel}, {arguments}));",
        "  }",
    ]


def _multiply(step: Mapping[str, Any], places: Mapping[str, str]) -> list[str]:
    sizes = [4 if dtype == "float32" else 2 for dtype in step["dtypes"]]
    types = [LIBRARY_TYPES[dtype] for dtype in step["dtypes"]]
    operands = [places[step[key]] for key in ("left", "right", "result")]
    lines = [
        f"  // {step['result']} = {step['left']} @ {step['right']}",
        "  CHECK_CUBLAS(cublasSetStream(library, stream));",
    ]
    for call in step["calls"]:
        a, b = (1, 0) if call["is_swapped"] else (0, 1)
        at = [
            f"(char*){operands[which]} + {call[key] * sizes[which]}LL"
            for which, key in ((a, "offset_a"), (b, "offset_b"), (2, "offset_c"))
        ]
        turns = ["CUBLAS_OP_T" if call[key] else "CUBLAS_OP_N" for key in ("transpose_a", "transpose_b")]
        lines.append(
            f"  CHECK_CUBLAS(cublasGemmStridedBatchedEx(library, {turns[0]}, {turns[1]}, {call['m']}, {call['n']}, "
            f"{call['k']}, &one, {at[0]}, {types[a]}, {call['lda']}, {call['stride_a']}LL, {at[1]}, {types[b]}, "
            f"{call['ldb']}, {call['stride_b']}LL, &zero, {at[2]}, {types[2]}, {call['ldc']}, {call['stride_c']}LL, "
            f"{call['batch']}, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));"
        )
    return lines


def _copies(program: EmittedProgram) -> list[str]:
    """Return the copies of outputs that are inputs, or that are asked for twice."""
    places = {name: f"in[{number}]" for number, name in enumerate(program.inputs)}
    lines = []
    for number, name in enumerate(program.outputs):
        if name in places:
            size = _span_bytes(program.buffer(name))
            lines.append(
                f"  CHECK(cudaMemcpyAsync(out[{number}], {places[name]}, {size}, cudaMemcpyDeviceToDevice, stream));"
            )
        places.setdefault(name, f"out[{number}]")
    return lines


def _span_bytes(buffer: Buffer) -> int:
    return span(buffer.tensor) * buffer.tensor.dtype.nbytes
