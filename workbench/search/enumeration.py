"""Graphs from a hypergraph, top-down: one edge for every needed node, the last node first.

Invariant: needs are settled in one order, so every graph is met exactly once, without dead operators; what was found not
to lead to any graph of the plan within the limits is not tried again.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterator
from dataclasses import dataclass

from workbench.search.hypergraph import Edge, Hypergraph
from workbench.search.places import Place
from workbench.search.space import NEVER


@dataclass(frozen=True, slots=True)
class Sketch:
    """A graph without sizes: which edge makes each node, operands first; outputs: nodes in the program's order."""

    hypergraph: Hypergraph
    chosen: tuple[tuple[int, Edge], ...]
    outputs: tuple[int, ...]

    @property
    def block_operators(self) -> int:
        """How many operators its block graphs have."""
        return sum(edge.block_cost for _, edge in self.chosen)

    @property
    def kernels(self) -> int:
        """How many kernels it has."""
        return sum(edge.kernel_cost for _, edge in self.chosen) + len(self.hypergraph.plan.loops)


@dataclass(frozen=True, slots=True)
class _Way:
    """One edge of a node, with the node: what it costs, the operands that are to be made (a set of ranks), the duties it does."""

    choice: tuple[int, Edge]
    block_cost: int
    kernel_cost: int
    made: int
    duties: int


class Enumeration:
    """The graphs of a hypergraph within its limits. Attributes: hypergraph; states, dead_ends: needs met, ways not taken so far.

    Sets of nodes are integers, one bit a node in the order of building. A *duty* is what a graph of the plan must have:
    operators in every block graph, an accumulator in every loop, a sum of what blocks left.
    """

    def __init__(self, hypergraph: Hypergraph) -> None:
        """Prepare."""
        self.hypergraph = graph = hypergraph
        self.states = self.dead_ends = 0
        self._nodes = sorted(range(len(graph.values)), key=graph.order.__getitem__)
        self._least = [graph.least[node] for node in self._nodes]
        self._ways = [[self._way(node, edge) for edge in graph.edges[node]] for node in self._nodes]
        # A node that some edge makes for nothing (a load or store) need not take an operator of its own.
        self._own = sum(
            1 << rank for rank, ways in enumerate(self._ways) if ways and all(way.block_cost for way in ways)
        )
        self._cones: list[int] = []  # what may be made on the way to a node, itself among it
        for rank, ways in enumerate(self._ways):
            cone = 1 << rank
            for way in ways:
                for operand in _ranks(way.made):
                    cone |= self._cones[operand]
            self._cones.append(cone)
        self._twins = self._same_values()
        self._duties = [
            sum(1 << rank for rank, ways in enumerate(self._ways) if any(way.duties >> duty & 1 for way in ways))
            for duty in range(_duties_of(graph).bit_length())
        ]
        self._failed: dict[tuple[int, int, int], int] = {}  # needs, duties, kernels: block operators that do not do

    def _way(self, node: int, edge: Edge) -> _Way:
        graph = self.hypergraph
        made = 0
        for operand in edge.operands:
            if not self._is_input(operand):
                made |= 1 << graph.order[operand]
        duties = 0
        kernel = graph.places[node].kernel
        if kernel is not None and edge.kind != "load":
            duties = 1 << kernel
            if edge.kind == "accumulate":
                duties |= _ACCUMULATES << kernel
            if edge.kind == "combine":
                duties |= _COMBINES
        return _Way((node, edge), edge.block_cost, edge.kernel_cost, made, duties)

    def _same_values(self) -> list[int]:
        """Return per node the other nodes of its block graph that have its value: no graph makes it twice."""
        graph = self.hypergraph
        groups: dict[tuple[int, int], int] = {}
        keys = [(graph.values[node], graph.places[node].kernel) for node in self._nodes]
        for rank, (value, kernel) in enumerate(keys):
            if kernel is not None:
                groups[value, kernel] = groups.get((value, kernel), 0) | 1 << rank
        return [
            groups[value, kernel] & ~(1 << rank) if kernel is not None else 0
            for rank, (value, kernel) in enumerate(keys)
        ]

    def sketches(self) -> Iterator[Sketch]:
        """Yield every graph within the limits."""
        graph = self.hypergraph
        duties = _duties_of(graph)
        for outputs in itertools.product(*graph.goals):
            if all(graph.least[output] < NEVER for output in outputs):
                needs = 0
                for output in outputs:
                    if not self._is_input(output):
                        needs |= 1 << graph.order[output]
                if self._is_possible(needs, duties, graph.block_limit):
                    for chosen in self._choose(needs, 0, duties, [], graph.block_limit, graph.kernel_limit):
                        yield Sketch(graph, tuple(reversed(chosen)), outputs)

    def _choose(
        self, needs: int, done: int, duties: int, chosen: list[tuple[int, Edge]], blocks: int, kernels: int
    ) -> Generator[list[tuple[int, Edge]], None, tuple[bool, bool]]:
        """Yield the choices that make all needs; return whether there are any, and whether that rests on needs alone."""
        self.states += 1
        if not needs:
            yield chosen
            return True, True
        rank = needs.bit_length() - 1
        bit = 1 << rank
        rest, done = needs ^ bit, done | bit
        found, clean = False, True
        for way in self._ways[rank]:
            left, kernels_left = blocks - way.block_cost, kernels - way.kernel_cost
            if left < 0 or kernels_left < 0:
                continue
            new, open_duties = rest | way.made, duties & ~way.duties
            key = (new, open_duties, kernels_left)
            if self._failed.get(key, -1) >= left or not self._is_possible(new, open_duties, left):
                self.dead_ends += 1
                continue
            twins = 0
            for operand in _ranks(way.made & ~rest):
                twins |= self._twins[operand]
            if twins & (new | done):
                clean = clean and bool(twins & new)
                continue
            chosen.append(way.choice)
            some, is_clean = yield from self._choose(new, done, open_duties, chosen, left, kernels_left)
            chosen.pop()
            if not some and is_clean:
                self._failed[key] = left
            found, clean = found or some, clean and is_clean
        return found, clean

    def _is_possible(self, needs: int, duties: int, blocks: int) -> bool:
        """Return whether so many block operators may make all needs, and what is made on the way may do the duties.

        Of a need and what it may be made from, at least what the need takes; every other need takes one more.
        """
        own = needs & self._own
        if own.bit_count() > blocks:
            return False
        below = 0
        for rank in _ranks(needs):
            cone = self._cones[rank]
            below |= cone
            if self._least[rank] + (own & ~cone).bit_count() > blocks:
                return False
        return all(below & able for duty, able in enumerate(self._duties) if duties >> duty & 1)

    def _is_input(self, node: int) -> bool:
        graph = self.hypergraph
        return graph.places[node] is Place.BEFORE and not graph.edges[node] and graph.least[node] == 0


_ACCUMULATES, _COMBINES = 1 << 2, 1 << 4
"""Bits of duties; the first two: each block graph has operators."""


def _duties_of(graph: Hypergraph) -> int:
    duties = 0
    for kernel, loop in enumerate(graph.plan.loops):
        duties |= 1 << kernel
        if loop:
            duties |= _ACCUMULATES << kernel
    return duties | _COMBINES if graph.plan.split else duties


def _ranks(nodes: int) -> Iterator[int]:
    """Yield the members of a set of nodes, in the order of building."""
    while nodes:
        bit = nodes & -nodes
        yield bit.bit_length() - 1
        nodes ^= bit
