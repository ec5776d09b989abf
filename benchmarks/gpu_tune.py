"""Tune every row of the speed table on a GPU: compile all variants in parallel, check each, time each cold, rank them.

    python benchmarks/gpu_tune.py [--only WORDS] [--most N] [--budget SECONDS] [--peers] [--hard] [--out FOLDER]

Every variant of `gpu_variants.py` is emitted and compiled by worker processes; then one process that uses the GPU checks
each against float64 on random inputs and times it by CUDA-graph replay with a cold L2, dropping slow ones after few
replays. The best two of a row are timed again, cold and warm, beside the peers of `gpu_peers.py` in the same turn; with
--hard the best is checked on hard inputs too. A variant that faults costs the process its life: another one goes on with
the next variant. `tune.json` in the folder holds every variant, with its reason where it has no time.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))
os.environ.setdefault("OPENBLAS_NUM_THREADS", "2")

from benchmarks.gpu_builds import ARCH, Built, build_variant  # noqa: E402
from benchmarks.gpu_peers import peers_of, warm_peers  # noqa: E402
from benchmarks.gpu_timing import input_sets, maker_of, replay_us, time_makers  # noqa: E402
from benchmarks.gpu_variants import Row, Variant, all_rows  # noqa: E402
from workbench.codegen.cuda.numeric_limits import evaluate_within_types  # noqa: E402
from workbench.codegen.cuda.storage import from_storage  # noqa: E402
from workbench.core.dtypes import DType  # noqa: E402
from workbench.device.check import check_executable  # noqa: E402
from workbench.device.check_inputs import make_cases  # noqa: E402
from workbench.device.comparison import TOLERANCES, compare  # noqa: E402
from workbench.device.executable import compile_program  # noqa: E402
from workbench.device.launch import load_cupy  # noqa: E402
from workbench.device.worker import is_fatal, run_in_workers  # noqa: E402
from workbench.errors import WorkbenchError  # noqa: E402

COMPILE_TIMEOUT_S, STALL_S, PEERS_TIMEOUT_S = 60.0, 60.0, 100.0
QUICK, SLOW_RATIO = 4, 1.25


def build_all(rows: list[Row], most: int) -> list[tuple[Row, list[Built]]]:
    """Compile at most `most` variants of each row, the known good ones among them, on all cores."""
    chosen: list[list[Variant]] = []
    for row in rows:
        known = [variant for variant in row.variants if variant.name.startswith("known good")]
        others = [variant for variant in row.variants if not variant.name.startswith("known good")]
        if len(others) > most:
            others = random.Random(0).sample(others, most)
        chosen.append([*known, *others])
    flat = [variant for variants in chosen for variant in variants]
    started = time.perf_counter()
    outcomes = run_in_workers(build_variant, flat, workers=os.cpu_count() or 1, timeout_s=COMPILE_TIMEOUT_S)
    print(f"{len(flat)} variants compiled in {time.perf_counter() - started:.0f} s", flush=True)
    built = [
        outcome.value or Built(variant, None, {}, f"{outcome.kind}: {outcome.reason}")
        for variant, outcome in zip(flat, outcomes, strict=True)
    ]
    grouped, start = [], 0
    for row, variants in zip(rows, chosen, strict=True):
        grouped.append((row, built[start : start + len(variants)]))
        start += len(variants)
    return grouped


# --------------------------------------------------------------------------------------------------------- on the GPU
class Tuner:
    """Checks and times in one process; every result is a line of the log, written before and after what may fault."""

    def __init__(self, log: Path, options: argparse.Namespace, deadline: float) -> None:
        self.log, self.options, self.deadline = log, options, deadline
        self.cupy = load_cupy()
        self.done = {(line["row"], line["variant"]): line for line in read_lines(log)}

    def write(self, **line: Any) -> None:
        """Append a line."""
        with self.log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def row(self, row: Row, built: list[Built]) -> None:
        """Tune one row."""
        if (row.label, "best") in self.done or time.time() > self.deadline:
            return
        good = [one for one in built if one.program is not None]
        for one in built:
            if one.refusal and (row.label, one.variant.name) not in self.done:
                self.write(row=row.label, variant=one.variant.name, status="refused", reason=one.refusal)
        if not good:
            return
        first = compile_program(good[0].program, row.reference, ARCH)  # type: ignore[arg-type]  # it has a program
        sets = input_sets(first, self.cupy)
        values = [from_storage(a.get(), t.dtype) for a, t in zip(sets[0][0], row.reference.inputs, strict=True)]
        expected, _ = evaluate_within_types(row.reference, values, self.cupy)
        times: dict[str, float] = {}
        for one in good:
            name = one.variant.name
            known = self.done.get((row.label, name))
            if known is not None:
                if "cold_us" in known:
                    times[name] = known["cold_us"]
                continue
            if time.time() > self.deadline:
                break
            self.write(row=row.label, variant=name, status="started", reason="the process ended while it ran")
            best = min(times.values(), default=1e9)
            try:
                result = self.measure(one, row, sets, expected, best)
            except (WorkbenchError, RuntimeError) as error:
                if is_fatal(str(error)):
                    raise
                result = {"status": "failed", "reason": str(error)}
            self.write(row=row.label, variant=name, **one.needs, **result)
            if "cold_us" in result:
                times[name] = result["cold_us"]
        self.finish(row, {one.variant.name: one for one in good}, times, sets)
        del sets
        self.cupy.get_default_memory_pool().free_all_blocks()

    def measure(self, one: Built, row: Row, sets: Any, expected: Any, best: float) -> dict[str, Any]:
        """Check a variant on the first set, then time it; few replays where it is slow."""
        executable = compile_program(one.program, one.variant.graph, ARCH)  # type: ignore[arg-type]
        stream = self.cupy.cuda.Stream(non_blocking=True)
        inputs, outputs = sets[0]
        for output in outputs:
            output.data.memset(0xFF, output.nbytes)
        self.cupy.cuda.Device().synchronize()
        with stream:
            executable.prepare(*inputs, out=outputs, stream=stream)()
            stream.synchronize()
            error = 0.0
            for array, tensor, right in zip(outputs, row.reference.outputs, expected, strict=True):
                found = compare(tensor.name, from_storage(array.get(), tensor.dtype), right, TOLERANCES[DType.FLOAT16])
                error = max(error, found.relative_error)
                if found.problem:
                    return {"status": "wrong", "reason": found.problem}
            make = maker_of(executable)
            runs = [make(inputs, outputs, stream) for inputs, outputs in sets]
            cold = replay_us(runs, stream, self.cupy, repeats=QUICK)
            if cold < SLOW_RATIO * best:
                cold = replay_us(runs, stream, self.cupy)
        return {"status": "right", "cold_us": cold, "relative_error": error}

    def finish(self, row: Row, good: dict[str, Built], times: dict[str, float], sets: Any) -> None:
        """Time the best two again, cold and warm, beside the peers; check the best on hard inputs."""
        ranked = sorted(times, key=times.__getitem__)[:2]
        if not ranked:
            self.write(row=row.label, variant="best", status="failed", reason="no variant is right")
            return
        problems: dict[str, str] = {}
        executables = {name: compile_program(good[name].program, row.reference, ARCH) for name in ranked}  # type: ignore[arg-type]
        makers = {name: maker_of(made) for name, made in executables.items()}
        if self.options.peers:
            peers, problems = peers_of(row.program, sets, self.cupy)
            makers |= peers
        taken = time_makers(makers, sets, self.cupy, rounds=2)
        best = min(ranked, key=lambda name: taken[name][0])
        told: dict[str, Any] = {}
        if self.options.hard:
            cases = make_cases(row.reference, [good[best].variant.graph], seed=1, namespace=self.cupy)
            report = check_executable(executables[best], row.reference, cases=cases)
            told = {"hard": "right" if report.is_right else report.reason, "hard_error": report.relative_error}
        self.write(
            row=row.label, variant="best", status="right", best=best, cold_us=taken[best][0], warm_us=taken[best][1],
            times={name: list(pair) for name, pair in taken.items()}, peer_problems=problems, **told,
            known_us=min((us for name, us in times.items() if name.startswith("known good")), default=None),
        )  # fmt: skip


def read_lines(log: Path) -> list[dict[str, Any]]:
    """Return the lines of a log; the last of a variant counts."""
    return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()] if log.exists() else []


def run_child(options: argparse.Namespace) -> int:
    """Tune what is in the file of compiled variants, going on where the log ends."""
    grouped, deadline = pickle.loads(options.child.read_bytes())
    tuner = Tuner(options.child.with_name("log.jsonl"), options, deadline)
    for row, built in grouped:
        try:
            tuner.row(row, built)
        except Exception as error:  # one row that breaks leaves the others their turn
            if is_fatal(str(error)):
                raise
            sys.excepthook(type(error), error, error.__traceback__)
            tuner.write(row=row.label, variant="best", status="failed", reason=f"{type(error).__name__}: {error}")
    return 0


def supervise(command: list[str], log: Path, deadline: float) -> None:
    """Run the GPU process until it ends by itself, starting it again after a fault or a stall."""
    for _ in range(20):
        before = log.stat().st_size if log.exists() else 0
        process = subprocess.Popen(command, cwd=REPOSITORY)
        seen, since = -1, time.time()
        while process.poll() is None:
            size = log.stat().st_size if log.exists() else 0
            if size != seen:
                seen, since = size, time.time()
            if time.time() - since > STALL_S or time.time() > deadline + 60:
                process.kill()
                process.wait()
            time.sleep(0.5)
        if process.returncode == 0 or time.time() > deadline or (log.stat().st_size if log.exists() else 0) == before:
            return


# --------------------------------------------------------------------------------------------------------------- main
def summary(rows: list[Row], log: Path) -> list[dict[str, Any]]:
    """Print a line for each row and the ranks below it; return the rows."""
    lines = {(line["row"], line["variant"]): line for line in read_lines(log)}
    found: list[dict[str, Any]] = []
    ratios = []
    for row in rows:
        own = [line for (label, _), line in lines.items() if label == row.label]
        counts = {
            status: sum(line["status"] == status for line in own) for status in sorted({x["status"] for x in own})
        }
        result: dict[str, Any] = lines.get((row.label, "best"), {})
        ranked = sorted((x for x in own if "cold_us" in x and x["variant"] != "best"), key=lambda x: x["cold_us"])
        print(f"\n{row.label}: {counts}")
        for line in ranked[:5]:
            kernels = "; ".join(
                f"{k['kernel']} {k['registers']}r {k['shared_bytes'] // 1024}K {k['spills']}s"
                for k in line.get("kernels", ())
            )
            print(f"   {line['cold_us']:7.2f}  {line['variant']}  ({kernels})")
        reasons = {x.get("reason", "")[:160] for x in own if x["status"] not in ("right", "refused")}
        for reason in sorted(reasons)[:3]:
            print(f"   !! {reason}")
        peers = {name: pair for name, pair in result.get("times", {}).items() if name.startswith("peer ")}
        peer = min((pair[0] for pair in peers.values()), default=row.peer_us)
        if result.get("status") == "right" and peer:
            ratios.append(peer / result["cold_us"])
        found.append({"row": row.label, "peer_us": peer, "peers": peers, "best": result, "counts": counts})
    print("\n  ours   warm  known   peer target  floor  ratio   row: best variant [hard]")
    for row, one in zip(rows, found, strict=True):
        best: dict[str, Any] = one["best"]
        if best.get("status") != "right":
            print(f"  {'-':>5} {row.label}: {best.get('reason', 'not run')}")
            continue
        known = f"{best['known_us']:6.2f}" if best.get("known_us") else "     -"
        print(
            f"{best['cold_us']:6.2f} {best['warm_us']:6.2f} {known} {one['peer_us']:6.1f} {row.target_us:6.1f} "
            f"{row.floor_us:6.1f} {one['peer_us'] / best['cold_us']:6.2f}   {row.label}: {best['best']} [{best.get('hard', '')}]"
        )
    if ratios:
        print(f"geometric mean {statistics.geometric_mean(ratios):.3f}, least {min(ratios):.2f}, of {len(ratios)} rows")
    return found


def main() -> int:
    """Tune; return 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="comma-separated words of row labels")
    parser.add_argument("--most", type=int, default=60, help="variants of a row at most")
    parser.add_argument("--budget", type=float, default=200.0, help="seconds on the GPU")
    parser.add_argument("--peers", action="store_true", help="time peers in the same turn")
    parser.add_argument("--hard", action="store_true", help="check each row's best on hard inputs")
    parser.add_argument("--out", type=Path, default=Path("."))
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return run_child(options)
    options.out.mkdir(parents=True, exist_ok=True)
    started, log = time.time(), options.out / "log.jsonl"
    rows = all_rows(options.only)
    if options.peers:
        items = {(row.program, tuple(t.shape for t in row.reference.inputs)): None for row in rows}
        for item, outcome in zip(
            items, run_in_workers(warm_peers, list(items), workers=len(items), timeout_s=PEERS_TIMEOUT_S), strict=True
        ):
            told = f"{outcome.value:.0f} s" if outcome.value is not None else f"{outcome.kind}: {outcome.reason[-200:]}"
            print(f"peers of {item[0]}: {told}", flush=True)
        print(f"{time.time() - started:.0f} s for the peers' compilation", flush=True)
    grouped = build_all(rows, options.most)
    work = options.out / "variants.pickle"
    deadline = time.time() + options.budget
    work.write_bytes(pickle.dumps((grouped, deadline)))
    command = [sys.executable, str(Path(__file__).resolve()), "--child", str(work)]
    command += [flag for flag, wanted in (("--peers", options.peers), ("--hard", options.hard)) if wanted]
    supervise(command, log, deadline)
    found = summary(rows, log)
    (options.out / "tune.json").write_text(json.dumps({"rows": found, "variants": read_lines(log)}), encoding="utf-8")
    work.unlink()
    print(f"{time.time() - started:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
