"""What a superoptimization found: the ranked candidates, what was refused and why, and how good the best one is.

Invariant: `best` is certified; everything that was met and is not among the candidates is among the refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.cost.lower_bound import LowerBound
from workbench.display import Displayed
from workbench.errors import NothingFoundError
from workbench.pipeline.candidate import Candidate, Refusal
from workbench.pipeline.memory import ModelFit
from workbench.pipeline.run_folder import SCHEMA, VERSION
from workbench.search.space import Space
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.units import counted

SHOWN = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(Displayed):
    """The answer of `wb.superoptimize`.

    Attributes:
        program: what was asked for.
        device: its name, "h200".
        candidates: certified, accepted by the emitter, fastest first: by measured time where it was measured (those come
            first), else by modelled time.
        refused: everything else that was met, with its reason.
        lower_bound: what no kernel can beat.
        space: which µGraphs were looked for.
        states, structures: counts of the search.
        parts: how many parts the program was cut into (1: it is LAX as a whole).
        seconds: wall time, of this call.
        cached: the answer was read from the folder of an earlier run.
        interrupted: the run was stopped before its end; a second call continues.
        measured: a GPU decided; otherwise the cost model.
        fit: how well the cost model foresaw the measured times; None where too few were measured.
        out: the folder with result.json, best.ugraph.json and the searches' records; None if none was kept.
    """

    program: KernelGraph
    device: str
    candidates: tuple[Candidate, ...]
    refused: tuple[Refusal, ...]
    lower_bound: LowerBound
    space: Space
    states: int
    structures: int
    parts: int = 1
    seconds: float = 0.0
    cached: bool = False
    interrupted: bool = False
    measured: bool = False
    fit: ModelFit | None = None
    out: Path | None = None

    @property
    def best(self) -> Candidate:
        """The fastest candidate. Raises: NothingFoundError when there is none, with the counts of what was refused."""
        if not self.candidates:
            counts = ", ".join(f"{reason} {count}" for reason, count in self.refused_counts.items())
            raise NothingFoundError(
                f"no candidate for {self.program.name or 'the program'}; refused: {counts or 'nothing'}; "
                f"widen the space, or call again to continue an interrupted run"
            )
        return self.candidates[0]

    @property
    def refused_counts(self) -> Mapping[str, int]:
        """How many were refused, by stage and rule."""
        counts: Counter[str] = Counter()
        for refusal in self.refused:
            rule = refusal.reason.partition(":")[0] if refusal.stage == "search" else refusal.stage
            counts[f"search: {rule}" if refusal.stage == "search" else rule] += refusal.count
        return dict(sorted(counts.items()))

    @property
    def gap(self) -> float:
        """How far the best one is above the lower bound: 0.25 is a quarter slower than can be."""
        return self.best.time_us / self.lower_bound.total_us - 1

    def describe(self) -> str:
        """Return the answer in a few lines: the best candidate, the others, the counts."""
        how = "measured" if self.measured else "modelled"
        name = self.program.name or "program"
        if not self.candidates:
            lines = [f"{name} on {self.device}: nothing found"]
        else:
            best = self.best
            lines = [
                f"{name} on {self.device}: {best.time_us:.2f} us ({how}), lower bound {self.lower_bound.total_us:.2f} us, "
                f"{self.gap:.0%} above it",
                f"  {best.certificate.describe().splitlines()[0]}",
            ]
            lines += [f"  {number}: {_line(one)}" for number, one in enumerate(self.candidates[:SHOWN])]
            if len(self.candidates) > SHOWN:
                lines.append(f"  showing {SHOWN} of {len(self.candidates)} candidates")
        lines.append(
            f"  {counted(self.structures, 'structure')} from {counted(self.states, 'state')} in {self.seconds:.1f} s"
            + (", interrupted" if self.interrupted else "")
            + (", from an earlier run" if self.cached else "")
        )
        if self.fit is not None:
            lines.append(f"  {self.fit.describe()}")
        lines += [f"  left out, {reason}: {count:,}" for reason, count in self.refused_counts.items()]
        return "\n".join(lines)

    def explain(self) -> str:
        """Return why the best one is the best, and of each other one and each refused one why it is not."""
        lines = [self.describe().splitlines()[0]]
        if self.candidates:
            best = self.best
            lines += ["", "Why this one:", *(f"  {line}" for line in best.cost.describe().splitlines())]
            lines += ["", "What the optimizer's passes did to it:"]
            lines += [f"  {line}" for line in best.describe_passes().splitlines()]
            lines += ["", "The others, against it:"]
            for number, other in enumerate(self.candidates[1:], start=1):
                lines.append(f"  {number}: {_line(other)}")
                lines += [f"     {text}" for text in _difference(best, other)]
            if len(self.candidates) == 1:
                lines.append("  none was accepted")
        lines += ["", "Refused:"]
        lines += [f"  {refusal.describe()}" for refusal in self.refused] or ["  nothing"]
        return "\n".join(lines)

    def to_pandas(self) -> Any:
        """Return the candidates as a table, one row each. Raises: ModuleNotFoundError without pandas (extra `lab`)."""
        import pandas

        return pandas.DataFrame([_row(number, one) for number, one in enumerate(self.candidates)])

    def to_json(self) -> dict[str, object]:
        """Return the plain form: what `result.json` holds."""
        return {
            "schema": SCHEMA,
            "version": VERSION,
            "program": self.program.name,
            "program_hash": self.program.hash,
            "device": self.device,
            "measured": self.measured,
            "fit": None if self.fit is None else self.fit.to_json(),
            "interrupted": self.interrupted,
            "seconds": self.seconds,
            "space": self.space.to_json(),
            "states": self.states,
            "structures": self.structures,
            "parts": self.parts,
            "lower_bound": {
                "total_us": self.lower_bound.total_us,
                "memory_us": self.lower_bound.memory_us,
                "compute_us": self.lower_bound.compute_us,
                "launch_us": self.lower_bound.launch_us,
            },
            "candidates": [candidate.to_json() for candidate in self.candidates],
            "refused": [refusal.to_json() for refusal in self.refused],
            "refused_counts": dict(self.refused_counts),
        }


def _line(candidate: Candidate) -> str:
    kernels = len(candidate.cost.kernels)
    time = f"{candidate.time_us:.2f} us"
    if candidate.measured is not None:
        time += f" measured, {candidate.cost_us:.2f} us modelled"
    grids = "; ".join("x".join(map(str, node.block.grid_dims)) for node in candidate.graph.graph_defined)
    grid = f", grid {grids}" if grids else ""
    return f"{time}, {counted(kernels, 'kernel')}{grid}, {candidate.origin}, {candidate.graph.hash[:12]}"


def _difference(best: Candidate, other: Candidate) -> list[str]:
    """Return in words where another candidate loses its time."""
    ours, theirs = best.cost.parts, other.cost.parts
    gaps = {name: theirs.get(name, 0.0) - ours.get(name, 0.0) for name in {*ours, *theirs}}
    worst = sorted((item for item in gaps.items() if item[1] > 0.005), key=lambda item: -item[1])[:3]
    better = sorted((item for item in gaps.items() if item[1] < -0.005), key=lambda item: item[1])[:2]
    text = ", ".join(f"{name} {gap:+.2f} us" for name, gap in [*worst, *better])
    same = (
        "the same structure with another schedule"
        if other.structure_hash == best.structure_hash
        else "another structure"
    )
    return [f"{same}: {text}" if text else f"{same}, as fast by the model"]


def _row(number: int, candidate: Candidate) -> dict[str, object]:
    measured, certificate = candidate.measured, candidate.certificate
    return {
        "rank": number,
        "measured_us": measured.cold_us if measured else None,
        "warm_us": measured.warm_us if measured else None,
        "cost_us": candidate.cost_us,
        "kernels": len(candidate.cost.kernels),
        "operators": sum(len(node.block.nodes) for node in candidate.graph.graph_defined),
        "grid": "; ".join("x".join(map(str, node.block.grid_dims)) for node in candidate.graph.graph_defined),
        "loop": "; ".join(str(node.block.forloop_range) for node in candidate.graph.graph_defined),
        "threads": "; ".join(str(choice.threads) for choice in candidate.choices),
        "stages": "; ".join(str(choice.stages) for choice in candidate.choices),
        "cluster": "; ".join(str(choice.cluster) for choice in candidate.choices),
        "verdict": certificate.kind,
        "error_bound": certificate.error_bound,
        "proved": certificate.proved,
        "origin": candidate.origin,
        "structure_hash": candidate.structure_hash,
        "hash": candidate.graph.hash,
    }
