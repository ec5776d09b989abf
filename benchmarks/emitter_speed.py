"""Emitted kernels on a GPU: RMSNorm+Linear beside the hand-written kernel, and the known good µGraphs of the studied rows.

    python benchmarks/emitter_speed.py [--out FILE.json] [--rows NAME ...] [--rms-only] [--repeats N]

Needs NumPy and CuPy. Everything is emitted, compiled and checked (float64, random inputs and inputs whose rows and columns
differ in scale) before it is timed; times are CUDA-graph replays in microseconds, medians, "cold" over inputs of more than
200 MB in turn. For RMSNorm+Linear both kernels are timed turn and turn about in this process; the ratio is ours over the
hand-written one (`kernels/rms_linear_cluster.cu`). Exit status 1 if anything is wrong or fails.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

from workbench.codegen.cuda.kernel import emit_block  # noqa: E402
from workbench.codegen.cuda.launch_shape import LaunchShape  # noqa: E402
from workbench.codegen.cuda.schedule import Schedule  # noqa: E402
from workbench.device import executable as compiling  # noqa: E402
from workbench.device.check import check_executable  # noqa: E402
from workbench.device.compile import compile_cubin, disassemble  # noqa: E402
from workbench.device.device_program import load_kernel  # noqa: E402
from workbench.device.launch import ArrayParameter, LoadedKernel, Parameter, ScalarParameter  # noqa: E402
from workbench.errors import WorkbenchError  # noqa: E402
from workbench.programs import registry as programs  # noqa: E402
from workbench.ugraph.builder import KernelBuilder  # noqa: E402
from workbench.ugraph.kernel_graph import KernelGraph  # noqa: E402

ARCH = "sm_90a"
COLD_BYTES = 260e6
ROWS: list[tuple[str, dict[str, int]]] = [
    ("rms_norm_linear", {"batch": 2}),
    ("rms_norm_linear", {"batch": 16}),
    ("rms_norm_linear", {"batch": 16, "out": 6144}),
    ("gated_mlp", {"batch": 8}),
    ("gated_mlp", {"batch": 64}),
    ("lora", {"batch": 16, "hidden": 256}),
    ("lora", {"batch": 16, "hidden": 4096}),
    ("gqa", {}),
    ("gqa", {"batch": 8}),
    ("qk_norm_attention", {}),
    ("qk_norm_attention", {"batch": 8}),
    ("gqa_decode", {}),
    ("gqa_decode", {"batch": 8}),
    ("gqa_decode", {"batch": 16}),
    ("ntrans", {"batch": 8}),
    ("ntrans", {"batch": 64}),
    ("softmax", {}),
    ("attention_safe", {}),
    ("moe_expert", {}),
]
"""The rows of the speed table, and three programs more."""

RESULTS: list[dict[str, Any]] = []


def report(group: str, name: str, problem: str, **numbers: Any) -> None:
    """Print and keep one result; `problem` is "" when all is well."""
    RESULTS.append({"group": group, "name": name, "problem": problem, **numbers})
    shown = " ".join(
        f"{key}={value:.4g}" if isinstance(value, float) else f"{key}={value}" for key, value in numbers.items()
    )
    print(f"{'FAIL' if problem else 'ok  '} {group}: {name} {shown} {problem}", flush=True)


def graph_us(cupy: Any, calls: Sequence[Callable[[], None]], stream: Any, repeats: int) -> float:
    """Return microseconds a call: a CUDA graph over all calls (at least 32 launches), median of its replays."""
    count = max(len(calls), 32)
    with stream:
        for call in calls[:2]:
            call()
        stream.synchronize()
        stream.begin_capture()
        for number in range(count):
            calls[number % len(calls)]()
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


# ------------------------------------------------------------------------------------------------------- RMSNorm+Linear
def rms_graph(m: int, n: int, k: int, *, tile: int, depth: int, cluster: int, gain: bool) -> KernelGraph:
    """Return X W / sqrt(mean(X^2) + 1e-6), with a gain on X if asked, as one block graph over column tiles."""
    kernel = KernelBuilder("rms_linear")
    x, w = kernel.input("X", (m, k)), kernel.input("W", (k, n))
    operands = [x, w, kernel.input("G", (k,))] if gain else [x, w]
    block = kernel.block(*operands, grid=(-(-n // tile),), loop=-(-k // depth), cluster=(cluster,))
    a, b = block.load(0, fmap=1), block.load(1, imap=(1,), fmap=0)
    factor = a * block.load(2, fmap=0) if gain else a
    block.save(block.accumulate(factor @ b) / block.accumulate(a, "rms", eps=1e-6), omap=(1,))
    kernel.output(*block.finish(name="rms_norm_linear_gain" if gain else "rms_norm_linear"))
    return kernel.build()


def hand_written(
    m: int, n: int, k: int, *, tile: int, depth: int, cluster: int, stages: int
) -> tuple[LoadedKernel, dict[str, Any]]:
    """Return the hand-written kernel for a shape, and what it needs."""
    text = (REPOSITORY / "benchmarks" / "kernels" / "rms_linear_cluster.cu").read_text(encoding="utf-8")
    values = {"K_": k, "N_": n, "M_": m, "S_": cluster, "BN_": tile, "BK_": depth, "ST_": stages}
    shared = max(stages * 2 * depth * (tile + 16), (64 * tile + 64) * 4)
    compiled = compile_cubin(text, ARCH, [f"-D{name}={value}" for name, value in values.items()])
    launch = LaunchShape(
        kernel="rms_linear", grid=(n // tile * cluster, 1, 1), threads=128, cluster=(cluster, 1, 1), shared_bytes=shared
    )
    parameters: list[Parameter] = [
        ArrayParameter("X", "float16", (m, k)),
        ArrayParameter("W", "float16", (k, n)),
        ArrayParameter("O", "float16", (m, n), None, True),
        ScalarParameter("eps", "float32"),
    ]
    return LoadedKernel(compiled, launch, parameters), {"hand_registers": compiled.registers}


def compare_rms(cupy: Any, shape: tuple[int, int, int], repeats: int, **choices: int) -> dict[str, Any]:
    """Return errors and times of our kernels and the hand-written one for a shape (m, n, k) and tile choices."""
    m, n, k = shape
    tile, depth, cluster, stages = (choices[name] for name in ("tile", "depth", "cluster", "stages"))
    hand, numbers = hand_written(m, n, k, tile=tile, depth=depth, cluster=cluster, stages=stages)
    ours: dict[str, LoadedKernel] = {}
    for name, gain in (("ours", False), ("gain", True)):
        (node,) = rms_graph(m, n, k, tile=tile, depth=depth, cluster=cluster, gain=gain).graph_defined
        source = emit_block(node, schedule=Schedule(stages=stages))
        compiled = compile_cubin(source.source, ARCH)
        ours[name] = load_kernel(source, compiled)
        numbers |= {
            f"{name}_registers": compiled.registers,
            f"{name}_spills": compiled.spills,
            f"{name}_compile_s": compiled.compile_s,
            f"{name}_hmma": disassembled_hmma(compiled.cubin),
        }
    rng = np.random.default_rng(1)
    gain_vector = cupy.asarray(np.exp(0.5 * rng.standard_normal(k)).astype(np.float16))
    for kind in ("random", "hard"):
        x, w = rng.standard_normal((m, k)), rng.standard_normal((k, n)) * 0.1
        if kind == "hard":
            x = x * np.exp(2 * rng.standard_normal((m, 1))) + rng.standard_normal((m, 1))
            w = w * np.exp(rng.standard_normal((1, n)))
        x16, w16 = cupy.asarray(x.astype(np.float16)), cupy.asarray(w.astype(np.float16))
        x64, w64 = x16.astype(cupy.float64), w16.astype(cupy.float64)
        divisor = cupy.sqrt((x64 * x64).mean(1, keepdims=True) + 1e-6)
        gain64 = gain_vector.astype(cupy.float64)
        runs = {"hand": (hand, 1.0), "ours": (ours["ours"], 1.0), "gain": (ours["gain"], gain64)}
        for name, (kernel, factor) in runs.items():
            out = cupy.full((m, n), cupy.nan, cupy.float16)
            last = {"hand": (out, 1e-6), "ours": (out,), "gain": (gain_vector, out)}[name]
            kernel(x16, w16, *last)
            reference = (x64 * factor) @ w64 / divisor
            rows = cupy.linalg.norm(out.astype(cupy.float64) - reference, axis=1) / cupy.linalg.norm(reference, axis=1)
            numbers[f"{name}_{kind}_error"] = float(rows.max())
            if not numbers[f"{name}_{kind}_error"] < 2e-3:
                raise WorkbenchError(f"{name} on {kind} inputs: worst row is off by {float(rows.max()):.2e}")
    sets = [
        (
            cupy.asarray((rng.standard_normal((m, k)) * 0.1).astype(np.float16)),
            (cupy.random.standard_normal((k, n), dtype=cupy.float32) * 0.1).astype(cupy.float16),
            cupy.empty((m, n), cupy.float16),
        )
        for _ in range(math.ceil(COLD_BYTES / (2 * k * n)))
    ]
    stream = cupy.cuda.Stream(non_blocking=True)
    calls: dict[str, list[Callable[[], None]]] = {
        "hand": [lambda s=s: hand(*s, 1e-6) for s in sets],  # type: ignore[misc]
        "ours": [lambda s=s: ours["ours"](*s) for s in sets],  # type: ignore[misc]
        "gain": [lambda s=s: ours["gain"](s[0], s[1], gain_vector, s[2]) for s in sets],  # type: ignore[misc]
    }
    times: dict[str, list[float]] = {f"{name}_{heat}": [] for name in calls for heat in ("cold", "warm")}
    for _ in range(3):  # turn and turn about, so that drifting clocks touch all
        for name, launches in calls.items():
            times[f"{name}_cold"].append(graph_us(cupy, launches, stream, repeats))
            times[f"{name}_warm"].append(graph_us(cupy, launches[:1], stream, repeats))
    numbers |= {f"{name}_us": statistics.median(found) for name, found in times.items()}
    numbers["cold_ratio"] = numbers["ours_cold_us"] / numbers["hand_cold_us"]
    numbers["warm_ratio"] = numbers["ours_warm_us"] / numbers["hand_warm_us"]
    return numbers


def disassembled_hmma(cubin: bytes) -> int:
    """Return the number of tensor-core instructions, -1 where no disassembler is installed."""
    try:
        return disassemble(cubin).count("HMMA")
    except WorkbenchError:
        return -1


# ----------------------------------------------------------------------------------------------------------- programs
def measure_graph(cupy: Any, graph: KernelGraph, repeats: int) -> dict[str, Any]:
    """Return what a µGraph needs, how right it is, and its time."""
    compiled = compiling.compile(graph, "h200")
    numbers: dict[str, Any] = {
        "registers": [kernel.registers for kernel in compiled.kernels],
        "spills": [kernel.spills for kernel in compiled.kernels],
        "shared": [kernel.shared_bytes for kernel in compiled.kernels],
        "grid": ["x".join(map(str, kernel.launch.grid)) for kernel in compiled.kernels],
        "compile_s": round(max((kernel.compile_s for kernel in compiled.kernels), default=0.0), 3),
    }
    check = check_executable(compiled)
    numbers["error"] = check.relative_error
    if not check.is_right:
        raise WorkbenchError(check.reason)
    nbytes = sum(tensor.nbytes for tensor in graph.inputs)
    count = max(2, min(512, math.ceil(COLD_BYTES / nbytes)))
    stream = cupy.cuda.Stream(non_blocking=True)
    calls = []
    for _ in range(count):
        arrays = [random_array(cupy, tensor.shape) for tensor in graph.inputs]
        outs = [cupy.empty(tensor.shape, cupy.dtype(tensor.dtype.value)) for tensor in graph.outputs]
        calls.append(compiled.prepare(*arrays, out=outs, stream=stream))
    numbers["cold_us"] = graph_us(cupy, calls, stream, repeats)
    numbers["warm_us"] = graph_us(cupy, calls[:1], stream, repeats)
    return numbers


def random_array(cupy: Any, shape: tuple[int, ...]) -> Any:
    """Return a float16 array of small normal numbers."""
    return (cupy.random.standard_normal(shape, dtype=cupy.float32) * 0.3).astype(cupy.float16)


def guarded(group: str, name: str, measure: Callable[[], dict[str, Any]]) -> None:
    """Report a measurement; an exception is its problem."""
    try:
        report(group, name, "", **measure())
    except Exception as error:  # one row that fails must not hide the others
        report(group, name, f"{type(error).__name__}: {str(error)[:400]}")


def main() -> int:
    """Measure; return 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write all results as JSON")
    parser.add_argument("--rows", nargs="*", help="programs to measure (all rows by default)")
    parser.add_argument("--rms-only", action="store_true", help="RMSNorm+Linear beside the hand-written kernel only")
    parser.add_argument("--repeats", type=int, default=11, help="replays of which the median is taken")
    options = parser.parse_args()
    import cupy

    base = {"tile": 64, "depth": 256, "cluster": 2, "stages": 4}
    cases: list[tuple[tuple[int, int, int], dict[str, int]]] = [
        ((16, 4096, 4096), {}),
        ((16, 4096, 4096), {"cluster": 4, "depth": 128}),
        ((2, 4096, 4096), {}),
        ((16, 6144, 4096), {}),
    ]
    for shape, change in cases:
        choices = base | change
        name = f"{shape[0]}x{shape[2]} -> {shape[1]} " + " ".join(f"{key} {value}" for key, value in choices.items())
        guarded("rms_linear", name, lambda s=shape, c=choices: compare_rms(cupy, s, options.repeats, **c))  # type: ignore[misc]
    if not options.rms_only:
        for name, sizes in ROWS:
            if options.rows and name not in options.rows:
                continue
            for number, graph in enumerate(programs.known_good(name, "standard", "float16", **sizes)):
                label = f"{name} {' '.join(f'{key}={value}' for key, value in sizes.items())} [{number}]"
                guarded("program", label, lambda g=graph: measure_graph(cupy, g, options.repeats))  # type: ignore[misc]
    if options.out:
        options.out.write_text(json.dumps(RESULTS, indent=1), encoding="utf-8")
    failed = [row for row in RESULTS if row["problem"]]
    print(f"{len(RESULTS) - len(failed)} right, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
