"""In which order a block graph's operators run, by depth, so that the fewest block barriers stand between them.

Invariant: the number of barriers is the least of all topological orders and all places for barriers (`barriers` below
says what is counted). Found exactly: the levels of operators are the earliest solution of a system of difference
constraints, whose last level is the number of barriers.

A barrier is needed between an operator that writes a tile in shared memory and one that reads it. In a loop one is needed
too between a reader and the writer of the next iteration, unless the tile has several buffers. Source: Mirage OSDI'25,
section 6 (order by depth); the loop's rule and its exact solution are ours.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from workbench.ops.spec import OpKind
from workbench.optimize.tile_views import lies_in
from workbench.ugraph.block_graph import BlockGraph
from workbench.ugraph.inference import Place
from workbench.ugraph.nodes import Accumulator, BlockNode, InputIterator, OpNode, OutputSaver, RunningMax, ThreadNode
from workbench.units import counted


class Section(IntEnum):
    """When an operator runs: once before the loop, in every iteration, once after the loop."""

    BEFORE = 0
    LOOP = 1
    AFTER = 2


@dataclass(frozen=True, slots=True)
class Dependence:
    """`reader` uses what `writer` made; through shared memory (`is_shared`), or in the registers of the same threads."""

    writer: int
    reader: int
    is_shared: bool


@dataclass(frozen=True, slots=True)
class OrderProblem:
    """Operators to be ordered, numbered from 0.

    Attributes: sections: per operator; dependences; overwritten: (writer, reader) of tiles with one buffer in the loop,
    where the next iteration's writer must not overtake the reader; iterations of the loop.
    """

    sections: tuple[Section, ...]
    dependences: tuple[Dependence, ...]
    overwritten: tuple[tuple[int, int], ...] = ()
    iterations: int = 1


@dataclass(frozen=True, slots=True)
class Order:
    """An order of operators with the fewest barriers.

    Attributes: positions: operator numbers in the order in which they run; levels: per operator, the barriers that a
    thread has passed before it in the first iteration; before, loop, after: barriers before the loop (or where there is
    no loop, all of them), in every iteration, after the loop; iterations.
    """

    positions: tuple[int, ...]
    levels: tuple[int, ...]
    before: int
    loop: int
    after: int
    iterations: int

    @property
    def barriers(self) -> int:
        """Barriers that a thread passes in all: `before + loop * iterations + after`."""
        return self.before + self.loop * self.iterations + self.after

    @property
    def standing(self) -> int:
        """Barriers that stand in the text."""
        return self.before + self.loop + self.after


def fewest_barriers(problem: OrderProblem, first: Sequence[int] | None = None) -> Order:
    """Return an order with the fewest barriers. first: per operator, who goes first of those on one level (least first).

    Where there is a loop, a level more in it costs a barrier an iteration, and can save no more than the two barriers at
    its ends; so the loop's levels are made fewest first.
    """
    is_looped = problem.iterations > 1 and Section.LOOP in problem.sections
    if not is_looped:
        levels = _earliest(problem, None)
        assert levels is not None, "dependences of a legal graph have no cycle"
        total = max(levels, default=0)
        return Order(_sorted(problem, levels, first), levels, total, 0, 0, problem.iterations)
    inner = [
        edge
        for edge in problem.dependences
        if problem.sections[edge.writer] is problem.sections[edge.reader] is Section.LOOP
    ]
    depth = _earliest(replace(problem, dependences=tuple(inner)), None)
    assert depth is not None, "dependences of a legal graph have no cycle"
    length = max(level for level, section in zip(depth, problem.sections, strict=True) if section is Section.LOOP)
    while (found := _earliest(problem, length)) is None:
        length += 1  # one more is always enough: the level that is added keeps iterations apart
    before = found[-1]
    levels = found[:-1]
    after = max(0, max(levels) - before - length)
    return Order(_sorted(problem, levels, first), levels, before, length, after, problem.iterations)


def _earliest(problem: OrderProblem, length: int | None) -> tuple[int, ...] | None:
    """Return the least level of every operator, then that of the loop's start; None if there is no solution.

    length: barriers inside the loop (None: there is no loop, and no level for its start is returned).
    """
    count = len(problem.sections)
    start, end = count, count + 1
    constraints = [(edge.writer, edge.reader, int(edge.is_shared)) for edge in problem.dependences]
    if length is not None:
        constraints += [(start, end, length), (end, start, -length)]
        for number, section in enumerate(problem.sections):
            match section:
                case Section.BEFORE:
                    constraints.append((number, start, 0))
                case Section.LOOP:
                    constraints += [(start, number, 0), (number, end, 0)]
                case Section.AFTER:
                    constraints.append((end, number, 0))
        # reader - writer <= length - 1: then a barrier stands between the reader and the next iteration's writer
        constraints += [(reader, writer, 1 - length) for writer, reader in problem.overwritten]
    levels = [0] * (count + 2)
    for _ in range(count + 3):
        changed = False
        for source, target, least in constraints:
            if levels[target] < levels[source] + least:
                levels[target] = levels[source] + least
                changed = True
        if not changed:
            return tuple(levels[:count] if length is None else levels[: count + 1])
    return None


def _sorted(problem: OrderProblem, levels: Sequence[int], first: Sequence[int] | None) -> tuple[int, ...]:
    """Return the operators by section and level, each after what it reads."""
    waiting = [0] * len(levels)
    readers: list[list[int]] = [[] for _ in levels]
    for edge in problem.dependences:
        readers[edge.writer].append(edge.reader)
        waiting[edge.reader] += 1
    is_looped = problem.iterations > 1

    def key(number: int) -> tuple[int, int, int, int]:
        section = problem.sections[number] if is_looped else Section.BEFORE
        return section, levels[number], first[number] if first is not None else 0, number

    ready = [key(number) for number, count in enumerate(waiting) if count == 0]
    heapq.heapify(ready)
    result: list[int] = []
    while ready:
        number = heapq.heappop(ready)[-1]
        result.append(number)
        for reader in readers[number]:
            waiting[reader] -= 1
            if waiting[reader] == 0:
                heapq.heappush(ready, key(reader))
    return tuple(result)


# ------------------------------------------------------------------------------------------------------- block graphs
def section_of(block: BlockGraph) -> tuple[Section, ...]:
    """Return when each node of a block graph runs; what the loop does not need and no iteration changes runs after it."""
    needed: set[str] = set()
    sections: list[Section] = []
    for node in reversed(block.nodes):
        section = _own_section(block, node)
        if section is None:
            is_early = isinstance(node, InputIterator) or any(tensor.name in needed for tensor in node.results)
            section = Section.BEFORE if is_early else Section.AFTER
        if section is not Section.AFTER:
            needed |= set(node.operands)
        sections.append(section)
    return tuple(reversed(sections))


def _own_section(block: BlockGraph, node: BlockNode) -> Section | None:
    match node:
        case Accumulator() | RunningMax():
            return Section.LOOP
        case OutputSaver():
            return Section.AFTER
        case InputIterator() | OpNode() | ThreadNode():
            place = block.places[node.results[0].name]
            return {Place.LOOP: Section.LOOP, Place.AFTER: Section.AFTER, Place.INVARIANT: None}[place]


def order_problem(block: BlockGraph, registers: Iterable[str] = ()) -> OrderProblem:
    """Return what must be ordered in a block graph. registers: tiles that their readers find in their own registers."""
    kept = frozenset(registers)
    sections = section_of(block)
    makers = {tensor.name: number for number, node in enumerate(block.nodes) for tensor in node.results}
    dependences: dict[tuple[int, int], bool] = {}
    overwritten: list[tuple[int, int]] = []
    last_saver: int | None = None
    bases = lies_in(block)
    for reader, node in enumerate(block.nodes):
        for name in node.operands:
            dependences.setdefault((makers[name], reader), False)
            writer = makers[bases[name]]  # a view is there as soon as what it is a view of
            is_shared = bases[name] not in kept
            dependences[writer, reader] = dependences.get((writer, reader), False) or is_shared
            is_inner = sections[writer] is sections[reader] is Section.LOOP
            if is_shared and is_inner and not isinstance(block.nodes[writer], InputIterator):
                overwritten.append((writer, reader))
        if isinstance(node, OutputSaver):  # the order of savers is the order of the results
            if last_saver is not None:
                dependences.setdefault((last_saver, reader), False)
            last_saver = reader
    edges = tuple(Dependence(writer, reader, shared) for (writer, reader), shared in dependences.items())
    return OrderProblem(sections, edges, tuple(dict.fromkeys(overwritten)), block.forloop_range)


def order_operators(block: BlockGraph, registers: Iterable[str] = ()) -> Order:
    """Return the order of a block graph's nodes with the fewest barriers; products go first on their level.

    registers: tiles whose readers find them in their own registers, so that no barrier stands before these.
    """
    first = [
        0
        if isinstance(node, InputIterator)
        else 1
        if isinstance(node, OpNode) and node.spec.kind is OpKind.CONTRACTION
        else 2
        for node in block.nodes
    ]
    return fewest_barriers(order_problem(block, registers), first)


def as_written(block: BlockGraph, registers: Iterable[str] = ()) -> Order:
    """Return the order in which the nodes stand, a barrier before every operator that reads a tile in shared memory.

    It is what a writer that does not look ahead does: the other side of the ablation.
    """
    problem = order_problem(block, registers)
    shared = {edge.reader for edge in problem.dependences if edge.is_shared}
    is_looped = problem.iterations > 1 and Section.LOOP in problem.sections
    levels: dict[int, int] = {}
    counts = dict.fromkeys(Section, 0)
    positions = sorted(range(len(block.nodes)), key=lambda n: (problem.sections[n] if is_looped else 0, n))
    level = 0
    for number in positions:
        if number in shared:
            level += 1
            counts[problem.sections[number] if is_looped else Section.BEFORE] += 1
        levels[number] = level
    if is_looped and any(levels[w] < levels[r] for w, r in problem.overwritten) and counts[Section.LOOP] < 2:
        counts[Section.LOOP] += 1
    return Order(
        tuple(positions), tuple(levels[number] for number in range(len(block.nodes))),
        counts[Section.BEFORE], counts[Section.LOOP], counts[Section.AFTER], problem.iterations,
    )  # fmt: skip


def reordered(block: BlockGraph, order: Order) -> BlockGraph:
    """Return the block graph with its nodes in this order."""
    nodes = tuple(block.nodes[number] for number in order.positions)
    return block if nodes == block.nodes else replace(block, nodes=nodes)


def describe_order(order: Order, written: Mapping[str, int] | None = None) -> str:
    """Return the barriers of an order in words."""
    if order.iterations == 1 or order.loop == 0:
        return counted(order.standing, "barrier")
    ends = f", {order.before} before and {order.after} after the loop" if order.before or order.after else ""
    return f"{counted(order.loop, 'barrier')} an iteration{ends}: {order.barriers} in all"
