"""What each pass of the optimizer is worth on a GPU, and what stable softmax costs: tables of times, by pass and by form.

    python benchmarks/gpu_ablation.py [--prepared FOLDER] [--only TEXT] [--rounds N] [--budget SECONDS] [--records FILE]
    python benchmarks/gpu_ablation.py --prepare FOLDER [--only TEXT]      without a GPU

For gqa and rms_norm_linear at the sizes of the speed table: all passes, and without each in turn, as kernels that do
without it, with what the cost model says. For attention: the unsafe form and its stable rewrite, which must also be right
with logits near 100, where the unsafe one overflows. For gqa_decode: keys split as chosen, and as by the fixed grids
(8, 2, batch) that TensorRT-LLM takes. Every variant is checked against float64; one that fails leaves the others their
turn. A row a variant is added to the file of records, with the machine's provenance (data/records/README.md); the last
lines say whether a stable form takes at most 15% more than its unsafe one.

`--prepare` optimizes, verifies, emits, compiles and evaluates in float64, and leaves all of it in a folder, so that a
machine with a GPU, given the folder by `--prepared`, does nothing but check and time: about half a minute. Long because what
is prepared here and read there stands in one file.
"""

from __future__ import annotations

import argparse
import os
import pickle
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Protocol

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))
os.environ.setdefault("OPENBLAS_NUM_THREADS", "4")

import numpy as np  # noqa: E402
import numpy.typing as npt  # noqa: E402

from benchmarks.gpu_timing import input_sets, maker_of, time_makers  # noqa: E402
from workbench import programs  # noqa: E402
from workbench.codegen.cuda.emitted import EmittedProgram  # noqa: E402
from workbench.codegen.cuda.optimized import emit_optimized  # noqa: E402
from workbench.codegen.cuda.storage import from_storage, to_storage  # noqa: E402
from workbench.core.dtypes import DType  # noqa: E402
from workbench.cost.hardware import hardware  # noqa: E402
from workbench.cost.presets import preset  # noqa: E402
from workbench.device.comparison import TOLERANCES, compare  # noqa: E402
from workbench.device.executable import CompileOptions, Executable, compile_program  # noqa: E402
from workbench.device.launch import load_cupy  # noqa: E402
from workbench.device.machine import read_machine  # noqa: E402
from workbench.errors import WorkbenchError  # noqa: E402
from workbench.interpret import evaluate  # noqa: E402
from workbench.optimize.ablation import ABLATED, ablation  # noqa: E402
from workbench.optimize.optimizer import Optimized, optimize  # noqa: E402
from workbench.pipeline.passes import modelled_cost  # noqa: E402
from workbench.programs import attention_graphs  # noqa: E402
from workbench.programs.registry import instance  # noqa: E402
from workbench.programs.tiling import Tiles  # noqa: E402
from workbench.records.store import Record, RecordStore  # noqa: E402
from workbench.ugraph.kernel_graph import KernelGraph  # noqa: E402
from workbench.verify.compare import verify  # noqa: E402
from workbench.verify.verdict import Verdict  # noqa: E402

Floats = npt.NDArray[Any]
ARCH, LOGITS, SEED, LIMIT = "sm_90a", 100.0, 0, 0.15
STYLE, DTYPE = "standard", "float16"
SCHEMA = "mugraph-workbench/ablation"
REQUIRED = frozenset(
    ["table", "program", "parameters", "variant", "base", "correct", "gpu", "driver", "date", "versions"]
)
RECORDS = REPOSITORY / "data" / "records" / "ablation.jsonl"
UNSAFE = {"attention_safe": "gqa"}
"""attention_safe subtracts maxima itself: its unsafe forms are those of the program that does not."""

ALL, CHOSEN, CORRECT, NEAR = "all passes", "chosen", "correct", "near_100"
SPLITS = 8
"""Into how many parts TensorRT-LLM's grid splits the keys: 8 x KV heads x batch."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The programs of each kind of table, with their sizes."""

    ablated: tuple[tuple[str, Mapping[str, int]], ...]
    softmax: tuple[tuple[str, Mapping[str, int]], ...]
    grids: tuple[tuple[str, Mapping[str, int]], ...]


ASKED = Asked(
    ablated=(("gqa", {}), ("rms_norm_linear", {"batch": 16})),
    softmax=(("gqa", {}), ("gqa_decode", {}), ("gqa_decode", {"batch": 8}), ("attention_safe", {})),
    grids=(("gqa_decode", {}), ("gqa_decode", {"batch": 8})),
)


@dataclass(frozen=True, slots=True)
class Variant:
    """A program to time.

    Attributes: table, name: where it belongs; asked: its program; sizes; base: the variant that it is compared with;
    reference: what is right; graph: as optimized; program: its kernels; told: what its row says beside the times.
    """

    table: str
    name: str
    asked: str
    sizes: Mapping[str, int]
    base: str
    reference: KernelGraph
    graph: KernelGraph
    program: EmittedProgram
    told: dict[str, Any] = field(default_factory=dict)

    @property
    def cases(self) -> tuple[str, ...]:
        """The inputs on which it is checked."""
        return (CORRECT, NEAR) if self.table.startswith("softmax") else (CORRECT,)


class Gpu(Protocol):
    """What runs and times programs."""

    def outputs(self, variant: Variant, inputs: Sequence[Floats]) -> list[Floats]:
        """Return the outputs of a variant for inputs, both as numbers."""

    def times_us(self, chosen: Sequence[Variant], rounds: int) -> dict[str, tuple[float, float]]:
        """Return (cold, warm) microseconds by name of the variants of one table, taken in turn on the same arrays."""

    def provenance(self) -> dict[str, Any]:
        """Return what the row says of the machine."""


# --------------------------------------------------------------------------------------------------- without a GPU
def reduced(program: KernelGraph, candidate: KernelGraph) -> Verdict:
    """Return the verdict on reduced shapes, which are enough for a copy of a graph that is known."""
    return verify(program, candidate, shapes="reduced")


def modelled_us(optimized: Optimized) -> float:
    """Return the time by the cost model that was fitted to the H200."""
    return modelled_cost(optimized, hardware=hardware("h200"), preset=preset("calibrated")).total_us


def label_of(name: str, sizes: Mapping[str, int]) -> str:
    """Return a program with the sizes that are not its own."""
    return " ".join([name, *(f"{size} {extent}" for size, extent in sizes.items())])


def variants(asked: Asked = ASKED, only: str = "") -> Iterator[Variant]:
    """Yield every variant of the tables whose name holds `only`."""
    for name, sizes in asked.ablated:
        table = f"passes of {label_of(name, sizes)}"
        if only in table:
            known = programs.known_good(name, STYLE, DTYPE, **sizes)[0]
            for row in ablation(known, verifier=reduced, passes=ABLATED).rows:
                yield _variant(table, row.name, name, sizes, ALL, row.optimized)
    for name, sizes in asked.softmax:
        table = f"softmax of {label_of(name, sizes)}"
        for number, graph in enumerate(
            programs.known_good(UNSAFE.get(name, name), STYLE, DTYPE, **sizes) if only in table else ()
        ):
            for form, stable in (("unsafe", False), ("stable", True)):
                optimized = optimize(graph, verifier=reduced, stable=stable)
                yield _variant(table, f"{form} {number}", name, sizes, f"unsafe {number}", optimized)
    for name, sizes in asked.grids:
        table = f"grids of {label_of(name, sizes)}"
        if only in table:
            made = instance(name, STYLE, DTYPE, sizes)
            fixed = attention_graphs.split_kernels(made, Tiles(64, 1, 64), SPLITS, lambda operands: operands)
            grid = fixed.graph_defined[0].block.grid_dims
            for form, graph in ((CHOSEN, programs.known_good(name, STYLE, DTYPE, **sizes)[0]), (f"grid {grid}", fixed)):
                yield _variant(table, form, name, sizes, CHOSEN, optimize(graph, verifier=reduced))


def _variant(table: str, name: str, asked: str, sizes: Mapping[str, int], base: str, optimized: Optimized) -> Variant:
    m = optimized.metrics
    told = {
        "grids": [list(launch.block.grid_dims) for launch in optimized.graph.graph_defined],
        "barriers": m.barriers, "shared_bytes": m.shared_bytes, "register_bytes": m.register_bytes, "passes": m.passes,
        "modelled_us": modelled_us(optimized),
        "verdicts": {report.name: report.verdict for report in optimized.passes if report.verdict},
    }  # fmt: skip
    reference = programs.get(asked, STYLE, DTYPE, **sizes)
    return Variant(table, name, asked, sizes, base, reference, optimized.graph, emit_optimized(optimized), told)


def inputs_of(reference: KernelGraph, case: str) -> list[Floats]:
    """Return inputs: N(0, 0.3^2), or with the largest logit of Q @ K at `LOGITS`; numbers of the inputs' types."""
    rng = np.random.default_rng(SEED)
    drawn = [0.3 * rng.standard_normal(tensor.shape) for tensor in reference.inputs]
    if case == NEAR:
        drawn[0] *= LOGITS / np.abs(drawn[0] @ drawn[1]).max()
    return [from_storage(to_storage(a, t.dtype), t.dtype) for a, t in zip(drawn, reference.inputs, strict=True)]


def right_outputs(variant: Variant) -> dict[str, list[Floats]]:
    """Return what is right, in float64, by case; the same for all variants of a table."""
    return {case: list(evaluate(variant.reference, inputs_of(variant.reference, case))) for case in variant.cases}


def compiled(variant: Variant, cubins: Path | None) -> Executable:
    """Return a variant's program, its cubins from or into a folder (None: the user's cache). Raises: KernelCompileError."""
    return compile_program(variant.program, variant.graph, ARCH, CompileOptions(cache_folder=cubins))


@dataclass(frozen=True, slots=True)
class Prepared:
    """Everything that needs no GPU. Attributes: variants; right: by table and case; cubins: their folder."""

    variants: tuple[Variant, ...]
    right: Mapping[str, Mapping[str, list[Floats]]]
    cubins: Path | None = None

    def tables(self) -> dict[str, list[Variant]]:
        """Return the variants by table."""
        found: dict[str, list[Variant]] = {}
        for one in self.variants:
            found.setdefault(one.table, []).append(one)
        return found


def prepare(asked: Asked = ASKED, only: str = "", cubins: Path | None = None) -> Prepared:
    """Return all variants, what is right for them; their cubins are in the folder, or the user's cache."""
    found = tuple(variants(asked, only))
    first = {one.table: one for one in reversed(found)}
    right = {table: right_outputs(one) for table, one in first.items()}
    with ProcessPoolExecutor(os.cpu_count() or 1, mp_context=get_context("fork")) as pool:  # before the GPU is touched
        for one, told in zip(found, pool.map(build, found, repeat(cubins)), strict=True):
            print(f"{one.table}, {one.name}: {told}", flush=True)
    return Prepared(found, right, cubins)


def build(variant: Variant, cubins: Path | None) -> str:
    """Compile a variant; return what its kernels need, or why they do not compile."""
    try:
        made = compiled(variant, cubins)
    except WorkbenchError as error:
        return f"{type(error).__name__}: {error}"[:300]
    return ", ".join(f"{one.name}: {one.registers} registers, {one.spills} B spilled" for one in made.kernels)


def save(prepared: Prepared, folder: Path) -> None:
    """Leave what was prepared in a folder; its cubins lie there already."""
    (folder / "variants.pickle").write_bytes(pickle.dumps((prepared.variants, prepared.right)))


def load(folder: Path, only: str = "") -> Prepared:
    """Return, of what `save` left in a folder of one's own, the tables whose name holds `only`: it is unpickled."""
    chosen, right = pickle.loads((folder / "variants.pickle").read_bytes())
    return Prepared(tuple(one for one in chosen if only in one.table), right, folder / "cubins")


# ------------------------------------------------------------------------------------------------------ with a GPU
class CupyGpu:
    """The GPU of this machine, through CuPy."""

    def __init__(self, prepared: Prepared) -> None:
        self.prepared, self.cupy = prepared, load_cupy()
        self.machine = read_machine()

    def outputs(self, variant: Variant, inputs: Sequence[Floats]) -> list[Floats]:
        """Return the outputs of a variant."""
        arrays = [
            self.cupy.asarray(to_storage(a, t.dtype)) for a, t in zip(inputs, variant.reference.inputs, strict=True)
        ]
        found = compiled(variant, self.prepared.cubins)(*arrays)
        found = found if isinstance(found, (list, tuple)) else [found]
        return [
            from_storage(self.cupy.asnumpy(a), t.dtype) for a, t in zip(found, variant.reference.outputs, strict=True)
        ]

    def times_us(self, chosen: Sequence[Variant], rounds: int) -> dict[str, tuple[float, float]]:
        """Return (cold, warm) microseconds by name."""
        executables = {one.name: compiled(one, self.prepared.cubins) for one in chosen}
        sets = input_sets(next(iter(executables.values())), self.cupy)
        makers = {name: maker_of(executable) for name, executable in executables.items()}
        found = time_makers(makers, sets, self.cupy, rounds=rounds)
        del sets
        self.cupy.get_default_memory_pool().free_all_blocks()
        return found

    def provenance(self) -> dict[str, Any]:
        """Return GPU, driver, clocks as found, versions, date, commit."""
        return self.machine.to_json()


def problem_of(variant: Variant, gpu: Gpu, inputs: Sequence[Floats], right: Sequence[Floats]) -> str:
    """Return what is wrong with a variant on these inputs, "" if nothing."""
    for tensor, found, expected in zip(variant.reference.outputs, gpu.outputs(variant, inputs), right, strict=True):
        problem = compare(tensor.name, found, expected, TOLERANCES[DType.FLOAT16]).problem
        if problem:
            return problem
    return ""


def time_table(chosen: Sequence[Variant], right: Mapping[str, list[Floats]], gpu: Gpu, rounds: int) -> list[Record]:
    """Check the variants of a table, time those that are right, and return their rows."""
    rows: list[Record] = []
    inputs = {case: inputs_of(chosen[0].reference, case) for case in chosen[0].cases}
    for one in chosen:
        row: Record = {
            "table": one.table, "program": one.asked, "parameters": dict(one.sizes), "variant": one.name,
            "base": one.base, **one.told, "seed": SEED, "cold_us": None, "warm_us": None, "loss": None,
        }  # fmt: skip
        try:
            problems = {case: problem_of(one, gpu, inputs[case], right[case]) for case in one.cases}
        except Exception as error:  # one variant that fails leaves the others their turn
            problems = dict.fromkeys(one.cases, f"{type(error).__name__}: {error}"[:300])
        row |= {"correct": not problems[CORRECT], "problem": problems[CORRECT]}
        if NEAR in problems:
            row[NEAR] = problems[NEAR] or "right"
        rows.append(row)
    timed = [one for one, row in zip(chosen, rows, strict=True) if row["correct"]]
    taken = gpu.times_us(timed, rounds) if timed else {}
    told = gpu.provenance()
    for row in rows:
        if row["variant"] in taken:
            row["cold_us"], row["warm_us"] = taken[row["variant"]]
        base = taken.get(row["base"])
        if row["cold_us"] and base:
            row["loss"] = row["cold_us"] / base[0] - 1
        row |= told
    return rows


def printed(rows: Sequence[Record]) -> str:
    """Return a table as text: cold, warm, share above its base, the same by the model, what is wrong."""
    lines = [rows[0]["table"]]
    model = {row["variant"]: row["modelled_us"] for row in rows}
    for row in rows:
        cold = row["cold_us"]
        times = f"{cold:8.2f} us cold {row['warm_us']:8.2f} warm" if cold else " " * 30
        loss = "" if row["loss"] is None else f"{row['loss']:+7.1%}"
        foretold = f"(model {row['modelled_us'] / model[row['base']] - 1:+7.1%})"
        lines.append(f"  {row['variant']:18} {times} {loss:8} {foretold} {row['problem']} {row.get(NEAR, '')}".rstrip())
    return "\n".join(lines)


def judged(rows: Sequence[Record]) -> list[str]:
    """Return one line a stable form: whether it is right near 100 and within the limit of its unsafe form's time."""
    lines = []
    for row in rows:
        if row["table"].startswith("softmax") and row["variant"].startswith("stable"):
            is_met = row[NEAR] == "right" and row["loss"] is not None and row["loss"] <= LIMIT
            share = "not timed" if row["loss"] is None else f"{row['loss']:+.1%}"
            lines.append(
                f"{'met' if is_met else 'NOT met'}: {row['table']}, {row['variant']}: {share} of {LIMIT:+.0%}, "
                f"logits near {LOGITS:g}: {row[NEAR]}"
            )
    return lines


def run(prepared: Prepared, gpu: Gpu, records: Path, *, rounds: int, budget_s: float) -> tuple[list[Record], list[str]]:
    """Check, time, record and print every table until the time is over. Return the rows, and the tables without any."""
    store = RecordStore(records, SCHEMA, 1, REQUIRED)
    found: list[Record] = []
    started = time.monotonic()
    for table, chosen in prepared.tables().items():
        if time.monotonic() - started > budget_s:
            print(f"{table}: no time left of {budget_s:g} s", flush=True)
            continue
        try:
            rows = time_table(chosen, prepared.right[table], gpu, rounds)
        except Exception:
            traceback.print_exc()
            continue
        found += [store.append(row) for row in rows]
        print(printed(rows), f"  ({time.monotonic() - started:.0f} s)", sep="\n", flush=True)
    print(*judged(found), sep="\n", flush=True)
    recorded = {row["table"] for row in found}
    return found, [table for table in prepared.tables() if table not in recorded]


def main(arguments: Sequence[str] | None = None) -> int:
    """Prepare, or check, time, record and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prepare", type=Path, metavar="FOLDER", help="leave all that needs no GPU there, and stop")
    parser.add_argument("--prepared", type=Path, metavar="FOLDER", help="take from there what `--prepare` left")
    parser.add_argument("--only", default="", help="tables whose name holds this text")
    parser.add_argument("--rounds", type=int, default=3, help="turns that every variant takes (default 3)")
    parser.add_argument("--budget", type=float, default=100.0, metavar="SECONDS", help="begin no table later (100)")
    parser.add_argument("--records", type=Path, default=RECORDS, metavar="FILE", help="rows are added to it")
    options = parser.parse_args(arguments)
    if options.prepare is not None:
        options.prepare.mkdir(parents=True, exist_ok=True)
        save(prepare(only=options.only, cubins=options.prepare / "cubins"), options.prepare)
        return 0
    prepared = prepare(only=options.only) if options.prepared is None else load(options.prepared, options.only)
    try:
        gpu = CupyGpu(prepared)
    except WorkbenchError as error:
        print(f"gpu_ablation: {error}", file=sys.stderr)
        return 2
    rows, unfinished = run(prepared, gpu, options.records, rounds=options.rounds, budget_s=options.budget)
    return 0 if rows and not unfinished and all(row["correct"] for row in rows) else 1


if __name__ == "__main__":
    from benchmarks import gpu_ablation  # what is pickled is found under this name again, whoever unpickles it

    sys.exit(gpu_ablation.main())
