"""Graphs from a hypergraph, top-down: one edge for every needed node, the last node first.

Invariant: needs are settled in one order, so every graph is met exactly once, without dead operators.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from workbench.search.hypergraph import NEVER, Edge, Hypergraph
from workbench.search.places import Place


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


class Enumeration:
    """Counts what an enumeration met. Attributes: states; dead_ends (needs that could not be afforded)."""

    def __init__(self, hypergraph: Hypergraph) -> None:
        """Prepare."""
        self.hypergraph = hypergraph
        self.states = self.dead_ends = 0
        order, least = hypergraph.order, hypergraph.least
        # Needs are bits in the order of ranks, so that the last need is the highest bit: there are many thousands of states.
        self._nodes = [0] * len(order)
        for node, rank in enumerate(order):
            self._nodes[rank] = node
        # Per rank and edge: the edge and its node, what it costs, and the operands that are to be made.
        self._ways = [
            [
                ((node, edge), edge.block_cost, edge.kernel_cost, self._needs(edge.operands))
                for edge in hypergraph.edges[node]
            ]
            for node in self._nodes
        ]
        # A node that some edge makes for nothing (a load or store) need not take an operator of its own.
        self._costly = sum(
            1 << order[node]
            for node, edges in enumerate(hypergraph.edges)
            if edges and all(e.block_cost for e in edges)
        )
        self._beyond = [
            sum(1 << order[node] for node, operators in enumerate(least) if operators > left)
            for left in range(hypergraph.block_limit + 1)
        ]

    def sketches(self) -> Iterator[Sketch]:
        """Yield every graph within the limits."""
        graph = self.hypergraph
        for outputs in itertools.product(*graph.goals):
            if all(graph.least[output] < NEVER for output in outputs):
                for chosen in self._choose(self._needs(outputs), [], graph.block_limit, graph.kernel_limit):
                    yield Sketch(graph, tuple(reversed(chosen)), outputs)

    def _choose(
        self, needs: int, chosen: list[tuple[int, Edge]], blocks: int, kernels: int
    ) -> Iterator[list[tuple[int, Edge]]]:
        self.states += 1
        if not needs:
            yield chosen
            return
        last = needs.bit_length() - 1
        rest = needs ^ 1 << last
        for way, block_cost, kernel_cost, made in self._ways[last]:
            left, kernels_left = blocks - block_cost, kernels - kernel_cost
            if left < 0 or kernels_left < 0:
                continue
            new = rest | made
            if new & self._beyond[left] or (new & self._costly).bit_count() > left:
                self.dead_ends += 1
                continue
            chosen.append(way)
            yield from self._choose(new, chosen, left, kernels_left)
            chosen.pop()

    def _needs(self, nodes: Iterable[int]) -> int:
        """Return the nodes that are to be made, those that are inputs left out."""
        needs = 0
        for node in nodes:
            needs |= 0 if self._is_input(node) else 1 << self.hypergraph.order[node]
        return needs

    def _is_input(self, node: int) -> bool:
        graph = self.hypergraph
        return graph.places[node] is Place.BEFORE and not graph.edges[node] and graph.least[node] == 0
