"""`workbench check`: evaluate a program and its known good µGraphs in float64, compare them, and draw them."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt

from workbench.commands import requests
from workbench.commands.answer import Answer, Call, Json
from workbench.commands.programs import tensor_values
from workbench.core.shapes import num_elements
from workbench.errors import UsageError
from workbench.interpret import evaluate
from workbench.ugraph.kernel_graph import KernelGraph, kernel_node_name
from workbench.ugraph.nodes import GraphDefinedNode
from workbench.units import format_bytes, format_seconds
from workbench.views import graph_svg

TOLERANCE = 1e-9
"""Largest relative error, in the Frobenius norm, of two float64 computations that count as equal."""

DEFAULT_PROGRAM = "rms_norm_linear"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "program", nargs="?", default=DEFAULT_PROGRAM, metavar="PROGRAM", help=f"default {DEFAULT_PROGRAM}"
    )
    parser.add_argument("-o", "--out", type=Path, metavar="DIR", help="draw the graphs into this folder")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random inputs (default 0)")
    requests.add_program_arguments(parser)


def run(call: Call) -> Answer:
    """Return how far each known good µGraph is from its program. Raises: as `programs.get`; OSError."""
    start = time.perf_counter()
    arguments = call.arguments
    if arguments.seed < 0:
        raise UsageError(f"--seed {arguments.seed} must not be negative")
    instance = requests.settle(arguments.program, arguments, call.settings)
    program = instance.build()
    _refuse_what_exceeds_memory(program)
    graphs = instance.program.known_good(instance)
    draws = [hard_inputs(program, np.random.default_rng([arguments.seed, number])) for number in range(2)]
    call.progress(f"evaluating {program.name}")
    expected = [evaluate(program, inputs)[0] for inputs in draws]
    sizes = " ".join(f"{name}={size}" for name, size in instance.sizes.items())
    lines = [f"{program.name} {sizes} ({instance.style.value}, {instance.dtype})", f"  {_operators(program)}"]
    out: Path | None = arguments.out
    pictures = _draw_all(out, program, graphs, call) if out is not None else [None] * (len(graphs) + 1)
    rows: list[Json] = []
    for number, graph in enumerate(graphs):
        call.progress(f"evaluating known good µGraph {number + 1} of {len(graphs)}")
        error = max(
            relative_error(evaluate(graph, inputs)[0], output) for inputs, output in zip(draws, expected, strict=True)
        )
        rows.append(
            {
                "hash": graph.hash,
                "structure_hash": graph.structure_hash,
                "kernels": _launches(graph),
                "relative_error": error,
                "equal": error <= TOLERANCE,
                "svg": pictures[number + 1],
            }
        )
        verdict = "equal" if error <= TOLERANCE else "DIFFERENT"
        lines.append(f"  known good {number}: {verdict}, relative error {error:.1e}: {'; then '.join(_words(graph))}")
    equal = all(isinstance(row, dict) and row["equal"] is True for row in rows)
    seconds = time.perf_counter() - start
    lines += [f"  drawn in {out}: {', '.join(Path(name).name for name in pictures if name)}"] if out is not None else []
    lines.append(f"  float64 on {len(draws)} random inputs whose rows differ in scale, {format_seconds(seconds)}")
    values: dict[str, Json] = {
        "program": program.name,
        "parameters": {**instance.sizes},
        "style": instance.style.value,
        "dtype": str(instance.dtype),
        "hash": program.hash,
        "structure_hash": program.structure_hash,
        "inputs": [tensor_values(tensor) for tensor in program.inputs],
        "outputs": [tensor_values(tensor) for tensor in program.outputs],
        "svg": pictures[0],
        "known_good": rows,
        "equal": equal,
        "tolerance": TOLERANCE,
        "seed": arguments.seed,
        "seconds": seconds,
    }
    return Answer("\n".join(lines), values, is_yes=equal)


def hard_inputs(program: KernelGraph, rng: np.random.Generator) -> list[npt.NDArray[np.float64]]:
    """Return normal random inputs, scaled by row: identically distributed rows would hide a statistic of another row.

    Entries have a standard deviation of 1/4 to 4 over the root of the last extent, so that exponentials of products
    stay within float64.
    """
    arrays = []
    for tensor in program.inputs:
        array = rng.standard_normal(tensor.shape)
        if len(tensor.shape) > 1:
            array *= rng.uniform(0.25, 4.0, size=(*tensor.shape[:-1], 1)) / np.sqrt(tensor.shape[-1])
        arrays.append(array)
    return arrays


def relative_error(found: npt.NDArray[np.float64], expected: npt.NDArray[np.float64]) -> float:
    """Return |found - expected| / |expected| in the Frobenius norm; infinite where one of them is not finite."""
    if not (np.isfinite(found).all() and np.isfinite(expected).all()):
        return float("inf")
    size = float(np.linalg.norm(expected))
    difference = float(np.linalg.norm(found - expected))
    return difference / size if size else difference


def _refuse_what_exceeds_memory(program: KernelGraph) -> None:
    """Raises: UsageError when the program's tensors in float64 exceed this machine's memory (else it would be killed)."""
    if "SC_PHYS_PAGES" not in getattr(os, "sysconf_names", {}):  # not a POSIX system: let allocation decide
        return
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    needed = 8 * sum(num_elements(tensor.shape) for tensor in program.tensors.values())
    if needed > memory:
        raise UsageError(
            f"the tensors of {program.name} take {format_bytes(needed)} in float64, this machine has {format_bytes(memory)}; "
            "choose smaller sizes with --set"
        )


def _draw_all(out: Path, program: KernelGraph, graphs: list[KernelGraph], call: Call) -> list[str | None]:
    out.mkdir(parents=True, exist_ok=True)
    written: list[str | None] = []
    for name, graph in [
        ("program", program),
        *((f"known_good_{number}", graph) for number, graph in enumerate(graphs)),
    ]:
        call.progress(f"drawing {name}")
        path = out / f"{program.name}_{name}.svg"
        path.write_text(graph_svg(graph), encoding="utf-8")
        written.append(str(path))
    return written


def _operators(graph: KernelGraph) -> str:
    return f"{len(graph.nodes)} kernel{'s' * (len(graph.nodes) > 1)}: " + ", ".join(
        kernel_node_name(node).split()[0] for node in graph.nodes
    )


def _launches(graph: KernelGraph) -> list[Json]:
    return [
        {"name": node.name, "grid": list(node.block.grid_dims), "loop": node.block.forloop_range}
        for node in graph.graph_defined
    ]


def _words(graph: KernelGraph) -> list[str]:
    words = []
    for node in graph.nodes:
        if isinstance(node, GraphDefinedNode):
            grid = "x".join(str(count) for count in node.block.grid_dims)
            loop = f"{node.block.forloop_range} iterations" if node.block.forloop_range > 1 else "no loop"
            words.append(f"{node.name} on {grid} blocks, {loop}")
        else:
            words.append(f"library {node.op}")
    return words
