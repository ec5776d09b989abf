"""The speed table's rows as several commits emit them, timed in one run: did a change of the emitter make any row slower?

    python benchmarks/gpu_before_after.py --save FILE [--tree FOLDER]    emit from a checkout (default: this); no GPU
    python benchmarks/gpu_before_after.py FILE FILE ... [--rounds N] [--out FILE.json]

A saved file holds, for each of the sixteen rows, the programs that `workbench measure` would time: what was kept of tuning
runs, and the known good µGraphs, as steps with the kernels' whole texts. The second form compiles all of them with this
checkout, runs those of a row on the same arrays, leaves out what does not agree with the last file's, and times the rest in
turn. It prints, by row, the fastest of each file and its ratio to the last one's: below 1 the last is slower than before.
Exit status 1 where a row is more than 5% slower than in a file before.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, cast

REPOSITORY = Path(__file__).resolve().parent.parent
TREE = "GPU_BEFORE_AFTER_TREE"
sys.path.insert(0, os.environ.get(TREE, str(REPOSITORY)))

from workbench import programs  # noqa: E402
from workbench.codegen.cuda.emitted import EmittedProgram, KernelLaunch, KernelSource  # noqa: E402
from workbench.codegen.cuda.kernel_level import emit_program  # noqa: E402
from workbench.codegen.cuda.schedule import Schedule  # noqa: E402
from workbench.programs.registry import instance  # noqa: E402

HEAD = {"schema": "mugraph-workbench/before-after", "version": 1}
SLOWER = 1.05
MOST_KEPT = 3
TOLERANCE = 2e-2

Row = tuple[str, Mapping[str, int]]
Saved = dict[str, dict[str, "SavedProgram"]]
"""Row -> candidate -> program."""


@dataclass(frozen=True, slots=True)
class SavedProgram:
    """A program as it was emitted.

    Attributes: texts: by kernel, the device header of its day included; overlapping: kernels that are launched before the
    one ahead of them has ended.
    """

    program: EmittedProgram
    texts: Mapping[str, str]
    overlapping: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedKernel(KernelSource):
    """A kernel whose text is kept whole."""

    text: str = field(repr=False)

    @property
    def source(self) -> str:
        """The text as it was saved."""
        return self.text


# --------------------------------------------------------------------------------------------------- emitting, any tree
def save(rows: Sequence[Row], file: Path) -> None:
    """Emit all rows with the tree that is imported, and keep them."""
    saved: Saved = {}
    for name, sizes in rows:
        label = f"{name} {' '.join(f'{size}={extent}' for size, extent in sizes.items())}"
        found = saved[label] = {}
        for candidate, (graph, schedules) in candidates(name, sizes).items():
            try:
                program = emit_program(graph, schedules=schedules)
            except Exception as error:  # an older tree may refuse what a younger one takes
                print(f"{label}, {candidate}: {type(error).__name__}: {error}", file=sys.stderr)
                continue
            texts = {one.name: one.source for one in program.kernels}
            overlapping = frozenset(one.name for one in program.kernels if one.schedule.programmatic)
            found[candidate] = SavedProgram(bare(program), texts, overlapping)
        print(f"{label}: {', '.join(found)}", file=sys.stderr)
    file.parent.mkdir(parents=True, exist_ok=True)
    plain = {label: {name: (one.program, one.texts, one.overlapping) for name, one in row.items()}
             for label, row in saved.items()}  # fmt: skip
    file.write_bytes(pickle.dumps((commit_of(Path(sys.path[0])), plain)))


def commit_of(tree: Path) -> str:
    """Return the commit of a checkout, "" where there is none."""
    done = subprocess.run(["git", "-C", str(tree), "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def bare(program: EmittedProgram) -> EmittedProgram:
    """Return the program without its kernels' schedules, whose fields change from commit to commit."""
    steps = tuple(
        replace(step, kernel=replace(step.kernel, schedule=cast(Any, None))) if isinstance(step, KernelLaunch) else step
        for step in program.steps
    )
    return replace(program, steps=steps)


def candidates(name: str, sizes: Mapping[str, int]) -> dict[str, tuple[Any, Mapping[str, Any]]]:
    """Return, by label, graphs and schedules that the imported tree has of a row: kept ones where it keeps any."""
    known = programs.known_good(name, "standard", "float16", **sizes)
    found: dict[str, tuple[Any, Mapping[str, Any]]] = {f"known good {n}": (graph, {}) for n, graph in enumerate(known)}
    try:
        kept = importlib.import_module("workbench.records.candidates")
        schedule_of = importlib.import_module("workbench.commands.measure").schedule_of
        version = importlib.import_module("workbench").__version__
    except (ImportError, AttributeError):
        return found
    program = instance(name, "standard", "float16", sizes).build()
    stored = kept.find_candidates([kept.shipped_candidates()], program, device="h200", version=version)
    for number, one in enumerate(stored[:MOST_KEPT]):
        found[f"stored {number}"] = (one.graph, {key: schedule_of(value) for key, value in one.schedules.items()})
    return found


# ----------------------------------------------------------------------------------------------------------- with a GPU
def load(file: Path) -> tuple[str, Saved]:
    """Return the commit, and what `save` left in a file of one's own: it is unpickled."""
    commit, rows = pickle.loads(file.read_bytes())
    return commit, {label: {name: SavedProgram(*parts) for name, parts in row.items()} for label, row in rows.items()}


def whole(saved: SavedProgram) -> EmittedProgram:
    """Return the program with the texts as they were saved."""

    def kept(kernel: KernelSource) -> SavedKernel:
        values = {one.name: getattr(kernel, one.name) for one in fields(KernelSource)}
        values["schedule"] = Schedule(programmatic=kernel.name in saved.overlapping)
        return SavedKernel(**values, text=saved.texts[kernel.name])

    steps = tuple(
        replace(step, kernel=kept(step.kernel)) if isinstance(step, KernelLaunch) else step
        for step in saved.program.steps
    )
    return replace(saved.program, steps=steps)


def labelled(files: Mapping[str, Saved], row: str) -> Iterator[tuple[str, str, SavedProgram]]:
    """Yield the programs of a row: file, candidate, program; the last file's first."""
    for file in reversed(list(files)):
        for candidate, saved in files[file].get(row, {}).items():
            yield file, candidate, saved


def time_row(files: Mapping[str, Saved], row: str, rounds: int) -> dict[str, Any]:
    """Return a row's times in microseconds by file and candidate, and what was left out."""
    import cupy  # type: ignore[import-not-found,import-untyped,unused-ignore]

    from benchmarks.gpu_timing import input_sets, maker_of, time_makers
    from workbench.device.executable import compile_program

    name, *sizes = row.split()
    graph = instance(name, "standard", "float16", {k: int(v) for k, v in (one.split("=") for one in sizes)}).build()
    executables, refused = {}, {}
    for file, candidate, saved in labelled(files, row):
        try:
            executables[f"{file}: {candidate}"] = compile_program(whole(saved), graph, "sm_90a")
        except Exception as error:
            refused[f"{file}: {candidate}"] = f"{type(error).__name__}: {error}"[:200]
    sets = input_sets(next(iter(executables.values())), cupy)
    right: list[Any] = []
    for label, executable in list(executables.items()):
        found = executable(*sets[0][0])
        found = [cupy.asarray(one, dtype=cupy.float64) for one in (found if isinstance(found, tuple) else (found,))]
        right = right or found
        apart = max(
            float(cupy.linalg.norm(one - other) / cupy.linalg.norm(other))
            for one, other in zip(found, right, strict=True)
        )
        if not apart < TOLERANCE:
            refused[label] = f"differs by {apart:.2g} from {next(iter(executables))}"
            del executables[label]
    times = time_makers({label: maker_of(one) for label, one in executables.items()}, sets, cupy, rounds=rounds)
    return {"row": row, "cold_us": {n: t[0] for n, t in times.items()}, "warm_us": {n: t[1] for n, t in times.items()},
            "refused": refused}  # fmt: skip


def fastest(times: Mapping[str, float], file: str) -> float:
    """Return the shortest time of a file's candidates, infinite if it has none."""
    return min((us for label, us in times.items() if label.startswith(f"{file}: ")), default=math.inf)


def compare(files: Mapping[str, Saved], rounds: int) -> list[dict[str, Any]]:
    """Compile everything, time row by row, and print each. Return the rows."""
    from workbench.device.compile import CompileRequest
    from workbench.device.compile_many import compile_many
    from workbench.device.executable import start_nvrtc

    start_nvrtc()
    names = list(files)
    texts = {
        text: None
        for row in names
        for saved in files[row].values()
        for one in saved.values()
        for text in one.texts.values()
    }
    with ThreadPoolExecutor(os.cpu_count() or 1) as executor:
        compile_many([CompileRequest(source=text, arch="sm_90a") for text in texts], executor=executor)
    rows = []
    print(f"{'row':62}" + "".join(f"{name[:16]:>18}" for name in names))
    for label in files[names[-1]]:
        row = time_row(files, label, rounds)
        best = {name: fastest(row["cold_us"], name) for name in names}
        row["ratio"] = {name: best[name] / best[names[-1]] for name in names}
        rows.append(row)
        cells = "".join(f"{best[name]:9.2f} ({row['ratio'][name]:.3f})" for name in names)
        print(f"{label:62}{cells}", *(f"\n    {who}: {why}" for who, why in row["refused"].items()), flush=True)
    for name in names[:-1]:
        ratios = [row["ratio"][name] for row in rows if math.isfinite(row["ratio"][name])]
        print(
            f"{name}: geometric mean {math.prod(ratios) ** (1 / len(ratios)):.3f}, least {min(ratios):.3f}, {len(ratios)} rows"
        )
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Save, or time and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="what was saved, oldest first")
    parser.add_argument("--save", type=Path, metavar="FILE", help="emit, keep, and stop")
    parser.add_argument("--tree", type=Path, default=REPOSITORY, metavar="FOLDER", help="the checkout to emit with")
    parser.add_argument("--rounds", type=int, default=5, help="turns that every program takes (default 5)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write all times as JSON")
    options = parser.parse_args(arguments)
    if options.save is not None and os.environ.get(TREE):
        save(json.loads(sys.stdin.read()), options.save)
        return 0
    if options.save is not None:
        from workbench.records.table_rows import TABLE_ROWS

        asked = json.dumps([(row.program, dict(row.sizes)) for row in TABLE_ROWS])
        tree = str(options.tree.resolve())
        command = [sys.executable, __file__, "--save", str(options.save.resolve())]
        environment = {**os.environ, TREE: tree, "PYTHONPATH": tree}
        return subprocess.run(command, input=asked, text=True, env=environment, check=False).returncode
    if not options.files:
        parser.error("name saved files, or --save one")
    sys.path.insert(0, str(REPOSITORY))
    from workbench.device.machine import read_machine

    loaded = {file.stem: load(file) for file in options.files}
    machine = read_machine().to_json()
    rows = compare({name: saved for name, (_, saved) in loaded.items()}, options.rounds)
    if options.out:
        told = {key: machine[key] for key in ("gpu", "driver", "clocks", "temperature_c", "cores", "versions", "date")}
        commits = {name: commit for name, (commit, _) in loaded.items()}
        options.out.write_text(json.dumps({**HEAD, **told, "commits": commits, "rows": rows}, indent=1) + "\n")
    return 0 if all(ratio * SLOWER >= 1 for row in rows for ratio in row["ratio"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
