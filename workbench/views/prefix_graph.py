"""A prefix of the search as a picture: the block graphs in the making, the operator that came last marked.

Invariant: what is drawn is the prefix of that name, rebuilt by the search's own rules, so places and operands are right
also for what a rule dropped.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from workbench.errors import UsageError
from workbench.search.places import AFTER, LOOP, Place
from workbench.search.prefix.engine import PrefixWork, prefix_work
from workbench.search.prefix.one_plan import PrefixSearch
from workbench.search.prefix.prefixes import Prefix, parse_name
from workbench.search.prefix.views import Looked
from workbench.search.pruners.rule import Pruner
from workbench.search.space import Space
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.units import counted
from workbench.views.markup import words
from workbench.views.search_event import named, placeholders

_WIDE, _HIGH, _LINE, _GAP, _ROW_GAP, _PAD, _TITLE = 152, 34, 13, 18, 22, 8, 16
_LONGEST = 20  # characters of a line in a node
_ASIDE = 8.0  # from an edge to the node that it goes around

Point = tuple[float, float]
Box = tuple[float, float, float, float]  # left, top, right, bottom


@dataclass(frozen=True, slots=True)
class PrefixNode:
    """A node. Attributes: position; title; operands: positions; group: where it is, in order of time; row: in its group."""

    position: int
    title: str
    name: str
    operands: tuple[int, ...]
    group: int
    row: int
    is_new: bool


@dataclass(frozen=True, slots=True)
class PrefixGraph:
    """The nodes of a prefix, and the title of each group of them that is part of a block graph."""

    nodes: tuple[PrefixNode, ...]
    titles: Mapping[int, str]


class PrefixDesk:
    """Rebuilds prefixes by name, for one program, space and choice of pruners; independent of a search that runs."""

    def __init__(
        self, program: KernelGraph, space: Space, pruners: Sequence[str | Pruner] | None, seed: int = 0
    ) -> None:
        """Read the program. Raises: as a search by prefixes."""
        self.program = program
        self.work: PrefixWork = prefix_work(program, space, pruners, None, seed)
        self.extents = placeholders(self.work.shared.problem)
        self._plans: dict[int, PrefixSearch] = {}
        self._known: dict[str, Prefix] = {}

    @property
    def axes(self) -> str:
        """The axes that expressions name, with their extents: `a = 16, b = 4096`."""
        return ", ".join(f"{name} = {extent}" for name, extent in self.work.shared.problem.extents.items())

    def plan(self, name: str) -> PrefixSearch:
        """Return the plan of a prefix. Raises: UsageError."""
        number, _ = parse_name(name)
        if number not in self._plans:
            if not 0 <= number < self.work.total:
                raise UsageError(f"prefix {name!r}: there are {self.work.total} plans")
            self._plans[number] = self.work.plan(number)
        return self._plans[number]

    def prefix(self, name: str) -> Prefix:
        """Return the prefix of a name, dropped or not. Raises: UsageError."""
        found = self._known.get(name)
        if found is None:
            plan = self.plan(name)
            parent, _, last = name.rpartition("/")
            if not parent:
                found = plan.root()
            else:
                _, steps = parse_name(f"0/{last}")
                found = plan._stepped(self.prefix(parent), steps[0], name)
            if len(self._known) > 4000:
                self._known.clear()
            self._known[name] = found
        return found

    def look(self, name: str) -> Looked:
        """Return what every pruner says of the last extension of a prefix, with the expression. Raises: UsageError."""
        prefix = self.prefix(name)
        if prefix.parent is None or prefix.move is None:
            raise UsageError(f"prefix {name!r} has no operator yet; name a longer one")
        moment, high, low, _ = prefix.step
        return self.plan(name).look(prefix.parent, moment, high, low, prefix.move)

    def label(self, name: str) -> str:
        """Return the last operator of a prefix with its operands' positions. Raises: UsageError."""
        prefix = self.prefix(name)
        label = "" if prefix.move is None else prefix.move.label()
        return f"{named(label, self.extents)}({', '.join(map(str, prefix.operands))})"

    def graph(self, name: str) -> PrefixGraph:
        """Return a prefix as nodes in their places. Raises: UsageError."""
        prefix, plan = self.prefix(name), self.plan(name)
        line = prefix.line()
        first = len(prefix.tensors) - len(line)
        read = {operand for step in line for operand in step.operands}
        nodes: list[PrefixNode] = []
        rows: dict[int, tuple[int, int]] = {}
        for position, tensor in enumerate(self.program.inputs[:first]):
            if position in read:
                rows[position] = (0, 0)
                shape = "×".join(map(str, tensor.shape))
                nodes.append(PrefixNode(position, tensor.name, shape, (), 0, 0, False))
        for position, step in enumerate(line, first):
            assert step.move is not None
            group = _group(step.move.place)
            above = [rows[operand][1] for operand in step.operands if rows.get(operand, (-1, 0))[0] == group]
            row = 1 + max(above, default=-1)
            rows[position] = (group, row)
            nodes.append(
                PrefixNode(
                    position, named(step.move.label(), self.extents), f"t{position}", step.operands, group, row,
                    position == first + len(line) - 1,
                )
            )  # fmt: skip
        return PrefixGraph(tuple(nodes), _titles(plan))


def _group(place: Place) -> int:
    """Return the rank in time of a place: inputs 0, device 1, first block graph 2 to 4, device 5, second 6 to 8, device 9."""
    kernel = place.kernel
    if kernel is None:
        return {Place.BEFORE: 1, Place.BETWEEN: 5, Place.AFTER: 9}[place]
    return (2, 6)[kernel] + place.stage


def _titles(plan: PrefixSearch) -> dict[int, str]:
    titles = {1: "predefined kernels", 5: "predefined kernels", 9: "predefined kernels"}
    for kernel, loop in enumerate(plan.plan.loops):
        base = (2, 6)[kernel]
        which = f"block graph {kernel + 1}" if len(plan.plan.loops) > 1 else "block graph"
        titles[base] = f"{which}, before the loop" if loop else which
        titles[base + LOOP] = f"{which}, loop over {loop}"
        titles[base + AFTER] = f"{which}, after the loop"
    return titles


def prefix_svg(graph: PrefixGraph, *, dropped_by: str = "") -> str:
    """Return a prefix as SVG that takes its colours from the panel around it; the new operator has a heavy border.

    dropped_by: the rule that drops the new operator; its border is dashed then, and the rule stands beside it.
    """
    rows: dict[tuple[int, int], list[PrefixNode]] = {}
    for node in graph.nodes:
        rows.setdefault((node.group, node.row), []).append(node)
    widest = max((len(row) for row in rows.values()), default=1)
    width = max(widest * (_WIDE + _GAP) + 2 * (_PAD + 2 * _ASIDE), 220)
    titles = {node.position: _wrapped(node.title) for node in graph.nodes}
    boxes: dict[int, Box] = {}
    lines: list[list[Box]] = []
    frames: dict[int, tuple[float, float]] = {}
    y = float(_PAD)
    before = -1
    for group, row in sorted(rows):
        if group != before:
            y += _ROW_GAP if before >= 0 else 0
            top = y
            y += _TITLE if group in graph.titles and group else 0
            frames[group] = (top, top)
            before = group
        nodes = rows[group, row]
        left = (width - len(nodes) * (_WIDE + _GAP) + _GAP) / 2
        high = _HIGH + _LINE * (max(len(titles[node.position]) for node in nodes) - 1)
        for number, node in enumerate(nodes):
            x = left + number * (_WIDE + _GAP)
            boxes[node.position] = (x, y, x + _WIDE, y + high)
        lines.append([boxes[node.position] for node in nodes])
        y += high + _ROW_GAP
        frames[group] = (frames[group][0], y - _ROW_GAP + 6)
    body = [_frame(graph.titles[g], f, width) for g, f in frames.items() if g in graph.titles]
    for node in graph.nodes:
        for place, operand in enumerate(node.operands):
            # operands arrive side by side, in their order
            into = boxes[node.position][0] + _WIDE * (place + 1) / (len(node.operands) + 1)
            body.append(_edge(edge_points(boxes[operand], boxes[node.position], into, lines)))
    body += [
        _node(node, titles[node.position], boxes[node.position], dropped_by if node.is_new else "")
        for node in graph.nodes
    ]
    height = max(y, 60)
    label = f"prefix with {counted(sum(1 for node in graph.nodes if node.group), 'operator')}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{label}" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}">{"".join(body)}</svg>'
    )


def _frame(title: str, frame: tuple[float, float], width: float) -> str:
    top, bottom = frame
    return (
        f'<rect class="wb-block" x="2" y="{top - 3:.0f}" width="{width - 4:.0f}" height="{bottom - top + 3:.0f}" rx="7"/>'
        f'<text class="wb-quiet" x="9" y="{top + 10:.0f}" font-size="11">{words(title)}</text>'
    )


def edge_points(source: Box, target: Box, into: float, lines: Sequence[Sequence[Box]]) -> list[Point]:
    """Return the corners of an edge from below one node to above another: between them it keeps beside every node.

    into: where it arrives, along x; lines: the rows of nodes, from above.
    """
    x, y = (source[0] + source[2]) / 2, source[3]
    points = [(x, y)]
    for row in lines:
        top, bottom = row[0][1], max(box[3] for box in row)
        if top < source[3] or bottom > target[1]:
            continue
        straight = x + (into - x) * ((top + bottom) / 2 - y) / (target[1] - y)
        beside = _free(straight, row)
        points += [(beside, top), (beside, bottom)]
    return [*points, (into, target[1])]


def _free(x: float, row: Sequence[Box]) -> float:
    """Return the place nearest to x that lies in no node of a row."""
    if not any(box[0] - _ASIDE < x < box[2] + _ASIDE for box in row):
        return x
    between = [(left[2] + right[0]) / 2 for left, right in pairwise(row)]
    return min((row[0][0] - _ASIDE, *between, row[-1][2] + _ASIDE), key=lambda place: abs(place - x))


def _edge(points: Sequence[Point]) -> str:
    (x, y), rest = points[0], points[1:]
    drawn = [f"M{x:.0f} {y:.0f}"]
    for to_x, to_y in rest:
        bend = (to_y - y) / 2
        drawn.append(f"C{x:.0f} {y + bend:.0f} {to_x:.0f} {to_y - bend:.0f} {to_x:.0f} {to_y:.0f}")
        x, y = to_x, to_y
    return f'<path class="wb-stroke" d="{" ".join(drawn)}"/>'


def _wrapped(title: str) -> list[str]:
    """Return a title in lines that fit into a node; it is cut nowhere but in a word that is longer than a line."""
    return textwrap.wrap(title, _LONGEST) or [""]


def _node(node: PrefixNode, title: Sequence[str], box: Box, dropped_by: str) -> str:
    x, y, _, bottom = box
    css = "wb-cut" if dropped_by else "wb-new" if node.is_new else "wb-tensor" if not node.group else "wb-box"
    second = f"{node.name}, dropped" if dropped_by else f"{node.name}, new" if node.is_new else node.name
    tip = f"{node.title}; dropped by {dropped_by}" if dropped_by else node.title
    middle = x + _WIDE / 2
    first = "".join(
        f'<text x="{middle:.0f}" y="{y + 14 + _LINE * line:.0f}" font-size="11.5" font-weight="600" '
        f'text-anchor="middle">{words(text)}</text>'
        for line, text in enumerate(title)
    )
    return (
        f'<g><title>{words(tip)}</title><rect class="{css}" x="{x:.0f}" y="{y:.0f}" width="{_WIDE}" '
        f'height="{bottom - y:.0f}" rx="5"/>{first}<text class="wb-quiet" x="{middle:.0f}" '
        f'y="{y + 14 + _LINE * len(title):.0f}" font-size="10.5" text-anchor="middle">{words(second)}</text></g>'
    )
