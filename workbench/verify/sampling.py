"""Random points at which two programs have a meaning: inputs are drawn again, row by row, until every root and quotient has one.

Invariant: a point is uniform among those at which every radicand is a square and every denominator is not zero. Parts of
the inputs that share no condition are drawn apart, each again as a whole until its conditions hold (rejection, part by
part, is exact); where roots occur, a zero denominator draws everything again. How often is counted
(`docs/verification.md`).
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from workbench.domains.finite_field import FieldArithmetic, FieldValue, random_elements
from workbench.errors import NotApplicableError
from workbench.interpret.cones import ConeAxes, Site, cone_sites
from workbench.interpret.field import FieldDomain, FieldPoint, FieldTrace, evaluate_in_field
from workbench.ops.spec import Branch
from workbench.ugraph.expand import expand
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import AccumulatorKind, GraphDefinedNode, OpNode, RunningMax, ThreadNode
from workbench.verify.components import Components

MIN_ROUNDS, MAX_ROUNDS, MAX_SECONDS = 60, 20_000, 3.0
"""Where the sampler gives up: many roots over the same few inputs have squares together only rarely."""
MOST_TOGETHER = 11
"""Roots of a program that share inputs above which no point is looked for: they exist together at one in 2^n."""
CHUNK_ELEMENTS = 1 << 22


@dataclass(frozen=True, slots=True, eq=False)
class Draw:
    """A point, and the outputs of each program there.

    Attributes: points: per input; outputs: per program; traces: per program what its evaluation rests on; resampled: how
    many parts of inputs were drawn again.
    """

    points: tuple[FieldPoint, ...]
    outputs: tuple[list[FieldPoint], ...]
    traces: tuple[FieldTrace, ...]
    resampled: int


@dataclass(frozen=True, slots=True)
class Features:
    """Which kinds of operators a program contains, composites and sugar looked into."""

    exponential: bool
    root: bool
    piecewise: bool


@lru_cache(maxsize=256)
def features(graph: KernelGraph) -> Features:
    """Return which kinds of operators a program contains."""
    names: set[str] = set()
    piecewise = False
    for node in _operators(expand(graph)):
        if isinstance(node, OpNode):
            names.add(node.op)
            piecewise = piecewise or isinstance(node.spec.field, Branch)
        else:
            piecewise = True
    return Features("exp" in names, bool(names & {"sqrt", "rsqrt"}), piecewise)


def _operators(graph: KernelGraph) -> list[OpNode | RunningMax]:
    found: list[OpNode | RunningMax] = []
    for node in graph.nodes:
        if isinstance(node, OpNode):
            found.append(node)
            continue
        for inner in node.block.nodes:
            if isinstance(inner, OpNode | RunningMax):
                found.append(inner)
            elif isinstance(inner, ThreadNode):
                found += inner.graph.nodes
        if any(a.kind in (AccumulatorKind.MAX, AccumulatorKind.MAX_DIM) for a in node.block.accumulators):
            found.append(OpNode("max", ("",), (), (("axis", -1),)))
    return found


@lru_cache(maxsize=64)
def root_part(graph: KernelGraph) -> KernelGraph | None:
    """Return the part of a program that its kernel-level roots rest on, with the roots as outputs; None without such.

    Roots inside block graphs are left to the whole program's evaluation.
    """
    whole = expand(graph)
    roots = [
        result.name
        for node in whole.nodes
        if isinstance(node, OpNode) and node.op in ("sqrt", "rsqrt")
        for result in node.results
    ]
    if not roots:
        return None
    needed, nodes = set(roots), []
    for node in reversed(whole.nodes):
        if any(result.name in needed for result in node.results):
            if isinstance(node, GraphDefinedNode):
                return None
            nodes.append(node)
            needed |= set(node.operands)
    return KernelGraph(whole.inputs, tuple(reversed(nodes)), tuple(dict.fromkeys(roots)), graph.name)


_SITES: OrderedDict[int, tuple[KernelGraph, list[Site]]] = OrderedDict()
_SITES_KEPT = 32
_ROOT = "sqrt"


def _sites(graph: KernelGraph) -> list[Site]:
    """Return the cones of a graph's roots and denominators; the latest graphs' are kept, by identity."""
    kept = _SITES.get(id(graph))
    if kept is None or kept[0] is not graph:
        kept = (graph, cone_sites(graph, ConeAxes.of(graph), chunk_elements=CHUNK_ELEMENTS))
        _SITES[id(graph)] = kept
        while len(_SITES) > _SITES_KEPT:
            _SITES.popitem(last=False)
    return kept[1]


_COMPONENTS: OrderedDict[tuple[int, ...], tuple[tuple[KernelGraph, ...], Components]] = OrderedDict()


def _components(graphs: tuple[KernelGraph, ...], axes: ConeAxes, *, roots: bool) -> Components:
    """Return the components of some programs' roots (or, where none has roots, of their denominators); kept as above."""
    key = tuple(id(graph) for graph in graphs)
    kept = _COMPONENTS.get(key)
    if kept is None or any(left is not right for left, right in zip(kept[0], graphs, strict=True)):
        made = Components(axes, [tensor.shape for tensor in graphs[0].inputs])
        for graph in graphs:
            for name, cones in _sites(graph):
                if (name == _ROOT) == roots:
                    made.add(cones)
        kept = (graphs, made)
        _COMPONENTS[key] = kept
        while len(_COMPONENTS) > _SITES_KEPT:
            _COMPONENTS.popitem(last=False)
    return kept[1]


class Sampler:
    """Draws points for some programs over one pair of fields.

    graphs: programs with the same inputs; arithmetic: of the pair, with its root of unity; with_q, with_real: which
    coordinates the inputs get besides the one modulo p; seconds: after which a point is given up, if the
    least number of rounds is over. Raises: NotApplicableError when no such point is found.
    """

    def __init__(
        self,
        graphs: Sequence[KernelGraph],
        arithmetic: FieldArithmetic,
        rng: np.random.Generator,
        *,
        with_q: bool = True,
        with_real: bool = False,
        seconds: float = MAX_SECONDS,
    ) -> None:
        self.graphs = tuple(graphs)
        self.arithmetic, self.rng, self.with_q, self.with_real = arithmetic, rng, with_q, with_real
        self.seconds = seconds
        self._axes = ConeAxes.of(self.graphs[0])
        self._has_roots = any(features(graph).root for graph in self.graphs)
        self._shapes = [tensor.shape for tensor in self.graphs[0].inputs]
        self._components: Components | None = None

    def draw(self, seed: int) -> Draw:
        """Return a point at which every program has a meaning; seed keys the random functions of opaque operators."""
        points = [self._fresh(shape) for shape in self._shapes]
        count, rounds, start = 0, 0, time.perf_counter()
        part = root_part(self.graphs[0]) if self._has_roots else None
        stages = [(part,), self.graphs] if part is not None else [self.graphs]  # the part is cheap and settles most
        stage, kind = 0, ""
        while rounds < MAX_ROUNDS and (rounds < MIN_ROUNDS or time.perf_counter() - start < self.seconds):
            rounds += 1
            results, faulty = self._evaluate(stages[stage], points, seed)
            if faulty is None:
                stage += 1
                if stage < len(stages):
                    continue
                return Draw(
                    tuple(points),
                    tuple(outputs for outputs, _ in results),
                    tuple(trace for _, trace in results),
                    count,
                )
            kind = faulty.trace.faults[0].fault.kind
            count += self._redraw(faulty, points)
            stage = 0
        raise NotApplicableError(
            f"no inputs found in {rounds} rounds at which every root and quotient of the programs has a meaning in "
            f"field pair {self.arithmetic.pair.name}: still a {kind}"
        )

    def _evaluate(
        self, graphs: Sequence[KernelGraph], points: list[FieldPoint], seed: int
    ) -> tuple[list[tuple[list[FieldPoint], FieldTrace]], _Faulty | None]:
        results: list[tuple[list[FieldPoint], FieldTrace]] = []
        for graph in graphs:
            domain = FieldDomain(self.arithmetic, seed=seed, chunk_elements=CHUNK_ELEMENTS)
            outputs = evaluate_in_field(graph, points, domain)
            self.arithmetic.take_faults()
            if domain.trace.faults:
                return results, _Faulty(graph, domain.trace)
            results.append((outputs, domain.trace))
        return results, None

    def _redraw(self, faulty: _Faulty, points: list[FieldPoint]) -> int:
        """Draw again every part of the inputs that shares a condition which fails; returns how many conditions failed."""
        faults = faulty.trace.faults
        if self._has_roots and any(site.fault.kind == "zero denominator" for site in faults):
            points[:] = [self._fresh(shape) for shape in self._shapes]
            return 1
        if self._components is None:
            self._components = _components(self.graphs, self._axes, roots=self._has_roots)
            self._check_chances()
        sites = _sites(faulty.graph)
        count = 0
        for both in (False, True):
            for side in ("p", "q"):
                chosen = [site for site in faults if site.after_exp is both and (both or site.fault.side == side)]
                marked: dict[int, None] = {}
                for site in chosen:
                    found = self._components.of(sites[site.application][1], np.asarray(site.fault.mask))
                    if found is None:
                        name = faulty.graph.name or "a program"
                        raise NotApplicableError(f"a {site.fault.kind} in {name} whatever the inputs are")
                    marked.update(dict.fromkeys(found))
                count += len(marked)
                if marked:
                    self._draw_again(list(marked), side, points)
        return count

    def _check_chances(self) -> None:
        """Raises: NotApplicableError where the first program's roots, whose cones are the sharpest, hardly exist together."""
        if self._has_roots:
            together = _components(self.graphs[:1], self._axes, roots=True).most_together()
            if together > MOST_TOGETHER:
                raise NotApplicableError(
                    f"{together} roots share inputs: they all have a meaning at one point in 2^{together} of field pair "
                    f"{self.arithmetic.pair.name}, which is not looked for"
                )

    def _draw_again(self, components: list[int], side: str, points: list[FieldPoint]) -> None:
        assert self._components is not None
        for number, place in self._components.places(components).items():
            old = points[number].residues
            new = random_elements(self.rng, (int(place.sum()),), self.arithmetic.pair, with_q=True)
            p, q = old.p, old.q
            if side == "p":
                p = p.copy()
                p[place] = new.p
            elif q is not None and new.q is not None:
                q = q.copy()
                q[place] = new.q
            points[number] = FieldPoint(FieldValue(p, q), points[number].real)

    def _fresh(self, shape: tuple[int, ...]) -> FieldPoint:
        residues = random_elements(self.rng, shape, self.arithmetic.pair, with_q=self.with_q)
        return FieldPoint(residues, self.rng.standard_normal(shape) if self.with_real else None)


@dataclass(frozen=True, slots=True, eq=False)
class _Faulty:
    """The graph whose evaluation met faults, and its trace."""

    graph: KernelGraph
    trace: FieldTrace
