"""`workbench optimize`: the fastest certified µGraph of a program, with everything that was refused, in a folder."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import cast

from workbench.commands import requests
from workbench.commands.answer import Answer, Call, Json
from workbench.cost.hardware import hardware
from workbench.pipeline.passes import PASSES
from workbench.pipeline.progress import Stage
from workbench.pipeline.result import Result
from workbench.pipeline.run_folder import run_files, write_whole
from workbench.pipeline.structures import NARROW
from workbench.pipeline.superoptimize import KEEP, Options, superoptimize
from workbench.search.space import Space
from workbench.views.result_html import report_html

REPORT = "report.html"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    space = Space()
    parser.add_argument(
        "program", metavar="PROGRAM", help="a program's name, a file with a graph, or module.py:function"
    )
    parser.add_argument(
        "--device", default="h200", metavar="NAME", help="whose kernels: h200 (default), h100, a100-80, ..."
    )
    parser.add_argument("--budget", type=float, metavar="SECONDS", help="begin no new work after this time")
    parser.add_argument(
        "--out", type=Path, metavar="DIR",
        help="where to leave result.json, best.ugraph.json, report.html, search.jsonl (one for each part of a program that "
        "is searched in parts) and spaces.json (operators of the space chosen for each); default: the user's cache",
    )  # fmt: skip
    parser.add_argument("--fresh", action="store_true", help="ignore what an earlier run left")
    parser.add_argument("--keep", type=int, metavar="N", help=f"candidates to certify (default {KEEP}; measured: more)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random tests (default 0)")
    parser.add_argument(
        "--max-block-ops", type=int, metavar="N",
        help=f"operators of all block graphs together (default {space.max_block_ops}, {NARROW} where that space is too large)",
    )  # fmt: skip
    parser.add_argument("--without", metavar="A,B", help=f"leave out passes of the optimizer, of {','.join(PASSES)}")
    parser.add_argument(
        "--stable", action="store_true", help="also offer exponentials with their row's maximum subtracted"
    )
    parser.add_argument(
        "--measure", action=argparse.BooleanOptionalAction, default=None,
        help="let the GPU decide, or the cost model (default: the GPU where the device is)",
    )  # fmt: skip
    requests.add_program_arguments(parser)


def run(call: Call) -> Answer:
    """Return the best candidate; the answer is no if there is none. Raises: as `requests.read_source`, `superoptimize`."""
    arguments = call.arguments
    hardware(arguments.device)  # an unknown device is told before a long search
    options = Options(
        space=Space(max_block_ops=arguments.max_block_ops) if arguments.max_block_ops is not None else None,
        seed=arguments.seed,
        keep=arguments.keep,
        stable=arguments.stable,
        without=_names(arguments.without),
    )
    source = requests.read_source(arguments.program, arguments, call.settings)
    program = requests.pick(source.graphs, 0, what=arguments.program)

    def tell(stage: Stage) -> None:
        call.progress(stage.describe())

    result = superoptimize(
        program,
        arguments.device,
        budget=arguments.budget,
        measure=arguments.measure,
        options=options,
        out=arguments.out,
        fresh=arguments.fresh,
        progress=tell,
    )
    assert result.out is not None
    call.progress("writing the report")
    write_whole(result.out / REPORT, report_html(result))
    return Answer(_text(result), _values(result), is_yes=bool(result.candidates))


def _names(given: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in given.split(",") if name.strip()) if given else ()


def _values(result: Result) -> dict[str, Json]:
    best: dict[str, Json] | None = None
    if result.candidates:
        one = result.best
        best = {
            "hash": one.graph.hash,
            "structure_hash": one.structure_hash,
            "cost_us": one.cost_us,
            "measured_us": one.measured.cold_us if one.measured is not None else None,
            "lower_bound_us": result.lower_bound.total_us,
            "breakdown": dict(one.cost.parts),
            "schedule": cast(Json, [*one.schedule]),
            "certificate": cast(Json, one.certificate.to_json()),
            "origin": one.origin,
            "passes": cast(Json, [note.to_json() for note in one.passes]),
            "text": one.graph.describe(),
        }
    return {
        "best": best,
        "candidates": len(result.candidates),
        "refused": dict(result.refused_counts),
        "cached": result.cached,
        "interrupted": result.interrupted,
        "measured": result.measured,
        "seconds": result.seconds,
        "out": str(result.out),
        "files": [*_files(result)],
    }


def _text(result: Result) -> str:
    lines = [result.describe()]
    if result.candidates:
        lines += ["", "cost by part:", *(f"  {line}" for line in result.best.cost.describe().splitlines())]
        lines += ["", "passes of the optimizer:", *(f"  {line}" for line in result.best.describe_passes().splitlines())]
        lines += ["", result.best.graph.describe()]
    lines += ["", f"{result.out}: {', '.join(_files(result))}"]
    return "\n".join(lines)


def _files(result: Result) -> list[str]:
    assert result.out is not None
    return [*run_files(result.out), REPORT]
