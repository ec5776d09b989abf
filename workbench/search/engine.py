"""The search: values first, then graphs, plan by plan. Invariant: same program, space and seed give the same events.

The program is only ever read as a graph: names, the order of its nodes and how it was traced do not matter. Plans that
cut the same axes share their expressions and are one unit of work; a unit tests its structures itself, unless another
verifier was given: then blocks of structures are units of a second round.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from workbench.errors import MemoryLimitError, NotApplicableError
from workbench.search.built_blocks import BuiltBlocks
from workbench.search.canonical import Canonical
from workbench.search.chains import CHAIN, WHY, is_proper, why_not
from workbench.search.driver import drive
from workbench.search.enumeration import Enumeration, Sketch
from workbench.search.events import (
    Completed,
    Event,
    Extended,
    Progress,
    Pruned,
    Refused,
    Said,
    Started,
    Text,
    ValueKept,
    Verified,
)
from workbench.search.expressions import Expressions
from workbench.search.hypergraph import Hypergraph
from workbench.search.nesting import depths_of, is_hopeless
from workbench.search.outside import reasons
from workbench.search.plans import PartsKey, Plan, axis_parts
from workbench.search.schedules import first_instance
from workbench.search.shared import Shared
from workbench.search.space import NEVER, Space
from workbench.search.summary import OUT
from workbench.search.value_text import ValueText, ValueTexts
from workbench.search.verdicts import VerdictLike, Verifier
from workbench.search.work import Known, Outcome, Unit
from workbench.ugraph.kernel_graph import KernelGraph


def search(
    program: KernelGraph, *, space: Space | None = None, verifier: Verifier | None = None, seed: int = 0
) -> Iterator[Event]:
    """Yield the events of a search for µGraphs that compute a program, in this process.

    verifier: asked about every structure; by default each is screened (`screen`): a random test in a pair of finite
    fields at small extents. seed: of the screening. Raises: UsageError for a program that already has block graphs.
    """
    return drive(ValueSearch(program, space or Space(), verifier, seed))


BLOCK = 4
"""Structures that one unit of the second round verifies."""

_SHOWN = 3
"""How many values an event names that stands for many."""

DEMAND = "demand"
"""The rule of what takes more operators than are left: expressions once a group of plans, choices once a plan."""

ANOTHER = "another plan's"
"""The rule of graphs that are met in a plan though they belong to another one, or to none."""

_DEAD_END = "what is then still to be made takes more operators than are left"
IMPROPER = (
    "a block graph that computes nothing, a loop that accumulates nothing, blocks that are not combined, a value that is made "
    "twice in a block graph or read only to be stored: without it the graph is one of another plan"
)
_NESTED = "what its loop accumulates would have to depend on what it has accumulated"


class ValueSearch:
    """The search as units of work: the plans, those that cut no axis first, then what is to be verified."""

    def __init__(self, program: KernelGraph, space: Space, verifier: Verifier | None, seed: int) -> None:
        """Read the program. Raises: UsageError for a program that already has block graphs."""
        self.verifier = verifier
        self.shared = Shared(program, space, seed)
        self._groups: dict[PartsKey, list[Plan]] = {}
        try:
            self._outside = tuple(reasons(self.shared.problem))
        except NotApplicableError as fault:
            self._outside = (str(fault),)
        for plan in () if self._outside else self.shared.plans:
            self._groups.setdefault(tuple(axis_parts(plan).items()), []).append(plan)
        self._completed: list[tuple[int, KernelGraph]] = []

    @property
    def total(self) -> int:
        """How many plans there are."""
        return sum(map(len, self._groups.values()))

    def rounds(self) -> Generator[Sequence[Unit], Sequence[Outcome], None]:
        """Yield the round of plans, and that of verification if another verifier was given."""
        if self._outside:
            yield [Outside(self._outside)]
        screens, uncut = self.verifier is None, self._uncut()
        depths = {} if uncut is None else depths_of(uncut, self.shared.problem.reduced)
        ways = 0 if uncut is None else sum(map(len, uncut.makings.values()))
        groups = [
            PlanGroup(self.shared, number, tuple(plans), screens, depths, ways)
            for number, plans in enumerate(self._groups.values())
        ]
        if groups:
            yield groups
        if self.verifier is not None:
            completed = self._completed
            yield [
                VerifyBlock(self.shared.program, self.verifier, tuple(completed[start : start + BLOCK]))
                for start in range(0, len(completed), BLOCK)
            ]

    def _uncut(self) -> Expressions | None:
        """Return the expressions of the first group, which cuts no axis; None if there is no plan."""
        first = next(iter(self._groups.values()), None)
        return None if first is None else self.shared.expressions(axis_parts(first[0]))

    def note(self, event: Event) -> None:
        """Keep what is to be verified."""
        if self.verifier is not None and isinstance(event, Completed):
            self._completed.append((event.number, event.graph))


@dataclass(frozen=True)
class Outside:
    """A unit that only says why a program is out of the space."""

    why: tuple[str, ...]
    counts_on = True
    name = "what is out of the space"
    steps, guess_ms = 0, 1

    def events(self, known: Known) -> Generator[Event, None, Outcome]:
        """Yield the reasons."""
        for reason in self.why:
            yield Pruned("the program", OUT, Said("the program"), Said(reason))
        return Outcome(pruned={OUT: len(self.why)})


@dataclass(frozen=True)
class VerifyBlock:
    """A unit: structures to verify, with their numbers in the search."""

    program: KernelGraph
    verifier: Verifier
    structures: tuple[tuple[int, KernelGraph], ...]
    counts_on = False
    steps, guess_ms = 0, 1

    @property
    def name(self) -> str:
        """Which structures."""
        return f"verification of structures {self.structures[0][0]} to {self.structures[-1][0]}"

    def events(self, known: Known) -> Generator[Event, None, Outcome]:
        """Yield the verdicts."""
        verified = 0
        for number, graph in self.structures:
            verdict = known[number] if number in known else self.verifier(self.program, graph)
            verified += verdict.kind == "equal"
            yield judged(number, graph, verdict)
        return Outcome(verified=verified)


def judged(number: int, graph: KernelGraph, verdict: VerdictLike) -> Verified | Refused:
    """Return the event of a verdict."""
    return (Verified if verdict.kind == "equal" else Refused)(number, graph, verdict)


@dataclass(frozen=True)
class PlanGroup:
    """A unit: plans that cut the same axes into the same parts.

    screens: whether it tests its structures itself; depths: of folds, by axis, which spares hopeless plans; ways:
    to make the values whose axes are whole.
    """

    shared: Shared
    number: int
    plans: tuple[Plan, ...]
    screens: bool
    depths: Mapping[str, int]
    ways: int = 0
    counts_on = True

    @property
    def name(self) -> str:
        """Which plans."""
        more = f" and {len(self.plans) - 1} more" if len(self.plans) > 1 else ""
        return f"plan group {self.number}: {self.plans[0].describe()}{more}"

    @property
    def steps(self) -> int:
        """How many plans."""
        return len(self.plans)

    @property
    def guess_ms(self) -> int:
        """Every way to make a value comes back in every plan, more often the more axes it cuts; 0.6 to 1 ms each."""
        return len(self.plans) * (1 + len(axis_parts(self.plans[0]))) * self.ways

    def events(self, known: Known) -> Generator[Event, None, Outcome]:
        """Yield what the plans have."""
        return (yield from _Group(self).events(known))


@dataclass
class _Group:
    """The search of one group of plans."""

    unit: PlanGroup

    def __post_init__(self) -> None:
        shared = self.unit.shared
        self.space, self.problem, self.palette = shared.space, shared.problem, shared.palette
        self.canonical = Canonical()
        self.found: dict[tuple[int, ...], Sketch] = {}
        self.pruned: Counter[str] = Counter()
        self.states = self.candidates = self.incomplete = 0
        self.blocks = BuiltBlocks()

    def events(self, known: Known) -> Generator[Event, None, Outcome]:
        depths = self.unit.depths
        plans = []
        for plan in self.unit.plans:
            if is_hopeless(plan, self.space, depths.__getitem__):
                self.pruned["nested folds"] += 1
                yield Pruned(plan.describe(), "nested folds", Said("the whole plan"), Said(_NESTED))
            else:
                plans.append(plan)
        done = len(self.unit.plans) - len(plans)
        if plans:
            expressions = self.unit.shared.expressions(axis_parts(plans[0]))
            self.incomplete += expressions.incomplete
            texts = ValueTexts(expressions)
            for plan in plans:
                yield Started(plan.describe())
                if plan is plans[0]:
                    yield from self._unaffordable(expressions, texts, plan)
                yield from self._plan(expressions, texts, plan)
                done += 1
                yield Progress(done, 0, self.states, len(self.found))
        structures, verified = yield from self._test(known)
        return Outcome(
            steps=self.unit.steps,
            states=self.states,
            candidates=self.candidates,
            structures=structures,
            verified=verified,
            incomplete=self.incomplete,
            numbers=len(self.found),
            pruned=dict(self.pruned),
        )

    def _test(self, known: Known) -> Generator[Event, None, tuple[int, int]]:
        """Yield the structures that were found, tested if they are to be screened; return how many there are and pass."""
        structures = verified = 0
        for number, sketch in enumerate(self.found.values()):
            plan_text = sketch.hypergraph.plan.describe()
            try:
                graph = self.unit.shared.pieces.whole(first_instance(sketch, self.blocks))
            except MemoryLimitError as fault:
                yield self._left_out(plan_text, "memory", sketch, Said(str(fault)))
                continue
            except NotApplicableError as fault:
                yield self._left_out(plan_text, "layout", sketch, Said(str(fault)))
                continue
            structures += 1
            yield Completed(plan_text, number, graph, sketch.block_operators, sketch.kernels)
            if self.unit.screens:
                verdict = known[number] if number in known else self.unit.shared.screen.screen(sketch)
                verified += verdict.kind == "equal"
                yield judged(number, graph, verdict)
        return structures, verified

    def _unaffordable(self, expressions: Expressions, texts: ValueTexts, first: Plan) -> Iterator[Event]:
        """Yield what no plan of the group can afford, under the name of the first."""
        for left in expressions.left_out.values():
            self.pruned[DEMAND] += 1
            said = f"{_price(left.least, left.above)}; {expressions.limit} are allowed, kernels beside block graphs included"
            yield Pruned(first.describe(), DEMAND, ValueText(texts, left.value), Said(said))

    def _plan(self, expressions: Expressions, texts: ValueTexts, plan: Plan) -> Iterator[Event]:
        name = plan.describe()
        graph = Hypergraph(
            expressions,
            plan,
            block_limit=self.space.max_block_ops,
            kernel_limit=self.unit.shared.kernels_beside(len(plan.loops)),
            needed_only=self.space.chains == "needed",
        )
        for node in graph.kept:
            yield ValueKept(
                name, node, graph.places[node].name, graph.least[node], ValueText(texts, graph.values[node])
            )
            for edge in graph.edges[node]:
                label = str(edge.operator or edge.kind)
                yield Extended(name, node, label, edge.operands)
        unreachable = [
            node for node in range(len(graph.values)) if graph.above[node] + graph.least[node] > graph.block_limit
        ]
        if unreachable:
            count = len(unreachable)
            nearest = sorted(unreachable, key=lambda node: (graph.above[node] + graph.least[node], node))[:_SHOWN]
            shown = [
                (ValueText(texts, graph.values[node]), graph.places[node].name, graph.least[node], graph.above[node])
                for node in nearest
            ]
            subject = f"{count} values at places where no graph within the limit has them"
            yield self._counted(name, "unreachable", count, subject, partial(_unreachable, shown, graph.block_limit))
        for rule, count in graph.left_out.items():
            yield self._counted(name, CHAIN + rule, count, f"{count} ways to make a value", Said(WHY[rule]))
        improper = 0
        enumeration = Enumeration(graph)
        for sketch in enumeration.sketches():
            if not is_proper(sketch):
                improper += 1
                continue
            reason = why_not(sketch, self.space.max_block_ops) if self.space.chains == "needed" else None
            if reason is not None:
                yield self._left_out(name, CHAIN + reason.rule, sketch, reason.text(sketch))
                continue
            self.candidates += 1
            key = self.canonical.key(sketch)
            known = self.found.get(key)
            if known is None or sketch.block_operators < known.block_operators:
                self.found[key] = sketch
        self.states += enumeration.states
        if improper:
            yield self._counted(name, ANOTHER, improper, f"{improper} graphs", Said(IMPROPER))
        dead = enumeration.dead_ends
        if dead:
            yield self._counted(name, DEMAND, dead, f"{dead} choices of an operator", Said(_DEAD_END))

    def _left_out(self, plan: str, rule: str, sketch: Sketch, evidence: Text) -> Pruned:
        self.pruned[rule] += 1
        return Pruned(plan, rule, lambda: describe_sketch(sketch), evidence)

    def _counted(self, plan: str, rule: str, count: int, subject: str, evidence: Text) -> Pruned:
        self.pruned[rule] += count
        return Pruned(plan, rule, Said(subject), evidence, count)


def _unreachable(shown: Sequence[tuple[ValueText, str, int, int]], limit: int) -> str:
    words = []
    for text, place, least, above in shown:
        words.append(f"{text()} at {place}: {_price(least, above, ' there')}")
    return f"{'; '.join(words)}; {limit} are allowed in block graphs"


def _price(least: int, above: int, there: str = "") -> str:
    makes = f"it takes at least {least} operators" if least < NEVER else f"nothing within the limit makes it{there}"
    needs = f"{above} stand over it" if above < NEVER else f"nothing within the limit reads it{there}"
    return f"{makes}, {needs}"


def describe_sketch(sketch: Sketch) -> str:
    """Return a sketch as one line, operators in the order of building; inputs by name, other values by number."""
    graph = sketch.hypergraph
    problem = graph.expressions.problem
    inputs = {
        value: problem.program.inputs[start.position].name
        for value, start in zip(graph.expressions.starts, problem.starts, strict=True)
    }
    names: dict[int, str] = {}
    words: list[str] = []

    def named(node: int) -> str:
        return names.get(node) or inputs[graph.values[node]]

    for node, edge in sketch.chosen:
        if edge.kind in ("load", "store"):
            names[node] = named(edge.operands[0])
            continue
        names[node] = f"v{len(words)}"
        kind = "" if edge.kind == "operator" else f"{edge.kind} "
        axis = f" over {edge.axis}" if edge.axis else ""
        words.append(f"{names[node]} = {kind}{edge.operator}({', '.join(map(named, edge.operands))}){axis}")
    return f"{graph.plan.describe()}: {'; '.join(words)}"
