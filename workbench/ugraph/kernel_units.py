"""Which predefined operators of a kernel graph share a kernel: chains of elementwise operators, rows that are reduced.

A flat unit computes each element of its results from elements of its inputs, wherever they lie (elementwise operators and
movement). A rows unit folds one axis and works on the rows. A reshape of what lies dense is no kernel where its result can
have the same memory. Invariant: units never wait for each other in a circle, and a constant belongs to every unit that
reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from workbench.core.shapes import Shape, broadcast_shapes
from workbench.errors import ShapeError
from workbench.ops.spec import OpKind
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import GraphDefinedNode, KernelNode, OpNode


class UnitKind(Enum):
    """How a unit becomes a kernel."""

    BLOCK = "block graph"
    PRODUCT = "product"
    ROWS = "rows"
    FLAT = "flat"


@dataclass(eq=False)
class Unit:
    """Operators that one kernel computes.

    Attributes: nodes: in the graph's order; space: shape that all tensors of a rows unit broadcast to; axis: the folded
    axis (from the end).
    """

    kind: UnitKind
    nodes: list[KernelNode]
    space: Shape = ()
    axis: int | None = None
    needs: set[Unit] = field(default_factory=set)

    @property
    def operators(self) -> list[OpNode]:
        """The predefined operators."""
        return [node for node in self.nodes if isinstance(node, OpNode)]

    def waits_for(self, other: Unit) -> bool:
        """Return True when this unit needs another's results, directly or not."""
        stack, seen = [self], {self}
        while stack:
            for unit in stack.pop().needs:
                if unit is other:
                    return True
                if unit not in seen:
                    seen.add(unit)
                    stack.append(unit)
        return False


def row_space(graph: KernelGraph, nodes: Sequence[OpNode]) -> tuple[Shape, int] | None:
    """Return the space and the folded axis of operators that can work on the same rows, None if they cannot."""
    axes = {axis for node in nodes if (axis := folded_axis(node)) is not None}
    if len(axes) != 1 or any(node.spec.kind in (OpKind.MOVEMENT, OpKind.CONTRACTION) for node in nodes):
        return None
    (axis,) = axes
    shapes = [graph.tensors[name].shape for node in nodes for name in (*node.operands, *(t.name for t in node.results))]
    try:
        space = broadcast_shapes(shapes)
    except ShapeError:
        return None
    for node in nodes:
        for tensor in node.results:
            shape = (1,) * (len(space) - len(tensor.shape)) + tensor.shape
            if any(a != b for d, (a, b) in enumerate(zip(shape, space, strict=True)) if d != len(space) + axis):
                return None  # several blocks would write the same elements
    folds_columns = [node for node in nodes if node.op == "sum_to_columns"]
    return (space, axis) if not folds_columns or len(nodes) == 1 else None


def folded_axis(node: OpNode) -> int | None:
    """Return the axis (from the end) that an operator folds, None if it folds none."""
    if node.spec.kind is not OpKind.REDUCTION:
        return None
    axis = node.attribute_map.get("axis", -1)
    assert isinstance(axis, int)
    return axis


class Grouping:
    """Groups the operators of a kernel graph, node by node."""

    def __init__(self, graph: KernelGraph) -> None:
        self.graph = graph
        self.constants = {
            node.results[0].name: node
            for node in graph.nodes
            if isinstance(node, OpNode) and node.spec.kind is OpKind.CONSTANT
        }
        self.made_by: dict[str, Unit] = {}
        self.units: list[Unit] = []
        self.homes: dict[str, str] = {}

    def run(self) -> list[Unit]:
        """Return the units that the outputs need, each after those it needs; `home` tells of what then shares memory."""
        for node in live_nodes(self.graph):
            is_constant = isinstance(node, OpNode) and node.spec.kind is OpKind.CONSTANT
            if not is_constant or self.is_stored(node.results[0].name):
                self.place(node)
        return [unit for unit in self.in_order() if not self.settle_view(unit)]

    def home(self, name: str) -> str:
        """Return the tensor whose memory a tensor has: itself, unless one of them is the other, reshaped."""
        return self.homes.get(name, name)

    def settle_view(self, unit: Unit) -> bool:
        """Give the results of a unit the home of its operand where they only are that in other shapes; return whether.

        A library's product takes a tensor by its own shape, and outputs have memory of their own: there it is a copy.
        """
        if any(node.op != "reshape" for node in unit.operators) or unit.kind is not UnitKind.FLAT:
            return False
        tensors, inputs = self.graph.tensors, {tensor.name for tensor in self.graph.inputs}
        outputs = {*self.graph.output_names} - inputs  # an input that is an output is copied
        sources, results = self.inputs(unit), self.results(unit)
        whole = [tensors[name] for name in (*sources, *(t.name for node in unit.operators for t in node.results))]
        if len(sources) != 1 or len({t.dtype for t in whole}) > 1 or not all(t.is_row_major for t in whole):
            return False
        home = self.home(sources[0])
        alike = [home, *(name for name in self.homes if self.home(name) == home)]
        moved = [name for name in (*alike, *results) if name in outputs]
        if len(moved) > 1 or (moved and home in inputs):
            return False
        renamed = [*results, *alike] if moved and home not in outputs else results
        if any(self.is_of_a_product(name) for name in renamed):
            return False
        self.homes |= dict.fromkeys([*alike, *results], moved[0] if moved else home)
        return True

    def is_of_a_product(self, name: str) -> bool:
        """Return True for a tensor that a product reads or makes."""
        maker = self.made_by.get(name)
        nodes = [*self.graph.consumers(name), *(maker.nodes if maker is not None else ())]
        return any(isinstance(node, OpNode) and node.spec.kind is OpKind.CONTRACTION for node in nodes)

    def is_stored(self, name: str) -> bool:
        """Return True when a constant must lie in device memory."""
        readers = list(self.graph.consumers(name))
        return name in self.graph.output_names or any(not fuses(node) for node in readers)

    def place(self, node: KernelNode) -> None:
        """Put a node into a unit that makes one of its operands, or into a new one."""
        sources = [self.made_by[name] for name in node.operands if name in self.made_by]
        unit = None
        if isinstance(node, OpNode) and fuses(node):
            unit = next((other for other in reversed(sources) if self.joins(other, node, sources)), None)
        if unit is None:
            unit = self.new_unit(node)
            self.units.append(unit)
        else:
            unit.nodes.append(node)
        unit.needs |= {source for source in sources if source is not unit}
        self.made_by.update((tensor.name, unit) for tensor in node.results)

    def joins(self, unit: Unit, node: OpNode, sources: Sequence[Unit]) -> bool:
        """Return True, the unit adapted, when a node can be computed with it."""
        if any(source is not unit and source.waits_for(unit) for source in sources):
            return False
        if unit.kind is UnitKind.FLAT and node.spec.kind is not OpKind.REDUCTION:
            return True
        if unit.kind not in (UnitKind.FLAT, UnitKind.ROWS):
            return False
        found = row_space(self.graph, [*unit.operators, node])
        if found is None:
            return False
        unit.kind, (unit.space, unit.axis) = UnitKind.ROWS, found
        return True

    def new_unit(self, node: KernelNode) -> Unit:
        """Return a unit of one node."""
        if isinstance(node, GraphDefinedNode):
            return Unit(UnitKind.BLOCK, [node])
        if node.spec.kind is OpKind.CONTRACTION:
            return Unit(UnitKind.PRODUCT, [node])
        found = row_space(self.graph, [node])
        if found is None:
            return Unit(UnitKind.FLAT, [node])
        return Unit(UnitKind.ROWS, [node], *found)

    def in_order(self) -> list[Unit]:
        """Return the units, each after those it needs."""
        order: list[Unit] = []
        left = list(self.units)
        while left:
            unit = next(unit for unit in left if unit.needs <= set(order))
            order.append(unit)
            left.remove(unit)
        return order

    def inputs(self, unit: Unit) -> list[str]:
        """Return the tensors that a unit reads from device memory, each once."""
        inside = {tensor.name for node in unit.nodes for tensor in node.results}
        read = [name for node in unit.nodes for name in node.operands if name not in inside]
        return [name for name in dict.fromkeys(read) if name not in self.constants or name in self.made_by]

    def results(self, unit: Unit) -> list[str]:
        """Return the tensors of a unit that are read outside it, or are outputs."""
        inside = set(unit.nodes)
        found = []
        for node in unit.nodes:
            for tensor in node.results:
                readers = [reader for reader in self.graph.consumers(tensor.name) if reader not in inside]
                is_block = isinstance(node, GraphDefinedNode)
                if tensor.name in self.graph.output_names or readers or is_block:
                    found.append(tensor.name)
        return found


def fuses(node: KernelNode) -> bool:
    """Return True for operators that share kernels."""
    return isinstance(node, OpNode) and node.spec.kind in (
        OpKind.ELEMENTWISE,
        OpKind.REDUCTION,
        OpKind.MOVEMENT,
        OpKind.CONSTANT,
    )


def live_nodes(graph: KernelGraph) -> list[KernelNode]:
    """Return the nodes that the outputs need, in order."""
    needed = set(graph.output_names)
    live: list[KernelNode] = []
    for node in reversed(graph.nodes):
        if needed & {tensor.name for tensor in node.results}:
            live.append(node)
            needed |= set(node.operands)
    return live[::-1]
