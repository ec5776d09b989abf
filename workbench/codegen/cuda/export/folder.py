"""An emitted program as a folder: kernel.cu, launcher.cu, load_kernel.py, torch_op.py, description.json, reference.bin.

Invariant: nothing in the folder imports or includes anything of the workbench.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

import numpy as np

from workbench.codegen.cuda.emitted import EmittedProgram
from workbench.codegen.cuda.export.description import describe_export, unique_kernels
from workbench.codegen.cuda.export.launcher import launcher_source
from workbench.codegen.cuda.export.self_check import make_self_check
from workbench.codegen.cuda.header import kernel_source
from workbench.ugraph.kernel_graph import KernelGraph

COPIED = {"load_kernel.py.txt": "load_kernel.py", "torch_op.py.txt": "torch_op.py"}
"""Files that read the description and are the same in every export; named .txt here, since they are no part of us."""


def program_source(program: EmittedProgram) -> str:
    """Return one self-contained source with every kernel of a program: the device header once, then the kernels."""
    return kernel_source("\n\n".join(kernel.body.strip() for kernel in unique_kernels(program)))


def export_program(
    program: EmittedProgram,
    graph: KernelGraph,
    folder: Path,
    *,
    arch: str = "sm_90a",
    needs: Mapping[str, Mapping[str, object]] | None = None,
    certificate: Mapping[str, object] | None = None,
    checked: bool = True,
) -> list[Path]:
    """Write a program into a folder, made if it is missing, and return the files.

    needs: per kernel, what the compiler said (registers, spills, shared_bytes); certificate: what is known of its
    correctness; checked: write right outputs for the self check, which evaluates the graph once in float64, and the
    launcher, which compares with them.
    Raises: OSError; UsageError when there are no inputs to check on; EmitError for a product that cuBLAS lacks.
    """
    source = program_source(program)
    check = make_self_check(graph) if checked else None
    description = describe_export(
        program, graph, source, arch=arch, needs=needs or {}, check=check, certificate=certificate
    )
    folder.mkdir(parents=True, exist_ok=True)
    texts = {"kernel.cu": source, "description.json": json.dumps(description, indent=1) + "\n"}
    templates = resources.files(__package__)
    for template, name in COPIED.items():
        texts[name] = (templates / template).read_text(encoding="utf-8")
    written = []
    if check is not None:
        texts["launcher.cu"] = launcher_source(program, description)
        path = folder / "reference.bin"
        path.write_bytes(b"".join(np.ascontiguousarray(output, "<f4").tobytes() for output in check.expected))
        written.append(path)
    for name, text in texts.items():
        path = folder / name
        path.write_text(text, encoding="utf-8")
        written.append(path)
    return sorted(written)
