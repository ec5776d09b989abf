"""`workbench search`: find µGraphs that compute the same as a program, and say what was left out and why."""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import cast

from workbench.commands import requests
from workbench.commands.answer import Answer, Call, Json
from workbench.programs.record import Instance
from workbench.programs.registry import known_good
from workbench.search.engine import search
from workbench.search.space import Chains, Mapping, Space
from workbench.search.summary import Found, collect, progress_lines
from workbench.search.verdicts import VerdictLike
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.verify.compare import verify

_MORE = 4
"""How many further operators are tried to say where the nearest µGraph is, when none was found."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    space = Space()
    parser.add_argument("program", metavar="PROGRAM", help="a program's name, or a file with a graph of operators")
    parser.add_argument(
        "--max-block-ops", type=int, default=space.max_block_ops, metavar="N",
        help=f"operators of all block graphs together, without loads and stores (default {space.max_block_ops})",
    )  # fmt: skip
    parser.add_argument("--max-kernel-ops", type=int, default=space.max_kernel_ops, metavar="N", help="kernels at most")
    parser.add_argument(
        "--max-block-graphs",
        type=int,
        default=space.max_block_graphs,
        metavar="N",
        help="graph-defined kernels at most",
    )
    parser.add_argument(
        "--mapping", choices=["axes", "enumerate"], default="axes", help="how grids and loops are chosen"
    )
    parser.add_argument("--chains", choices=["needed", "all"], default="needed", help="which chains of kernels count")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random tests (default 0)")
    parser.add_argument(
        "--certify",
        action="store_true",
        help="decide every structure with `verify` (a bound) instead of one random test",
    )
    requests.add_program_arguments(parser)


def run(call: Call) -> Answer:
    """Return the structures found; the answer is no if there is none. Raises: as `requests.read_source`, `search`."""
    arguments = call.arguments
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
    verifier = _certified(arguments.seed) if arguments.certify else None
    events = search(program, space=space, verifier=verifier, seed=arguments.seed)
    found = collect(progress_lines(events, call.progress), space)
    finished = found.finished
    assert finished is not None
    known = _known_good(source.instance, found)
    lines = [space.describe(), finished.describe()]
    if known is not None:
        lines.append(f"a structure known to be good {'is' if known else 'is not'} among them")
    structures: list[Json] = []
    for number, one in enumerate(found.structures):
        text = one.graph.describe()
        lines.append(f"structure {number}: {one.operators} operators, {one.kernels} kernels\n{text}")
        structures.append({"structure_hash": one.structure_hash, "text": text, "operators": one.operators})
    values: dict[str, Json] = {
        "space": cast(Json, space.to_json()),
        "states": finished.states,
        "pruned": dict(finished.pruned),
        "candidates": finished.candidates,
        "verified": finished.verified,
        "refused": len(found.refused),
        "structures": structures,
        "known_good": known,
        "incomplete": finished.incomplete,
    }
    if not found.structures:
        miss = _nearest_miss(program, space, found)
        values["nearest_miss"] = miss
        lines.append(f"nothing found; {miss}")
    values["seconds"] = time.perf_counter() - start
    values["peak_mb"] = _peak_mb()
    return Answer("\n".join(lines), values, is_yes=bool(found.structures))


def _certified(seed: int) -> Callable[[KernelGraph, KernelGraph], VerdictLike]:
    def verifier(program: KernelGraph, candidate: KernelGraph) -> VerdictLike:
        return verify(program, candidate, shapes="reduced", seed=seed)

    return verifier


def _known_good(instance: Instance | None, found: Found) -> bool | None:
    """Return whether a known good structure was found; None for a program that none are known for."""
    if instance is None:
        return None
    good = known_good(instance.program.name, instance.style, instance.dtype, **instance.sizes)
    hashes = {graph.structure_hash for graph in good}
    return any(one.structure_hash in hashes for one in found.structures)


def _nearest_miss(program: KernelGraph, space: Space, found: Found) -> str:
    """Return what came closest: a graph that was refused or does not fit, or one with more operators."""
    if found.refused:
        return f"a graph was met and not confirmed: {found.refused[0].describe()}"
    if found.misses:
        return f"a graph was met and left out: {found.misses[0].describe()}"
    for more in range(1, _MORE + 1):
        wider = replace(space, max_block_ops=space.max_block_ops + more)
        structures = collect(search(program, space=wider), wider).structures
        if structures:
            fewest = min(structures, key=lambda one: one.operators)
            return f"with {fewest.operators} operators instead of {space.max_block_ops} there is\n{fewest.graph.describe()}"
    return f"also with up to {space.max_block_ops + _MORE} operators there is none"


def _peak_mb() -> float:
    """Return the most memory the process has held, in megabytes (10^6 bytes)."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6
