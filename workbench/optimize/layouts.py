"""Which layout every tensor of a µGraph gets: in device memory, in shared memory, or in registers.

    choose_layouts(graph) -> LayoutChoice      .layouts: (tensor,) or (launch label, tile) -> Layout of core/layouts.py

Invariant: the layouts satisfy every rule that is not listed in `relaxed`, and cost the least under the prices of
`layout_model.py`. Rules that exclude each other are not hidden: the least important of them is dropped, and said.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from types import MappingProxyType

from workbench.core.layouts import DeviceLayout, Layout, RegisterLayout, SharedLayout, innermost_axis
from workbench.core.shapes import Shape
from workbench.core.tensors import DeviceTensor, SharedTensor
from workbench.errors import LayoutConflictError, UnknownTensorError
from workbench.ops.spec import OpKind
from workbench.optimize import banks
from workbench.optimize.layout_elimination import solve_by_elimination
from workbench.optimize.layout_model import build_model
from workbench.optimize.layout_problem import LayoutProblem, Solution
from workbench.optimize.layout_rules import ASYNC, CONFLICTS, CONTIGUOUS, LDMATRIX, RULES, element_bytes, factors_of
from workbench.optimize.tile_views import lies_in
from workbench.ugraph.block_graph import BlockGraph
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import GraphDefinedNode, InputIterator, OpNode

RELAXED_FIRST = (CONTIGUOUS, CONFLICTS, ASYNC, LDMATRIX)
"""The rules that may be dropped where they exclude each other, the least important first: their prices stay."""

PRESCRIBED, NO_THREADS = "prescribed layout", "no thread graphs"

Solver = Callable[[LayoutProblem], Solution]

NO_PINS: Mapping[tuple[str, ...], Layout] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutChoice:
    """Layouts of all tensors of a µGraph.

    Attributes: layouts: by (tensor,) at the kernel level and (launch label, tile) inside, the label being the launch's
    first result; cost: in passes over the banks of a block's shared memory; terms: the same by name of the price;
    relaxed: rules that were dropped because they excluded each other, with the conflict; is_optimal, solver.
    """

    layouts: Mapping[tuple[str, ...], Layout]
    cost: int
    terms: Mapping[str, int]
    relaxed: tuple[str, ...]
    is_optimal: bool
    solver: str

    def of_block(self, label: str) -> dict[str, Layout]:
        """Return the layouts of a launch's tiles, by tile."""
        return {path[1]: layout for path, layout in self.layouts.items() if len(path) == 2 and path[0] == label}

    def registers(self, label: str) -> frozenset[str]:
        """Return the tiles of a launch that never are in shared memory."""
        return frozenset(name for name, layout in self.of_block(label).items() if isinstance(layout, RegisterLayout))

    def describe(self) -> str:
        """Return one line per tensor, then what the choice costs."""
        lines = [f"{'.'.join(path)}: {layout}" for path, layout in self.layouts.items()]
        terms = ", ".join(f"{name} {cost:,}" for name, cost in sorted(self.terms.items()) if cost)
        proof = "least" if self.is_optimal else "best so far"
        return "\n".join([*lines, f"cost {self.cost:,} ({proof}, {self.solver}): {terms}", *self.relaxed])


def choose_layouts(
    graph: KernelGraph,
    *,
    hard: Sequence[str] = RULES,
    pins: Mapping[tuple[str, ...], Layout] = NO_PINS,
    solver: Solver = solve_by_elimination,
    relax: bool = True,
    elementwise_in_registers: bool = True,
) -> LayoutChoice:
    """Return the cheapest layouts of a µGraph.

    pins: layouts that are prescribed, by (tensor,) or (launch label, tile).
    hard: names of the rules that are demanded (`layout_model.RULES`); the others are only priced. solver: of the 0/1
    program; the default is exact and needs no Z3. relax: drop rules that exclude each other, least important first.
    elementwise_in_registers: False: results of elementwise operators lie in shared memory, as without thread graphs.
    Raises: LayoutConflictError, with a smallest set of rules, when nothing is left that may be dropped; BudgetError from
    a solver that ran out of time; UnknownTensorError for a pin of no tensor.
    """
    demanded, relaxed = list(hard), list[str]()
    while True:
        model = build_model(graph, demanded)
        for path, layout in pins.items():
            if path not in model.tensors:
                raise UnknownTensorError(
                    f"no tensor {'.'.join(path)}", ".".join(path), "give (tensor,) or (launch, tile)"
                )
            model.problem.demand(
                PRESCRIBED, ".".join(path), [model.tensors[path]], lambda own, layout=layout: own == layout
            )
        if not elementwise_in_registers:
            for path in elementwise_tiles(graph):
                model.problem.demand(
                    NO_THREADS, ".".join(path), [model.tensors[path]], lambda own: isinstance(own, SharedLayout)
                )
        try:
            solution = solver(model.problem)
            break
        except LayoutConflictError as conflict:
            names = {name for name, _ in conflict.rules}
            drop = next((name for name in RELAXED_FIRST if name in names), None)
            if not relax or drop is None:
                raise
            demanded.remove(drop)
            relaxed.append(f"the rule {drop!r} is only priced: {conflict}")
    options = {
        path: model.problem.variables[number].options[solution.choice[number]] for path, number in model.tensors.items()
    }
    layouts = {
        path: layout
        for path, layout in options.items()
        if isinstance(layout, DeviceLayout | SharedLayout | RegisterLayout)
    }
    return LayoutChoice(
        layouts=MappingProxyType(layouts), cost=solution.cost,
        terms=MappingProxyType(model.problem.cost_by_name(solution.choice)), relaxed=tuple(relaxed),
        is_optimal=solution.is_optimal, solver=solution.solver,
    )  # fmt: skip


def plain_layouts(graph: KernelGraph) -> LayoutChoice:
    """Return what nobody chose: every tile in shared memory, row after row; every tensor as it is."""
    model = build_model(graph, ())
    pins: dict[tuple[str, ...], Layout] = {
        (launch.results[0].name, name): SharedLayout()
        for launch in graph.graph_defined
        for name, base in lies_in(launch.block).items()
        if name == base and (launch.results[0].name, name) in model.tensors
    }
    for name, tensor in graph.tensors.items():
        can_turn = len(tensor.shape) > 1 and min(tensor.shape[-2:]) > 1
        is_turned = can_turn and innermost_axis(tensor.shape, tensor.strides) == -2
        pins[name,] = DeviceLayout(-2 if is_turned else -1)
    return replace(choose_layouts(graph, hard=(), pins=pins), solver="none")


def elementwise_tiles(graph: KernelGraph) -> list[tuple[str, str]]:
    """Return (launch label, tile) of the results of elementwise operators, thread graphs left out."""
    return [
        (launch.results[0].name, node.results[0].name)
        for launch in graph.graph_defined
        for node in launch.block.nodes
        if isinstance(node, OpNode) and node.spec.kind is OpKind.ELEMENTWISE
    ]


def tile_sizes(block: BlockGraph, layouts: Mapping[str, Layout]) -> dict[str, int]:
    """Return the bytes of every tile that lies in shared memory, padding of its layout included."""
    factors = {name for node in block.nodes for name in factors_of(node)}
    found = {}
    for node in block.nodes:
        for tensor in node.results:
            layout = layouts.get(tensor.name)
            if isinstance(layout, SharedLayout) and isinstance(tensor, SharedTensor):
                size = element_bytes(tensor, isinstance(node, InputIterator) or tensor.name in factors)
                rows, columns = ((1, 1, *tensor.shape))[-2:]
                found[tensor.name] = prod(tensor.shape[:-2]) * banks.tile_bytes(rows, columns, size, layout)
    return found


def with_device_layouts(graph: KernelGraph, choice: LayoutChoice) -> KernelGraph:
    """Return the graph whose intermediate tensors have the strides that were chosen; inputs and outputs keep theirs."""
    strides = {
        path[0]: layout
        for path, layout in choice.layouts.items()
        if len(path) == 1 and isinstance(layout, DeviceLayout) and is_free(graph, path[0])
    }
    if all(
        layout.strides(graph.tensors[name].shape) == graph.tensors[name].strides for name, layout in strides.items()
    ):
        return graph
    nodes = []
    for node in graph.nodes:
        results = tuple(_laid_out(graph.tensors[tensor.name], strides) for tensor in node.results)
        if isinstance(node, GraphDefinedNode):
            read = tuple(
                replace(tensor, strides=_laid_out(graph.tensors[name], strides).strides)
                for tensor, name in zip(node.block.operands, node.operands, strict=True)
            )
            node = replace(node, block=replace(node.block, operands=read), results=results)
        else:
            node = replace(node, results=results)
        nodes.append(node)
    return KernelGraph(graph.inputs, tuple(nodes), graph.output_names, graph.name)


def is_free(graph: KernelGraph, name: str) -> bool:
    """Return True for an intermediate tensor: neither input nor output."""
    return name not in graph.output_names and all(name != tensor.name for tensor in graph.inputs)


def _laid_out(tensor: DeviceTensor, layouts: Mapping[str, DeviceLayout]) -> DeviceTensor:
    shape: Shape = tensor.shape
    layout = layouts.get(tensor.name)
    return tensor if layout is None else replace(tensor, strides=layout.strides(shape))
