"""What is run on a GPU, as jobs: known good µGraphs, Mirage's graphs, awkward sizes, random graphs, faults on purpose.

The tests of this folder and `benchmarks/gpu_emitter.py` run the same jobs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tests.gpu.random_graphs import noise_of, random_graph, recipes, tolerances_at
from workbench import programs
from workbench.codegen.cuda.emitted import Buffer, EmittedProgram, KernelLaunch, KernelParameter, KernelSource
from workbench.codegen.cuda.launch_shape import LaunchShape
from workbench.codegen.cuda.schedule import DEFAULT_SCHEDULE
from workbench.core.dtypes import DType
from workbench.core.tensors import DeviceTensor
from workbench.device.check_worker import CheckJob, Finding
from workbench.records.table_rows import TABLE_ROWS, TableRow
from workbench.ugraph.serialize import load
from workbench.ugraph.tracing import trace


@dataclass(frozen=True, slots=True)
class GpuCase:
    """A job and what it is called."""

    label: str
    job: CheckJob


TargetRow = TableRow
TARGET_ROWS = TABLE_ROWS
"""The rows of the speed table, as the package has them."""

SMALL: dict[str, dict[str, int]] = {
    "rms_norm_linear": {"batch": 5, "hidden": 192, "out": 136},
    "gated_mlp": {"batch": 5, "hidden": 192, "out": 136},
    "gated_mlp_down": {"batch": 5, "hidden": 192, "inner": 96, "out": 136},
    "lora": {"batch": 5, "hidden": 192, "out": 136, "rank": 16},
    "gqa": {"heads": 2, "rows": 24, "head_dim": 32, "context": 200},
    "mha": {"heads": 2, "rows": 24, "head_dim": 32, "context": 200},
    "mqa": {"heads": 1, "rows": 24, "head_dim": 32, "context": 200},
    "gqa_decode": {"heads": 2, "rows": 8, "head_dim": 64, "context": 200},
    "qk_norm_attention": {"heads": 2, "rows": 24, "head_dim": 32, "context": 200},
    "attention_safe": {"heads": 2, "rows": 24, "head_dim": 32, "context": 200},
    "ntrans": {"batch": 5, "hidden": 200},
    "softmax": {"batch": 5, "hidden": 200},
    "moe_expert": {"experts": 2, "rows": 5, "hidden": 96, "inner": 64, "out": 80},
}
"""Sizes at which every program takes a moment, some of them ragged: for the host shim and for memory checkers."""

MIRAGE_FILES = {
    "rmsnorm_bs1": "rms_norm_linear", "gated_mlp": "gated_mlp", "lora": "lora", "ntrans_bs1": "ntrans",
    "gqa_bs1": "gqa", "mqa_bs1": "mqa",
}  # fmt: skip
"""Mirage's files whose 103 graphs are right, and the programs they compute (those of QKNorm are all wrong)."""


def good_cases(name: str, sizes: dict[str, int], dtype: DType = DType.FLOAT16) -> list[GpuCase]:
    """Return every known good µGraph of a program, checked against the program itself."""
    program = programs.get(name, "standard", dtype, **sizes)
    graphs = programs.known_good(name, "standard", dtype, **sizes)
    shown = " ".join(f"{size}={extent}" for size, extent in sizes.items())
    return [
        GpuCase(f"{name}[{number}] {shown} {dtype.value}".replace("  ", " "), CheckJob(graph=graph, reference=program))
        for number, graph in enumerate(graphs)
    ]


def known_good_cases() -> list[GpuCase]:
    """Return the known good µGraphs of every program at its own sizes and at those of the speed table."""
    found = [case for row in TARGET_ROWS for case in good_cases(row.program, dict(row.sizes))]
    found += [case for name in programs.names() for case in good_cases(name, {})]
    return list({case.job.graph.hash: case for case in reversed(found)}.values())[::-1]


def small_cases(dtype: DType = DType.FLOAT16) -> list[GpuCase]:
    """Return the known good µGraphs of every program at small sizes."""
    return [case for name in programs.names() for case in good_cases(name, SMALL[name], dtype)]


def unfused_cases() -> list[GpuCase]:
    """Return every program itself: library products and emitted operators, and all products as kernels of our own."""
    found = []
    for name in programs.names():
        graph = programs.get(name, **SMALL[name])  # type: ignore[arg-type]  # sizes are keywords of their own
        tolerances = tolerances_at(noise_of(graph, 0))  # its intermediates are float16, logits among them
        for library in (True, False):
            label = f"{name} unfused, {'cuBLAS' if library else 'own products'}"
            found.append(GpuCase(label, CheckJob(graph=graph, library=library, tolerances=tolerances)))
    return found


def size_cases() -> list[GpuCase]:
    """Return awkward sizes: 7x100x33, 1x7168x16384, 64 rows, head dim 128, batch 1 to 64 of one structure, other types."""
    cases = good_cases("rms_norm_linear", {"batch": 7, "hidden": 100, "out": 33})
    cases += good_cases("rms_norm_linear", {"batch": 1, "hidden": 7168, "out": 16384})
    cases += good_cases("gated_mlp", {"batch": 7, "hidden": 100, "out": 33})
    cases += good_cases("lora", {"batch": 7, "hidden": 100, "out": 33, "rank": 5})
    cases += good_cases("rms_norm_linear", {"batch": 64, "hidden": 4096, "out": 4096})
    cases += good_cases("lora", {"batch": 64, "hidden": 4096, "out": 4096, "rank": 16})
    cases += good_cases("gqa", {"batch": 1, "heads": 2, "rows": 64, "head_dim": 128, "context": 2048})
    cases += good_cases("attention_safe", {"batch": 1, "heads": 2, "rows": 64, "head_dim": 128, "context": 2048})
    for batch in (1, 2, 3, 5, 8, 16, 24, 32, 48, 64):
        cases += good_cases("rms_norm_linear", {"batch": batch, "hidden": 1024, "out": 512})[:1]
        cases += good_cases("gqa", {"batch": batch, "heads": 2, "rows": 16, "head_dim": 64, "context": 512})
        cases += good_cases("ntrans", {"batch": batch, "hidden": 1000})
    for dtype in (DType.BFLOAT16, DType.FLOAT32):
        for name in programs.names():
            cases += good_cases(name, SMALL[name], dtype)
    return cases


def mirage_cases(folder: Path) -> list[GpuCase]:
    """Return Mirage's 103 right graphs, checked against their programs in Mirage's own formula."""
    cases = []
    for file, name in MIRAGE_FILES.items():
        graphs = load(folder / f"{file}.json")
        style, sizes = programs.infer_sizes(name, [tensor.shape for tensor in graphs[0].inputs])
        style = programs.Style.MIRAGE if len(graphs[0].inputs) == _inputs(name, programs.Style.MIRAGE) else style
        program = programs.get(name, style, **sizes)  # type: ignore[arg-type]  # sizes are keywords of their own
        cases += [
            GpuCase(f"{file}[{number}]", CheckJob(graph=graph, reference=program))
            for number, graph in enumerate(graphs)
        ]
    return cases


def _inputs(name: str, style: programs.Style) -> int:
    return len(programs.program(name).dimensions(style))


def random_cases(count: int, seed: int = 0) -> Iterator[GpuCase]:
    """Yield random block graphs by quota; their tolerance is what rounding every tile costs, with a margin."""
    for recipe in recipes(count):
        made = random_graph(recipe, seed)
        job = CheckJob(graph=made.graph, tolerances=tolerances_at(made.noise), seed=seed)
        yield GpuCase(f"random {recipe.number}", job)


# -------------------------------------------------------------------------------------------------------------- faults
FAULTS: dict[str, tuple[str, int, Finding, str]] = {
    "right": ("if (i < 256) y[i] = 2.0f * x[i];", 0, Finding.RIGHT, ""),
    "illegal address": ("y[i + ((i64)1 << 40)] = x[i];", 0, Finding.FAULTED, "device fault"),
    "misaligned address": ("*(Vec<float, 4>*)((char*)y + 4) = Vec<float, 4>();", 0, Finding.FAULTED, "device fault"),
    "endless loop": ("while (*(volatile const float*)x > -1e30f) { } y[i] = 0.0f;", 0, Finding.FAULTED, "timeout"),
    "too much shared memory": ("y[i] = 2.0f * x[i];", 300 * 1024, Finding.REFUSED, "needs 307,200 B of shared memory"),
    "does not compile": ("y[i] = 2.0f * z[i];", 0, Finding.REFUSED, "does not compile"),
    "wrong in one row": ("y[i] = (i / 16 == 5 ? 2.1f : 2.0f) * x[i];", 0, Finding.WRONG, "is off by"),
    "does nothing": ("", 0, Finding.WRONG, "not finite"),
    "leaves out the end": ("if (i < 255) y[i] = 2.0f * x[i];", 0, Finding.WRONG, "1 elements that are not finite"),
    "writes beyond the end": ("y[i] = 2.0f * x[i]; if (i == 0) y[256] = 0.0f;", 0, Finding.WRONG, "memory around"),
    "changes an input": ("y[i] = 2.0f * x[i]; if (i == 9) ((float*)x)[i] = 1.0f;", 0, Finding.WRONG, "was changed"),
}
"""Kernels y = 2 x on 16 x 16 floats that go wrong: body, bytes of shared memory, the finding, part of its reason."""


def fault_job(name: str) -> CheckJob:
    """Return a candidate that goes wrong on purpose."""
    body, shared_bytes, _, _ = FAULTS[name]
    x, y = (DeviceTensor(letter, (16, 16), DType.FLOAT32) for letter in "XY")
    text = f"""
extern "C" __global__ void __launch_bounds__(128) fault(const float* x, float* y) {{
  const int i = blockIdx.x * 128 + thread_index();
  {body}
}}
"""
    parameters = tuple(
        KernelParameter(name=letter, tensor=tensor, is_output=letter == "y") for letter, tensor in (("x", x), ("y", y))
    )
    launch = LaunchShape(kernel="fault", grid=(2, 1, 1), threads=128, shared_bytes=shared_bytes)
    kernel = KernelSource(
        name="fault", body=text, launch=launch, parameters=parameters, schedule=DEFAULT_SCHEDULE, notes=(), products=0
    )
    program = EmittedProgram(
        name=name, steps=(KernelLaunch(kernel, ("X", "Y")),), inputs=("X",), outputs=("Y",), workspace_bytes=0,
        buffers=(Buffer("X", x, "input", 0, 0), Buffer("Y", y, "output", 0, 0)),
    )  # fmt: skip
    graph = trace(lambda X: X * 2, X=(16, 16), dtype="float32")
    return CheckJob(graph=graph, program=program)


def with_seed(case: GpuCase, seed: int) -> GpuCase:
    """Return a case with other inputs."""
    return GpuCase(case.label, replace(case.job, seed=seed))
