"""The lecture's demonstration of the search: its limits, with and without pruning, and the wrong graph that pruning keeps.

The lecture (CMU 15-779, lecture 11, as taught in its course notes) searches RMSNorm and matmul in one block graph: at most
four operators in the loop and three after it, one mapping (grid over the output columns, loop over the reduced axis),
accumulators implied. It prunes by sizes, as the paper does, and so keeps the graph that forgot the gain; by axes that is
pruned, because G varies along what is summed. Its code and palette are not ours: its figures stand beside for comparison.
Invariant: the limits and the program are the lecture's; every count is that of this search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np

from workbench.core.dtypes import DType
from workbench.display import Displayed
from workbench.domains.field_pairs import field_pair
from workbench.domains.finite_field import FieldArithmetic, random_elements
from workbench.interpret.field import FieldDomain, FieldPoint, evaluate_in_field
from workbench.search.events import Event
from workbench.search.prefix.moves import Move
from workbench.search.prefix.one_plan import PrefixSearch
from workbench.search.prefix.options import Options, Setting
from workbench.search.prefix.prefixes import Limits, Prefix
from workbench.search.pruners.expression import AbstractExpression, ExpressionRule
from workbench.search.pruners.rule import Pruner
from workbench.search.schedules import first_instance
from workbench.search.shared import Shared
from workbench.search.space import Space
from workbench.ugraph.builder import KernelBuilder
from workbench.ugraph.kernel_graph import KernelGraph

LECTURE_PREFIXES, LECTURE_SHARE, LECTURE_RATIO = 5_260, 0.88, 2_454
"""What the lecture reports: prefixes with pruning, the share of them that is pruned, unpruned over pruned prefixes."""

PALETTE = ("matmul", "sum", "mul", "div", "square", "sqrt")
"""Operators offered; the program adds its scale by 1/H."""


@dataclass(frozen=True, slots=True)
class CourseRow:
    """One search at the lecture's limits.

    Attributes: pruning: by abstract expression in the form "axes" or "sizes", or "none"; unique: whether a kernel may not
    hold equal tensors; prefixes, pruned, kept; complete: graphs; is_complete: False if it was stopped; seconds: of process
    time.
    """

    pruning: str
    unique: bool
    prefixes: int
    pruned: int
    kept: int
    complete: int
    is_complete: bool
    seconds: float

    @property
    def share(self) -> float:
        """The share of prefixes that is pruned."""
        return self.pruned / self.prefixes if self.prefixes else 0.0


@dataclass(slots=True)
class CourseGraph:
    """A complete graph: the graph; distance: from its output to the goal, at least; is_right; name: what it computes."""

    graph: KernelGraph
    distance: int
    is_right: bool
    name: str


@dataclass(slots=True)
class Course(Displayed):
    """The demonstration: its rows, and the complete graphs that pruning leaves."""

    limits: Limits
    palette: tuple[str, ...]
    rows: list[CourseRow] = field(default_factory=list)
    graphs: list[CourseGraph] = field(default_factory=list)

    def ratio(self, pruning: str, *, unique: bool) -> float | None:
        """Return prefixes without pruning over prefixes with it, at least if the former was stopped; None if not run."""
        rows = {row.pruning: row for row in self.rows if row.unique == unique}
        return rows["none"].prefixes / rows[pruning].prefixes if {"none", pruning} <= rows.keys() else None

    def named(self, name: str) -> list[CourseGraph]:
        """Return the complete graphs of a name: "right", "forgot G", "forgot 1/H", "something else"."""
        return [found for found in self.graphs if found.name == name]

    def describe(self) -> str:
        """Return the table beside the lecture's figures, and the complete graphs by what they compute."""
        lines = [
            f"RMSNorm and matmul, loop over h: up to {self.limits.loop} operators in the loop, {self.limits.after} after it",
            f"operators: {', '.join(self.palette)}, scale by 1/H; accumulators are implied",
            f"{'':28} {'prefixes':>12} {'pruned':>7} {'unpruned / pruned':>18} {'complete':>9} {'seconds':>8}",
            f"{'the lecture':28} {LECTURE_PREFIXES:>12,} {LECTURE_SHARE:>7.0%} {LECTURE_RATIO:>18,} {3:>9}",
        ]
        for row in self.rows:
            name = _ROWS[row.pruning] + ("" if row.unique else ", no dedupe")
            count = f"{'' if row.is_complete else '> '}{row.prefixes:,}"
            share = "" if row.pruning == "none" else f"{row.share:.0%}"
            ratio = None if row.pruning == "none" else self.ratio(row.pruning, unique=row.unique)
            stopped = any(not r.is_complete for r in self.rows if r.unique == row.unique and r.pruning == "none")
            times = "" if ratio is None else f"{'> ' * stopped}{ratio:,.0f}"
            lines.append(f"{name:28} {count:>12} {share:>7} {times:>18} {row.complete:>9,} {row.seconds:>8.2f}")
        for name in ("right", "forgot G", "forgot 1/H", "something else"):
            graphs = self.named(name)
            verdict = "verified" if name == "right" else "refused by the verifier"
            lines.append(f"complete graphs of the form by sizes, {name}: {len(graphs)}, {verdict}")
            if name != "something else":
                lines += [f"distance {found.distance} to the goal\n{found.graph.describe()}" for found in graphs]
        return "\n".join(lines)

    def to_json(self) -> dict[str, object]:
        """Return the plain form."""
        return {
            "limits": {"loop": self.limits.loop, "after": self.limits.after},
            "palette": list(self.palette),
            "lecture": {"prefixes": LECTURE_PREFIXES, "pruned_share": LECTURE_SHARE, "ratio": LECTURE_RATIO},
            "rows": [
                {
                    "pruning": row.pruning,
                    "dedupe": row.unique,
                    "prefixes": row.prefixes,
                    "pruned_share": row.share,
                    "complete": row.complete,
                    "is_complete": row.is_complete,
                    "seconds": row.seconds,
                }
                for row in self.rows
            ],
            "ratios": {
                form: {"dedupe": self.ratio(form, unique=True), "no dedupe": self.ratio(form, unique=False)}
                for form in ("axes", "sizes")
            },
            "graphs": [
                {
                    "distance": found.distance,
                    "right": found.is_right,
                    "name": found.name,
                    "text": found.graph.describe(),
                }
                for found in self.graphs
            ],
        }


def lecture_program(
    batch: int = 5, hidden: int = 6, columns: int = 7, *, gain: bool = True, scale: bool = True
) -> KernelGraph:
    """Return O = (X * G) W / sqrt(mean of squares of X), with X (batch, hidden), G (hidden), W (hidden, columns).

    gain, scale: False for the wrong programs without G, or without 1/H. No extent, and no part of one, is another's: two
    iterations of three elements are Σ_2 and Σ_3, so that an expression by sizes takes no sum for one along another axis.
    """
    kernel = KernelBuilder("lecture")
    x = kernel.input("X", (batch, hidden), DType.FLOAT16)
    g = kernel.input("G", (hidden,), DType.FLOAT16)
    w = kernel.input("W", (hidden, columns), DType.FLOAT16)
    total = kernel.apply("sum", kernel.apply("square", x), axis=-1)
    root = kernel.apply("sqrt", kernel.apply("scale", total, factor=Fraction(1, hidden)) if scale else total)
    normed = kernel.apply("div", kernel.apply("mul", x, g) if gain else x, root)
    kernel.output(kernel.apply("matmul", normed, w))
    return kernel.build()


def course(
    *,
    seconds: float = 60.0,
    unpruned: bool = True,
    loop: int = 4,
    after: int = 3,
    tell: Callable[[str], None] | None = None,
) -> Course:
    """Return the demonstration at the lecture's limits (or others). seconds: of process time for each search."""
    limits = Limits(block=loop + after, loop=loop, after=after, accumulators="implied")
    result = Course(limits, PALETTE)
    for pruning in ("axes", "sizes", "none") if unpruned else ("axes", "sizes"):
        for unique in (True, False):
            if tell is not None:
                tell(f"searching, {_ROWS[pruning]}, {'with' if unique else 'without'} dedupe")
            search = _search(limits, pruning, unique=unique, seconds=seconds)
            result.rows.append(_row(search, pruning, unique=unique))
            if pruning == "sizes" and unique:
                result.graphs = list(_graphs(search))
    return result


_ROWS = {"axes": "pruned by axes", "sizes": "pruned by sizes", "none": "not pruned"}


def _search(limits: Limits, pruning: str, *, unique: bool, seconds: float) -> _LectureSearch:
    pruners: dict[str, tuple[Pruner, ...]] = {
        "axes": (AbstractExpression(),),
        "sizes": (AbstractExpression("sizes"),),
        "none": (),
    }
    space = Space(palette=PALETTE, max_block_graphs=1, kernel_palette=(), max_block_ops=limits.block)
    options = Options(pruners=pruners[pruning], unique=unique, limits=limits, quiet=True, seconds=seconds)
    setting = Setting(Shared(lecture_program(), space, 0), None, options)
    return next(
        _LectureSearch(setting, number, plan)
        for number, plan in enumerate(setting.shared.plans)
        if plan.loops != (None,)
    )


class _LectureSearch(PrefixSearch):
    """Prefixes in two phases: the loop, then, on accumulated tensors, what comes after it."""

    def _step(self, prefix: Prefix, moment: int, high: int, low: int, move: Move, quiet: bool) -> Iterator[Event]:
        if prefix.loop_left:  # the loop is still open
            kept = self.counts.kept
            yield from super()._step(prefix, moment, high, low, move, quiet)
            if self.counts.kept == kept:
                return
            after = self.growth.extend(prefix, moment, high, low, move, self.needed)
            closed = self._closed(after)
            if closed is not None:
                yield from self._grow(closed)
        else:
            yield from super()._step(prefix, moment, high, low, move, quiet)

    def _closed(self, prefix: Prefix) -> Prefix | None:
        """Return the prefix with what the loop leaves unread accumulated, None if a rule drops one of them."""
        moves, inputs = self.growth.moves, len(self.tensors.starts)
        unread = [p for p in range(inputs, len(prefix.tensors)) if not prefix.used >> p & 1]
        for position in unread:
            batch = moves.of(prefix.tensors[position], prefix.places[position], None, None)
            found = [m for m in batch.kept if m.kind == "accumulate" and not m.axis and m.operator.name == "sum"]
            if not found or self.growth.repeats(prefix, found[0], position, -1):
                return None
            prefix = self.growth.extend(prefix, 1, position, -1, found[0], self.needed)
        return replace(prefix, loop_left=0, step=(1, inputs, -1, -1))


def _row(search: PrefixSearch, pruning: str, *, unique: bool) -> CourseRow:
    counts = search.run()
    dropped = sum(counts.dropped.values())
    complete = len(search.found) if unique else counts.complete
    return CourseRow(
        pruning, unique, counts.generated, dropped, counts.kept, complete, not counts.ended, counts.seconds
    )


def _graphs(search: PrefixSearch) -> Iterator[CourseGraph]:
    (rule,) = search.rules
    assert isinstance(rule, ExpressionRule)
    variants = {
        "right": search.shared.program,
        "forgot G": lecture_program(gain=False),
        "forgot 1/H": lecture_program(scale=False),
    }
    for sketch, prefix in search.found.values():
        distance, graph = rule.judgement(prefix.tensors[-1]).distance, first_instance(sketch)
        name = next((name for name, program in variants.items() if agrees(program, graph)), "something else")
        yield CourseGraph(graph, distance, name == "right", name)


def agrees(program: KernelGraph, candidate: KernelGraph, *, seed: int = 0) -> bool:
    """Return whether two graphs agree at a random point in a pair of finite fields, at their own shapes.

    The lecture's scale by 1/H is a number, so that these graphs have no smaller instance.
    """
    rng = np.random.default_rng(seed)
    pair = field_pair("w31")
    domain = FieldDomain(FieldArithmetic(pair, pair.random_omega(rng)), seed=seed)
    inputs = [FieldPoint(random_elements(rng, tensor.shape, pair), None) for tensor in program.inputs]
    (one,), (two,) = (evaluate_in_field(graph, inputs, domain) for graph in (program, candidate))
    return not domain.arithmetic.differs(one.residues, two.residues).any()
