"""`workbench measure`: time our kernels beside what one would otherwise run, on the GPU; or tell what was recorded."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from workbench import __version__
from workbench.codegen.cuda.content_cache import user_cache_folder
from workbench.codegen.cuda.schedule import Schedule, WarpLayout
from workbench.codegen.cuda.storage import to_storage
from workbench.commands import requests
from workbench.commands.answer import Answer, Call, Json
from workbench.core.dtypes import DType
from workbench.cost.hardware import hardware, hardware_names
from workbench.device.ceilings import Ceilings, measure_ceilings
from workbench.device.check_inputs import InputKind, draw
from workbench.device.counters import count_targets, modelled_traffic
from workbench.device.counters_run import CountTarget
from workbench.device.machine import read_machine
from workbench.device.measure_program import (
    Candidate,
    Measured,
    MeasureJob,
    PreparedJob,
    compulsory_work,
    measure_prepared,
    prepare_job,
    source_hash,
)
from workbench.device.peer_warmup import load_torch, warm_peers
from workbench.device.peers import ALL_PEERS, CUBLAS
from workbench.device.timing import TimingOptions
from workbench.device.worker import Outcome, Worker, run_in_workers
from workbench.errors import LaunchError, UnknownNameError, UsageError
from workbench.pipeline.passes import choices_from_json
from workbench.programs import registry
from workbench.programs.record import Instance
from workbench.records.candidates import candidate_store, find_candidates, shipped_candidates
from workbench.records.measurements import best_of, current_rows, geometric_mean, label_of, measurement_store
from workbench.records.store import Record, RecordStore
from workbench.records.table_rows import TABLE_ROWS, table_row
from workbench.shipped import shipped_path
from workbench.views.figure_files import draw_figures
from workbench.views.measured_table import markdown_table, text_table

PREPARE_S, ROW_S, CEILINGS_S = 300.0, 240.0, 120.0
LEAST_CORES_TO_WARM = 8
MOST_STORED = 3
"""Kept candidates that are timed beside the known good ones."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("program", nargs="?", metavar="PROGRAM", help="a program, at the sizes of --set")
    parser.add_argument("--all", action="store_true", help="the sixteen rows of the speed table")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="records: rows are added, and those that are there are kept"
    )
    parser.add_argument("--fresh", action="store_true", help="measure rows that are there already once more")
    parser.add_argument(
        "--replay", action="store_true", help="measure nothing: tell the records of FILE, or those shipped"
    )
    parser.add_argument("--table", action="store_true", help="print the rows as a Markdown table")
    parser.add_argument("--figures", type=Path, metavar="DIR", help="draw speedups, floor and roofline into DIR")
    parser.add_argument(
        "--device", metavar="NAME", help="h200, ... (default: the GPU that is here; with --replay h200)"
    )
    parser.add_argument("--peers", metavar="A,B", help=f"which peers (default all: {', '.join(ALL_PEERS)})")
    parser.add_argument(
        "--only",
        metavar="TEXT",
        help="with --all: rows whose program and sizes contain TEXT, or one of several after commas",
    )
    parser.add_argument("--counters", action="store_true", help="also read hardware counters, by Nsight Compute")
    parser.add_argument("--parts", action="store_true", help="also time the program's products alone, by cuBLAS")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="turns over all contenders (default 5)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the inputs (default 0)")
    requests.add_program_arguments(parser)


def run(call: Call) -> Answer:
    """Return the rows. Raises: LaunchError without a GPU, UsageError, UnknownNameError; as `requests.settle`; OSError."""
    arguments = call.arguments
    if bool(arguments.program) == arguments.all:
        raise UsageError("name one program, or give --all for the sixteen rows of the speed table")
    instances = _instances(call)
    if arguments.replay:
        return _answer(_replayed(arguments, instances), arguments, replayed=True)
    names = tuple(name.strip() for name in arguments.peers.split(",")) if arguments.peers else ALL_PEERS
    if unknown := [name for name in names if name not in ALL_PEERS]:
        raise UnknownNameError(f"unknown peer {unknown[0]!r}; there are {', '.join(ALL_PEERS)}")
    try:
        machine = read_machine()
    except LaunchError as error:
        raise LaunchError(f"{error}; --replay tells what was measured before") from error
    device = arguments.device or _device_of(machine.gpu)
    store = measurement_store(arguments.out or user_cache_folder("records") / f"{device}.jsonl")
    session = _Session(call, device, machine.gpu, names, store)
    rows = session.measure(instances)
    if arguments.counters:
        rows = session.count(instances, rows)
    return _answer(rows, arguments, replayed=False, out=store.path)


def _instances(call: Call) -> list[Instance]:
    arguments = call.arguments
    if not arguments.all:
        if arguments.only:
            raise UsageError("--only chooses rows of --all; a program's sizes are given with --set")
        return [requests.settle(arguments.program, arguments, call.settings)]
    if call.settings or arguments.style or arguments.dtype:
        raise UsageError("--all takes the rows of the speed table; leave --set, --style and --dtype away")
    texts = arguments.only.split(",") if arguments.only else [""]
    rows = [row for row in TABLE_ROWS if any(text in row.label for text in texts)]
    if not rows:
        raise UsageError(f"no row of the speed table contains {arguments.only!r}; rows: {TABLE_ROWS[0].label}, ...")
    return [registry.instance(row.program, "standard", "float16", row.sizes) for row in rows]


def _device_of(gpu: str) -> str:
    words = gpu.lower().replace("-", " ").split()
    for name in hardware_names():
        if name.partition("-")[0] in words:
            return name
    raise UsageError(f"there is no hardware record of {gpu}; give --device, one of {', '.join(hardware_names())}")


def _replayed(arguments: argparse.Namespace, instances: Sequence[Instance]) -> list[Record]:
    device = arguments.device or "h200"
    path = arguments.out or Path(str(shipped_path("data", "records", f"{device}.jsonl")))
    if not path.is_file():
        raise UsageError(f"{path}: there are no records here; records are shipped of the h200")
    rows = current_rows(measurement_store(path).records())
    wanted = [
        (instance.program.name, dict(instance.sizes), instance.style.value, str(instance.dtype))
        for instance in instances
    ]
    found = [row for row in rows if (row["program"], row["parameters"], row.get("style"), row.get("dtype")) in wanted]
    if not found:
        raise UnknownNameError(f"{path} has no record of what was asked for; measure it on a machine with a GPU")
    return found


class _Session:
    """Rows measured one after the other, each kept as soon as it is there."""

    def __init__(self, call: Call, device: str, gpu: str, peers: tuple[str, ...], store: RecordStore) -> None:
        self._call, self._arguments = call, call.arguments
        self._device, self._gpu, self._peers, self._store = device, gpu, peers, store
        hardware(device)  # an unknown name is told before anything is measured
        self._stores = [candidate_store(user_cache_folder("records") / "candidates.jsonl"), shipped_candidates()]

    def measure(self, instances: Sequence[Instance]) -> list[Record]:
        """Return a row per instance, kept ones included, in order."""
        kept = {} if self._arguments.fresh else self._kept()
        jobs = [self._job(instance) for instance in instances]
        hashes = [source_hash(job.candidates, self._device) for job in jobs]
        rows: list[Record | None] = [
            kept.get(self._key(instance, text)) for instance, text in zip(instances, hashes, strict=True)
        ]
        open_rows = [number for number, row in enumerate(rows) if row is None]
        if not open_rows:
            return [row for row in rows if row is not None]
        with Worker() as worker:
            self._call.progress(f"preparing {len(open_rows)} rows")
            prepared = self._prepare([jobs[number] for number in open_rows], worker)
            self._call.progress("measuring what the GPU reaches")
            found = worker.run(measure_ceilings, CEILINGS_S)
            ceilings = found.value or self._recorded_ceilings(found.reason)
            for number, ready in zip(open_rows, prepared, strict=True):
                started = time.perf_counter()
                self._call.progress(f"measuring {jobs[number].program.name} {instances[number].sizes}")
                outcome: Outcome[Measured]
                if ready.value is None:
                    outcome = Outcome(kind=ready.kind, reason=f"preparing: {ready.reason}", elapsed_s=0.0)
                else:
                    outcome = worker.run(measure_prepared, ROW_S, ready.value, self._device)
                row = self._row(instances[number], jobs[number], ready.value, outcome, ceilings, hashes[number])
                row["elapsed_s"] = time.perf_counter() - started
                rows[number] = self._store.append(row)
                self._call.progress(text_table([row]).splitlines()[-1])
        return [row for row in rows if row is not None]

    def _prepare(self, jobs: Sequence[MeasureJob], worker: Worker) -> list[Outcome[PreparedJob]]:
        """Return the jobs made ready; meanwhile torch loads and, where there are cores for it, compiles the peers ahead."""
        ahead = [(job.program, job.peers, job.device) for job in jobs]
        with ThreadPoolExecutor(2) as executor:
            executor.submit(worker.run, load_torch, PREPARE_S)
            if _cores() >= LEAST_CORES_TO_WARM and len(jobs) > 1:
                executor.submit(run_in_workers, warm_peers, ahead, workers=_cores() // 2, timeout_s=PREPARE_S)
            return run_in_workers(prepare_job, jobs, workers=_cores(), timeout_s=PREPARE_S)

    def _recorded_ceilings(self, reason: str) -> Ceilings:
        gpu = hardware(self._device)
        why = f"hardware record of {gpu.name}, since measuring failed: {' '.join(reason.split())[:200]}"
        return Ceilings(gpu.bandwidth_tb_s, gpu.tensor_rate(DType.FLOAT16), why)

    def count(self, instances: Sequence[Instance], rows: Sequence[Record]) -> list[Record]:
        """Return the rows with hardware counters of our kernels, read in one profiled process, added anew where they are new."""
        found = list(rows)
        targets: dict[int, CountTarget] = {}
        for number, (instance, row) in enumerate(zip(instances, rows, strict=True)):
            if not row["correct"] or row["traffic"]["device"]["measured"]:
                continue
            job = self._job(instance)
            best = next((one for one in job.candidates if one.label == row["ours"]), None)
            if best is None or best.graph.hash != row["graph_hash"]:
                continue
            rng = np.random.default_rng(self._arguments.seed)
            inputs = [to_storage(draw(tensor, InputKind.RANDOM, rng), tensor.dtype) for tensor in job.program.inputs]
            targets[number] = CountTarget(
                label=label_of(row), graph=best.graph, schedules=dict(best.schedules), device=self._device,
                inputs=tuple(inputs),
            )  # fmt: skip
        self._call.progress(f"reading counters of {len(targets)} rows")
        counted = count_targets(list(targets.values()), hardware(self._device)) if targets else []
        for number, traffic in zip(targets, counted, strict=True):
            found[number] = self._store.append({**rows[number], "traffic": traffic.to_json()})
        return found

    def _kept(self) -> dict[tuple[object, ...], Record]:
        return {
            (row["program"], str(sorted(row["parameters"].items())), row.get("style"), row.get("dtype"),
             row.get("kernels_hash"), row["gpu"], row.get("workbench")): row
            for row in self._store.records()
            if row["correct"] and set(self._peers) <= set(row.get("peers_asked", ()))
        }  # fmt: skip

    def _key(self, instance: Instance, text: str) -> tuple[object, ...]:
        sizes = str(sorted(instance.sizes.items()))
        return (
            instance.program.name, sizes, instance.style.value, str(instance.dtype), text, self._gpu, __version__
        )  # fmt: skip

    def _job(self, instance: Instance) -> MeasureJob:
        program = instance.build()
        stored = find_candidates(self._stores, program, device=self._device, version=__version__)[:MOST_STORED]
        candidates = [
            Candidate(label=f"stored {number}", graph=one.graph, schedules={
                name: schedule_of(fields) for name, fields in one.schedules.items()
            })
            for number, one in enumerate(stored)
        ]  # fmt: skip
        known = instance.program.known_good(instance)
        candidates += [Candidate(label=f"known good {number}", graph=graph) for number, graph in enumerate(known)]
        return MeasureJob(
            program=program,
            candidates=tuple(candidates),
            device=self._device,
            peers=self._peers,
            seed=self._arguments.seed,
            parts=self._arguments.parts,
            options=TimingOptions(rounds=self._arguments.rounds),
        )

    def _row(
        self,
        instance: Instance,
        job: MeasureJob,
        prepared: PreparedJob | None,
        outcome: Outcome[Measured],
        ceilings: Ceilings,
        text: str,
    ) -> Record:
        work = compulsory_work(job.program, hardware(self._device))
        floor_us = work.floor_us(ceilings.read_tb_s, ceilings.product_tflops)
        known = table_row(instance.program.name, instance.sizes)
        row: Record = {
            "program": instance.program.name, "parameters": dict(instance.sizes), "style": instance.style.value,
            "dtype": str(instance.dtype), "table": known is not None and instance.style.value == "standard",
            "ours": None, "ours_us": None, "ours_warm_us": None, "ours_spread_us": None, "peers": {}, "peers_warm": {},
            "best_peer": None, "best_peer_us": None, "ratio": None, "floor_us": floor_us,
            "target_us": known.target_us if known else None, "relative_error": None, "correct": False, "refused": {},
            "references": {}, "bytes": work.bytes, "flops": work.flops, "product_flops": work.product_flops,
            "ceilings": ceilings.to_json(),
            "program_hash": job.program.hash, "kernels_hash": text, "device": self._device, "gpu": self._gpu,
            "workbench": __version__, "seed": job.seed, "peers_asked": list(job.peers),
            "rounding_error": prepared.rounding_error if prepared else None,
        }  # fmt: skip
        if outcome.value is None:
            machine = read_machine()
            row |= {"refused": {"all": f"{outcome.kind}: {outcome.reason}"}}
        else:
            machine = outcome.value.machine
            row |= measured_values(job, outcome.value)
            if row["correct"]:
                graph = next(one.graph for one in job.candidates if one.label == row["ours"])
                row["traffic"] = modelled_traffic(graph, hardware(self._device)).to_json()
        told = machine.to_json()
        return row | {
            key: told[key]
            for key in ("driver", "clocks", "temperature_c", "power_w", "cores", "versions", "date", "commit")
        }


def measured_values(job: MeasureJob, measured: Measured) -> dict[str, Any]:
    """Return what a row tells of times: ours is the fastest of our candidates, all of which are listed."""
    report, own = measured.report, set(measured.ours)
    ours = {timing.name: timing for timing in report.timings if timing.name in own}
    peers = {timing.name: timing for timing in report.timings if timing.name not in own and timing.name != CUBLAS}
    references = {timing.name: timing.cold_us for timing in report.timings if timing.name == CUBLAS} | {
        f"cublas {label}": parts_us for label, parts_us in measured.parts.items()
    }
    best_peer, best_peer_us = best_of({name: timing.cold_us for name, timing in peers.items()})
    values: dict[str, Any] = {
        "peers": {name: timing.cold_us for name, timing in peers.items()},
        "peers_warm": {name: timing.warm_us for name, timing in peers.items()},
        "peers_spread": {name: timing.cold_spread_us for name, timing in peers.items()},
        "peers_error": {name: timing.relative_error for name, timing in peers.items()},
        "best_peer": best_peer,
        "best_peer_us": best_peer_us,
        "refused": {refusal.name: refusal.describe().partition(": ")[2] for refusal in report.refused},
        "references": references,
        "node_us": report.node_us,
        "sets": report.sets,
        "set_bytes": report.set_bytes,
        "rounds": report.rounds,
        "capture_s": dict(report.capture_s),
    }
    if ours:
        best = min(ours.values(), key=lambda timing: timing.cold_us)
        graph = next(candidate.graph for candidate in job.candidates if candidate.label == best.name)
        values |= {
            "ours": best.name, "ours_us": best.cold_us, "ours_warm_us": best.warm_us,
            "ours_spread_us": best.cold_spread_us, "ours_call_us": best.call_us, "graph_hash": graph.hash,
            "candidates": {name: timing.cold_us for name, timing in ours.items()},
            "kernels": [dict(need) for need in measured.needs[best.name]],
            "relative_error": best.relative_error, "correct": True,
            "ratio": best_peer_us / best.cold_us if best_peer_us is not None else None,
        }  # fmt: skip
    return values


def schedule_of(fields: Any) -> Schedule:
    """Return a schedule from its fields as a record keeps them; unknown ones are left out."""
    known = {
        name: value
        for name, value in fields.items()
        if name in Schedule.__dataclass_fields__ and name not in ("layouts", "choices")
    }
    if fields.get("choices"):
        known["choices"] = choices_from_json(fields["choices"])
    layouts = {name: WarpLayout(**layout) for name, layout in (fields.get("layouts") or {}).items()}
    return Schedule(**known, layouts=layouts)


def _cores() -> int:
    return os.cpu_count() or 1


def _answer(rows: list[Record], arguments: argparse.Namespace, *, replayed: bool, out: Path | None = None) -> Answer:
    mean = geometric_mean(rows)
    values: dict[str, Json] = {
        "rows": [dict(row) for row in rows],
        "geomean": mean,
        "replayed": replayed,
        "out": None if out is None else str(out),
    }
    drawn = draw_figures(rows, arguments.figures, rows[0]["device"]) if arguments.figures else []
    values["figures"] = [str(path) for path in drawn]
    text = markdown_table(rows) if arguments.table else text_table(rows)
    if drawn and not arguments.table:
        text += f"\n  drawn: {', '.join(path.name for path in drawn)}"
    if replayed and not arguments.table:
        text += "\n  replayed: these were measured before, nothing was measured now"
    wrong = [label_of(row) for row in rows if not row["correct"]]
    if wrong and not arguments.table:
        text += f"\n  NOT RIGHT: {'; '.join(wrong)}"
    return Answer(text, values, is_yes=not wrong)
