"""A complete prefix as a sketch, so that what builds, compares and tests sketches serves both engines.

Invariant: loads and stores, which a prefix implies, stand in the sketch; its nodes are numbered in the order of use.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

from workbench.domains.abstract_normal_form import Value
from workbench.search.cuts import Cuts
from workbench.search.enumeration import Sketch
from workbench.search.expressions import Expressions
from workbench.search.hypergraph import Edge, Hypergraph
from workbench.search.palette import Operator
from workbench.search.places import Place
from workbench.search.plans import Plan
from workbench.search.prefix.tensors import Tensor, Tensors


class Frame(Hypergraph):
    """The nodes of one sketch: a value and a place each. Made as a copy of an empty one per plan."""

    def __init__(self, expressions: Expressions, plan: Plan) -> None:
        """Cut the axes; there are no nodes."""
        Cuts.__init__(self, expressions, plan)
        self.values: list[Value] = []
        self.places: list[Place] = []

    def fresh(self) -> Frame:
        """Return the same cuts without nodes."""
        made = copy.copy(self)
        made.values, made.places = [], []
        return made


class Application:
    """One operator of a prefix, as a sketch needs it: kind, operator, positions of operands, axis, mask, place."""

    __slots__ = ("axis", "kind", "mask", "operands", "operator", "place")

    def __init__(self, kind: str, operator: Operator, operands: tuple[int, ...], axis: str, mask: int, place: Place):
        """Keep them."""
        self.kind, self.operator, self.operands = kind, operator, operands
        self.axis, self.mask, self.place = axis, mask, place


class Sketching:
    """Builds the sketch of one complete prefix."""

    def __init__(self, tensors: Tensors, empty: Frame, every: Sequence[Tensor], made: Sequence[Application]) -> None:
        """Take the prefix: its tensors by position, inputs first, then what each application made."""
        self.tensors, self.every, self.made = tensors, every, made
        self.frame = empty.fresh()
        self.first = len(every) - len(made)
        self.chosen: list[tuple[int, Edge]] = []
        self.nodes: dict[tuple[int, int], int] = {}

    def sketch(self, outputs: Sequence[int]) -> Sketch:
        """Return the sketch whose outputs are at these positions."""
        for position, application in enumerate(self.made, self.first):
            operands = tuple(self._operand(operand, application.place) for operand in application.operands)
            node = self._node(position, application.place)
            edge = Edge(application.kind, application.operator, operands, application.axis, application.mask)
            self.chosen.append((node, edge))
        stored = tuple(self._device(output) for output in outputs)
        return Sketch(self.frame, tuple(self.chosen), stored)

    def _node(self, position: int, place: Place) -> int:
        node = len(self.frame.values)
        self.frame.values.append(self.tensors.value(self.every[position]))
        self.frame.places.append(place)
        self.nodes[position, _where(place)] = node
        return node

    def _operand(self, position: int, place: Place) -> int:
        """Return the node that an operator at a place reads: made there, loaded, or in device memory."""
        kernel = place.kernel
        if kernel is None:
            return self._device(position)
        found = self.nodes.get((position, kernel))
        if found is None:
            device = self._device(position)
            where = loaded(self.frame, self.every[position].mask, self.frame.places[device], kernel)
            found = self._node(position, where)
            self.chosen.append((found, Edge("load", None, (device,))))
        return found

    def _device(self, position: int) -> int:
        found = self.nodes.get((position, -1))
        if found is not None:
            return found
        if position < self.first:
            return self._node(position, Place.BEFORE)
        inside = self.made[position - self.first].place
        node = self.nodes[position, inside.kernel or 0]
        stored = self._node(position, Place.AFTER if inside.kernel else Place.BETWEEN)
        self.chosen.append((stored, Edge("store", None, (node,))))
        return stored


def loaded(cuts: Cuts, mask: int, device: Place, kernel: int) -> Place:
    """Return where a device tensor is once a kernel has loaded it."""
    looped = cuts.has_loop(mask, kernel)
    if kernel == 0:
        return Place.A_LOOP if looped else Place.A_FIXED
    if device is Place.BETWEEN:
        return Place.B_LOOP_DEPENDENT if looped else Place.B_FIXED_DEPENDENT
    return Place.B_LOOP if looped else Place.B_FIXED


def _where(place: Place) -> int:
    return -1 if place.kernel is None else place.kernel
