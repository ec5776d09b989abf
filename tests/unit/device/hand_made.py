"""Programs written by hand in the form that the emitter hands over."""

from __future__ import annotations

from workbench.codegen.cuda.emitted import (
    Buffer,
    EmittedProgram,
    KernelLaunch,
    KernelParameter,
    KernelSource,
    LibraryMatmul,
)
from workbench.codegen.cuda.launch_shape import LaunchShape
from workbench.codegen.cuda.schedule import DEFAULT_SCHEDULE
from workbench.core.dtypes import DType
from workbench.core.tensors import DeviceTensor
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.tracing import trace

TWICE = """
extern "C" __global__ void __launch_bounds__(128) twice(const f16* x, f16* y) {
  const int i = blockIdx.x * 128 + thread_index();
  if (i < %d) y[i] = from_f32<f16>(2.0f * to_f32(x[i]));
}
"""
ADDED = """
extern "C" __global__ void __launch_bounds__(128) added(const f16* a, const f16* b, f16* y) {
  const int i = blockIdx.x * 128 + thread_index();
  if (i < %d) y[i] = from_f32<f16>(to_f32(a[i]) + to_f32(b[i]));
}
"""


def kernel(name: str, body: str, inputs: dict[str, DeviceTensor], outputs: dict[str, DeviceTensor]) -> KernelSource:
    """Return a kernel of 128 threads a block, one thread an element of its first output."""
    count = 1
    for extent in next(iter(outputs.values())).shape:
        count *= extent
    parameters = [KernelParameter(name=key, tensor=tensor, is_output=False) for key, tensor in inputs.items()]
    parameters += [KernelParameter(name=key, tensor=tensor, is_output=True) for key, tensor in outputs.items()]
    launch = LaunchShape(kernel=name, grid=(-(-count // 128), 1, 1), threads=128)
    return KernelSource(
        name=name,
        body=body,
        launch=launch,
        parameters=tuple(parameters),
        schedule=DEFAULT_SCHEDULE,
        notes=(),
        products=0,
    )


def thrice(rows: int = 3, columns: int = 70, *, body: str = ADDED) -> tuple[EmittedProgram, KernelGraph]:
    """Return T = 2 X, then Y = T + X, in two kernels; T is an intermediate."""
    graph = trace(lambda X: X * 2 + X, X=(rows, columns))
    x, t, y = (DeviceTensor(name, (rows, columns)) for name in "XTY")
    count = rows * columns
    steps = (
        KernelLaunch(kernel("twice", TWICE % count, {"x": x}, {"y": t}), ("X", "T")),
        KernelLaunch(kernel("added", body % count, {"a": t, "b": x}, {"y": y}), ("T", "X", "Y")),
    )
    buffers = (Buffer("X", x, "input", 0, 1), Buffer("T", t, "intermediate", 0, 1, 0), Buffer("Y", y, "output", 1, 1))
    program = EmittedProgram(
        name="thrice", steps=steps, buffers=buffers, inputs=("X",), outputs=("Y",), workspace_bytes=2 * count
    )
    return program, graph


def product_and_input() -> tuple[EmittedProgram, KernelGraph]:
    """Return (X @ W, 2 X, X, X @ W): the library's product, a kernel, an input and an output asked for twice."""
    graph = trace(lambda X, W: ((p := X @ W), X * 2, X, p), X=(2, 3, 5), W=(5, 4))
    x, w = DeviceTensor("X", (2, 3, 5)), DeviceTensor("W", (5, 4), DType.FLOAT16, (1, 5))
    p, d = DeviceTensor("P", (2, 3, 4)), DeviceTensor("D", (2, 3, 5))
    steps = (
        LibraryMatmul("X", "W", "P"),
        KernelLaunch(kernel("twice", TWICE % 30, {"x": x}, {"y": d}), ("X", "D")),
    )
    buffers = (
        Buffer("X", x, "input", 0, 1), Buffer("W", w, "input", 0, 0),
        Buffer("P", p, "output", 0, 1), Buffer("D", d, "output", 1, 1),
    )  # fmt: skip
    program = EmittedProgram(
        name="both", steps=steps, buffers=buffers, inputs=("X", "W"), outputs=("P", "D", "X", "P"), workspace_bytes=0
    )
    return program, graph
