"""`workbench verify`: decide whether graphs compute the same as a program or another graph."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from pathlib import Path
from typing import cast

from workbench.commands import requests
from workbench.commands.answer import Answer, Call, Json
from workbench.errors import UsageError
from workbench.programs import registry
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.verify.compare import ShapesWanted, verify
from workbench.verify.verdict import Verdict

_MANY = 12
"""From how many graphs on the text names only the first few of each kind."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "targets", nargs="+", metavar="GRAPH_OR_PROGRAM", help="two to compare, or one file with --program"
    )
    parser.add_argument("--program", metavar="NAME", help="compare with this program; sizes are inferred from the file")
    parser.add_argument("--error", type=float, default=1e-9, help="wanted bound on the probability of a wrong yes")
    parser.add_argument(
        "--shapes",
        choices=["one", "auto", "true", "reduced"],
        default="one",
        help="where to test: one graph of the file at true shapes and the rest on reduced instances (default), or all alike",
    )
    parser.add_argument("--pair", metavar="NAME", help="field pair: w20, w31, w61, or a teaching one")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random tests (default 0)")
    requests.add_program_arguments(parser)


def run(call: Call) -> Answer:
    """Return a verdict per graph; the answer is yes if all are equal. Raises: as `requests.read_source`, `verify`."""
    arguments = call.arguments
    start = time.perf_counter()
    program, graphs, names = _sides(call)
    results: list[Verdict] = []
    settled = False
    for number, graph in enumerate(graphs):
        call.progress(f"graph {number + 1} of {len(graphs)}")
        wanted = arguments.shapes
        if wanted == "one":
            wanted = "reduced" if settled else "auto"
        verdict = verify(
            program,
            graph,
            error=arguments.error,
            seed=arguments.seed,
            shapes=cast(ShapesWanted, wanted),
            pair=arguments.pair,
        )
        settled = settled or verdict.kind == "equal"
        results.append(verdict)
    seconds = time.perf_counter() - start
    counts = Counter(verdict.kind for verdict in results)
    lines = [f"{names[0]} against {names[1]}"]
    shown: Counter[str] = Counter()
    for number, verdict in enumerate(results):
        shown[verdict.kind] += 1
        if len(results) < _MANY or shown[verdict.kind] <= 2:
            head = f"graph {number}: " if len(results) > 1 else ""
            lines.append(head + verdict.describe())
    if len(results) >= _MANY:
        lines.append(f"(the first two of each kind are shown; --json gives all {len(results)})")
    lines.append(f"{', '.join(f'{count} {kind}' for kind, count in sorted(counts.items()))}; {seconds:.1f} s")
    values: dict[str, Json] = {
        "program": names[0],
        "results": [cast(Json, verdict.to_json()) for verdict in results],
        "counts": {str(kind): count for kind, count in counts.items()},
        "seconds": seconds,
    }
    return Answer("\n".join(lines), values, is_yes=counts["equal"] == len(results))


def _sides(call: Call) -> tuple[KernelGraph, tuple[KernelGraph, ...], tuple[str, str]]:
    arguments = call.arguments
    targets: list[str] = arguments.targets
    if arguments.program is None:
        if len(targets) != 2:
            raise UsageError(f"name two graphs or programs to compare, or --program NAME FILE; got {len(targets)}")
        no_options = argparse.Namespace(style=None, dtype=None)
        left, right = (
            requests.read_source(target, arguments if target in registry.names() else no_options,
                                 call.settings if target in registry.names() else {})
            for target in targets
        )  # fmt: skip
        return requests.pick(left.graphs, 0, what=targets[0]), right.graphs, (targets[0], targets[1])
    if len(targets) != 1:
        raise UsageError(f"--program takes one file, got {len(targets)}")
    registry.program(arguments.program)
    graphs = requests.read_graphs(Path(targets[0]))
    settings = dict(call.settings)
    style, sizes = registry.infer_sizes(arguments.program, [tensor.shape for tensor in graphs[0].inputs])
    settings.setdefault("style", arguments.style or style.value)
    given = argparse.Namespace(style=None, dtype=arguments.dtype)
    for name, size in sizes.items():
        settings.setdefault(name, str(size))
    instance = requests.settle(arguments.program, given, settings)
    label = f"{arguments.program} ({instance.style.value}) {' '.join(f'{n}={s}' for n, s in instance.sizes.items())}"
    return instance.build(), graphs, (label, targets[0])
