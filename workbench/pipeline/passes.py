"""What the optimizer's passes did to a candidate: applied, told in words, taken back where the emitter is better off without.

Invariant: no pass costs a candidate its place: what the emitter refuses, or writes with more shared memory or more barriers
than it would have by itself, or what the cost model finds slower, is given up, and the notes say so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.codegen.cuda.choices import DEFAULT_CHOICES, Choices
from workbench.codegen.cuda.emitted import EmittedProgram
from workbench.codegen.cuda.kernel_level import emit_program
from workbench.codegen.cuda.optimized import choices_of
from workbench.core.layouts import SharedLayout, Spread, TileAccess
from workbench.cost.breakdown import Cost
from workbench.cost.estimate import estimate
from workbench.cost.hardware import Hardware
from workbench.cost.launch import LaunchChoice
from workbench.cost.presets import Preset
from workbench.device.architecture import Architecture
from workbench.device.executable import for_architecture
from workbench.errors import EmitError, LayoutConflictError, UnknownNameError
from workbench.optimize.ablation import ABLATED
from workbench.optimize.optimizer import STABLE, Optimized, PassReport, Verifier, optimize
from workbench.optimize.thread_graphs import build_thread_graphs
from workbench.optimize.tile_accesses import tile_accesses
from workbench.pipeline.kernel_schedules import schedules_of
from workbench.ugraph.kernel_graph import KernelGraph

PASSES = ABLATED
"""Names of the passes that may be switched off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassNote:
    """What one pass did.

    Attributes: name; is_on; headline: what it changed, in numbers; changes: in words; verdict: of the verifier, "" where
    the graph stayed as it was.
    """

    name: str
    is_on: bool
    headline: str
    changes: tuple[str, ...] = ()
    verdict: str = ""

    def describe(self) -> str:
        """Return the pass in words."""
        return "\n".join([self.headline, *(f"  {line}" for line in self.changes)])

    def to_json(self) -> dict[str, object]:
        """Return the plain form."""
        return {
            "name": self.name, "on": self.is_on, "headline": self.headline, "changes": list(self.changes),
            "verdict": self.verdict,
        }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """A graph after the passes. Attributes: graph; kernel_choices: per graph-defined kernel, in order; notes; program."""

    graph: KernelGraph
    kernel_choices: tuple[Choices, ...]
    notes: tuple[PassNote, ...]
    program: EmittedProgram


def check_passes(without: Iterable[str]) -> tuple[str, ...]:
    """Return the names, each once, in the order of the passes. Raises: UnknownNameError for a pass that does not exist."""
    given = set(without)
    unknown = sorted(given - set(PASSES))
    if unknown:
        raise UnknownNameError(f"no pass {', '.join(unknown)}; passes that can be left out: {', '.join(PASSES)}")
    return tuple(name for name in PASSES if name in given)


def run_passes(
    graph: KernelGraph,
    choices: Sequence[LaunchChoice],
    target: Architecture,
    *,
    without: Sequence[str] = (),
    verifier: Verifier,
    cost_us: Callable[[KernelGraph, tuple[Choices, ...]], float] | None = None,
) -> Passed:
    """Return a scheduled graph after every pass but those in `without`, as the emitter takes it.

    cost_us: what a graph takes with these choices, by a model; where it tells, the passes' choices must not be slower than
    the emitter's own, (). Raises: EmitError for a graph that the emitter refuses with and without what the passes chose.
    """
    stages = max((choice.stages for choice in choices), default=2)
    try:
        found = optimize(graph, without, verifier=verifier, stages=max(stages, 2))
    except LayoutConflictError as fault:
        return _by_itself(graph, choices, target, without, f"no layouts are possible: {fault}")
    own = choices_by_launch(found)
    try:
        program = _emitted(found.graph, choices, own, target)
    except EmitError as fault:
        return _by_itself(
            found.graph, choices, target, without, f"the emitter refuses what the passes chose: {fault}", found
        )
    if not without:
        try:
            plain = _emitted(found.graph, choices, (), target)
        except EmitError:  # it is the passes that make it possible
            plain = program
        worse = _worse(program, plain)
        if cost_us is not None and not worse and plain is not program:
            ours_us, plain_us = cost_us(found.graph, own), cost_us(found.graph, ())
            worse = f"{plain_us:.2f} us by the model instead of {ours_us:.2f}" if ours_us > plain_us else ""
        if worse:
            note = PassNote(name="emitter", is_on=True, headline=f"emitter: its own choices instead: {worse}")
            return Passed(graph=found.graph, kernel_choices=(), notes=(*_notes(found), note), program=plain)
    return Passed(graph=found.graph, kernel_choices=own, notes=_notes(found), program=program)


def choices_by_launch(found: Optimized) -> tuple[Choices, ...]:
    """Return what the passes chose for each graph-defined kernel, in order."""
    return tuple(choices_of(found, launch) for launch in found.graph.graph_defined)


def accesses_by_launch(graph: KernelGraph, choices: Sequence[Choices]) -> tuple[dict[str, TileAccess], ...]:
    """Return, per graph-defined kernel, the tiles whose chosen layouts make warps wait, for the cost model.

    choices: what the passes chose for each; (): the emitter's own, which are free of conflicts.
    """
    own = choices or (DEFAULT_CHOICES,) * len(graph.graph_defined)
    return tuple(
        tile_accesses(launch.block, dict(one.layouts)) for launch, one in zip(graph.graph_defined, own, strict=True)
    )


def modelled_cost(
    optimized: Optimized,
    *,
    hardware: Hardware,
    preset: Preset | None = None,
    choices: Sequence[LaunchChoice] | None = None,
) -> Cost:
    """Return what an optimized µGraph should take, the layouts as its passes chose them or, switched off, did not.

    hardware, preset, choices: as for `cost.estimate.estimate`. Barriers and memory of passes that are off do not count.
    """
    accesses = accesses_by_launch(optimized.graph, choices_by_launch(optimized))
    return estimate(optimized.graph, hardware=hardware, choices=choices, preset=preset, accesses=accesses)


def _by_itself(
    graph: KernelGraph,
    choices: Sequence[LaunchChoice],
    target: Architecture,
    without: Sequence[str],
    why: str,
    found: Optimized | None = None,
) -> Passed:
    """Return a graph as the emitter writes it by itself, thread graphs built unless they are to be left out."""
    reason = " ".join(why.split())
    notes = _notes(found) if found is not None else ()
    fused = graph if "threads" in without or found is not None else build_thread_graphs(graph).graph
    program = _emitted(fused, choices, (), target)
    note = PassNote(name="emitter", is_on=True, headline=f"emitter: its own choices instead: {reason}")
    return Passed(graph=fused, kernel_choices=(), notes=(*notes, note), program=program)


def _emitted(
    graph: KernelGraph, choices: Sequence[LaunchChoice], own: Sequence[Choices], target: Architecture
) -> EmittedProgram:
    return emit_program(
        graph, schedules=for_architecture(graph, schedules_of(graph, tuple(choices), tuple(own)), target)
    )


def _worse(ours: EmittedProgram, plain: EmittedProgram) -> str:
    """Return in words what kernels with the passes' choices take more of than without, "" if nothing."""
    measures: dict[str, Callable[[EmittedProgram], int]] = {
        "B of shared memory": lambda program: sum(kernel.launch.shared_bytes for kernel in program.kernels),
        "barriers": lambda program: sum(kernel.body.count("block_barrier()") for kernel in program.kernels),
    }
    found = [(what, count(ours), count(plain)) for what, count in measures.items()]
    return ", ".join(f"{theirs:,} {what} instead of {mine:,}" for what, mine, theirs in found if mine > theirs)


def _notes(found: Optimized) -> tuple[PassNote, ...]:
    return tuple(_note(report) for report in found.passes if report.name != STABLE)


def _note(report: PassReport) -> PassNote:
    headline, *_ = report.describe().splitlines()
    return PassNote(
        name=report.name, is_on=report.is_on, headline=headline, changes=report.changes, verdict=report.verdict
    )


# ----------------------------------------------------------------------------------------------------------- plain data
def note_from_json(values: Mapping[str, Any]) -> PassNote:
    """Return the note of a JSON object."""
    return PassNote(
        name=values["name"], is_on=values["on"], headline=values["headline"], changes=tuple(values["changes"]),
        verdict=values["verdict"],
    )  # fmt: skip


def choices_to_json(choices: Choices) -> dict[str, object]:
    """Return what the passes chose for a kernel as a JSON object."""
    return {
        "reuses_memory": choices.reuses_memory,
        "fewest_barriers": choices.fewest_barriers,
        "order": list(choices.order),
        "layouts": [[name, layout.innermost, layout.spread.value] for name, layout in choices.layouts],
        "fuses": choices.fuses,
    }


def choices_from_json(values: Mapping[str, Any]) -> Choices:
    """Return what the passes chose for a kernel from a JSON object."""
    layouts = tuple((name, SharedLayout(innermost, Spread(spread))) for name, innermost, spread in values["layouts"])
    return Choices(
        reuses_memory=values["reuses_memory"], fewest_barriers=values["fewest_barriers"], order=tuple(values["order"]),
        layouts=layouts, fuses=values["fuses"],
    )  # fmt: skip
