"""The tree of a search: what extends what, what each rule dropped, as far as it was read. Invariant: it only grows.

It is read event by event, in slices, so that a page shows the first event before the last one is known; what is drawn of
it is a window of rows around one node, and says how much it leaves out.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from workbench.search.events import Completed, Event, Extended, Pruned, Refused, Said, Started, ValueKept, Verified

KEPT, PRUNED, COMPLETE, VERIFIED, REFUSED, OTHER = "kept", "pruned", "complete", "verified", "refused", "other"
OTHERS = "others dropped"
"""Label of a row that stands for several dropped nodes."""
GLYPHS = {KEPT: "●", PRUNED: "×", COMPLETE: "◆", VERIFIED: "✔", REFUSED: "✘", OTHER: "○"}


@dataclass(slots=True)
class Node:
    """A node. Attributes: name (of a prefix, or made up); parent; event: its number; state; rule; label; children: names."""

    name: str
    parent: str
    event: int
    state: str
    rule: str
    label: str
    children: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class TreeRow:
    """A drawn row.

    Attributes: depth; label, "" where only the name is known; state; event: where a click leads; is_now; count: nodes that
    it stands for; rule: that dropped it; name.
    """

    depth: int
    label: str
    state: str
    event: int
    is_now: bool = False
    count: int = 1
    rule: str = ""
    name: str = ""


class SearchTree:
    """The tree so far. Attributes: nodes: by name; read: events that it knows; roots: names; rules: names, in their order."""

    def __init__(self) -> None:
        """Start empty."""
        self.nodes: dict[str, Node] = {}
        self.roots: list[str] = []
        self.rules: list[str] = []
        self.read = 0
        self._rule_of = array("h")
        self._count_of = array("l")
        self._kept = array("b")
        self._plan = ""
        self._names: list[str] = []

    def extend(self, events: Iterable[Event]) -> None:
        """Read further events."""
        for event in events:
            self._add(event)
            self.read += 1

    def name_at(self, number: int) -> str:
        """Return the name of the node that an event is about, "" if it is about none, or not read yet."""
        return self._names[number] if number < self.read else ""

    # ---------------------------------------------------------------------------------------------------------- reading
    def _add(self, event: Event) -> None:
        rule, count, kept, name = -1, 1, 0, ""
        match event:
            case Started():
                name = str(len(self.roots))
                self.roots.append(name)
                self.nodes[name] = Node(name, "", self.read, OTHER, "", event.plan)
                self._plan = name
            case Extended() if event.prefix:
                name, kept = event.prefix, 1
                self._put(name, event.parent, KEPT, "", f"{event.operator}({', '.join(map(str, event.operands))})")
            case Extended():
                kept = 1
                name = self._made_up(f"{event.node} = {event.operator}", KEPT)
            case ValueKept():
                kept = 1
                name = self._made_up(f"{event.place}: value {event.node}", KEPT)
            case Pruned():
                rule, count = self._rule(event.rule), event.count
                if event.prefix:
                    name = event.prefix
                    said = event.subject.text.partition(" = ")[0] if isinstance(event.subject, Said) else ""
                    self._put(name, event.parent, PRUNED, event.rule, said)
                else:
                    name = self._made_up(event.rule, PRUNED, event.rule)
            case Completed():
                name = f"structure {event.number}"
                self._put(name, self._plan, COMPLETE, "", name)
            case Verified() | Refused():
                name = f"structure {event.number}"
                if name in self.nodes:
                    self.nodes[name].state = VERIFIED if isinstance(event, Verified) else REFUSED
        self._rule_of.append(rule)
        self._count_of.append(count)
        self._kept.append(kept)
        self._names.append(name)

    def _rule(self, rule: str) -> int:
        if rule not in self.rules:
            self.rules.append(rule)
        return self.rules.index(rule)

    def _made_up(self, label: str, state: str, rule: str = "") -> str:
        name = f"event {self.read}"
        self._put(name, self._plan, state, rule, label)
        return name

    def _put(self, name: str, parent: str, state: str, rule: str, label: str) -> None:
        known = self.nodes.get(name)
        if known is not None:  # dropped, and then kept on purpose
            known.state, known.label = state, f"{label}, kept on purpose" if known.state == PRUNED else label
            return
        above = parent if parent in self.nodes else self._plan
        self.nodes[name] = Node(name, above, self.read, state, rule, label)
        if above in self.nodes:
            self.nodes[above].children.append(name)

    # ---------------------------------------------------------------------------------------------------------- answers
    def counts(self, upto: int) -> tuple[int, Mapping[str, int]]:
        """Return how many were kept, and rule -> how many were dropped, in the first `upto` events that were read."""
        upto = min(upto, self.read)
        # copies: another thread may append, which an array does not allow while NumPy looks at it
        rules = np.asarray(self._rule_of[:upto], np.int16)
        weights = np.asarray(self._count_of[:upto], np.int64)
        kept = int(np.asarray(self._kept[:upto], np.int8).sum())
        dropped = rules >= 0
        found = np.bincount(rules[dropped], weights[dropped], minlength=len(self.rules))
        return kept, {rule: int(n) for rule, n in zip(self.rules, found, strict=True) if n}

    def line(self, name: str) -> list[Node]:
        """Return the nodes from a root to this one."""
        found = []
        at = self.nodes.get(name)
        while at is not None:
            found.append(at)
            at = self.nodes.get(at.parent)
        return found[::-1]

    def rows(self, number: int, *, limit: int = 400) -> tuple[list[TreeRow], int]:
        """Return the rows around an event's node, and how many nodes there are so far.

        Shown: all plans, the line to the node, what else extends its ancestors and itself, up to the event; dropped ones
        one by one below the node itself, elsewhere by rule. limit: rows at most, those nearest to the node first.
        """
        here = self.name_at(number)
        line = self.line(here)
        opened = line[:-1] if line and line[-1].state == PRUNED else line
        open_names = {node.name for node in opened}
        detailed = opened[-1].name if opened else ""
        rows: list[TreeRow] = []
        for root in self.roots:
            node = self.nodes[root]
            if node.event <= number:
                self._row(node, 0, number, here, open_names, detailed, rows)
        if len(rows) > limit:
            centre = next((place for place, row in enumerate(rows) if row.is_now), 0)
            first = max(0, min(centre - limit // 2, len(rows) - limit))
            rows = rows[first : first + limit]
        return rows, len(self.nodes)

    def _row(
        self, node: Node, depth: int, number: int, here: str, opened: set[str], detailed: str, rows: list[TreeRow]
    ) -> None:
        rows.append(TreeRow(depth, node.label, node.state, node.event, node.name == here, 1, node.rule, node.name))
        if node.name not in opened:
            return
        dropped: Counter[str] = Counter()
        first: dict[str, int] = {}
        for child in (self.nodes[name] for name in node.children):
            if child.event > number and child.name not in opened:
                continue
            if child.state == PRUNED and node.name != detailed and child.name != here:
                dropped[child.rule] += 1
                first.setdefault(child.rule, child.event)
            else:
                self._row(child, depth + 1, number, here, opened, detailed, rows)
        rows += [
            TreeRow(depth + 1, OTHERS, PRUNED, first[rule], count=count, rule=rule) for rule, count in dropped.items()
        ]
