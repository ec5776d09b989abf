"""What earlier measurements tell: candidates kept by program and device, and the cost model fitted to their times again.

Invariant: what is kept was certified, checked and timed here; a refit is told with how well it ranks, and changes no preset
that ships.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from workbench.codegen.cuda.content_cache import user_cache_folder
from workbench.codegen.cuda.schedule import DEFAULT_SCHEDULE, Schedule
from workbench.cost.calibration import Calibration, Row, calibrate, median_error, spearman
from workbench.cost.estimate import estimate, features
from workbench.cost.hardware import Hardware
from workbench.cost.measured_rows import read_rows
from workbench.cost.presets import Preset
from workbench.pipeline.candidate import Candidate, Measured
from workbench.pipeline.kernel_schedules import choice_from_json, choice_to_json
from workbench.pipeline.passes import accesses_by_launch, choices_from_json, choices_to_json, note_from_json
from workbench.pipeline.tuning import Target
from workbench.records.candidates import StoredCandidate, candidate_store, find_candidates, save_candidate
from workbench.records.store import RecordStore
from workbench.search.recording import version
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.verify.verdict import verdict_from_json

FIELDS = ("threads", "stages", "cluster", "fast_math", "programmatic", "releases")
LEAST_ROWS = 8
"""Measured candidates from which a rank correlation says something."""


@dataclass(frozen=True, slots=True)
class ModelFit:
    """How well the cost model foresaw measured times.

    Attributes: rows: measured candidates; rank_correlation, median_error: of the preset that chose them; refitted: the
    preset fitted to them together with the rows that ship, with its rank correlation and median error over them.
    """

    rows: int
    rank_correlation: float
    median_error: float
    refitted_rank_correlation: float
    refitted_median_error: float

    def describe(self) -> str:
        """Return one line."""
        return (
            f"model against {self.rows} measured candidates: rank correlation {self.rank_correlation:.2f}, median error "
            f"{self.median_error:.0%}; refitted with them {self.refitted_rank_correlation:.2f}, "
            f"{self.refitted_median_error:.0%}"
        )

    def to_json(self) -> dict[str, float]:
        """Return the plain form."""
        return {name: getattr(self, name) for name in self.__slots__}


def own_store() -> RecordStore:
    """Return the user's store of candidates, which `workbench measure` reads too."""
    return candidate_store(user_cache_folder("records") / "candidates.jsonl")


def keep_measured(
    program: KernelGraph, candidates: Sequence[Candidate], *, request: str, store: RecordStore | None = None
) -> int:
    """Add the measured ones among candidates to a store, the user's by default; return how many.

    request: the key of what was asked for, which `recall` asks by. Raises: OSError.
    """
    kept = [one for one in candidates if one.measured is not None and not one.measured.is_cached]
    target = own_store() if store is None else store
    for one in kept:
        assert one.measured is not None
        stored = StoredCandidate(
            graph=one.graph,
            schedules={name: fields_of(schedule) for name, schedule in one.schedules.items()},
            cold_us=one.measured.cold_us,
            cost_us=one.cost_us,
            certificate=one.certificate.to_json(),
            provenance={
                "origin": one.origin,
                "request": request,
                "measured": one.measured.to_json(),
                "choices": [choice_to_json(choice) for choice in one.choices],
                "kernel_choices": [choices_to_json(choice) for choice in one.kernel_choices],
                "passes": [note.to_json() for note in one.passes],
            },
        )
        save_candidate(target, program, stored, device=one.device, version=version())
    return len(kept)


def recall(program: KernelGraph, target: Target, *, request: str, store: RecordStore | None = None) -> list[Candidate]:
    """Return the measured candidates that a store keeps of the same request, the fastest first. Raises: OSError."""
    stores = [own_store() if store is None else store]
    found = []
    for kept in find_candidates(stores, program, device=target.device, version=version()):
        told = kept.provenance
        if told.get("request") != request or kept.cold_us is None:
            continue
        choices = tuple(choice_from_json(one) for one in told["choices"])
        kernel_choices = tuple(choices_from_json(one) for one in told["kernel_choices"])
        found.append(
            Candidate(
                graph=kept.graph,
                choices=choices,
                cost=estimate(
                    kept.graph, hardware=target.hardware, choices=choices, preset=target.preset,
                    accesses=accesses_by_launch(kept.graph, kernel_choices),
                ),
                certificate=verdict_from_json(dict(kept.certificate)),
                device=target.device,
                origin=told["origin"],
                measured=Measured(**{**told["measured"], "is_cached": True}),
                kernel_choices=kernel_choices,
                passes=tuple(note_from_json(one) for one in told["passes"]),
            )
        )  # fmt: skip
    return found


def fields_of(schedule: Schedule) -> dict[str, object]:
    """Return what a schedule decides, as a record keeps it."""
    found: dict[str, object] = {
        name: value for name in FIELDS if (value := getattr(schedule, name)) != getattr(DEFAULT_SCHEDULE, name)
    }
    if schedule.layouts:
        found["layouts"] = {name: asdict(layout) for name, layout in schedule.layouts.items()}
    if schedule.choices != DEFAULT_SCHEDULE.choices:
        found["choices"] = choices_to_json(schedule.choices)
    return found


def measured_rows(candidates: Sequence[Candidate], hardware: Hardware) -> list[Row]:
    """Return the measured ones among candidates as rows that a preset can be fitted to."""
    return [
        Row(features(one.graph, hardware, one.choices), one.measured.cold_us, True, one.graph.name or "program")
        for one in candidates
        if one.measured is not None
    ]


def refit(rows: Sequence[Row], hardware: Hardware, start: Preset, *, shipped: Path | None = None) -> Calibration:
    """Return the calibrated preset fitted anew to measured rows and those that ship. Raises: UsageError for no rows."""
    return calibrate([*read_rows(shipped), *rows], hardware, start=start)


def model_fit(candidates: Sequence[Candidate], hardware: Hardware, preset: Preset | None) -> ModelFit | None:
    """Return how well the model foresaw the measured ones among candidates, None for fewer than eight."""
    rows = measured_rows(candidates, hardware)
    if len(rows) < LEAST_ROWS or preset is None:
        return None
    measured = [row.measured_us for row in rows]
    before = [one.cost_us for one in candidates if one.measured is not None]
    after = list(refit(rows, hardware, preset).predicted_us[-len(rows) :])
    return ModelFit(
        len(rows), spearman(before, measured), median_error(before, measured), spearman(after, measured),
        median_error(after, measured),
    )  # fmt: skip
