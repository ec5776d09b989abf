"""The profiled side of `counters.py`: run each target once between marker kernels, under a profiler that was told to wait.

Invariant: everything is compiled, loaded and run once before the profiler starts, so that only the kernels asked for count.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbench.codegen.cuda.schedule import Schedule
from workbench.codegen.cuda.storage import Array
from workbench.device.architecture import architecture_name
from workbench.device.array_kinds import ArrayKind
from workbench.device.compile import compile_cubin
from workbench.device.executable import compile as compile_graph
from workbench.device.launch import load_cupy
from workbench.device.timing_gpu import CupyGpu
from workbench.device.timing_sets import ArraySets
from workbench.errors import EmitError, KernelCompileError, LaunchError
from workbench.ugraph.kernel_graph import KernelGraph

MARKER = "workbench_marker"


@dataclass(frozen=True, slots=True, kw_only=True)
class CountTarget:
    """A µGraph whose counters are read; inputs: as stored."""

    label: str
    graph: KernelGraph
    schedules: Mapping[str, Schedule] = field(default_factory=dict)
    device: str = "h200"
    inputs: tuple[Array, ...] = ()


def main(path: str) -> None:
    """Run the targets of a file."""
    targets: list[CountTarget] = pickle.loads(Path(path).read_bytes())
    cupy, gpu = load_cupy(), CupyGpu(with_torch=False)
    arch = architecture_name(str(cupy.cuda.Device().compute_capability))
    source = f'extern "C" __global__ void {MARKER}() {{}}'
    marker = cupy.RawModule(path=str(compile_cubin(source, arch).path)).get_function(MARKER)
    runs = [prepare(target, gpu) for target in targets]
    for run in runs:
        run()
    gpu.synchronize()
    cupy.cuda.runtime.profilerStart()
    for run in runs:
        marker((1,), (32,), ())
        gpu.synchronize()
        run()
        gpu.synchronize()
    cupy.cuda.runtime.profilerStop()


def prepare(target: CountTarget, gpu: CupyGpu) -> Callable[[], Any]:
    """Return what runs a target once; a target that cannot be built runs nothing."""
    try:
        executable = compile_graph(target.graph, target.device, schedules=target.schedules)
        sets = ArraySets(gpu, executable.inputs, executable.outputs, count=1)
        sets.store(target.inputs)
        return executable.prepare(
            *sets.input_arrays(0, ArrayKind.CUPY, {}), out=sets.output_arrays(0, ArrayKind.CUPY), stream=gpu.stream
        )
    except (EmitError, KernelCompileError, LaunchError) as error:
        print(f"{target.label}: {error}", file=sys.stderr)
        return lambda: None


if __name__ == "__main__":
    main(sys.argv[1])
