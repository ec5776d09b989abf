"""From what the optimizer decided to kernels: one schedule per launch, its passes' choices in it.

    emit_optimized(optimized) -> EmittedProgram

Invariant: a pass that was switched off is switched off in the kernels too, so that their times tell what it is worth.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from workbench.codegen.cuda.choices import Choices
from workbench.codegen.cuda.emitted import EmittedProgram
from workbench.codegen.cuda.kernel_level import NO_SCHEDULES, emit_program
from workbench.codegen.cuda.schedule import DEFAULT_SCHEDULE, Schedule
from workbench.core.layouts import SharedLayout
from workbench.optimize.optimizer import LAYOUTS, MEMORY, ORDER, THREADS, Optimized
from workbench.ugraph.nodes import GraphDefinedNode


def choices_of(optimized: Optimized, launch: GraphDefinedNode) -> Choices:
    """Return the choices for the kernel of a launch of an optimized graph."""
    off, block = optimized.without, launch.block
    chosen = optimized.blocks[launch.results[0].name].layouts
    shared = [(name, layout) for name, layout in chosen.items() if isinstance(layout, SharedLayout)]
    if LAYOUTS in off:
        shared = [(tile, SharedLayout()) for tile in block.tiles]  # row after row, whatever reads it
    return Choices(
        reuses_memory=MEMORY not in off,
        fewest_barriers=ORDER not in off,
        order=tuple(tensor.name for node in block.nodes for tensor in node.results),
        layouts=tuple(shared),
        fuses=THREADS not in off,
    )


def optimized_schedules(optimized: Optimized, schedules: Mapping[str, Schedule] = NO_SCHEDULES) -> dict[str, Schedule]:
    """Return a schedule for every launch: that of `schedules` (by first result), with the optimizer's choices in it."""
    return {
        label: replace(schedules.get(label, DEFAULT_SCHEDULE), choices=choices_of(optimized, launch))
        for launch in optimized.graph.graph_defined
        for label in (launch.results[0].name,)
    }


def emit_optimized(
    optimized: Optimized, *, schedules: Mapping[str, Schedule] = NO_SCHEDULES, library: bool = True
) -> EmittedProgram:
    """Return an optimized graph as steps over buffers, each pass's decisions in its kernels. Raises: EmitError."""
    return emit_program(
        optimized.graph,
        schedules=optimized_schedules(optimized, schedules),
        library=library,
        reuse=MEMORY not in optimized.without,
    )
