"""Random points at which two programs have a meaning: inputs are drawn again, row by row, until every root and quotient has one.

Invariant: a point is uniform among those at which every radicand is a square and every denominator is not zero, on the
sides that are drawn; how often something was drawn again is counted (paper, section 5; `docs/verification.md`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from workbench.domains.finite_field import FieldArithmetic, FieldValue, random_elements
from workbench.errors import NotApplicableError
from workbench.interpret.cones import ConeAxes, Cones, boxes, cone_sites
from workbench.interpret.field import FieldDomain, FieldPoint, FieldTrace, evaluate_in_field
from workbench.ops.spec import Array, Branch
from workbench.ugraph.expand import expand
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import AccumulatorKind, GraphDefinedNode, OpNode, RunningMax, ThreadNode

MIN_ROUNDS, MAX_ROUNDS, MAX_SECONDS = 60, 20_000, 3.0
"""Where the sampler gives up: many roots over the same few inputs have squares together only rarely."""
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


class Sampler:
    """Draws points for some programs over one pair of fields.

    graphs: programs with the same inputs; arithmetic: of the pair, with its root of unity; with_q, with_real: which
    coordinates the inputs get besides the one modulo p. Raises: NotApplicableError when no such point is found.
    """

    def __init__(
        self,
        graphs: Sequence[KernelGraph],
        arithmetic: FieldArithmetic,
        rng: np.random.Generator,
        *,
        with_q: bool = True,
        with_real: bool = False,
    ) -> None:
        self.graphs = tuple(graphs)
        self.arithmetic, self.rng, self.with_q, self.with_real = arithmetic, rng, with_q, with_real
        self._sites: dict[int, list[Cones]] = {}
        self._axes = ConeAxes.of(self.graphs[0])

    def draw(self, seed: int) -> Draw:
        """Return a point at which every program has a meaning; seed keys the random functions of opaque operators."""
        shapes = [tensor.shape for tensor in self.graphs[0].inputs]
        points = [self._fresh(shape) for shape in shapes]
        resampled = 0
        parts = [part for graph in self.graphs[:1] if (part := root_part(graph)) is not None]
        for graph in parts:  # cheap: settles the roots that the candidate most often shares
            resampled += self._settle([graph], points, seed)[1]
        results, more = self._settle(self.graphs, points, seed)
        return Draw(
            tuple(points),
            tuple(outputs for outputs, _ in results),
            tuple(trace for _, trace in results),
            resampled + more,
        )

    def _settle(
        self, graphs: Sequence[KernelGraph], points: list[FieldPoint], seed: int
    ) -> tuple[list[tuple[list[FieldPoint], FieldTrace]], int]:
        count = 0
        kind = ""
        start = time.perf_counter()
        rounds = 0
        while rounds < MAX_ROUNDS and (rounds < MIN_ROUNDS or time.perf_counter() - start < MAX_SECONDS):
            rounds += 1
            results, fresh = [], True
            for graph in graphs:
                domain = FieldDomain(self.arithmetic, seed=seed, chunk_elements=CHUNK_ELEMENTS)
                outputs = evaluate_in_field(graph, points, domain)
                self.arithmetic.take_faults()
                results.append((outputs, domain.trace))
                if domain.trace.faults:
                    kind = domain.trace.faults[0][1].kind
                    count += self._redraw(graph, domain.trace, points)
                    fresh = False
                    break
            if fresh:
                return results, count
        raise NotApplicableError(
            f"no inputs found in {rounds} rounds at which every root and quotient of the programs has a meaning in "
            f"field pair {self.arithmetic.pair.name}: still a {kind}"
        )

    def _redraw(self, graph: KernelGraph, trace: FieldTrace, points: list[FieldPoint]) -> int:
        """Draw again, on the faulty side, the parts of inputs that the faulty elements rest on; returns how many."""
        key = id(graph)
        if key not in self._sites:
            self._sites[key] = cone_sites(graph, self._axes, chunk_elements=CHUNK_ELEMENTS)
        shapes = [tensor.shape for tensor in graph.inputs]
        count = 0
        marked: dict[tuple[int, str], Array] = {}
        for application, fault in trace.faults:
            mask = np.asarray(fault.mask)
            found = boxes(self._axes, self._sites[key][application], mask, shapes)
            if not found:
                raise NotApplicableError(f"a {fault.kind} in {graph.name or 'a program'} whatever the inputs are")
            for number, parts in found.items():
                place = marked.setdefault((number, fault.side), np.zeros(shapes[number], dtype=bool))
                for part in parts:
                    place[part] = True
                count += len(parts)
        for (number, side), place in marked.items():
            old = points[number].residues
            new = random_elements(self.rng, (int(place.sum()),), self.arithmetic.pair, with_q=True)
            p, q = old.p, old.q
            if side == "p":
                p = old.p.copy()
                p[place] = new.p
            elif old.q is not None and new.q is not None:
                q = old.q.copy()
                q[place] = new.q
            points[number] = FieldPoint(FieldValue(p, q), points[number].real)
        return count

    def _fresh(self, shape: tuple[int, ...]) -> FieldPoint:
        residues = random_elements(self.rng, shape, self.arithmetic.pair, with_q=self.with_q)
        return FieldPoint(residues, self.rng.standard_normal(shape) if self.with_real else None)
