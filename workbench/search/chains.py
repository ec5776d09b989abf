"""Which chains of two block graphs count: those that could not as well be one, or be cut at a better place.

A second kernel costs a launch and a way through device memory. With `chains="needed"` a chain is left out by a rule when
another µGraph of the space does the same with less. Invariant: each rule names itself, so that what is left out is
counted and can be asked for with `chains="all"`.

one loop: both block graphs loop over the same axis and nothing in the second loop needs a result of the first.
nothing in between: the second neither loops nor has the first one's axis, so it belongs after the first one's loop.
    (Neither rule is for block graphs that read nothing in common: each may have a grid of its own.)
computed where it is read: the first stores what elementwise operators make of inputs and smaller results; the second
    can make it from what it reads anyway.
stored as late as possible: the second starts with an elementwise operator on one stored tensor; the first can do it
    and stores no more.
folded early: the second folds, of inputs alone, over an axis that the first loops over as well (kept by `hypergraph`).
held whole: the first folds an axis that the second, without a loop, holds whole and folds too (kept by `hypergraph`).
read from a library: a block graph reads a matrix product of inputs that a predefined kernel made; it can make the
    product itself, within the limit of operators. (Of one block graph as well.)
unlooped: a block graph without a loop folds an axis that it could loop over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from workbench.search.enumeration import Sketch
from workbench.search.events import Text
from workbench.search.hypergraph import Edge, Hypergraph
from workbench.search.palette import Effect
from workbench.search.places import Place
from workbench.search.value_text import ValueTexts

CHAIN = "chain: "
"""How the rules of this module begin where they are counted."""

WHY = {
    "one loop": "both block graphs loop over the same axis, and nothing in the second loop needs a result of the first: "
    "one block graph does it",
    "nothing in between": "the second block graph neither loops nor has the axis of the first one's loop: it belongs after "
    "that loop",
    "computed where it is read": "the first block graph stores it, and the second can make it elementwise of what it reads",
    "stored as late as possible": "the second block graph begins with it; the first can make it and stores no more",
    "folded early": "the second block graph would fold, of inputs alone, over the axis that the first loops over",
    "held whole": "the first block graph would fold an axis that the second, without a loop, holds whole and folds too",
    "read from a library": "a block graph would read a product of inputs from a predefined kernel; it can make it itself",
    "unlooped": "a block graph without a loop could make every fold over this axis in a loop",
}
"""Each rule with what the same graph can do better."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a chain is left out. Attributes: rule; node: of the value that shows it, axis: that shows it, if there is one."""

    rule: str
    node: int | None = None
    axis: str = ""

    def text(self, sketch: Sketch) -> Text:
        """Return the evidence, written when asked for."""

        def written() -> str:
            graph = sketch.hypergraph
            shown = self.axis if self.node is None else ValueTexts(graph.expressions).of(graph.values[self.node])
            return f"{shown}: {WHY[self.rule]}" if shown else WHY[self.rule]

        return written


def why_not(sketch: Sketch, limit: int) -> Reason | None:
    """Return the rule by which a chain of kernels is left out, None if it counts. limit: of block operators."""
    if sketch.block_operators < limit:
        read = _read_from_a_library(sketch)
        if read is not None:
            return Reason("read from a library", read)
    if len(sketch.hypergraph.plan.loops) < 2:
        return None
    chain = _Chain(sketch)
    return chain.why_not()


def is_proper(sketch: Sketch) -> bool:
    """Return whether a sketch belongs to its plan: every block graph is there, loops accumulate, blocks are combined.

    Also, no value is made twice in one block graph, and none is read only to be stored again.
    """
    graph = sketch.hypergraph
    values, places = graph.values, graph.places
    computes, accumulates = [False, False], [False, False]
    read: set[int] = set()
    made: set[tuple[int, int]] = set()
    for node, edge in sketch.chosen:
        kernel = places[node].kernel
        if kernel is None:
            if edge.kind == "store" and edge.operands[0] in read:
                return False
            continue
        key = (values[node], kernel)
        if key in made:
            return False
        made.add(key)
        if edge.kind == "load":
            read.add(node)
        else:
            computes[kernel] = True
            accumulates[kernel] |= edge.kind == "accumulate"
    for kernel, loop in enumerate(graph.plan.loops):
        if not computes[kernel] or (loop and not accumulates[kernel]):
            return False
    return not graph.plan.split or _splits(sketch)


def _splits(sketch: Sketch) -> bool:
    """Return whether what blocks left is combined, and every block stores something of its own."""
    graph = sketch.hypergraph
    stored = [
        node for node, edge in sketch.chosen if edge.kind == "store" and graph.places[edge.operands[0]].kernel == 0
    ]
    own = all(graph.algebra.mask[graph.values[node]] & graph.grid for node in stored)
    return own and any(edge.kind == "combine" for _, edge in sketch.chosen)


def _read_from_a_library(sketch: Sketch) -> int | None:
    """Return a product of a predefined kernel, made before every block graph, that a block graph reads and can make."""
    graph = sketch.hypergraph
    products = {
        node: edge for node, edge in sketch.chosen if edge.kind == "kernel" and graph.places[node] is Place.BEFORE
    }
    for node, edge in sketch.chosen if products else ():
        kernel = graph.places[node].kernel
        if edge.kind == "load" and kernel is not None:
            product = products.get(edge.operands[0])
            if product is not None and product.mask == graph.tiles[kernel].get(product.axis):
                return node
    return None


@dataclass
class _Chain:
    """A sketch of two block graphs, looked at node by node."""

    sketch: Sketch

    def __post_init__(self) -> None:
        self.graph: Hypergraph = self.sketch.hypergraph
        self.made: dict[int, Edge] = dict(self.sketch.chosen)
        self.mask = self.graph.algebra.mask
        self.users: dict[int, list[int]] = {}
        for node, edge in self.sketch.chosen:
            for operand in dict.fromkeys(edge.operands):
                self.users.setdefault(operand, []).append(node)

    def why_not(self) -> Reason | None:
        first, second = self.graph.plan.loops
        if not self.graph.plan.split and not self._are_unrelated():
            if first == second and first is not None and not self._needs_result_in_loop():
                return Reason("one loop")
            if second is None and not self._has_axis(first):
                return Reason("nothing in between")
        for node in self._stored_for_second():
            if not self._is_worth_storing(node):
                return Reason("computed where it is read", node)
        late = self._starts_late()
        if late is not None:
            return Reason("stored as late as possible", late)
        for kernel, loop in enumerate((first, second)):
            axis = self._could_loop(kernel) if loop is None else None
            if axis is not None:
                return Reason("unlooped", axis=axis)
        return None

    def _axes(self, node: int) -> int:
        return self.mask[self.graph.values[node]]

    def _nodes(self, kernel: int) -> list[int]:
        return [node for node, _ in self.sketch.chosen if self.graph.places[node].kernel == kernel]

    def _are_unrelated(self) -> bool:
        """Return whether the two block graphs read nothing in common, nor one what the other stores: grids of their own."""
        if any(self.graph.places[node].is_dependent for node in self.made):
            return False
        first, second = ({o for n in self._nodes(k) for o in self._read(n)} for k in (0, 1))
        return not first & second

    def _read(self, node: int) -> tuple[int, ...]:
        return self.made[node].operands if self.made[node].kind == "load" else ()

    def _needs_result_in_loop(self) -> bool:
        """Return whether something in the second loop depends on the first block graph."""
        return any(self.graph.places[node] is Place.B_LOOP_DEPENDENT for node in self.made)

    def _has_axis(self, loop: str | None) -> bool:
        """Return whether a value of the second block graph varies along the axis that the first loops over."""
        mask = self.graph.whole[loop] if loop else 0
        return any(self._axes(node) & mask == mask != 0 for node in self._nodes(1))

    def _stored_for_second(self) -> list[int]:
        """Return what the first block graph makes, stores, and only the second reads."""
        return [
            edge.operands[0]
            for node, edge in self.sketch.chosen
            if edge.kind == "store"
            and self.graph.places[node] is Place.BETWEEN
            and node not in self.sketch.outputs
            and all(self.made[user].kind == "load" for user in self.users.get(node, ()))
        ]

    def _is_worth_storing(self, node: int) -> bool:
        """Return whether a value is folded, or made elementwise of a folded value as large as itself."""
        edge = self.made[node]
        if edge.is_fold:
            return True
        if edge.kind != "operator" or edge.operator is None or edge.operator.effect is Effect.WHOLE:
            return edge.kind == "operator"
        return any(self._axes(o) == self._axes(node) and self._is_worth_storing(o) for o in edge.operands)

    def _starts_late(self) -> int | None:
        """Return an operator of the second block graph that the first can carry out, without storing more."""
        loads = {
            node for node in self._nodes(1) if self.made[node].kind == "load" and self.graph.places[node].is_dependent
        }
        for node in self._nodes(1):
            edge = self.made[node]
            if edge.kind != "operator" or edge.is_fold or edge.operator is None or edge.operator.effect is Effect.WHOLE:
                continue
            if not all(self.made[operand].kind == "load" for operand in edge.operands):
                continue
            same = [o for o in edge.operands if o in loads and self._axes(o) == self._axes(node)]
            if same and all(self._is_read_once(o) for o in same):
                return node
        return None

    def _is_read_once(self, load: int) -> bool:
        stored = self.made[load].operands[0]
        return len(self.users[load]) == 1 and len(self.users[stored]) == 1 and stored not in self.sketch.outputs

    def _could_loop(self, kernel: int) -> str | None:
        """Return an axis that a block graph without a loop could loop over."""
        saved = [
            edge.operands[0]
            for _, edge in self.sketch.chosen
            if edge.kind == "store" and self.graph.places[edge.operands[0]].kernel == kernel
        ]
        nodes = [node for node in self._nodes(kernel) if self.made[node].kind != "load"]
        tiles = self.graph.tiles[kernel].items()
        return next((axis for axis, tile in tiles if self._could_loop_over(tile, nodes, saved)), None)

    def _could_loop_over(self, tile: int, nodes: Sequence[int], saved: Sequence[int]) -> bool:
        """Return whether every fold over an axis could be an accumulator: nothing that has the axis depends on one."""
        after: set[int] = set()
        for node in nodes:
            edge = self.made[node]
            has_axis = bool(self._axes(node) & tile)
            depends = any(operand in after for operand in edge.operands)
            folds = not has_axis and any(self._axes(operand) & tile for operand in edge.operands)
            is_whole = edge.operator is not None and edge.operator.effect is Effect.WHOLE and edge.mask & tile
            if (has_axis and depends) or is_whole or (folds and (depends or edge.kind == "combine")):
                return False
            if folds or depends:
                after.add(node)
        return bool(after) and not any(self._axes(node) & tile for node in saved)
