"""First run on a GPU: every intrinsic against NumPy, faults that must not spread, launches, and RMSNorm+Linear's speed.

    python benchmarks/gpu_smoke.py [--out FILE.json] [--quick]

Needs NumPy and CuPy; torch where it is installed. Prints one line for each check and, last, a summary; exit status 1 if
anything failed. Times are CUDA-graph replays in microseconds a launch, medians; "cold" rotates over inputs of more than
twice the L2 cache.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

from workbench.codegen.cuda.header import kernel_source  # noqa: E402
from workbench.codegen.cuda.launch_shape import LaunchShape  # noqa: E402
from workbench.codegen.cuda.selftest import intrinsic_cases  # noqa: E402
from workbench.device.compile import CompiledKernel, compile_cubin  # noqa: E402
from workbench.device.launch import ArrayParameter, LoadedKernel, Parameter, ScalarParameter, run_on_device  # noqa: E402
from workbench.device.selftest import run_case  # noqa: E402
from workbench.device.worker import Worker  # noqa: E402
from workbench.errors import WorkbenchError  # noqa: E402

ARCH = "sm_90a"
COLD_BYTES = 260e6
RESULTS: list[dict[str, Any]] = []


def report(group: str, name: str, problem: str, **numbers: Any) -> None:
    """Print and keep the outcome of one check; `problem` is "" when it passed."""
    RESULTS.append({"group": group, "name": name, "passed": not problem, "problem": problem, **numbers})
    shown = " ".join(
        f"{key}={value:.4g}" if isinstance(value, float) else f"{key}={value}" for key, value in numbers.items()
    )
    print(f"{'ok  ' if not problem else 'FAIL'} {group}: {name} {shown} {problem}", flush=True)


def guarded(group: str, name: str, check: Callable[[], dict[str, Any]]) -> None:
    """Run a check that returns its numbers; an exception is its problem."""
    try:
        report(group, name, "", **check())
    except Exception as error:  # every check is told, whatever happens in it
        report(group, name, f"{type(error).__name__}: {error}")
        if not isinstance(error, WorkbenchError | AssertionError):
            traceback.print_exc()


def check_intrinsics() -> None:
    """Every intrinsic's kernel, in a worker process."""
    with Worker() as worker:
        for case in intrinsic_cases():
            outcome = worker.run(run_case, 60.0, case.name, ARCH)
            if outcome.value is None:
                report("intrinsic", case.name, f"{outcome.kind}: {outcome.reason}")
            else:
                found = outcome.value
                report("intrinsic", case.name, found.complaint, compile_s=found.compile_s, registers=found.registers)


FAULTS = {
    "illegal address": ("x[thread_index() + (i64)1 << 40] = 1.0f;", 0, "device fault"),
    "endless loop": ("while (*(volatile float*)x >= 0.0f) { } x[1] = 1.0f;", 0, "timeout"),
    "misaligned": ("register_to_global((float*)((char*)x + 4), Vec<float, 4>());", 0, "device fault"),
    "too much shared memory": ("x[0] = 1.0f;", 300 * 1024, "error"),
}


def run_fault(name: str) -> float:
    """Launch a kernel that faults on purpose."""
    body, shared, _ = FAULTS[name]
    source = kernel_source(f'extern "C" __global__ void fault(float* x) {{ {body} }}')
    launch = LaunchShape(kernel="fault", grid=(1, 1, 1), threads=32, shared_bytes=shared)
    run = run_on_device(compile_cubin(source, ARCH), launch, [np.zeros(64, np.float32)], [0], frozenset({0}))
    return float(run.outputs[0][0])


def check_faults(cupy: Any) -> None:
    """Faults in a worker leave this process' context alive, and the worker serves again."""
    ours = cupy.arange(1000)
    with Worker() as worker:
        for name, (_, _, kind) in FAULTS.items():
            outcome = worker.run(run_fault, 10.0, name)
            found = f"{outcome.kind}: {outcome.reason.splitlines()[0] if outcome.reason else ''}"
            alive = int((ours + 1).sum()) == 500500
            after = worker.run(run_case, 60.0, "exp", ARCH)
            good = outcome.kind == kind and alive and after.value is not None and after.value.complaint == ""
            report(
                "fault", name, "" if good else f"wanted {kind}, got {found}; after: {after.reason}", told=found[:110]
            )


SCALE = """
extern "C" __global__ void __launch_bounds__(128) scale(const float* x, float* y, float factor, int n) {
  grid_dependency_wait();
  const int i = blockIdx.x * 128 + thread_index();
  if (i < n) y[i] = factor * x[i];
  grid_dependency_launch();
}
"""


def scale_kernel(*, programmatic: bool = False) -> LoadedKernel:
    """Return the kernel y = factor x on 1000 floats."""
    parameters: list[Parameter] = [
        ArrayParameter("x", "float32", (1000,)),
        ArrayParameter("y", "float32", (1000,), None, True),
        ScalarParameter("factor", "float32"),
        ScalarParameter("n", "int32"),
    ]
    launch = LaunchShape(kernel="scale", grid=(8, 1, 1), threads=128)
    return LoadedKernel(compile_cubin(kernel_source(SCALE), ARCH), launch, parameters, programmatic=programmatic)


def check_launch(cupy: Any, torch: Any) -> None:
    """Arrays of CuPy, NumPy and torch; streams; graphs; programmatic launches; refusals."""
    x = cupy.random.random(1000, dtype=cupy.float32)

    def plain() -> dict[str, Any]:
        kernel, y = scale_kernel(), cupy.empty_like(x)
        kernel(x, y, 3.0, 1000)
        assert bool((y == x * np.float32(3)).all())
        pool = cupy.get_default_memory_pool()
        before = pool.total_bytes()
        started = time.perf_counter()
        for _ in range(1000):
            kernel(x, y, 3.0, 1000)
        elapsed = time.perf_counter() - started
        cupy.cuda.Device().synchronize()
        assert pool.total_bytes() == before
        go = kernel.prepare(x, y, 4.0, 1000)
        started = time.perf_counter()
        for _ in range(1000):
            go()
        prepared = time.perf_counter() - started
        cupy.cuda.Device().synchronize()
        assert bool((y == x * np.float32(4)).all())
        return {"call_us": elapsed * 1e3, "prepared_us": prepared * 1e3}

    def numpy_arrays() -> dict[str, Any]:
        a, b = np.arange(1000, dtype=np.float32), np.zeros(1000, np.float32)
        scale_kernel()(a, b, 0.5, 1000)
        np.testing.assert_array_equal(b, a * 0.5)
        return {}

    def streams_and_graph() -> dict[str, Any]:
        kernel, y, stream = scale_kernel(), cupy.zeros_like(x), cupy.cuda.Stream(non_blocking=True)
        cupy.cuda.Device().synchronize()
        with stream:
            kernel(x, y, 2.0, 1000)
            stream.begin_capture()
            kernel(y, y, 2.0, 1000)
            graph = stream.end_capture()
        for _ in range(3):
            graph.launch(stream)
        stream.synchronize()
        assert bool((y == x * np.float32(16)).all())
        kernel(x, y, 5.0, 1000, stream=stream)
        stream.synchronize()
        assert bool((y == x * np.float32(5)).all())
        return {}

    def programmatic() -> dict[str, Any]:
        kernel, y, stream = scale_kernel(programmatic=True), cupy.zeros_like(x), cupy.cuda.Stream(non_blocking=True)
        cupy.cuda.Device().synchronize()
        with stream:
            kernel(x, y, 2.0, 1000)
            for _ in range(9):
                kernel(y, y, 2.0, 1000)
            stream.synchronize()
            assert bool((y == x * np.float32(1024)).all())
            stream.begin_capture()
            for _ in range(2):
                kernel(y, y, 2.0, 1000)
            graph = stream.end_capture()
            graph.launch(stream)
            stream.synchronize()
        assert bool((y == x * np.float32(4096)).all())
        return {}

    def torch_tensors() -> dict[str, Any]:
        kernel = scale_kernel()
        a = torch.rand(1000, device="cuda")
        b = torch.zeros_like(a)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            kernel(a, b, 2.0, 1000)
        torch.cuda.synchronize()
        assert torch.equal(b, a * 2)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            kernel(b, b, 2.0, 1000)
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(b, a * 4)
        return {}

    def refusals() -> dict[str, Any]:
        kernel, y = scale_kernel(), cupy.empty_like(x)
        wrong = [
            (x[:999], y, 2.0, 1000),
            (x.astype(cupy.float64), y, 2.0, 1000),
            (cupy.zeros(2000, cupy.float32)[::2], y, 2.0, 1000),
            (x, y, "2", 1000),
            (x, y, 2.0),
            (x, [1.0], 2.0, 1000),
        ]
        if torch is not None:
            wrong.append((torch.zeros(1000), y, 2.0, 1000))
        told = []
        for arguments in wrong:
            try:
                kernel(*arguments)
            except WorkbenchError as error:
                told.append(str(error))
        assert len(told) == len(wrong), told
        return {"told": len(told)}

    guarded("launch", "CuPy arrays, no allocation", plain)
    guarded("launch", "NumPy arrays", numpy_arrays)
    guarded("launch", "stream and CUDA graph", streams_and_graph)
    guarded("launch", "programmatic dependent launch", programmatic)
    if torch is not None:
        guarded("launch", "torch tensors, stream and graph", torch_tensors)
    guarded("launch", "arguments that do not fit", refusals)


def graph_us(cupy: Any, launch: Callable[..., None], sets: list[tuple[Any, ...]], repeats: int = 15) -> float:
    """Return microseconds a launch: a CUDA graph over all input sets (at least 32 launches), median of replays."""
    stream = cupy.cuda.Stream(non_blocking=True)
    count = max(len(sets), 32)
    with stream:
        for given in sets[:2]:
            launch(*given)
        stream.synchronize()
        stream.begin_capture()
        for i in range(count):
            launch(*sets[i % len(sets)])
        graph = stream.end_capture()
        for _ in range(3):
            graph.launch(stream)
        times: list[float] = []
        for _ in range(repeats):
            start, end = cupy.cuda.Event(), cupy.cuda.Event()
            start.record(stream)
            graph.launch(stream)
            end.record(stream)
            end.synchronize()
            times.append(float(cupy.cuda.get_elapsed_time(start, end)) * 1e3 / count)
    return statistics.median(times)


def rms_kernels(shape: dict[str, int]) -> dict[str, tuple[CompiledKernel, LoadedKernel]]:
    """Compile the header's kernel and the original one for a shape; keys are their names."""
    blocks = shape["N_"] // shape["BN_"] * shape["S_"]
    stage = 2 * shape["BK_"] * (shape["BN_"] + 16)
    shared = max(shape["ST_"] * stage, (64 * shape["BN_"] + 64) * 4)
    flags = [f"-D{key}={value}" for key, value in shape.items()]
    m, n, k = shape["M_"], shape["N_"], shape["K_"]
    parameters: list[Parameter] = [
        ArrayParameter("X", "float16", (m, k)),
        ArrayParameter("W", "float16", (k, n)),
        ArrayParameter("O", "float16", (m, n), None, True),
        ScalarParameter("eps", "float32"),
    ]
    folder = REPOSITORY / "benchmarks" / "kernels"
    texts = {
        "rms_norm_linear": kernel_source((folder / "rms_norm_linear.cu").read_text(encoding="utf-8")),
        "rms_linear": (folder / "rms_linear_cluster.cu").read_text(encoding="utf-8"),
    }
    found = {}
    for name, source in texts.items():
        cluster = (shape["S_"], 1, 1)
        launch = LaunchShape(kernel=name, grid=(blocks, 1, 1), threads=128, cluster=cluster, shared_bytes=shared)
        compiled = compile_cubin(source, ARCH, flags)
        found[name] = compiled, LoadedKernel(compiled, launch, parameters)
    return found


def check_rms(cupy: Any, shape: dict[str, int]) -> dict[str, Any]:
    """Both kernels right on random and on hard inputs, and their times side by side in one run."""
    m, n, k = shape["M_"], shape["N_"], shape["K_"]
    rng = np.random.default_rng(1)
    kernels = rms_kernels(shape)
    numbers: dict[str, Any] = {}
    for kind in ("random", "hard"):
        x, w = rng.standard_normal((m, k)), rng.standard_normal((k, n)) * 0.1
        if kind == "hard":  # rows, columns of X and columns of W differ in scale and offset
            x = x * np.exp(2 * rng.standard_normal((m, 1))) + rng.standard_normal((m, 1))
            w = w * np.exp(rng.standard_normal((1, n)))
        x16, w16 = cupy.asarray(x.astype(np.float16)), cupy.asarray(w.astype(np.float16))
        x64, w64 = x16.astype(cupy.float64), w16.astype(cupy.float64)
        reference = x64 @ w64 / cupy.sqrt((x64 * x64).mean(1, keepdims=True) + 1e-6)
        for name, (_, kernel) in kernels.items():
            out = cupy.full((m, n), cupy.nan, cupy.float16)
            kernel(x16, w16, out, 1e-6)
            difference = out.astype(cupy.float64) - reference
            rows = cupy.linalg.norm(difference, axis=1) / cupy.linalg.norm(reference, axis=1)
            error = float(rows.max())
            assert error < 2e-3, f"{name} on {kind} inputs: worst row {error}"
            numbers[f"{name}_{kind}_error"] = error
    count = math.ceil(COLD_BYTES / (2 * k * n))
    sets = [
        (
            cupy.asarray((rng.standard_normal((m, k)) * 0.1).astype(np.float16)),
            (cupy.random.standard_normal((k, n), dtype=cupy.float32) * 0.1).astype(cupy.float16),
            cupy.empty((m, n), cupy.float16),
            1e-6,
        )
        for _ in range(count)
    ]
    cold: dict[str, list[float]] = {name: [] for name in kernels}
    warm: dict[str, list[float]] = {name: [] for name in kernels}
    for _ in range(3):  # turn and turn about, so that drifting clocks touch both
        for name, (_, kernel) in kernels.items():
            cold[name].append(graph_us(cupy, kernel, sets))
            warm[name].append(graph_us(cupy, kernel, sets[:1]))
    for name, (compiled, _) in kernels.items():
        numbers |= {
            f"{name}_cold_us": statistics.median(cold[name]),
            f"{name}_warm_us": statistics.median(warm[name]),
            f"{name}_registers": compiled.registers,
            f"{name}_spills": compiled.spills,
            f"{name}_compile_s": compiled.compile_s,
        }
    numbers["cold_ratio"] = numbers["rms_norm_linear_cold_us"] / numbers["rms_linear_cold_us"]
    return numbers


def main() -> int:
    """Run all checks; return 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write all results as JSON")
    parser.add_argument("--quick", action="store_true", help="one shape of RMSNorm+Linear only")
    options = parser.parse_args()
    import cupy

    try:
        import torch
    except ImportError:
        torch = None
    properties = cupy.cuda.runtime.getDeviceProperties(0)
    versions = {
        "gpu": properties["name"].decode(),
        "driver": cupy.cuda.runtime.driverGetVersion(),
        "cupy": cupy.__version__,
        "numpy": np.__version__,
        "torch": torch.__version__ if torch is not None else None,
        "python": sys.version.split()[0],
    }
    print(versions, flush=True)
    check_intrinsics()
    check_launch(cupy, torch)
    check_faults(cupy)
    base = {"K_": 4096, "N_": 4096, "M_": 16, "S_": 2, "BN_": 64, "BK_": 256, "ST_": 4}
    changes: list[dict[str, int]] = [{}]
    if not options.quick:
        changes += [
            {"M_": 2},
            {"N_": 6144},
            {"S_": 4, "BK_": 128, "ST_": 4},
            {"BK_": 128, "ST_": 6},
            {"S_": 1, "BN_": 32, "BK_": 256, "ST_": 6},
        ]
    for change in changes:
        shape = base | change
        name = " ".join(f"{key.rstrip('_')}={value}" for key, value in shape.items())
        guarded("rms_norm_linear", name, lambda shape=shape: check_rms(cupy, shape))  # type: ignore[misc]
    failed = [row for row in RESULTS if not row["passed"]]
    if options.out:
        options.out.write_text(json.dumps({"versions": versions, "results": RESULTS}, indent=1), encoding="utf-8")
    print(f"{len(RESULTS) - len(failed)} passed, {len(failed)} failed", flush=True)
    for row in failed:
        print(f"  {row['group']}: {row['name']}: {row['problem'][:300]}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    from benchmarks import gpu_smoke  # as a module of its own name: the worker process finds its functions there

    sys.exit(gpu_smoke.main())
