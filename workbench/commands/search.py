"""`workbench search`: find µGraphs that compute the same as a program, and say what was left out and why.

Ctrl-C prints what was found so far. A search that took more than a moment has by then a record, with `--record` in that
file, else in the user's cache folder, and `--resume` continues it.
"""

from __future__ import annotations

import argparse
import gc
import resource
import sys
import time
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import cast

from workbench.codegen.cuda.content_cache import user_cache_folder
from workbench.commands import findings, requests
from workbench.commands.answer import Answer, Call, Json
from workbench.errors import UsageError
from workbench.search.engine import search as search_values
from workbench.search.events import Event, Progress, Verified
from workbench.search.forked import Forked
from workbench.search.nearest import nearest_value
from workbench.search.recording import Recorder, Subject
from workbench.search.searching import Engine, default_engine, search, subject_of
from workbench.search.space import Chains, Mapping, Space
from workbench.search.summary import Found, collect, gather
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.verify.compare import verify

RECORDED_AFTER_S = 2.0
"""Seconds after which a search without `--record` begins to keep a record of its own."""

_MORE = 4
"""How many further operators are tried to say where the nearest µGraph is, when none was found."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    space = Space()
    parser.add_argument(
        "program", metavar="PROGRAM", help="a program's name, a file with a graph of operators, or FILE.py:FUNCTION"
    )
    parser.add_argument(
        "--engine", choices=["values", "prefix"], help="values first (default), or the paper's prefixes"
    )
    parser.add_argument(
        "--max-block-ops", type=int, default=space.max_block_ops, metavar="N",
        help=f"operators of all block graphs together, without loads and stores (default {space.max_block_ops})",
    )  # fmt: skip
    parser.add_argument(
        "--max-kernel-ops", type=int, default=space.max_kernel_ops, metavar="N",
        help=f"kernels at most (default {space.max_kernel_ops})",
    )  # fmt: skip
    parser.add_argument(
        "--max-block-graphs", type=int, default=space.max_block_graphs, metavar="N",
        help=f"graph-defined kernels at most (default {space.max_block_graphs})",
    )  # fmt: skip
    parser.add_argument(
        "--mapping", choices=["axes", "enumerate"], default="axes",
        help="how grids and loops are chosen: one choice a block graph (default), or the paper's independent maps",
    )  # fmt: skip
    parser.add_argument("--chains", choices=["needed", "all"], default="needed", help="which chains of kernels count")
    parser.add_argument(
        "--pruners", metavar="A,B", help="what prunes, by name (the prefix engine, unless --engine says otherwise)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the random tests (default 0)")
    parser.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="search in so many further processes (default: in this one, and a copy)",
    )
    parser.add_argument("--record", type=Path, metavar="FILE", help="write every event to this file, for replay")
    parser.add_argument("--resume", action="store_true", help="continue where an interrupted search stopped")
    parser.add_argument(
        "--certify",
        action="store_true",
        help="decide every structure with `verify` (a bound) instead of one random test",
    )
    findings.add_arguments(parser)
    requests.add_program_arguments(parser)


def run(call: Call) -> Answer:
    """Return the structures found; the answer is no if there is none. Raises: as `requests.read_source`, `search`."""
    arguments = call.arguments
    gc.freeze()  # what has been imported stays, so no collection need look at it again
    gc.set_threshold(50_000)  # a search makes many small objects that live to its end
    start = time.perf_counter()
    source = requests.read_source(arguments.program, arguments, call.settings)
    program = requests.pick(source.graphs, 0, what=arguments.program)
    space = Space(
        max_block_ops=arguments.max_block_ops,
        max_kernel_ops=arguments.max_kernel_ops,
        max_block_graphs=arguments.max_block_graphs,
        mapping=cast(Mapping, arguments.mapping),
        chains=cast(Chains, arguments.chains),
    )
    pruners = _pruners(arguments.pruners)
    engine: Engine = arguments.engine or default_engine(space, pruners)
    verifier = partial(verify, shapes="reduced", seed=arguments.seed) if arguments.certify else None
    subject = subject_of(program, space, engine, pruners, verifier, arguments.seed)
    recorder = _recorder(arguments, subject)
    helped = Forked(ahead=_hashed, settles_after_s=RECORDED_AFTER_S if arguments.record is None else 0.0)
    events = search(
        program, space=space, engine=engine, pruners=pruners, verifier=verifier, seed=arguments.seed,
        executor=helped if arguments.workers is None else arguments.workers, record=recorder,
    )  # fmt: skip
    found = Found(space)
    interrupted = ""
    past = recorder.past
    call.progress(f"continuing the search that {past.path} holds" if past is not None else "searching the first plans")
    try:
        with closing(events):
            gather(events, found, lambda event: _tell(event, call))
    except KeyboardInterrupt:
        interrupted = f"interrupted; {_how_to_continue(arguments, recorder)}"
    if arguments.record is None and not interrupted:
        with suppress(OSError):
            recorder.path.unlink(missing_ok=True)
    known = findings.known_structures(source.instance)
    values: dict[str, Json] = {
        "program": program.name,
        "hash": program.hash,
        "engine": engine,
        "seed": arguments.seed,
        **findings.values_of(found, known),
        "record": str(recorder.path) if recorder.path.exists() else None,
        "interrupted": bool(interrupted),
    }
    lines = findings.lines_of(found, known, graphs=arguments.graphs)
    if not found.structures and not interrupted:
        miss, words = _nearest_miss(program, space, found, call)
        values["nearest_miss"] = miss
        lines.append(
            f"nothing found; {'the program is out of the space' if found.outside else 'nearest miss'}: {words}"
        )
    values["seconds"] = time.perf_counter() - start
    values["peak_mb"] = _peak_mb()
    return Answer("\n".join(lines), values, is_yes=bool(found.structures), interrupted=interrupted)


def _hashed(event: Event) -> None:
    """Have the hash of a structure, which `Found` asks for and the graph keeps, worked out where it was found."""
    if isinstance(event, Verified):
        _ = event.graph.structure_hash


def _pruners(names: str | None) -> tuple[str, ...] | None:
    if names is None:
        return None
    listed = tuple(name.strip() for name in names.split(",") if name.strip())
    if not listed:
        raise UsageError("--pruners names none; write --pruners none for a search that prunes nothing")
    return listed


def _recorder(arguments: argparse.Namespace, subject: Subject) -> Recorder:
    """Return what keeps the events: in the file that was named, or, after a while, in the user's cache folder."""
    path: Path | None = arguments.record
    if path is None:
        own = user_cache_folder("searches") / f"{subject.key}.jsonl"
        return Recorder(own, subject, resume=arguments.resume, after_s=RECORDED_AFTER_S, optional=True)
    return Recorder(path, subject, resume=arguments.resume or None)


def _how_to_continue(arguments: argparse.Namespace, recorder: Recorder) -> str:
    if not recorder.path.exists():
        return "no plan had been searched; call it again"
    again = "the same command" if arguments.record is not None else "the same command with --resume"
    return f"what was found is in {recorder.path}, and {again} continues"


def _tell(event: Event, call: Call) -> None:
    if isinstance(event, Progress):
        call.progress(event.describe())


def _nearest_miss(program: KernelGraph, space: Space, found: Found, call: Call) -> tuple[Json, str]:
    """Return what came closest, as values and in words: a graph that was met, else a value, and where there is a µGraph."""
    if found.outside:
        return {"outside": list(found.outside)}, "; ".join(found.outside)
    call.progress("looking for what came closest")
    values: dict[str, Json] = {}
    lines = []
    met = [*(one.describe() for one in found.refused[:1]), *(one.describe() for one in found.misses[:1])]
    if met:
        values["met"] = met[0]
        lines.append(f"a graph was met and {'not confirmed' if found.refused else 'left out'}: {met[0]}")
    value = nearest_value(program, space)
    if value is not None:
        values |= cast(dict[str, Json], value.to_json())
        lines.append(value.describe())
    for more in range(1, _MORE + 1) if not met else ():
        wider = replace(space, max_block_ops=space.max_block_ops + more, mapping="axes")
        structures = collect(search_values(program, space=wider), wider).structures
        if structures:
            fewest = min(structures, key=lambda one: one.operators)
            values["found_with_operators"] = fewest.operators
            lines.append(
                f"with {fewest.operators} operators instead of {space.max_block_ops} there is\n{fewest.graph.describe()}"
            )
            break
    else:
        if not met:
            values["found_with_operators"] = None
            lines.append(f"also with up to {space.max_block_ops + _MORE} operators there is none")
    return values, "\n".join(lines)


def _peak_mb() -> float:
    """Return the most memory that was held, at most, in megabytes (10^6 bytes): by the process, and by its largest helper."""
    peak = sum(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6
