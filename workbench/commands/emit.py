"""`workbench emit`: the CUDA kernels of a program or graph, compiled where NVRTC is, and written as a folder on request."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from workbench.codegen.cuda.emitted import EmittedProgram, KernelSource
from workbench.codegen.cuda.export import export_program
from workbench.codegen.cuda.export.launcher import build_command
from workbench.codegen.cuda.kernel_level import emit_program
from workbench.commands import requests
from workbench.commands.answer import Answer, Call, Json
from workbench.device.architecture import architecture
from workbench.device.compile import CompiledKernel
from workbench.device.executable import compile_program, for_architecture
from workbench.device.nvrtc import load_nvrtc
from workbench.errors import KernelCompileError, UsageError
from workbench.pipeline.kept_best import KeptBest, load_best
from workbench.pipeline.run_folder import BEST
from workbench.programs import registry
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.units import counted


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "target",
        metavar="PROGRAM_OR_GRAPH_OR_RUN",
        help="a program's name (its first known good µGraph is emitted), a file of graphs, or the folder of a run",
    )
    parser.add_argument(
        "--arch", metavar="NAME", help="sm_90a (default, or the run's device), sm_80, or a device: h200, a100"
    )
    parser.add_argument(
        "-o", "--out", type=Path, metavar="DIR", help="write kernel.cu, launchers and description into DIR"
    )
    parser.add_argument("--index", type=int, metavar="N", help="which graph of the file, from 0 (default 0)")
    parser.add_argument(
        "--known-good", type=int, metavar="N", help="the N-th known good µGraph of the program (default 0)"
    )
    parser.add_argument("--unfused", action="store_true", help="the program itself, its operators one by one")
    parser.add_argument(
        "--no-library", action="store_true", help="write products of the kernel level as kernels of our own"
    )
    parser.add_argument(
        "--unchecked", action="store_true", help="with -o: leave out right outputs, which take an evaluation"
    )
    requests.add_program_arguments(parser)


def run(call: Call) -> Answer:
    """Return the kernels with what they need. Raises: EmitError, UnknownNameError; as `requests.read_source`; OSError."""
    arguments = call.arguments
    kept = kept_best(arguments.target)
    target = architecture(arguments.arch or (kept.device if kept else "sm_90a"))
    graph = choose(call)
    call.progress("emitting")
    schedules = for_architecture(graph, kept.schedules if kept else {}, target)
    program = emit_program(graph, schedules=schedules, library=not arguments.no_library)
    call.progress("compiling")
    compiled, note = compile_where_possible(program, graph, target.name)
    kernels = [kernel_values(kernel, target.name, compiled.get(kernel.name)) for kernel in program.kernels]
    files: list[Path] = []
    if arguments.out is not None:
        call.progress("writing the folder")
        needs = {str(kernel["name"]): {key: kernel[key] for key in NEEDS} for kernel in kernels}
        files = export_program(
            program,
            graph,
            arguments.out,
            arch=target.name,
            needs=needs,
            certificate=kept.certificate if kept else None,
            checked=not arguments.unchecked,
        )
    calls: list[Json] = [{"result": c.result, "left": c.left, "right": c.right} for c in program.library_calls]
    values: dict[str, Json] = {
        "name": graph.name,
        "hash": graph.hash,
        "structure_hash": graph.structure_hash,
        "arch": target.name,
        "kernels": [*kernels],
        "library_calls": calls,
        "workspace_bytes": program.workspace_bytes,
        "note": note or None,
        "out": None if arguments.out is None else str(arguments.out),
        "files": [path.name for path in files],
    }
    summary = describe(graph, program, kernels, note)
    if arguments.out is not None:
        return Answer(f"{summary}\n{written(arguments.out, files, program, target.name)}", values)
    return Answer("\n\n".join([*(kernel.body.strip() for kernel in program.kernels), summary]), values)


NEEDS = ("registers", "spills", "shared_bytes", "compile_s")


def kept_best(name: str) -> KeptBest | None:
    """Return what a run's folder keeps, None where the name is something else. Raises: FormatError, OSError."""
    is_run = Path(name).is_dir() and name not in registry.names() and (Path(name) / BEST).is_file()
    return load_best(Path(name)) if is_run else None


def choose(call: Call) -> KernelGraph:
    """Return the graph that the arguments name. Raises: UsageError; as `requests.read_source`."""
    arguments, settings = call.arguments, dict(call.settings)
    name: str = arguments.target
    if Path(name).is_dir() and name not in registry.names():
        best = Path(name) / BEST
        if not best.is_file():
            raise UsageError(f"{name} is a folder without {BEST}; give the folder of a run, a file or a program")
        name = str(best)
    source = requests.read_source(name, arguments, settings)
    if source.instance is None:
        if arguments.known_good is not None or arguments.unfused:
            raise UsageError(f"{name} is a file; only programs have known good µGraphs and an unfused form")
        return requests.pick(source.graphs, arguments.index or 0, what=name)
    if arguments.index is not None:
        raise UsageError("--index chooses a graph of a file; a program's known good µGraphs have --known-good N")
    if arguments.unfused:
        if arguments.known_good is not None:
            raise UsageError("--unfused and --known-good exclude each other")
        return source.graphs[0]
    graphs = source.instance.program.known_good(source.instance)
    return requests.pick(graphs, arguments.known_good or 0, what=f"known good {name}")


def compile_where_possible(
    program: EmittedProgram, graph: KernelGraph, arch: str
) -> tuple[dict[str, CompiledKernel], str]:
    """Return the compiled kernels by name, and a note where NVRTC is missing. Raises: KernelCompileError."""
    try:
        load_nvrtc()
    except KernelCompileError as error:
        missing = str(error).partition(" (")[0]  # what was tried stands in brackets
        return {}, f"not compiled: {missing}; nvcc is no substitute, `workbench doctor` says what is here"
    executable = compile_program(program, graph, arch)
    return dict(executable.compiled), ""


def kernel_values(kernel: KernelSource, arch: str, compiled: CompiledKernel | None) -> dict[str, Json]:
    """Return a kernel as a JSON object; what only a compiler knows is null without one."""
    usage = compiled.usage(kernel.launch.kernel) if compiled is not None else None
    grid: list[Json] = [*kernel.launch.grid]
    cluster: list[Json] = [*kernel.launch.cluster]
    return {
        "name": kernel.name,
        "source": kernel.source,
        "arch": arch,
        "compile_s": compiled.compile_s if compiled is not None else None,
        "cached": compiled.is_cached if compiled is not None else None,
        "registers": usage.registers if usage is not None else None,
        "spills": usage.spill_bytes if usage is not None else None,
        "shared_bytes": kernel.launch.shared_bytes + (usage.shared_bytes if usage is not None else 0),
        "grid": grid,
        "threads": kernel.launch.threads,
        "cluster": cluster,
        "products": kernel.products,
        "notes": [*kernel.notes],
    }


def describe(graph: KernelGraph, program: EmittedProgram, kernels: Sequence[dict[str, Json]], note: str) -> str:
    """Return a line for the program, one for each kernel, and one for each thing that the kernels need."""
    counts = f"{counted(len(kernels), 'kernel')}, {counted(len(program.library_calls), 'library call')}"
    lines = [f"{graph.name or 'graph'} {graph.hash}: {counts}"]
    for kernel in kernels:
        grid = "x".join(str(count) for count in kernel["grid"]) if isinstance(kernel["grid"], list) else ""
        needs = f", {kernel['shared_bytes']} B shared"
        if kernel["registers"] is not None:
            compile_s = kernel["compile_s"]
            needs += f", {kernel['registers']} registers, {kernel['spills']} B spilled, compiled in {compile_s:.2f} s"
        lines.append(f"  {kernel['name']}: {grid} blocks of {kernel['threads']} threads{needs}")
    lines += [f"  cuBLAS: {call.result} = {call.left} @ {call.right}" for call in program.library_calls]
    if program.workspace_bytes:
        lines.append(f"  intermediates: {program.workspace_bytes} B")
    if note:
        lines.append(f"  {note}")
    return "\n".join(lines)


def written(out: Path, files: Sequence[Path], program: EmittedProgram, arch: str) -> str:
    """Return what was written where, and how it is run on a machine with a GPU."""
    lines = [
        f"written to {out}: {', '.join(path.name for path in files)}",
        "  to run it there, on a machine with a GPU:",
    ]
    if any(path.name == "launcher.cu" for path in files):
        lines += [
            "    python load_kernel.py    # CuPy; checks itself",
            f"    {build_command(program, arch)} && ./launcher    # checks and times itself",
        ]
    return "\n".join([*lines, "    from torch_op import run    # in Python: run(...) takes tensors of torch"])
