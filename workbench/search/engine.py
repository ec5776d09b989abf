"""The search: values first, then graphs, plan by plan. Invariant: same program, space and seed give the same events.

The program is only ever read as a graph: names, the order of its nodes and how it was traced do not matter.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from workbench.domains import abstract_print
from workbench.domains.abstract_normal_form import Value
from workbench.domains.abstract_readback import Readback
from workbench.errors import MemoryLimitError, NotApplicableError
from workbench.search.canonical import Canonical
from workbench.search.chains import is_proper, why_not
from workbench.search.enumeration import Enumeration, Sketch
from workbench.search.events import (
    Completed,
    Event,
    Extended,
    Finished,
    Progress,
    Pruned,
    Refused,
    Started,
    ValueKept,
    Verified,
)
from workbench.search.expressions import Expressions
from workbench.search.hypergraph import Hypergraph
from workbench.search.nesting import Nesting
from workbench.search.palette import palette_of
from workbench.search.plans import Plan, axis_parts, folds_of, plans_of
from workbench.search.problem import Problem, problem_of
from workbench.search.schedules import first_instance
from workbench.search.screen import Screen, VerdictLike, Verifier
from workbench.search.space import Space
from workbench.ugraph.kernel_graph import KernelGraph


def search(
    program: KernelGraph, *, space: Space | None = None, verifier: Verifier | None = None, seed: int = 0
) -> Iterator[Event]:
    """Yield the events of a search for µGraphs that compute a program.

    verifier: asked about every structure; by default each is screened (`screen`): a random test in a pair of finite
    fields at small extents. seed: of the screening. Raises: UsageError for a program that already has block graphs.
    """
    return _Search(program, space or Space(), verifier, seed).events()


_NESTED = "what its loop accumulates would have to depend on what it has accumulated"


@dataclass
class _Group:
    """Plans that cut the same axes into the same parts: they share all expressions."""

    plans: list[Plan] = field(default_factory=list)


class _Search:
    def __init__(self, program: KernelGraph, space: Space, verifier: Verifier | None, seed: int) -> None:
        self.start = time.perf_counter()
        self.space, self.verifier, self.seed = space, verifier, seed
        self.problem: Problem = problem_of(program)
        self.palette = palette_of(self.problem, space)
        self.canonical = Canonical()
        self.found: dict[tuple[int, ...], Sketch] = {}
        self.pruned: Counter[str] = Counter()
        self.states = self.candidates = self.incomplete = 0
        self._has_products = has_products(self.problem)

    def events(self) -> Iterator[Event]:
        groups: dict[str, _Group] = {}
        for plan in plans_of(self.problem, self.space):
            groups.setdefault(str(axis_parts(plan)), _Group()).plans.append(plan)
        total, done = sum(len(group.plans) for group in groups.values()), 0
        nesting: Nesting | None = None
        for group in groups.values():
            hopeless = [plan for plan in group.plans if nesting is not None and nesting.is_hopeless(plan, self.space)]
            for plan in hopeless:
                self.pruned["nested folds"] += 1
                yield Pruned(plan.describe(), "nested folds", _reason("the whole plan"), _reason(_NESTED))
                done += 1
            plans = [plan for plan in group.plans if plan not in hopeless]
            if not plans:
                continue
            expressions = self._expressions(_Group(plans))
            nesting = nesting or (Nesting(expressions) if not expressions.parts else None)
            for plan in plans:
                yield Started(plan.describe())
                yield from self._plan(expressions, plan)
                done += 1
                yield Progress(done, total, self.states, len(self.found))
        verified = 0
        screen: Screen | None = None
        structures = 0
        for number, sketch in enumerate(self.found.values()):
            plan_text = sketch.hypergraph.plan.describe()
            try:
                graph = first_instance(sketch)
            except MemoryLimitError as fault:
                yield self._left_out(plan_text, "memory", sketch, str(fault))
                continue
            except NotApplicableError as fault:
                yield self._left_out(plan_text, "layout", sketch, str(fault))
                continue
            structures += 1
            yield Completed(plan_text, number, graph, sketch.block_operators, sketch.kernels)
            verdict: VerdictLike
            if self.verifier is not None:
                verdict = self.verifier(self.problem.program, graph)
            else:
                screen = screen or Screen(self.problem, seed=self.seed)
                verdict = screen.screen(sketch)
            if verdict.kind == "equal":
                verified += 1
                yield Verified(number, graph, verdict)
            else:
                yield Refused(number, graph, verdict)
        yield Finished(
            self.states,
            self.candidates,
            structures,
            verified,
            dict(self.pruned),
            self.incomplete,
            time.perf_counter() - self.start,
        )

    def _expressions(self, group: _Group) -> Expressions:
        expressions = Expressions(
            self.problem,
            self.palette,
            axis_parts(group.plans[0]),
            folds_of(self.problem, group.plans),
            limit=self.space.max_block_ops + self._kernels(group.plans),
            outer_products=self.space.outer_products,
        ).close()
        self.incomplete += expressions.incomplete
        return expressions

    def _kernels(self, plans: list[Plan]) -> int:
        """Return how many predefined kernels may stand beside the block graphs."""
        if not self.space.kernel_palette or not self._has_products:
            return 0
        return max(0, self.space.max_kernel_ops - min(len(plan.loops) for plan in plans))

    def _plan(self, expressions: Expressions, plan: Plan) -> Iterator[Event]:
        name = plan.describe()
        graph = Hypergraph(
            expressions,
            plan,
            block_limit=self.space.max_block_ops,
            kernel_limit=self._kernels([plan]),
            needed_only=self.space.chains == "needed",
        )
        for node in graph.kept:
            yield ValueKept(
                name, node, graph.places[node].name, graph.least[node], _text(expressions, graph.values[node])
            )
            for edge in graph.edges[node]:
                label = str(edge.operator or edge.kind)
                yield Extended(name, node, label, edge.operands)
        for left in expressions.left_out.values():
            self.pruned["demand"] += 1
            yield Pruned(
                name,
                "demand",
                _text(expressions, left.value),
                _reason(
                    f"it takes at least {left.least} operators, {left.above} stand over it, {expressions.limit} are allowed"
                ),
            )
        unreachable = [
            node for node in range(len(graph.values)) if graph.above[node] + graph.least[node] > graph.block_limit
        ]
        if unreachable:
            self.pruned["unreachable"] += len(unreachable)
            yield Pruned(
                name,
                "unreachable",
                _reason(f"{len(unreachable)} values at places where nothing makes them within the limit"),
                _reason("no choice of operators leads from inputs to them and from them to the outputs"),
                len(unreachable),
            )
        enumeration = Enumeration(graph)
        for sketch in enumeration.sketches():
            if not is_proper(sketch):
                continue
            rule = why_not(sketch) if self.space.chains == "needed" else None
            if rule is not None:
                yield self._left_out(name, f"chain: {rule}", sketch, rule)
                continue
            self.candidates += 1
            key = self.canonical.key(sketch)
            known = self.found.get(key)
            if known is None or sketch.block_operators < known.block_operators:
                self.found[key] = sketch
        self.states += enumeration.states
        if enumeration.dead_ends:
            self.pruned["demand"] += enumeration.dead_ends

    def _left_out(self, plan: str, rule: str, sketch: Sketch, evidence: str) -> Pruned:
        self.pruned[rule] += 1
        return Pruned(plan, rule, lambda: describe_sketch(sketch), _reason(evidence))


def has_products(problem: Problem) -> bool:
    """Return whether a matrix product can occur: two inputs share an axis that is folded, and one has another besides."""
    axes = [frozenset(name for dim in start.dims for name in dim) for start in problem.starts]
    return any(one != two and name in one and name in two for one in axes for two in axes for name in problem.reduced)


def describe_sketch(sketch: Sketch) -> str:
    """Return a sketch as one line, operators in the order of building."""
    graph = sketch.hypergraph
    words = []
    for node, edge in sketch.chosen:
        if edge.kind in ("load", "store"):
            continue
        kind = "" if edge.kind == "operator" else f"{edge.kind} "
        axis = f" over {edge.axis}" if edge.axis else ""
        words.append(f"v{node} = {kind}{edge.operator}({', '.join(f'v{o}' for o in edge.operands)}){axis}")
    return f"{graph.plan.describe()}: {'; '.join(words)}"


def _text(expressions: Expressions, value: Value) -> _Lazy:
    return _Lazy(expressions, value)


@dataclass(frozen=True, slots=True)
class _Lazy:
    """The text of an expression, written when asked for."""

    expressions: Expressions
    value: Value

    def __call__(self) -> str:
        term = Readback(self.expressions.algebra).term(self.value)
        return abstract_print.to_text(term)


@dataclass(frozen=True, slots=True)
class _Said:
    """A text that is already there."""

    text: str

    def __call__(self) -> str:
        return self.text


def _reason(text: str) -> _Said:
    return _Said(text)
