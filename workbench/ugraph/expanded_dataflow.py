"""The dataflow of an expanded µGraph, without the graph: composites, sugar of accumulators and thread graphs in parts.

A search hashes hundreds of structures; building each expanded graph would cost more than reading it. Invariant: the steps
are those of `flatten(expand(graph, keep_means=True))`, in its order; operators that an expansion adds have no tensors.
"""

from __future__ import annotations

from collections.abc import Sequence

from workbench.ops.attributes import complete_attributes
from workbench.ops.registry import operator
from workbench.ops.spec import Attributes, AttributeValue
from workbench.ugraph.block_graph import BlockGraph
from workbench.ugraph.dataflow import Dataflow, Flattener, Path, StepNode
from workbench.ugraph.expand import CANONICAL_ACCUMULATORS, accumulator_in_parts
from workbench.ugraph.inference import Place, merge_places
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import Accumulator, AccumulatorKind, OpNode, ThreadNode


def flatten_expanded(graph: KernelGraph) -> Dataflow:
    """Return the dataflow of a program with all but its means expanded as far as it goes.

    Its graph and launches are the program's own; a value of an expansion has the path of the result it leads to.
    """
    return _ExpandingFlattener(graph).run()


class _ExpandingFlattener(Flattener):
    def __init__(self, graph: KernelGraph) -> None:
        super().__init__(graph)
        self._places: dict[int, Place] = {}  # of values of block graphs

    def operator(
        self, node: OpNode, operands: tuple[int, ...], launch: int | None, place: Place | None, label: Path
    ) -> tuple[int, ...]:
        if not _expands(node.op):
            return super().operator(node, operands, launch, place, label)
        parts = _Parts(self, launch, (*label, node.results[0].name))
        made = parts.expand(node.op, operands, node.attribute_map)
        if made in operands:  # power 1: a step of its own makes the result
            made = parts("scale", made, factor=1)
        return (made,)

    def accumulator(
        self, node: Accumulator, operands: tuple[int, ...], launch: int, block: BlockGraph, label: Path
    ) -> int:
        if node.kind in CANONICAL_ACCUMULATORS:
            return super().accumulator(node, operands, launch, block, label)
        parts = _Parts(self, launch, (*label, node.result.name))

        def accumulate(kind: AccumulatorKind, value: int, rescale: int | None = None) -> int:
            shape = self.shapes[value]
            made = self.value((*shape[:-1], 1) if kind is AccumulatorKind.MEAN else shape, parts.path)
            self.step(
                Accumulator(kind, node.operand, node.result, node.rescale),
                (value,) if rescale is None else (value, rescale),
                (made,),
                launch,
                Place.AFTER,
            )
            return made

        factor = None if node.rescale is None else block.tiles[node.rescale]
        return accumulator_in_parts(node, parts, accumulate, operands, factor)

    def thread(self, node: ThreadNode, read: tuple[int, ...], number: int, block: BlockGraph, label: Path) -> int:
        """Add the operators of a thread graph, each where its operands are: a constant of it is at any time."""
        registers = dict(zip((tensor.name for tensor in node.graph.inputs), read, strict=True))
        path = (*label, node.results[0].name)
        for inner in node.graph.nodes:
            operands = tuple(registers[name] for name in inner.operands)
            results = self.operator(inner, operands, number, self.place_of(operands), path)
            registers.update(zip((tensor.name for tensor in inner.results), results, strict=True))
        return registers[node.graph.output]

    def step(
        self,
        node: StepNode,
        operands: tuple[int, ...],
        results: tuple[int, ...],
        launch: int | None,
        place: Place | None,
    ) -> None:
        super().step(node, operands, results, launch, place)
        if place is not None:
            self._places.update(dict.fromkeys(results, place))

    def place_of(self, operands: Sequence[int]) -> Place:
        """Return where an operator of a block graph stands that reads these values."""
        return merge_places([self._places[value] for value in operands], node="an operator of an expansion")


class _Parts:
    """An `Apply` that adds the steps of an expansion, composites among them expanded in turn."""

    def __init__(self, flattener: _ExpandingFlattener, launch: int | None, path: Path) -> None:
        self.flattener, self.launch, self.path = flattener, launch, path

    def __call__(self, name: str, *operands: int, **attributes: AttributeValue) -> int:
        shapes = tuple([self.flattener.shapes[value] for value in operands])
        complete = complete_attributes(operator(name), attributes, shapes)
        return self.expand(name, operands, complete) if _expands(name) else self.add(name, operands, complete)

    def expand(self, op: str, operands: tuple[int, ...], attributes: Attributes) -> int:
        """Add what a composite is made of, and return its result."""
        expansion = operator(op).expand
        assert expansion is not None
        return expansion(self, operands, tuple([self.flattener.shapes[value] for value in operands]), attributes)

    def add(self, op: str, operands: tuple[int, ...], attributes: Attributes) -> int:
        """Add an operator with one result, and return that."""
        shapes = tuple([self.flattener.shapes[value] for value in operands])
        (shape,) = operator(op).infer_shapes(shapes, attributes)
        result = self.flattener.value(shape, self.path)
        node = OpNode(op, (), (), tuple(sorted(attributes.items())))
        place = None if self.launch is None else self.flattener.place_of(operands)
        self.flattener.step(node, operands, (result,), self.launch, place)
        return result


def _expands(op: str) -> bool:
    return op != "mean" and operator(op).expand is not None
