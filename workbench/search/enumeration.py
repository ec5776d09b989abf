"""Graphs from a hypergraph, top-down: one edge for every needed node, the last node first.

Invariant: needs are settled in one order, so every graph is met exactly once, without dead operators.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
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
        # A node that some edge makes for nothing (a load or store) need not take an operator of its own.
        self._rank = hypergraph.order.__getitem__
        # Per node and edge: what it costs, and the operands that are to be made.
        self._ways = [
            [
                (edge, edge.block_cost, edge.kernel_cost, tuple(o for o in edge.operands if not self._is_input(o)))
                for edge in edges
            ]
            for edges in hypergraph.edges
        ]
        self._own = [0 if not edges or any(not edge.block_cost for edge in edges) else 1 for edges in hypergraph.edges]

    def sketches(self) -> Iterator[Sketch]:
        """Yield every graph within the limits."""
        graph = self.hypergraph
        for outputs in itertools.product(*graph.goals):
            if all(graph.least[output] < NEVER for output in outputs):
                made = {output for output in outputs if not self._is_input(output)}
                needs = tuple(sorted(made, key=graph.order.__getitem__))
                for chosen in self._choose(needs, [], graph.block_limit, graph.kernel_limit):
                    yield Sketch(graph, tuple(reversed(chosen)), outputs)

    def _choose(
        self, needs: tuple[int, ...], chosen: list[tuple[int, Edge]], blocks: int, kernels: int
    ) -> Iterator[list[tuple[int, Edge]]]:
        self.states += 1
        if not needs:
            yield chosen
            return
        node, rest = needs[-1], needs[:-1]
        own, least = self._own, self.hypergraph.least
        for edge, block_cost, kernel_cost, made in self._ways[node]:
            left, kernels_left = blocks - block_cost, kernels - kernel_cost
            if left < 0 or kernels_left < 0:
                continue
            new = {*rest, *made}
            if sum([own[need] for need in new]) > left or max([least[need] for need in new], default=0) > left:
                self.dead_ends += 1
                continue
            chosen.append((node, edge))
            ordered = tuple(sorted(new, key=self._rank)) if made else rest
            yield from self._choose(ordered, chosen, left, kernels_left)
            chosen.pop()

    def _is_input(self, node: int) -> bool:
        graph = self.hypergraph
        return graph.places[node] is Place.BEFORE and not graph.edges[node] and graph.least[node] == 0
