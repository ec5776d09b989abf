"""`superoptimize`: from a program to its best µGraph, certified, scheduled, written, and measured where there is a GPU.

Invariant: what is returned as a candidate passed every stage; what did not is among the refused with its reason; an
interruption keeps what is there, and the same call continues.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, cast

from workbench.cost.estimate import estimate
from workbench.cost.hardware import hardware
from workbench.cost.lower_bound import lower_bound
from workbench.cost.presets import preset as cost_preset
from workbench.device.architecture import architecture
from workbench.errors import FormatError, LaunchError, UsageError
from workbench.pipeline.candidate import Candidate, Measured, Refusal
from workbench.pipeline.kernel_schedules import choice_from_json
from workbench.pipeline.memory import ModelFit, keep_measured, model_fit, recall
from workbench.pipeline.passes import accesses_by_launch, check_passes, choices_from_json, note_from_json
from workbench.pipeline.progress import Progress, ProgressLine, Stage, default_progress, silent
from workbench.pipeline.result import Result
from workbench.pipeline.run_folder import RESULT, Request, RunFolder
from workbench.pipeline.stable import schedule_stable, without_maxima
from workbench.pipeline.structure_schedules import cheapest_proposals
from workbench.pipeline.structures import PartFound, find_in_default_space, find_structures, subjects_of
from workbench.pipeline.trial import device_is_here, measure_candidates
from workbench.pipeline.tuning import (
    Certificates,
    Proposal,
    Scheduled,
    Target,
    accept,
    as_written,
    confirmed,
    hopeful,
    proposal_of,
    various,
)
from workbench.search.space import Space
from workbench.ugraph.json_reader import read_graph
from workbench.ugraph.json_value import JsonValue
from workbench.ugraph.kernel_graph import KernelGraph, expect_kernel_graph
from workbench.ugraph.lax import LaxPart, join_parts
from workbench.units import format_bytes
from workbench.verify.verdict import Verdict, verdict_from_json

KEEP, KEEP_MEASURED = 8, 24
"""Candidates that are certified and written, where the cost model decides and where a GPU does."""

PER_STRUCTURE, PER_STRUCTURE_MEASURED = 3, 16
"""Schedules of one structure that may become candidates, likewise."""

BARE = 90
"""Number under which the search of a program without its maxima is recorded, beyond those of its parts."""

HANDICAP = 0.04
"""Share of its cost by which each further candidate of a structure counts as slower when it is chosen what is measured."""

MEASURED_PER_S = 1.0
"""Candidates that are measured for every second of a budget beyond the first ten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a program is superoptimized.

    Attributes: space: which µGraphs are looked for (None: the default space, or a narrower one where that is too large);
    error: wanted bound of each certificate; seed: of every random choice;
    keep: candidates that are certified (None: 8, or 24 and more with a larger budget where a GPU measures them); preset:
    of the cost model (None: the one fitted to measurements where the device's generation was measured); stable: offer
    every structure with exponentials also with its rows' maxima subtracted (done without asking where the program itself
    subtracts them); without: passes of the optimizer that are left out, of "layouts", "order", "memory", "threads".
    """

    space: Space | None = None
    error: float = 1e-9
    seed: int = 0
    keep: int | None = None
    preset: str | None = None
    stable: bool = False
    without: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raises: UsageError for a count or an error that makes no sense; UnknownNameError for a pass."""
        object.__setattr__(self, "without", check_passes(self.without))
        if self.keep is not None and self.keep < 1:
            raise UsageError(f"keep {self.keep}: at least 1 candidate is kept")
        if not 0 < self.error < 1:
            raise UsageError(f"error {self.error} must lie between 0 and 1, both excluded")

    def to_json(self) -> dict[str, object]:
        """Return the plain form."""
        return {
            "space": None if self.space is None else self.space.to_json(),
            "error": self.error,
            "seed": self.seed,
            "keep": self.keep,
            "preset": self.preset,
            "stable": self.stable,
            "without": list(self.without),
        }


def superoptimize(
    program: KernelGraph,
    device: str = "h200",
    *,
    budget: float | None = None,
    measure: bool | None = None,
    options: Options | None = None,
    space: Space | None = None,
    without: Sequence[str] | None = None,
    out: str | Path | None = None,
    fresh: bool = False,
    progress: Progress | None = None,
) -> Result:
    """Return the fastest certified µGraphs of a program, ranked, with everything that was refused.

    device: whose kernels are wanted ("h200", "h100", "a100-80", ...). budget: seconds after which no new work is begun.
    measure: True lets the GPU decide among the cheapest, False the cost model alone; None measures where the device is.
    options, space, without: what is looked for and how; `space` and `without` go before those of `options`. out: a folder for
    result.json, best.ugraph.json, the searches' records and spaces.json (by default one in the user's cache). fresh: ignore
    what an earlier run left there; another request's answer in the folder is replaced. progress: called with a `Stage`; by
    default a line in a terminal or notebook.
    Raises: UsageError for a program with block graphs or one that the device's memory does not hold, a budget below 0, a
    folder with another program's unfinished search; FormatError for a folder whose files are damaged or something else's;
    UnknownNameError for a device or a pass;
    LaunchError for measure=True without the device. Ctrl-C returns what is there (`interrupted`), or is raised where
    nothing is.
    """
    expect_kernel_graph(program, "superoptimized")
    if budget is not None and not (isinstance(budget, int | float) and budget > 0):
        raise UsageError(f"budget {budget!r}: give seconds above 0")
    chosen = options or Options()
    if space is not None:
        chosen = replace(chosen, space=space)
    if without is not None:
        chosen = replace(chosen, without=tuple(without))
    line = default_progress() if progress is None else None
    try:
        run = _Run(program, device, chosen, budget, measure, out, fresh, progress or line or silent)
        return run.result()
    finally:
        if isinstance(line, ProgressLine):
            line.close()


class _Run:
    def __init__(
        self,
        program: KernelGraph,
        device: str,
        options: Options,
        budget: float | None,
        measure: bool | None,
        out: str | Path | None,
        fresh: bool,
        progress: Progress,
    ) -> None:
        self.start = time.perf_counter()
        self.program, self.options, self.budget = program, options, budget
        self.target = Target(device, hardware(device), cost_preset(options.preset or _preset(device)))
        self.progress = progress
        self.lower_bound = lower_bound(program, self.target.hardware)
        if self.lower_bound.bytes > (held := self.target.hardware.memory_bytes):
            raise UsageError(
                f"inputs and outputs of {program.name or 'the program'} take {format_bytes(self.lower_bound.bytes)}, the "
                f"memory of {device} holds {format_bytes(held)}; give smaller sizes"
            )
        if measure and not device_is_here(device):
            raise LaunchError(f"there is no {device} here to measure on; leave measure away, or give measure=False")
        self.measures = device_is_here(device) if measure is None else measure
        more = max(0.0, (budget or 0.0) - 10.0) * MEASURED_PER_S
        self.keep = options.keep or (KEEP_MEASURED + int(more) if self.measures else KEEP)
        self.per_structure = PER_STRUCTURE_MEASURED if self.measures else PER_STRUCTURE
        request = Request(program, device, {**options.to_json(), "measured": self.measures, "kept": self.keep})
        self.folder = RunFolder(Path(out), request) if out is not None else RunFolder.default(request)
        self.fresh = fresh
        self.refused: list[Refusal] = []
        self.interrupted = False

    # ------------------------------------------------------------------------------------------------------ the stages
    def result(self) -> Result:
        is_of_another = self.folder.is_of_another_request()
        if self.fresh or is_of_another:
            self.folder.forget_searches()
        if is_of_another:
            self.folder.forget_answer()
        earlier = None if self.fresh else self.folder.answer()
        if earlier is not None:
            try:
                return self._restored(earlier)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise FormatError(
                    f"{self.folder.path / RESULT}: is damaged ({type(error).__name__}: {error}); delete it, or ask anew"
                ) from error
        if self.measures and not self.fresh:
            kept = recall(self.program, self.target, request=self.folder.request.key)
            if kept:
                return self._finished([], kept, is_cached=True)
        subjects = subjects_of(self.program)
        found: list[PartFound] = []
        candidates: list[Candidate] = []
        try:
            for number, part in enumerate(subjects.parts):
                found.append(self._searched(part, number))
            whole = None if subjects.whole is None else self._searched(subjects.whole, len(subjects.parts))
            for offer in self._offers(found, whole):
                if isinstance(offer, Refusal):
                    self.refused.append(offer)
                else:
                    candidates.append(offer)
                    self.progress(Stage("certify", len(candidates), self.keep, f"{offer.cost_us:.2f} us"))
                if self._is_over():
                    break
            if self.measures and candidates and not self._is_over():
                candidates, refused = measure_candidates(
                    self.program,
                    candidates,
                    self.target.hardware,
                    seed=self.options.seed,
                    progress=self.progress,
                    is_over=self._is_over,
                )
                self.refused += refused
                keep_measured(self.program, candidates, request=self.folder.request.key)
        except KeyboardInterrupt:
            self.interrupted = True
            if not candidates:
                raise
        return self._finished(found, candidates)

    def _searched(self, part: LaxPart, number: int) -> PartFound:
        seed, progress, space = self.options.seed, self.progress, self.options.space
        if space is None:
            found = find_in_default_space(
                part, number, self.folder, seed=seed, progress=progress, is_stopped=self._is_over
            )
        else:
            record = self.folder.record(number)
            found = find_structures(part, space, seed=seed, record=record, progress=progress, is_stopped=self._is_over)
        self.refused += found.refusals
        return found

    def _offers(self, found: list[PartFound], whole: PartFound | None) -> Iterator[Candidate | Refusal]:
        streams = [self._scheduled(found[0]) if len(found) == 1 else iter(self._joined(found))]
        if whole is not None:
            streams.append(self._scheduled(whole))
        streams += [iter(self._stable(whole or (found[0] if len(found) == 1 else None)))]
        streams += [iter([as_written(self.program, self.target)])]
        ranked: Iterable[Proposal] = heapq.merge(*streams, key=_cost_us)
        if self.measures:
            ranked = various(hopeful(ranked), handicap=HANDICAP)
        certificates = Certificates(self.program, error=self.options.error, seed=self.options.seed)
        yield from accept(ranked, self.target, certificates, keep=self.keep, without=self.options.without)

    def _stable(self, found: PartFound | None) -> list[Proposal]:
        """Return stable forms: of the structures found if asked for, of those of the program without maxima if it has some."""
        structures = list(found.structures) if found is not None and self.options.stable else []
        bare = without_maxima(self.program)
        if bare is not None and not self._is_over():
            structures += self._searched(LaxPart(bare, True), BARE).structures
        return schedule_stable(structures, self.target, per_structure=self.per_structure)

    def _scheduled(self, found: PartFound) -> Iterator[Proposal]:
        total = len(found.structures)
        return cheapest_proposals(
            found.structures,
            self.target,
            per_structure=self.per_structure,
            tell=lambda number: self.progress(Stage("schedule", number, total)),
            refuse=self.refused.append,
        )

    def _joined(self, found: list[PartFound]) -> list[Proposal]:
        """Return the parts' best graphs joined, and joined with one part's next best in place of its best, cheapest first.

        Without parts (a program that returns its inputs) there is nothing to join.
        """
        if not found:
            return []
        parts = [one.part for one in found]
        offers: list[list[Scheduled]] = []
        for one in found:
            own = self._scheduled(one) if one.part.is_lax else iter(())
            plain = as_written(one.part.graph, self.target)
            best = islice(heapq.merge(own, [plain], key=_cost_us), PER_STRUCTURE)
            offers.append([proposal.realize() for proposal in best])
        picks = [[0] * len(offers)]
        for number, offer in enumerate(offers):
            picks += [
                [rank if place == number else 0 for place in range(len(offers))]
                for rank in range(1, min(len(offer), PER_STRUCTURE))
            ]
        joined = []
        for pick in picks:
            chosen = [offer[rank] for offer, rank in zip(offers, pick, strict=True)]
            graph = join_parts(self.program, parts, [one.graph for one in chosen])
            choices = tuple(choice for one in chosen for choice in one.choices)
            cost = estimate(graph, hardware=self.target.hardware, choices=choices, preset=self.target.preset)
            scheduled = Scheduled(graph, choices, cost, "search, part by part")
            joined.append(proposal_of(scheduled))
        return sorted(joined, key=_cost_us)

    # ------------------------------------------------------------------------------------------------------- the answer
    def _is_over(self) -> bool:
        return self.budget is not None and time.perf_counter() - self.start > self.budget

    def _finished(self, found: list[PartFound], candidates: list[Candidate], *, is_cached: bool = False) -> Result:
        ranked = sorted(candidates, key=lambda one: (one.measured is None, one.time_us))
        if ranked and not is_cached and not self.interrupted and not self._is_over():
            ranked, refuted = confirmed(self.program, ranked, error=self.options.error, seed=self.options.seed)
            self.refused += refuted
        ended = all(one.finished is not None or not one.part.is_lax for one in found)
        result = Result(
            program=self.program,
            device=self.target.device,
            candidates=tuple(ranked),
            refused=tuple(self.refused),
            lower_bound=self.lower_bound,
            space=found[0].space if found else self.options.space or Space(),
            states=sum(one.finished.states for one in found if one.finished is not None),
            structures=sum(len(one.structures) for one in found),
            parts=max(len(found), 1),
            seconds=time.perf_counter() - self.start,
            interrupted=self.interrupted or not ended or self._is_over(),
            cached=is_cached,
            measured=any(one.measured is not None for one in ranked),
            fit=model_fit(ranked, self.target.hardware, self.target.preset),
            out=self.folder.path,
        )
        self.folder.write(result.to_json(), result.best.graph if ranked else None)
        return result

    def _restored(self, values: dict[str, object]) -> Result:
        listed = cast(list[dict[str, object]], values["candidates"])
        space: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in cast(dict[str, Any], values["space"]).items()
        }
        return Result(
            program=self.program,
            device=self.target.device,
            candidates=tuple(self._candidate(one) for one in listed),
            refused=tuple(Refusal(**one) for one in cast(list[dict[str, object]], values["refused"])),  # type: ignore[arg-type]
            lower_bound=self.lower_bound,
            space=Space(**space),
            states=cast(int, values["states"]),
            structures=cast(int, values["structures"]),
            parts=cast(int, values["parts"]),
            seconds=time.perf_counter() - self.start,
            cached=True,
            measured=bool(values["measured"]),
            fit=None if values["fit"] is None else ModelFit(**cast(dict[str, Any], values["fit"])),
            out=self.folder.path,
        )

    def _candidate(self, values: dict[str, object]) -> Candidate:
        graph = read_graph(JsonValue(values["graph"], "graph"))
        choices = tuple(choice_from_json(one) for one in cast(list[dict[str, Any]], values["choices"]))
        kernel_choices = tuple(choices_from_json(one) for one in cast(list[dict[str, Any]], values["kernel_choices"]))
        measured = cast("dict[str, object] | None", values["measured"])
        verdict: Verdict = verdict_from_json(cast(dict[str, object], values["certificate"]))
        return Candidate(
            graph=graph,
            choices=choices,
            cost=estimate(
                graph, hardware=self.target.hardware, choices=choices, preset=self.target.preset,
                accesses=accesses_by_launch(graph, kernel_choices),
            ),
            certificate=verdict,
            device=self.target.device,
            origin=cast(str, values["origin"]),
            measured=None if measured is None else Measured(**measured),  # type: ignore[arg-type]
            kernel_choices=kernel_choices,
            passes=tuple(note_from_json(one) for one in cast(list[dict[str, Any]], values["passes"])),
        )  # fmt: skip


def _cost_us(proposal: Proposal) -> float:
    return proposal.cost_us


def _preset(device: str) -> str:
    """Return the preset for a device: the fitted one was fitted to Hopper's times."""
    return "calibrated" if architecture(device).name.startswith("sm_90") else "analytic"
