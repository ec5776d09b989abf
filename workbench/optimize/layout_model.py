"""The layout problem of a µGraph: which layouts each tensor may have, the rules of its operators, and what choices cost.

Invariant: a rule says what an operator cannot do with a layout; everything that is only slower is a price. Inside a block
graph every rule and price is about two variables at most, which keeps exact solving cheap (`layout_block.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import assert_never

from workbench.core.layouts import DeviceLayout, innermost_axis
from workbench.core.tensors import DeviceTensor
from workbench.ops.attributes import integer
from workbench.ops.spec import OpKind
from workbench.optimize import banks
from workbench.optimize.layout_block import BlockModel
from workbench.optimize.layout_rules import GIVEN, RULES, LayoutModel
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import GraphDefinedNode, OpNode


def build_model(graph: KernelGraph, hard: Sequence[str] = RULES) -> LayoutModel:
    """Return the layout problem of a µGraph; rules whose names are not in `hard` are left out (their prices stay)."""
    return _Builder(graph, frozenset(hard)).run()


class _Builder:
    def __init__(self, graph: KernelGraph, hard: frozenset[str]) -> None:
        self.graph, self.model = graph, LayoutModel(hard=hard)

    def run(self) -> LayoutModel:
        fixed = {tensor.name for tensor in self.graph.inputs} | set(self.graph.output_names)
        for name, tensor in self.graph.tensors.items():
            self.device_tensor(tensor, name in fixed)
        for node in self.graph.nodes:
            match node:
                case OpNode():
                    self.kernel_operator(node)
                case GraphDefinedNode():
                    BlockModel(self.model, node).run()
                case _:
                    assert_never(node)
        return self.model

    def device_tensor(self, tensor: DeviceTensor, is_fixed: bool) -> None:
        can_turn = len(tensor.shape) >= 2 and min(tensor.shape[-2:]) > 1
        options = [DeviceLayout(-1), DeviceLayout(-2)] if can_turn else [DeviceLayout(-1)]
        number = self.model.tensors[tensor.name,] = self.model.problem.add(tensor.name, options)
        if is_fixed:
            innermost = -2 if innermost_axis(tensor.shape, tensor.strides) == -2 and can_turn else -1
            self.model.demand(GIVEN, tensor.name, [number], lambda layout: layout.innermost == innermost)

    def kernel_operator(self, node: OpNode) -> None:
        """Charge reads and writes of a predefined operator that go across memory."""
        names = [*node.operands, *(tensor.name for tensor in node.results)]
        variables = [self.model.tensors[name,] for name in dict.fromkeys(names)]
        where = node.results[0].name
        units = sum(prod(self.graph.tensors[name].shape) for name in names) // banks.WARP
        if node.spec.kind is OpKind.REDUCTION:
            axis = integer(node.attribute_map, "axis") if "axis" in node.attribute_map else -1
            if axis in (-1, -2):
                source = self.model.tensors[node.operands[0],]
                self.model.charge(
                    "strided access", where, [source], lambda layout: 0 if layout.innermost == axis else units
                )
        elif node.spec.kind is OpKind.ELEMENTWISE:
            result = self.model.tensors[where,]
            for variable in variables:
                if variable != result:
                    self.model.charge(
                        "strided access", where, [variable, result],
                        lambda a, b: 0 if a.innermost == b.innermost else units,
                    )  # fmt: skip
