"""The emitter on a GPU: every known good µGraph, Mirage's graphs, awkward sizes and random graphs compiled, run, compared.

    python benchmarks/gpu_emitter.py [--parts A,B] [--budget SECONDS] [--out FILE.json] [--commit HASH] [--mirage FOLDER]

Parts: `known_good`, `unfused`, `sizes`, `mirage` (103 graphs), `random` (240 graphs) are compiled all together in parallel,
then checked all together in worker processes; beside the checks `pytest` runs the tests of tests/gpu for arrays, faults and
exports, and `sanitize` memcheck and racecheck. Then, alone, `compile` takes compile times, `timing` and `speed` kernel
times. What is not right is printed as it is found, then a table. Needs NumPy, CuPy, pytest and torch where it is installed.
Exit status 1 if anything failed.

The file is one JSON object, described in data/records/README.md. Long because every part is told in one run.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))
os.environ.setdefault("OPENBLAS_NUM_THREADS", "2")


from benchmarks import gpu_smoke  # noqa: E402
from benchmarks.gpu_jobs import Built, build_case, build_item, check_before  # noqa: E402
from benchmarks.gpu_report import Report, provenance, summarize, write  # noqa: E402
from benchmarks.gpu_timing import Maker, input_sets, maker_of, time_makers  # noqa: E402
from tests.gpu import cases as gpu_cases  # noqa: E402
from tests.gpu.cases import GpuCase  # noqa: E402
from tests.gpu.random_graphs import KINDS, Recipe, recipes  # noqa: E402
from workbench import programs  # noqa: E402
from workbench.codegen.cuda.kernel import emit_block  # noqa: E402
from workbench.codegen.cuda.schedule import Schedule  # noqa: E402
from workbench.device import check as check_module  # noqa: E402
from workbench.device.check import check_executable  # noqa: E402
from workbench.device.check_inputs import make_cases  # noqa: E402
from workbench.device.check_worker import CheckJob, Finding, build, judge  # noqa: E402
from workbench.device.compile import CompileRequest, compile_request  # noqa: E402
from workbench.device.compile_many import compile_many  # noqa: E402
from workbench.device.executable import Executable  # noqa: E402
from workbench.device.launch import LoadedKernel, load_cupy  # noqa: E402
from workbench.device.worker import run_in_workers  # noqa: E402
from workbench.errors import EmitError, KernelCompileError, WorkbenchError  # noqa: E402
from workbench.ugraph.builder import KernelBuilder  # noqa: E402
from workbench.ugraph.kernel_graph import KernelGraph  # noqa: E402

RANDOM_GRAPHS = 240
GPU_WORKERS = 12
CHECK_S, COMPILE_S = 120.0, 60.0
COLD_LIMIT_S, WARM_LIMIT_S, VARIANTS, VARIANTS_LIMIT_S = 0.5, 0.02, 100, 10.0
HAND_WRITTEN_RATIO = 1.1
EXPORT_TESTS = ("test_export.py",)
"""Tests that mostly wait for torch and for a compiler: they run beside the checks."""
OTHER_TESTS = ("test_executable.py", "test_faults.py", "test_intrinsics.py")
"""Tests with limits of seconds: they run alone."""
ALONE_S = 60.0
"""Seconds of the budget that are kept for what runs alone at the end."""
SANITIZERS = ("memcheck", "racecheck")


# ------------------------------------------------------------------------------------------------- compile, then check
def build_all(report: Report, part: str, built: Iterable[Built]) -> list[Built]:
    """Tell of each kernel that spills or lacks tensor cores, and of each refusal; return what can run."""
    good = []
    for one in built:
        if one.refusal:
            report.row(part, one.case.label, "refused", one.refusal, **one.features)
            continue
        without = [row["kernel"] for row in one.kernels if row["products"] and not row["tensor_cores"]]
        if without:
            report.row(part, one.case.label, "failed", f"no tensor-core instruction in {', '.join(without)}")
        good.append(one)
    return good


def items_of(part: str, options: argparse.Namespace, report: Report) -> list[tuple[str, GpuCase | tuple[Recipe, int]]]:
    """Return what is compiled and checked for a part: (label, case, or recipe and seed of a random graph)."""
    match part:
        case "known_good":
            cases = gpu_cases.known_good_cases()
        case "unfused":
            cases = gpu_cases.unfused_cases()
        case "sizes":
            cases = gpu_cases.size_cases()
        case "mirage" if options.mirage.is_dir():
            cases = gpu_cases.mirage_cases(options.mirage)
        case "mirage":
            report.row(part, "files", "not run", f"no folder {options.mirage}")
            return []
        case _:
            return [(f"random {recipe.number}", (recipe, options.seed)) for recipe in recipes(RANDOM_GRAPHS)]
    return [(case.label, case) for case in cases]


def compile_parts(report: Report, parts: Sequence[str], options: argparse.Namespace) -> dict[str, list[Built]]:
    """Compile everything in parallel, tell of refusals and of products without tensor cores; return what can run."""
    started = time.time()
    items = [(part, label, item) for part in parts for label, item in items_of(part, options, report)]
    outcomes = run_in_workers(
        build_item, [item for _, _, item in items], workers=os.cpu_count() or 1, timeout_s=COMPILE_S
    )
    built: dict[str, list[Built]] = {part: [] for part in parts}
    for (part, label, _), outcome in zip(items, outcomes, strict=True):
        if outcome.value is not None:
            built[part].append(outcome.value)
        else:
            report.row(part, label, "failed", f"while compiling: {outcome.kind}: {outcome.reason}")
    if "random" in built:
        hold_quotas(report, "random", [one.features for one in built["random"]])
    print(f"     {len(items)} graphs compiled in {time.time() - started:.0f} s", flush=True)
    return {part: build_all(report, part, made) for part, made in built.items()}


def check_parts(report: Report, built: dict[str, list[Built]]) -> dict[str, list[Built]]:
    """Check what was built, in worker processes, all parts side by side; return what is right."""
    started = time.time()
    everything = [(part, one) for part, made in built.items() for one in made]
    items = [(one.case, report.deadline - ALONE_S) for _, one in everything]
    outcomes = run_in_workers(check_before, items, workers=GPU_WORKERS, timeout_s=CHECK_S)
    right: dict[str, list[Built]] = {part: [] for part in built}
    for (part, one), outcome in zip(everything, outcomes, strict=True):
        report.seconds[part] = report.seconds.get(part, 0.0) + outcome.elapsed_s
        needs = {
            "spills": max((row["spills"] for row in one.kernels), default=0),
            "registers": max((row["registers"] for row in one.kernels), default=0),
        }
        if outcome.is_done and outcome.value is None:
            report.row(part, one.case.label, "not run", "the time budget was spent")
            continue
        verdict = judge(outcome)  # type: ignore[arg-type]  # None was told apart above
        error = verdict.report.relative_error if verdict.report is not None else float("nan")
        statuses = {Finding.RIGHT: "passed", Finding.REFUSED: "refused"}
        status = statuses.get(verdict.finding, "failed")
        reason = f"{verdict.finding.value}: {verdict.reason}" if verdict.reason else ""
        report.row(part, one.case.label, status, reason, relative_error=error, **needs, **one.features)
        if verdict.finding is Finding.RIGHT:
            right[part].append(one)
    print(f"     {len(items)} graphs checked in {time.time() - started:.0f} s", flush=True)
    return right


def hold_quotas(report: Report, part: str, found: Sequence[dict[str, Any]]) -> None:
    """Tell how many random graphs there are of each kind that is asked for."""
    kinds = Counter(kind for one in found for kind in one["accumulators"])
    quotas = {
        "graphs": (len(found), 200),
        "with a product in the loop": (sum(one["products"] >= 1 for one in found), 100),
        "with two": (sum(one["products"] >= 2 for one in found), 50),
        "ragged": (sum(one["ragged"] for one in found), 50),
        **{f"accumulator {kind.value}": (kinds[kind.value], 10) for kind in KINDS},
    }
    for name, (count, least) in quotas.items():
        report.row(part, f"quota: {name}", "passed" if count >= least else "failed", count=count, least=least)


# --------------------------------------------------------------------------------------------------- tests, sanitizers
def run_pytest(report: Report, part: str, names: Sequence[str]) -> None:
    """Run tests of tests/gpu, those of these files, in one process."""
    with tempfile.TemporaryDirectory() as scratch:
        results = Path(scratch) / "results.xml"
        files = [str(REPOSITORY / "tests" / "gpu" / name) for name in names]
        # in one process: plugins of other projects that warn beside xdist would stop it, warnings being errors here
        options = ["-q", "-o", "addopts=--import-mode=importlib", "-p", "no:cacheprovider", "-p", "no:benchmark"]
        options.append(f"--junit-xml={results}")
        command = [sys.executable, "-m", "pytest", *options, *files]
        output = b""
        environment = {**os.environ, "WORKBENCH_REQUIRE_GPU": "1"}
        try:
            output = subprocess.run(
                command,
                cwd=REPOSITORY,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=max(report.left_s - ALONE_S, 1),
                check=False,
            ).stdout
        except subprocess.TimeoutExpired:
            report.row(part, " ".join(names), "failed", "not ended within the time budget")
        if not results.is_file():
            report.row(
                part, " ".join(names), "failed", "pytest wrote no results: " + output.decode(errors="replace")[-600:]
            )
            return
        for test in ElementTree.parse(results).getroot().iter("testcase"):
            problem = next((child for child in test if child.tag in ("failure", "error")), None)
            skipped = next((child for child in test if child.tag == "skipped"), None)
            name = f"{test.get('classname', '').rpartition('.')[2]}::{test.get('name')}"
            if problem is not None:
                report.row(part, name, "failed", (problem.get("message") or "") + (problem.text or "")[-800:])
            elif skipped is not None:
                report.row(part, name, "not run", skipped.get("message") or "skipped")
            else:
                report.row(part, name, "passed")


def sanitizer() -> str | None:
    """Return where compute-sanitizer is."""
    places = ["/usr/local/cuda/bin", "/usr/local/cuda/compute-sanitizer", *os.environ.get("PATH", "").split(os.pathsep)]
    return shutil.which("compute-sanitizer", path=os.pathsep.join(places))


def run_sanitizer(report: Report, part: str, name: str) -> None:
    """Run the known good kernels at small sizes under a tool of compute-sanitizer."""
    tool = sanitizer()
    if tool is None:
        report.row(part, name, "not run", "compute-sanitizer is not installed")
        return
    command = [tool, "--tool", name, "--error-exitcode", "9", "--print-limit", "5"]
    command += [sys.executable, str(Path(__file__).resolve()), "--sanitized"]
    started = time.time()
    try:
        ran = subprocess.run(
            command,
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            timeout=max(report.left_s - ALONE_S, 1),
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        done = (error.stdout or b"").decode(errors="replace").count("\nright ")
        report.row(part, name, "failed", f"not ended within the time budget; {done} kernels were clean so far")
        return
    right = [line for line in ran.stdout.splitlines() if line.startswith("right ")]
    wrong = [line for line in ran.stdout.splitlines() if line.startswith("wrong ")]
    summary = [line for line in ran.stdout.splitlines() if "SUMMARY" in line]
    good = ran.returncode == 0 and right and not wrong
    told = " ".join(wrong + summary) if good else " ".join(wrong + summary) + ran.stdout[-1500:] + ran.stderr[-500:]
    status = "passed" if good else "failed"
    report.row(part, name, status, told, graphs=len(right), seconds=time.time() - started)


def sanitized() -> int:
    """Check the known good graphs at small sizes; what runs under a sanitizer: exact allocations, references by NumPy."""
    cupy = load_cupy()
    cupy.cuda.set_allocator(None)
    check_module.GUARD_BYTES = 0
    bad = 0
    for case in gpu_cases.small_cases():
        job = case.job
        assert job.reference is not None
        try:
            report = check_executable(build(job), cases=make_cases(job.reference, [job.graph]))
        except WorkbenchError as error:
            print(f"wrong {case.label}: {error}", flush=True)
            bad = 1
            continue
        bad |= not report.is_right
        print(f"{'right' if report.is_right else 'wrong'} {case.label} {report.reason}", flush=True)
    return bad


# -------------------------------------------------------------------------------------------------------------- times
def run_compile_times(report: Report, part: str, built: Sequence[Built]) -> None:
    """Compile each known good kernel once more, cold and warm, in this process; then 100 variants side by side."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        compile_request(CompileRequest(source='extern "C" __global__ void k() {}'), folder)
        seen: set[str] = set()
        for one in built:
            for kernel in build(one.case.job).program.kernels:
                if kernel.source in seen or report.left_s < 5:
                    continue
                seen.add(kernel.source)
                request = CompileRequest(source=kernel.source)
                cold = compile_request(request, folder, use_cache=False)
                times = [cold.compile_s]
                if cold.compile_s >= COLD_LIMIT_S:  # may have been the machine: the median of three counts
                    times += [compile_request(request, folder, use_cache=False).compile_s for _ in range(2)]
                cold_s, warm = statistics.median(times), compile_request(request, folder)
                limits = {
                    f"{cold_s:.2f} s cold, allowed {COLD_LIMIT_S}": cold_s < COLD_LIMIT_S,
                    f"{warm.load_s:.3f} s warm, allowed {WARM_LIMIT_S}": warm.load_s < WARM_LIMIT_S,
                    f"{cold.spills} bytes spilled": cold.spills == 0,
                }
                broken = "; ".join(told for told, is_met in limits.items() if not is_met)
                report.row(
                    part, f"{one.case.label}: {kernel.name}", "failed" if broken else "passed", broken,
                    cold_s=cold_s, cold_times=times, warm_s=warm.load_s, registers=cold.registers, spills=cold.spills,
                )  # fmt: skip
        requests = variant_requests()
        started = time.perf_counter()
        results = compile_many(requests, cache_folder=folder / "variants")
        seconds = time.perf_counter() - started
        refused = sum(isinstance(result, KernelCompileError) for result in results)
        good = len(requests) == VARIANTS and seconds < VARIANTS_LIMIT_S and not refused
        name = f"{len(requests)} schedule variants of RMSNorm+Linear on {os.cpu_count()} cores"
        report.row(part, name, "passed" if good else "failed", seconds=seconds, refused=refused)


def variant_requests() -> list[CompileRequest]:
    """Return 100 different kernels of one structure: RMSNorm+Linear under other schedules."""
    graph = programs.known_good("rms_norm_linear")[0]
    (node,) = graph.graph_defined
    sources: dict[str, None] = {}
    for fast, threads, stages, cluster in itertools.product(
        (None, False), (64, 128, 256, 512, 32), (2, 3, 4, 5, 6, 8), (1, 2, 4, 8)
    ):
        if len(sources) == VARIANTS:
            break
        try:
            schedule = Schedule(threads=threads, stages=stages, cluster=cluster, fast_math=fast)
            sources[emit_block(node, schedule=schedule).source] = None
        except EmitError:
            continue
    return [CompileRequest(source=source) for source in sources]


def run_timing(report: Report, part: str, right: Sequence[Built]) -> None:
    """Time the known good graphs of the speed table's rows, cold and warm, beside its best peers (taken elsewhere)."""
    cupy = load_cupy()
    by_hash = {one.case.job.graph.hash: one for one in right}
    ratios = []
    for target in gpu_cases.TARGET_ROWS:
        if report.left_s < 10:
            report.row(part, target.label, "not run", "the time budget was spent")
            continue
        graphs = programs.known_good(target.program, "standard", "float16", **target.sizes)
        candidates = {
            f"known good {number}": build(CheckJob(graph=graph))
            for number, graph in enumerate(graphs)
            if graph.hash in by_hash
        }
        if not candidates:
            report.row(part, target.label, "failed", "no known good graph of this row was right")
            continue
        sets = input_sets(next(iter(candidates.values())), cupy)
        times = time_makers({name: maker_of(made) for name, made in candidates.items()}, sets, cupy)
        best = min(cold for cold, _ in times.values())
        ratios.append(target.best_peer_us / best)
        report.row(
            part, target.label, "passed", cold_us=best, warm_us=min(warm for _, warm in times.values()),
            best_peer_us=target.best_peer_us, ratio=ratios[-1], target_us=target.target_us, floor_us=target.floor_us,
            times={name: list(pair) for name, pair in times.items()},
        )  # fmt: skip
        del sets
        cupy.get_default_memory_pool().free_all_blocks()
    if ratios:
        print(f"     {part}: geometric mean of ratios {statistics.geometric_mean(ratios):.3f}, peers of another run")


def cluster_graph(columns: int, depth: int, cluster: int) -> KernelGraph:
    """Return RMSNorm+Linear 16x4096 -> 4096 without gain, with a cluster that shares the loop."""
    kernel = KernelBuilder("rms_norm_linear")
    x, w = kernel.input("X", (16, 4096)), kernel.input("W", (4096, 4096))
    block = kernel.block(x, w, grid=(4096 // columns,), loop=4096 // depth, cluster=(cluster,))
    a, b = block.load(x, fmap=1), block.load(w, imap=(1,), fmap=0)
    block.save(block.accumulate(a @ b) / block.accumulate(a, "rms", eps=1e-6), omap=(1,))
    kernel.output(*block.finish(name="rms_norm_linear"))
    return kernel.build()


def maker_by_hand(kernel: LoadedKernel) -> Maker:
    """Return what `time_makers` takes, for a kernel of `gpu_smoke.rms_kernels`."""
    return lambda inputs, outputs, stream: kernel.prepare(*inputs, *outputs, 1e-6, stream=stream)


def run_speed(report: Report, part: str) -> None:
    """Time RMSNorm+Linear 16x4096x4096 with a cluster from the emitter beside the hand-written kernel, in one run."""
    cupy = load_cupy()
    reference = programs.get("rms_norm_linear", "mirage", batch=16, hidden=4096, out=4096)
    jobs = {}
    for columns, depth, cluster, stages in itertools.product((32, 64, 128), (128, 256), (2, 4), (3, 4, 6)):
        graph = cluster_graph(columns, depth, cluster)
        name = graph.nodes[0].results[0].name
        jobs[f"{columns} wide, {depth} deep, cluster {cluster}, {stages} stages"] = CheckJob(
            graph=graph, schedules={name: Schedule(stages=stages, threads=128)}
        )
    made = run_in_workers(
        build_case, [GpuCase(name, job) for name, job in jobs.items()], workers=os.cpu_count() or 1, timeout_s=COMPILE_S
    )
    candidates: dict[str, Executable] = {}
    for (name, job), outcome in zip(jobs.items(), made, strict=True):
        if outcome.value is None or outcome.value.refusal:
            report.row(part, name, "refused", outcome.value.refusal if outcome.value is not None else outcome.reason)
            continue
        candidates[name] = build(job)
    sources = make_cases(reference, seed=1)
    for name in list(candidates):
        found = check_executable(candidates[name], cases=sources)
        if not found.is_right:
            report.row(part, name, "failed", found.reason)
            del candidates[name]
    shape = {"K_": 4096, "N_": 4096, "M_": 16, "S_": 2, "BN_": 64, "BK_": 256, "ST_": 4}
    hand = {name: kernel for name, (_, kernel) in gpu_smoke.rms_kernels(shape).items()}
    makers: dict[str, Maker] = {f"by hand ({name})": maker_by_hand(kernel) for name, kernel in hand.items()}
    makers |= {name: maker_of(made) for name, made in candidates.items()}
    sets = input_sets(next(iter(candidates.values())), cupy)
    times = time_makers(makers, sets, cupy, rounds=2)
    original = times["by hand (rms_linear)"][0]
    for name, (cold, warm) in sorted(times.items(), key=lambda item: item[1]):
        report.row(part, name, "passed", cold_us=cold, warm_us=warm, ratio_to_hand=cold / original)
    best = min(times[name][0] for name in candidates)
    status = "passed" if best <= HAND_WRITTEN_RATIO * original else "failed"
    report.row(part, "best emitted against by hand", status, cold_us=best, hand_us=original, ratio=best / original)


# --------------------------------------------------------------------------------------------------------------- main
GRAPHS = ("known_good", "unfused", "sizes", "mirage", "random")
PARTS = (*GRAPHS, "pytest", "sanitize", "compile", "timing", "speed")


def guarded(report: Report, part: str, work: Callable[[], Any], default: Any = None) -> Any:
    """Return what a part's work returns; where it breaks, that is the part's failure and leaves the others their turn."""
    if report.left_s <= 0:
        report.row(part, "all", "not run", "the time budget was spent")
        return default
    started = time.time()
    try:
        return work()
    except Exception as error:
        report.row(part, "the part itself", "failed", f"{type(error).__name__}: {error}")
        sys.excepthook(type(error), error, error.__traceback__)
        return default
    finally:
        report.seconds[part] = report.seconds.get(part, 0.0) + time.time() - started


def main() -> int:
    """Run the parts; return 1 if something failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default=",".join(PARTS), help="comma-separated; default all")
    parser.add_argument("--budget", type=float, default=540.0, help="seconds for everything (default 540)")
    parser.add_argument("--out", type=Path, help="write all results as JSON")
    parser.add_argument("--commit", default="", help="the commit that is tested, where there is no git")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mirage", type=Path, default=REPOSITORY / "carry" / "mirage_mugraphs")
    parser.add_argument("--sanitized", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.sanitized:
        return sanitized()
    wanted = options.parts.split(",")
    if unknown := set(wanted) - set(PARTS):
        parser.error(f"unknown parts {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    told = provenance(options.commit)
    print(json.dumps(told), flush=True)
    report = Report(time.time() + options.budget)

    def keep() -> None:
        if options.out:
            write(options.out, told, report, options.seed)

    graphs = [part for part in GRAPHS if part in wanted]
    if {"compile", "timing"} & set(wanted) and "known_good" not in graphs:
        graphs.insert(0, "known_good")  # what is timed is checked first
    built: dict[str, list[Built]] = guarded(report, "build", lambda: compile_parts(report, graphs, options), {})
    beside = [("pytest", partial(run_pytest, report, "pytest", EXPORT_TESTS))]
    beside += [("sanitize", partial(run_sanitizer, report, "sanitize", name)) for name in SANITIZERS]
    with ThreadPoolExecutor(len(beside)) as executor:
        running = [executor.submit(guarded, report, part, work) for part, work in beside if part in wanted]
        right: dict[str, list[Built]] = guarded(report, "check", lambda: check_parts(report, built), {})
        keep()
        for ended in running:
            ended.result()
    keep()
    known = right.get("known_good", [])
    alone = {
        "pytest": partial(run_pytest, report, "pytest", OTHER_TESTS),
        "compile": partial(run_compile_times, report, "compile", built.get("known_good", [])),
        "timing": partial(run_timing, report, "timing", known),
        "speed": partial(run_speed, report, "speed"),
    }
    for part, work in alone.items():
        if part in wanted:
            guarded(report, part, work)
            keep()
    return summarize(report)


if __name__ == "__main__":
    sys.exit(main())
