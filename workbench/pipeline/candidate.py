"""What a superoptimization offers: a µGraph with its schedule, its certificate, what it should cost and what it took.

Invariant: a candidate was accepted by every stage up to the one that its fields tell of; what was not is a `Refusal`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from workbench.codegen.cuda.choices import Choices
from workbench.codegen.cuda.export import export_program
from workbench.codegen.cuda.export.folder import program_source
from workbench.codegen.cuda.kernel_level import emit_program
from workbench.codegen.cuda.schedule import Schedule
from workbench.cost.breakdown import Cost
from workbench.cost.launch import LaunchChoice
from workbench.device.architecture import architecture
from workbench.device.executable import Executable, for_architecture
from workbench.device.executable import compile as compile_graph
from workbench.display import Displayed
from workbench.errors import UsageError
from workbench.pipeline.kernel_schedules import choice_to_json, schedules_of
from workbench.pipeline.passes import PassNote, choices_to_json
from workbench.ugraph.json_writer import write_graph
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.verify.verdict import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a GPU said of a candidate.

    Attributes: cold_us, warm_us: median time of one run, L2 cold or warm; spread_us: interquartile range of the cold one;
    relative_error: the largest against float64 over all checks; device: the GPU's name; date: ISO 8601; is_cached: it
    was read from the store.
    """

    cold_us: float
    warm_us: float
    spread_us: float
    relative_error: float
    device: str
    date: str
    is_cached: bool = False

    def to_json(self) -> dict[str, object]:
        """Return the plain form."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Something that was met and not offered.

    Attributes: stage: "search", "verify", "schedule", "emit", "compile", "check" or "measure"; what: the graph or value, in
    one line; reason: why, in one line; structure_hash: of the graph, "" where there is none; count: how many alike.
    """

    stage: str
    what: str
    reason: str
    structure_hash: str = ""
    count: int = 1

    def describe(self) -> str:
        """Return one line."""
        times = f" ({self.count:,} times)" if self.count > 1 else ""
        return f"{self.stage}: {self.what}: {self.reason}{times}"

    def to_json(self) -> dict[str, object]:
        """Return the plain form."""
        return {name: getattr(self, name) for name in self.__slots__}


def refused_graph(stage: str, graph: KernelGraph, reason: str) -> Refusal:
    """Return a graph as refused at a stage; the reason in one line."""
    names = ", ".join(node.results[0].name for node in graph.nodes)
    return Refusal(
        stage=stage,
        what=f"µGraph {graph.hash[:12]} ({len(graph.nodes)} nodes: {names})",
        reason=" ".join(reason.split()),
        structure_hash=graph.structure_hash,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate(Displayed):
    """A µGraph that computes a program, with a schedule.

    Attributes: graph: at the program's sizes, with grid, loop and cluster counts; choices: threads, stages and cluster of
    each graph-defined kernel, in order; cost: modelled, on `device`; certificate: the verdict against the program;
    origin: "search", "search, stable softmax", or "the program as written"; measured: None without a GPU; kernel_choices:
    what the optimizer's passes chose for each graph-defined kernel, () where the emitter's own choices stand; passes:
    what each pass did, in words.
    """

    graph: KernelGraph
    choices: tuple[LaunchChoice, ...]
    cost: Cost
    certificate: Verdict
    device: str
    origin: str = "search"
    measured: Measured | None = None
    kernel_choices: tuple[Choices, ...] = ()
    passes: tuple[PassNote, ...] = ()

    @property
    def structure_hash(self) -> str:
        """The graph's structure hash."""
        return self.graph.structure_hash

    @property
    def cost_us(self) -> float:
        """Modelled microseconds of one run."""
        return self.cost.total_us

    @property
    def time_us(self) -> float:
        """What candidates are ranked by: measured microseconds (L2 cold) where there are any, else modelled ones."""
        return self.measured.cold_us if self.measured is not None else self.cost_us

    @property
    def schedule(self) -> tuple[dict[str, object], ...]:
        """Per graph-defined kernel: grid, loop, cluster, threads, stages."""
        return tuple(
            {
                "kernel": node.results[0].name,
                "grid": list(node.block.grid_dims),
                "loop": node.block.forloop_range,
                "cluster": choice.cluster,
                "threads": choice.threads,
                "stages": choice.stages,
            }
            for node, choice in zip(self.graph.graph_defined, self.choices, strict=True)
        )

    @property
    def schedules(self) -> Mapping[str, Schedule]:
        """The schedules as the emitter takes them: by the name of a kernel's first result."""
        return schedules_of(self.graph, self.choices, self.kernel_choices)

    def source(self, language: str = "cuda") -> str:
        """Return the kernels' source, self-contained. Raises: UsageError for a language other than "cuda"; EmitError."""
        if language != "cuda":
            raise UsageError(f"source({language!r}): kernels are written in 'cuda'")
        fitted = for_architecture(self.graph, self.schedules, architecture(self.device))
        return program_source(emit_program(self.graph, schedules=fitted))

    def compile(self) -> Executable:
        """Return the candidate compiled for its device, to be called with arrays. Raises: as `wb.compile`."""
        return compile_graph(self.graph, self.device, schedules=self.schedules)

    def export(self, folder: str | Path, *, checked: bool = True) -> list[Path]:
        """Write kernel.cu, launchers, a torch operator and a description into a folder; return the files.

        checked: with right outputs to check against, which takes one evaluation in float64. Raises: OSError, EmitError.
        """
        target = architecture(self.device)
        program = emit_program(self.graph, schedules=for_architecture(self.graph, self.schedules, target))
        return export_program(
            program,
            self.graph,
            Path(folder),
            arch=target.name,
            certificate=self.certificate.to_json(),
            checked=checked,
        )

    def describe(self) -> str:
        """Return the graph with its schedule, cost and certificate."""
        lines = [f"{self.graph.name or 'µGraph'} {self.graph.hash} ({self.origin})"]
        if self.measured is not None:
            lines.append(
                f"  measured {self.measured.cold_us:.2f} us cold, {self.measured.warm_us:.2f} us warm on "
                f"{self.measured.device}, relative error {self.measured.relative_error:.1e}"
            )
        lines.append(f"  modelled {self.cost_us:.2f} us on {self.device}")
        lines += [
            f"  {entry['kernel']}: grid {'x'.join(map(str, grid))}, loop {entry['loop']}, cluster {entry['cluster']}, "
            f"{entry['threads']} threads, {entry['stages']} stages"
            for entry in self.schedule
            if isinstance(grid := entry["grid"], list)
        ]
        lines.append(f"  {self.certificate.describe().splitlines()[0]}")
        lines += [f"  {line}" for line in self.describe_passes().splitlines()]
        return "\n".join([*lines, self.graph.describe()])

    def describe_passes(self) -> str:
        """Return what every pass of the optimizer did, in words."""
        return "\n".join(note.describe() for note in self.passes)

    def to_json(self) -> dict[str, object]:
        """Return the plain form: what `result.json` holds."""
        return {
            "hash": self.graph.hash,
            "structure_hash": self.structure_hash,
            "origin": self.origin,
            "cost_us": self.cost_us,
            "cost": self.cost.to_json(),
            "schedule": [*self.schedule],
            "choices": [choice_to_json(choice) for choice in self.choices],
            "kernel_choices": [choices_to_json(choice) for choice in self.kernel_choices],
            "passes": [note.to_json() for note in self.passes],
            "certificate": self.certificate.to_json(),
            "measured": self.measured.to_json() if self.measured is not None else None,
            "graph": write_graph(self.graph),
        }
