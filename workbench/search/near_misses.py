"""Near misses on purpose: µGraphs with the right axes and shapes that compute something else, each with its mistake.

For lectures and for testing verifiers. Invariant: every near miss is a legal µGraph, its abstract expression is not the
program's, and the verifier refuses it with real inputs that show the difference; what turns out equal is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from workbench.display import Displayed
from workbench.domains.abstract_distance import FAR
from workbench.errors import NotApplicableError, WorkbenchError
from workbench.search.engine import search
from workbench.search.events import Verified
from workbench.search.graph_expressions import distances
from workbench.search.mutations import mutations
from workbench.search.space import Space
from workbench.search.verdicts import VerdictLike, Verifier
from workbench.ugraph.expand import expand
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.verify.compare import verify

ORIGINALS = 3
"""How many right structures are made wrong, if none are given."""


@dataclass(frozen=True, slots=True)
class NearMiss(Displayed):
    """A µGraph that is wrong by one mistake.

    Attributes: graph; words: the mistake; original: the right µGraph it was made from; distance: of its abstract
    expression from the program's, above 0 (FAR: it is no part of it); expression: of the output that is wrong; verdict.
    """

    graph: KernelGraph
    words: str
    original: KernelGraph
    distance: int
    expression: str
    verdict: VerdictLike

    def describe(self) -> str:
        """Return the mistake, what is computed instead, and why it is refused."""
        far = "no part of the program's" if self.distance >= FAR else f"at least {self.distance} operators from it"
        return f"{self.words}\n  computes {self.expression}, {far}\n  {self.verdict.kind}: {self.verdict.reason}"


class NearMisses(Displayed):
    """Near misses, made one after the other when they are asked for.

    Attributes: found: those so far; counts: mutants so far by what became of them ("refused", "equal expression",
    "equal", "unknown", "not legal", "met before", "no expression").
    """

    def __init__(
        self,
        program: KernelGraph,
        space: Space | None = None,
        *,
        originals: Sequence[KernelGraph] | None = None,
        verifier: Verifier | None = None,
        seed: int = 0,
    ) -> None:
        """Prepare; see `near_misses`."""
        self.program, self.space, self.seed = program, space or Space(), seed
        self.verifier: Verifier = verifier or partial(verify, shapes="reduced", seed=seed)
        self.found: list[NearMiss] = []
        self.counts: Counter[str] = Counter()
        self._originals = None if originals is None else list(originals)
        self._more = self._make()

    def __iter__(self) -> Iterator[NearMiss]:
        """Yield those that were found, then make more."""
        number = 0
        while True:
            while number < len(self.found):
                yield self.found[number]
                number += 1
            if next(self._more, None) is None:
                return

    def describe(self) -> str:
        """Return the near misses so far and the counts."""
        counts = ", ".join(f"{count} {what}" for what, count in sorted(self.counts.items()))
        return "\n".join([*(miss.describe() for miss in self.found), f"mutants: {counts or 'none yet'}"])

    def originals(self) -> list[KernelGraph]:
        """Return the right µGraphs that are made wrong: of those found, the smallest with block graphs, looped ones first."""
        if self._originals is None:
            events = search(self.program, space=self.space, seed=self.seed)
            right = [event.graph for event in events if isinstance(event, Verified)]
            right.sort(key=_size)
            fused = [graph for graph in right if graph.graph_defined]
            self._originals = (fused or right)[:ORIGINALS]
        return self._originals

    def _make(self) -> Iterator[NearMiss]:
        originals = self.originals()
        known = {graph.structure_hash for graph in originals}
        for original in originals:
            # as it is, then with composites taken apart: there the root, the square and the eps can be forgotten
            for form in (original, expand(original)):
                for mutation in mutations(form):
                    try:
                        graph = mutation.build()
                    except WorkbenchError:
                        self.counts["not legal"] += 1
                        continue
                    if graph.structure_hash in known:
                        self.counts["met before"] += 1
                        continue
                    known.add(graph.structure_hash)
                    miss = self._judge(graph, mutation.words, original)
                    if miss is not None:
                        self.found.append(miss)
                        yield miss

    def _judge(self, graph: KernelGraph, words: str, original: KernelGraph) -> NearMiss | None:
        try:
            outputs = distances(self.program, graph)
        except (NotApplicableError, WorkbenchError):
            self.counts["no expression"] += 1
            return None
        worst = max(outputs, key=lambda output: output.distance)
        if worst.distance == 0:
            self.counts["equal expression"] += 1
            return None
        verdict = self.verifier(self.program, graph)
        if verdict.kind != "different":
            self.counts[verdict.kind] += 1
            return None
        self.counts["refused"] += 1
        return NearMiss(graph, words, original, worst.distance, worst.expression, verdict)


def _size(graph: KernelGraph) -> tuple[int, bool, int]:
    blocks = [node.block for node in graph.graph_defined]
    return (
        len(graph.nodes),
        all(block.forloop_range == 1 for block in blocks),
        sum(len(block.nodes) for block in blocks),
    )


def near_misses(
    program: KernelGraph,
    space: Space | None = None,
    *,
    originals: Sequence[KernelGraph] | None = None,
    verifier: Verifier | None = None,
    seed: int = 0,
) -> NearMisses:
    """Return µGraphs that compute almost what a program computes, made one by one as they are asked for.

    They are right µGraphs (`originals`; by default some that a search in the space finds) with one mistake each: an
    operand forgotten, a sum for a mean, operands exchanged, an operator on the wrong side of a sum, two sums merged.
    verifier: refuses them; by default `verify` on reduced instances. Raises: UsageError for a program that cannot be
    searched.
    """
    return NearMisses(program, space, originals=originals, verifier=verifier, seed=seed)
