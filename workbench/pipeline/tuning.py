"""The second stage: graphs with a schedule are chosen by their modelled cost, certified, and must pass the emitter.

Invariant: a candidate that is handed on is equal to the program by `verify` and has been written as CUDA.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from workbench.codegen.cuda.choices import Choices
from workbench.cost.breakdown import Cost
from workbench.cost.estimate import estimate
from workbench.cost.hardware import Hardware
from workbench.cost.launch import LaunchChoice
from workbench.cost.presets import Preset
from workbench.device.architecture import architecture
from workbench.errors import EmitError, NotApplicableError
from workbench.pipeline.candidate import Candidate, Refusal, refused_graph
from workbench.pipeline.passes import accesses_by_launch, run_passes
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.verify.compare import verify
from workbench.verify.elements import Elements, elements_of
from workbench.verify.evaluation_work import evaluation_work
from workbench.verify.forms import Forms
from workbench.verify.verdict import Verdict

LONG_WORK = 3e8
"""Multiply-adds above which a test at true shapes takes seconds."""

LONGEST_WORK = 1.5e9
"""Multiply-adds up to which the best candidate is tested at true shapes all the same; about five seconds."""

HOPELESS = 2.5
"""Times the cheapest candidate's cost above which one is not measured: the model is wrong by less."""


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A graph with a schedule and its modelled cost; not yet certified."""

    graph: KernelGraph
    choices: tuple[LaunchChoice, ...]
    cost: Cost
    origin: str


@dataclass(frozen=True, slots=True)
class Proposal:
    """A structure under a schedule.

    Attributes: cost_us: modelled; realize: makes the graph when it is wanted; family: what proposals of one structure share.
    """

    cost_us: float
    realize: Callable[[], Scheduled]
    family: str = ""


def proposal_of(scheduled: Scheduled, family: str = "") -> Proposal:
    """Return a graph that is there already as a proposal."""
    return Proposal(scheduled.cost.total_us, lambda: scheduled, family)


@dataclass(frozen=True, slots=True)
class Target:
    """What candidates are made for: the device's name, its hardware record, the cost preset."""

    device: str
    hardware: Hardware
    preset: Preset | None


def as_written(program: KernelGraph, target: Target) -> Proposal:
    """Return the program itself, every operator a kernel: what no candidate should be slower than."""
    scheduled = priced(program, (), target, "the program as written")
    return proposal_of(scheduled)


def priced(graph: KernelGraph, choices: Sequence[LaunchChoice], target: Target, origin: str) -> Scheduled:
    """Return a graph with its launch choices and what it costs so."""
    own = tuple(choices)
    return Scheduled(graph, own, estimate(graph, hardware=target.hardware, choices=own, preset=target.preset), origin)


def accept(
    proposals: Iterable[Proposal],
    target: Target,
    certificates: Certificates,
    *,
    keep: int,
    without: Sequence[str] = (),
) -> Iterator[Candidate | Refusal]:
    """Yield, in the order given, candidates that are certified and can be written, and refusals, until `keep` are accepted.

    A graph that comes again with the same launch choices, as a program does whose parts stay as they are, counts once.

    without: passes of the optimizer that are left out.
    """
    accepted = 0
    arch = architecture(target.device)
    seen = set[tuple[str, tuple[LaunchChoice, ...]]]()
    for proposal in proposals:
        if accepted == keep:
            return
        try:
            one = proposal.realize()
        except NotApplicableError as fault:
            yield Refusal(stage="schedule", what=f"a schedule of {proposal.cost_us:.2f} us", reason=str(fault))
            continue
        if (one.graph.hash, one.choices) in seen:
            continue
        seen.add((one.graph.hash, one.choices))
        verdict = certificates.verdict(one.graph)
        if verdict.kind != "equal":
            yield refused_graph("verify", one.graph, f"{verdict.kind}: {verdict.reason}")
            continue
        try:
            passed = run_passes(
                one.graph, one.choices, arch, without=without, verifier=certificates.again,
                cost_us=partial(_modelled_us, target, one.choices),
            )  # fmt: skip
        except EmitError as fault:
            yield refused_graph("emit", one.graph, str(fault))
            continue
        accepted += 1
        yield Candidate(
            graph=passed.graph,
            choices=one.choices,
            cost=_modelled(target, one.choices, passed.graph, passed.kernel_choices),
            certificate=verdict,
            device=target.device,
            origin=one.origin,
            kernel_choices=passed.kernel_choices,
            passes=passed.notes,
        )


def _modelled(target: Target, launches: Sequence[LaunchChoice], graph: KernelGraph, choices: Sequence[Choices]) -> Cost:
    """Return what a graph takes under launch choices, with what the passes chose for its kernels, () for nothing."""
    accesses = accesses_by_launch(graph, choices)
    return estimate(graph, hardware=target.hardware, choices=launches, preset=target.preset, accesses=accesses)


def _modelled_us(
    target: Target, launches: Sequence[LaunchChoice], graph: KernelGraph, choices: Sequence[Choices]
) -> float:
    return _modelled(target, launches, graph, choices).total_us


def hopeful(ascending: Iterable[Proposal]) -> list[Proposal]:
    """Return what costs up to `HOPELESS` times the first; what comes after it is not asked for."""
    found: list[Proposal] = []
    for one in ascending:
        if found and one.cost_us > HOPELESS * found[0].cost_us:
            break
        found.append(one)
    return found


def various(proposals: Sequence[Proposal], *, handicap: float) -> list[Proposal]:
    """Return proposals in the order in which they are worth measuring: cheap ones, and unlike those before them.

    Each next one of a structure counts as slower by `handicap` of its cost, so that a model that is wrong about one
    structure does not fill the list with it. What costs more than `HOPELESS` times the cheapest is left out.
    """
    seen: Counter[str] = Counter()
    most = HOPELESS * min((one.cost_us for one in proposals), default=0.0)
    placed = []
    for number, one in enumerate(sorted(proposals, key=lambda one: one.cost_us)):
        if one.cost_us > most:
            break
        placed.append((one.cost_us * (1.0 + handicap * seen[one.family]), number, one))
        seen[one.family] += 1
    return [one for _, _, one in sorted(placed, key=lambda item: item[:2])]


class Certificates:
    """Verdicts on graphs against one program, each graph asked about once.

    A graph whose outputs are the same expressions as those of a certified one, as with another schedule of its structure,
    shares that one's verdict: the two are proved equal to each other.
    """

    def __init__(self, program: KernelGraph, *, error: float, seed: int) -> None:
        """Start with none."""
        self.program, self.error, self.seed = program, error, seed
        self._known: dict[str, Verdict] = {}
        self._certified: dict[str, list[tuple[KernelGraph, Verdict]]] = {}
        self._forms = Forms()
        self._elements: dict[str, Elements | None] = {}

    def verdict(self, graph: KernelGraph) -> Verdict:
        """Return the verdict on a graph."""
        known = self._known.get(graph.hash)
        if known is None:
            alike = self._certified.setdefault(graph.structure_hash, [])
            known = next((self._shared(one, verdict) for one, verdict in alike if self._are_same(one, graph)), None)
            if known is None:
                known = self._asked(graph)
                if known.kind == "equal":
                    alike.append((graph, known))
            self._known[graph.hash] = known
        return known

    def _asked(self, graph: KernelGraph) -> Verdict:
        """Return the verdict of `verify`; of the first graph at true shapes, of later ones there where that is quick.

        The best candidate is the first by the model. What rests on reduced shapes only says so in its reason.
        """
        is_long = bool(self._known) and evaluation_work(graph) > LONG_WORK
        shapes: Literal["auto", "reduced"] = "reduced" if is_long else "auto"
        return verify(self.program, graph, error=self.error, seed=self.seed, shapes=shapes)

    def again(self, given: KernelGraph, changed: KernelGraph) -> Verdict:
        """Return the verdict on a certified graph that a pass changed: shared where both are the same expressions."""
        before = self.verdict(given)
        if self._are_same(given, changed):
            return replace(before, reason="the same expressions at true shapes as before the pass")
        return verify(self.program, changed, error=self.error, seed=self.seed)

    def _are_same(self, left: KernelGraph, right: KernelGraph) -> bool:
        """Return what `have_equal_forms` does, each graph walked once."""
        first, second = self._elements_of(left), self._elements_of(right)
        if first is None or second is None or first.shapes != second.shapes:
            return False
        return all(a is b for a, b in zip(first.outputs, second.outputs, strict=True))

    def _elements_of(self, graph: KernelGraph) -> Elements | None:
        if graph.hash not in self._elements:
            try:
                self._elements[graph.hash] = elements_of(graph, self._forms)
            except NotApplicableError:
                self._elements[graph.hash] = None
        return self._elements[graph.hash]

    @staticmethod
    def _shared(graph: KernelGraph, verdict: Verdict) -> Verdict:
        if verdict.proved:
            return verdict
        same = f"the same expressions at true shapes as µGraph {graph.hash[:12]}, of which: {verdict.reason}"
        return replace(verdict, reason=same)


def confirmed(
    program: KernelGraph, candidates: Sequence[Candidate], *, error: float, seed: int
) -> tuple[list[Candidate], list[Refusal]]:
    """Return the candidates, the first with a certificate at true shapes, and those in front that are refuted there.

    Where true shapes take too long the first keeps the certificate that it has, whose reason says so; `workbench verify`
    tests there. It keeps it too where such a test says nothing.
    """
    left, refuted = list(candidates), list[Refusal]()
    while left and all(instance.reduced for instance in left[0].certificate.shapes_tested):
        first = left[0]
        if evaluation_work(first.graph) > LONGEST_WORK:
            break
        verdict = verify(program, first.graph, error=error, seed=seed)
        if verdict.kind != "different":
            left[0] = replace(first, certificate=verdict) if verdict.kind == "equal" else first
            break
        refuted.append(refused_graph("verify", first.graph, verdict.reason))
        del left[0]
    return left, refuted
