"""What each pass of the optimizer is worth on a GPU, and what stable softmax costs: tables of times, by pass and by form.

    python benchmarks/gpu_ablation.py [--compile-only] [--only TEXT] [--rounds N] [--out FOLDER]

For gqa and rms_norm_linear at the sizes of the speed table: all passes, and without each in turn, as kernels that do
without it. For attention: the unsafe form and its stable rewrite, which must also be right with logits near 100, where the
unsafe one overflows. For gqa_decode: keys split as chosen, and as by fixed grids of 1 and 8 parts. Everything is compiled
before anything is timed; every variant is checked against float64; a variant that fails leaves the others their turn.
`ablation.json` in the folder holds every line.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import traceback
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))
os.environ.setdefault("OPENBLAS_NUM_THREADS", "4")

import numpy as np  # noqa: E402

from benchmarks.gpu_timing import input_sets, maker_of, time_makers  # noqa: E402
from workbench import programs  # noqa: E402
from workbench.codegen.cuda.emitted import EmittedProgram  # noqa: E402
from workbench.codegen.cuda.optimized import emit_optimized  # noqa: E402
from workbench.codegen.cuda.storage import from_storage, to_storage  # noqa: E402
from workbench.core.dtypes import DType  # noqa: E402
from workbench.device.comparison import TOLERANCES, compare  # noqa: E402
from workbench.device.executable import compile_program  # noqa: E402
from workbench.device.launch import load_cupy  # noqa: E402
from workbench.errors import WorkbenchError  # noqa: E402
from workbench.interpret import evaluate  # noqa: E402
from workbench.optimize.ablation import ablation  # noqa: E402
from workbench.optimize.optimizer import Optimized, optimize  # noqa: E402
from workbench.programs import attention_graphs  # noqa: E402
from workbench.programs.registry import instance  # noqa: E402
from workbench.programs.tiling import Tiles  # noqa: E402
from workbench.ugraph.kernel_graph import KernelGraph  # noqa: E402
from workbench.verify.compare import verify  # noqa: E402
from workbench.verify.verdict import Verdict  # noqa: E402

ARCH, LOGITS = "sm_90a", 100.0
ABLATED: dict[str, dict[str, Any]] = {"gqa": {}, "rms_norm_linear": {"batch": 16}}
ATTENTION: dict[str, dict[str, Any]] = {
    "gqa": {},
    "gqa_decode": {},
    "gqa_decode batch 8": {"batch": 8},
    "attention_safe": {},
}
UNSAFE = {"attention_safe": "gqa"}
FIXED: dict[str, Any] = {"batch": 8}


@dataclass(frozen=True, slots=True)
class Variant:
    """A program to time: the table and row it belongs to, its graph as optimized, and what is right."""

    table: str
    name: str
    reference: KernelGraph
    graph: KernelGraph
    program: EmittedProgram
    told: dict[str, Any] = field(default_factory=dict)


def reduced(program: KernelGraph, candidate: KernelGraph) -> Verdict:
    """Return the verdict on reduced shapes, which are enough for a copy of a graph that is known."""
    return verify(program, candidate, shapes="reduced")


def variant(table: str, name: str, reference: KernelGraph, optimized: Optimized) -> Variant:
    """Return a variant of an optimized graph, with the optimizer's metrics."""
    m = optimized.metrics
    told = {
        "barriers": m.barriers,
        "shared_bytes": m.shared_bytes,
        "register_bytes": m.register_bytes,
        "passes": m.passes,
    }
    return Variant(table, name, reference, optimized.graph, emit_optimized(optimized), told)


def variants() -> Iterator[Variant]:
    """Yield every variant of every table."""
    for name, sizes in ABLATED.items():
        reference, known = programs.get(name, **sizes), programs.known_good(name, **sizes)[0]
        for row in ablation(known, verifier=reduced).rows:
            yield variant(f"passes of {name}", row.name, reference, row.optimized)
    for label, sizes in ATTENTION.items():
        name = label.split()[0]
        reference = programs.get(name, **sizes)
        # attention_safe subtracts maxima itself: its unsafe forms are those of the program that does not
        for number, graph in enumerate(programs.known_good(UNSAFE.get(name, name), **sizes)):
            yield variant(f"softmax of {label}", f"unsafe {number}", reference, optimize(graph, verifier=reduced))
            yield variant(
                f"softmax of {label}", f"stable {number}", reference, optimize(graph, verifier=reduced, stable=True)
            )
    made, reference = instance("gqa_decode", "standard", "float16", FIXED), programs.get("gqa_decode", **FIXED)
    fixed = {
        "chosen": programs.known_good("gqa_decode", **FIXED)[0],
        "keys in 1 part": attention_graphs._one_kernel(made, Tiles(64, 1, 64), lambda operands: operands),
        "keys in 8 parts": attention_graphs._split_kernels(made, Tiles(64, 1, 64), 8, lambda operands: operands),
    }
    for grid, graph in fixed.items():
        yield variant("grids of gqa_decode batch 8", grid, reference, optimize(graph, verifier=None))


def build(variant: Variant) -> str:
    """Compile a variant; its cubins stay in the cache. Return what it needs."""
    try:
        made = compile_program(variant.program, variant.graph, ARCH)
    except WorkbenchError as error:
        return f"{type(error).__name__}: {error}"[:300]
    return ", ".join(
        f"{report.name}: {report.registers} registers, {report.spills} B spilled" for report in made.kernels
    )


def inputs_near(reference: KernelGraph, logits: float | None) -> list[np.ndarray[Any, Any]]:
    """Return inputs: N(0, 0.3^2), or with the largest logit of Q @ K at `logits`."""
    rng = np.random.default_rng(0)
    drawn = [0.3 * rng.standard_normal(tensor.shape) for tensor in reference.inputs]
    if logits is not None:
        drawn[0] *= logits / np.abs(drawn[0] @ drawn[1]).max()
    return [from_storage(to_storage(a, t.dtype), t.dtype) for a, t in zip(drawn, reference.inputs, strict=True)]


Case = tuple[list[Any], list[Any]]
"""Inputs on the device, and what is right."""


def case(reference: KernelGraph, cupy: Any, logits: float | None) -> Case:
    """Return inputs and right outputs; evaluated once for all variants of a table."""
    given = inputs_near(reference, logits)
    arrays = [cupy.asarray(to_storage(a, t.dtype)) for a, t in zip(given, reference.inputs, strict=True)]
    return arrays, list(evaluate(reference, given))


def check(one: Variant, executable: Any, cupy: Any, made: Case) -> str:
    """Return what is wrong with a variant in a case, "" if nothing."""
    arrays, right = made
    outputs = executable(*arrays)
    outputs = outputs if isinstance(outputs, (list, tuple)) else [outputs]
    for array, tensor, expected in zip(outputs, one.reference.outputs, right, strict=True):
        values = from_storage(cupy.asnumpy(array), tensor.dtype)
        found = compare(tensor.name, values, expected, TOLERANCES[DType.FLOAT16])
        if found.problem:
            return found.problem
    return ""


def time_table(name: str, chosen: list[Variant], cupy: Any, rounds: int) -> list[dict[str, Any]]:
    """Check and time the variants of a table on the same arrays, in turn."""
    lines, makers, sets = [], {}, None
    plain = case(chosen[0].reference, cupy, None)
    near = case(chosen[0].reference, cupy, LOGITS) if name.startswith("softmax") else None
    for one in chosen:
        line: dict[str, Any] = {"table": name, "variant": one.name, **one.told}
        lines.append(line)
        try:
            executable = compile_program(one.program, one.graph, ARCH)
            line["problem"] = check(one, executable, cupy, plain)
            if near is not None:
                line["near_100"] = check(one, executable, cupy, near) or "right"
            if not line["problem"]:
                sets = sets or input_sets(executable, cupy)
                makers[one.name] = maker_of(executable)
        except Exception as error:  # one variant that fails leaves the others their turn
            line["problem"] = f"{type(error).__name__}: {error}"[:300]
    taken = time_makers(makers, sets, cupy, rounds=rounds) if sets else {}
    for line in lines:
        if line["variant"] in taken:
            line["cold_us"], line["warm_us"] = taken[line["variant"]]
    return lines


def base_of(line: dict[str, Any], lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the line that a line is compared with: all passes, the unsafe form of the same graph, the chosen grid."""
    wanted = {"stable": line["variant"].replace("stable", "unsafe")}.get(
        line["variant"].split()[0], lines[0]["variant"]
    )
    return next(other for other in lines if other["variant"] == wanted)


def printed(lines: list[dict[str, Any]]) -> str:
    """Return a table as text."""
    rows = [lines[0]["table"]]
    for line in lines:
        cold, base = line.get("cold_us"), base_of(line, lines).get("cold_us")
        times = f"{cold:8.2f} us cold {line['warm_us']:8.2f} warm" if cold else " " * 30
        loss = f"{cold / base - 1:+7.1%}" if cold and base else ""
        rows.append(
            f"  {line['variant']:18} {times} {loss:8} {line.get('problem', '')} {line.get('near_100', '')}".rstrip()
        )
    return "\n".join(rows)


def main() -> int:
    """Compile, check, time, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compile-only", action="store_true", help="stop before the GPU is needed")
    parser.add_argument("--only", default="", help="tables whose name holds this text")
    parser.add_argument("--rounds", type=int, default=3, help="turns that every variant takes (default 3)")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".")), metavar="FOLDER")
    options = parser.parse_args()
    found = [one for one in variants() if options.only in one.table]
    with ProcessPoolExecutor(os.cpu_count() or 1, mp_context=get_context("fork")) as pool:  # before the GPU is touched
        for one, told in zip(found, pool.map(build, found), strict=True):
            print(f"{one.table}, {one.name}: {told}", flush=True)
    if options.compile_only:
        return 0
    cupy, everything = load_cupy(), []
    for table in dict.fromkeys(one.table for one in found):
        try:
            lines = time_table(table, [one for one in found if one.table == table], cupy, options.rounds)
        except Exception:
            traceback.print_exc()
            continue
        everything += lines
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "ablation.json").write_text(json.dumps(everything, indent=1), encoding="utf-8")
        print(printed(lines), flush=True)
        cupy.get_default_memory_pool().free_all_blocks()
    return 0


if __name__ == "__main__":
    sys.exit(main())
