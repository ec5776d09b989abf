"""How a search's findings are told, live or replayed. Invariant: both are told by the same words and the same keys."""

from __future__ import annotations

import argparse
from collections import Counter
from typing import cast

from workbench.commands.answer import Json
from workbench.errors import WorkbenchError
from workbench.programs.record import Instance
from workbench.programs.registry import infer_sizes, instance, known_good, names
from workbench.search.summary import Found
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.units import counted


def known_structures(settled: Instance | None) -> frozenset[str] | None:
    """Return the structure hashes of a program's known good µGraphs; None for a program that none are known for."""
    if settled is None:
        return None
    good = known_good(settled.program.name, settled.style, settled.dtype, **settled.sizes)
    return frozenset(graph.structure_hash for graph in good)


def studied(program: KernelGraph) -> Instance | None:
    """Return the studied program that a graph is, None if it is none of them."""
    if program.name not in names():
        return None
    try:
        style, sizes = infer_sizes(program.name, [tensor.shape for tensor in program.inputs])
        found = instance(program.name, style, program.inputs[0].dtype, sizes)
    except WorkbenchError:
        return None
    return found if found.build().hash == program.hash else None


def values_of(found: Found, known: frozenset[str] | None) -> dict[str, Json]:
    """Return the keys of DESIGN 10, and a few more. known: structure hashes that are known to be good."""
    finished, progress = found.finished, found.progress
    pruned = finished.pruned if finished is not None else found.pruned
    structures: list[Json] = [
        {
            "structure_hash": one.structure_hash,
            "text": one.graph.describe(),
            "operators": one.operators,
            "kernels": one.kernels,
        }
        for one in found.structures
    ]
    is_known = None if known is None else any(one.structure_hash in known for one in found.structures)
    return {
        "space": cast(Json, found.space.to_json()),
        "finished": finished is not None,
        "states": finished.states if finished is not None else progress.states if progress is not None else 0,
        "pruned": dict(sorted(pruned.items())),
        "candidates": finished.candidates if finished is not None else None,
        "verified": finished.verified if finished is not None else len(found.structures),
        "refused": len(found.refused),
        "structures": structures,
        "known_good": is_known,
        "incomplete": finished.incomplete if finished is not None else None,
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare how findings are told."""
    parser.add_argument("--graphs", action="store_true", help="print every structure whole, not one line each")


def lines_of(found: Found, known: frozenset[str] | None, *, graphs: bool = False) -> list[str]:
    """Return the findings for people: a line a structure, one of them whole, and last how the search went.

    graphs: every structure whole. The one that is shown is known to be good, if one is, and has the fewest operators.
    """
    good = known or frozenset()
    lines = []
    for number, one in enumerate(found.structures):
        mark = ", known to be good" if one.structure_hash in good else ""
        lines.append(
            f"structure {number}: {counted(one.operators, 'operator')}, {counted(one.kernels, 'kernel')}, "
            f"hash {one.structure_hash[:12]}{mark}"
        )
        if graphs:
            lines.append(one.graph.describe())
    if found.structures and not graphs:
        shown = min(found.structures, key=lambda one: (one.structure_hash not in good, one.operators))
        lines += [f"structure {found.structures.index(shown)}, whole:", shown.graph.describe()]
    lines.append(found.space.describe())
    if found.finished is not None:
        lines.append(found.finished.describe())
    else:
        progress = f", after {found.progress.describe()}" if found.progress is not None else ""
        lines.append(f"not finished{progress}; {reasons(found.pruned)}")
    if known is not None and (found.structures or found.finished is not None):
        is_known = any(one.structure_hash in known for one in found.structures)
        lines.append(f"a structure known to be good {'is' if is_known else 'is not'} among them")
    return lines


def reasons(pruned: Counter[str]) -> str:
    """Return what was left out, counted by reason."""
    return "left out: " + (", ".join(f"{rule} {count}" for rule, count in sorted(pruned.items())) or "nothing")
