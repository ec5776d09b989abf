"""What an exported folder says of itself in description.json; its loaders read nothing else.

Invariant: everything that a launch needs is in it; fields are only ever added within one version.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from workbench.codegen.cuda.emitted import EmittedProgram, KernelLaunch, KernelSource
from workbench.codegen.cuda.export.self_check import SelfCheck
from workbench.codegen.cuda.library_matmul import plan_matmul
from workbench.core.tensors import DeviceTensor
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.serialize import to_json

SCHEMA, VERSION = "mugraph-workbench/export", 1


def identifier_of(program: EmittedProgram, graph: KernelGraph) -> str:
    """Return a name for C++, Python and torch: the program's, and the first digits of the graph's hash."""
    plain = re.sub(r"\W+", "_", program.name, flags=re.ASCII).strip("_").lower() or "program"
    return f"{plain if not plain[0].isdigit() else 'p' + plain}_{graph.hash[:8]}"


def describe_export(
    program: EmittedProgram,
    graph: KernelGraph,
    source: str,
    *,
    arch: str,
    needs: Mapping[str, Mapping[str, object]],
    check: SelfCheck | None,
    certificate: Mapping[str, object] | None,
) -> dict[str, Any]:
    """Return the description as a JSON object; `source`: the text of kernel.cu. Raises: EmitError."""
    tensors = {buffer.name: buffer.tensor for buffer in program.buffers}
    steps: list[dict[str, Any]] = []
    for step in program.steps:
        if isinstance(step, KernelLaunch):
            steps.append({"kind": "kernel", "kernel": step.kernel.name, "arguments": list(step.arguments)})
            continue
        operands = (step.left, step.right, step.result)
        calls = plan_matmul(*(tensors[name] for name in operands))
        steps.append(
            {
                "kind": "matmul", "left": step.left, "right": step.right, "result": step.result,
                "dtypes": [tensors[name].dtype.value for name in operands], "calls": [asdict(call) for call in calls],
            }
        )  # fmt: skip
    return {
        "schema": SCHEMA,
        "version": VERSION,
        "name": program.name,
        "identifier": identifier_of(program, graph),
        "hash": graph.hash,
        "structure_hash": graph.structure_hash,
        "source_sha256": hashlib.sha256(source.encode()).hexdigest(),
        "arch": arch,
        "inputs": [_tensor(name, tensors[name]) for name in program.inputs],
        "outputs": [_tensor(name, tensors[name]) for name in program.outputs],
        "buffers": [
            {"name": buffer.name, "role": buffer.role, "offset": buffer.offset} for buffer in program.buffers
        ],
        "workspace_bytes": program.workspace_bytes,
        "steps": steps,
        "kernels": [_kernel(kernel, needs.get(kernel.name, {})) for kernel in unique_kernels(program)],
        "self_check": None if check is None else {"shifts": list(check.shifts), "tolerance": check.tolerance},
        "certificate": None if certificate is None else dict(certificate),
        "graph_text": graph.describe(),
        "graph": to_json(graph),
    }  # fmt: skip


def unique_kernels(program: EmittedProgram) -> list[KernelSource]:
    """Return the program's kernels, each name once."""
    return list({kernel.name: kernel for kernel in program.kernels}.values())


def _tensor(name: str, tensor: DeviceTensor) -> dict[str, Any]:
    return {
        "name": name, "shape": list(tensor.shape), "dtype": tensor.dtype.value, "strides": list(tensor.strides),
    }  # fmt: skip


def _kernel(kernel: KernelSource, needs: Mapping[str, object]) -> dict[str, Any]:
    return {
        "name": kernel.name,
        "symbol": kernel.launch.kernel,
        "grid": list(kernel.launch.grid),
        "threads": kernel.launch.threads,
        "cluster": list(kernel.launch.cluster),
        "shared_bytes": kernel.launch.shared_bytes,
        "programmatic": kernel.schedule.programmatic,
        "products": kernel.products,
        "notes": list(kernel.notes),
        "parameters": [{"name": p.name, "dtype": p.dtype.value, "is_output": p.is_output} for p in kernel.parameters],
        "needs": dict(needs),
    }
