"""From a sketch to a µGraph: block graphs built with extents, a grid and loop counts.

Invariant: what is built has the inputs and outputs of the program, in its order; a sketch that has no such layout is
refused with `NotApplicableError`, never changed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import Any

from workbench.core.dtypes import DType
from workbench.core.tensors import DeviceTensor
from workbench.errors import NotApplicableError, WorkbenchError
from workbench.ops.spec import AttributeValue
from workbench.programs.tiling import FRAGMENT
from workbench.search.axis_runs import DimNames
from workbench.search.built_blocks import BuiltBlock, BuiltBlocks
from workbench.search.enumeration import Sketch
from workbench.search.hypergraph import Edge
from workbench.search.layout import Builder, Laid, Layouts
from workbench.search.palette import Effect, Operator
from workbench.search.places import LOOP, Place
from workbench.ugraph.block_graph import MAX_THREADS
from workbench.ugraph.builder import BlockBuilder, KernelBuilder
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.rewrite import dense_strides
from workbench.ugraph.value import Value

THREADS, ACCUMULATORS = 128, 128
"""Threads of a block at first; sums that one thread keeps in registers."""


@dataclass(frozen=True, slots=True)
class Counts:
    """How one block graph is launched: grid axes x, y, z as (axis, number of blocks), and iterations."""

    grid: tuple[tuple[str, int], ...] = ()
    loop: int = 1


class Instantiation:
    """Builds one sketch.

    Attributes: sketch; extents: per axis; counts: per block graph; blocks: what was built and may be shared; loads: per
    block graph and tile that it loads, the tile's dimensions.
    """

    def __init__(
        self,
        sketch: Sketch,
        extents: Mapping[str, int],
        counts: Sequence[Counts],
        blocks: BuiltBlocks | None = None,
    ) -> None:
        """Keep what is to be built."""
        self.sketch, self.extents, self.counts, self.blocks = sketch, extents, counts, blocks or BuiltBlocks()
        self.loads: list[Mapping[str, tuple[DimNames, ...]]] = []
        self.graph = sketch.hypergraph
        self.problem = self.graph.expressions.problem
        self.mask = self.graph.algebra.mask
        self.order = {name: place for place, name in enumerate(extents)}
        self.kernel = KernelBuilder(self.problem.program.name)
        self.device: dict[int, Laid] = {}
        self.tiles: dict[int, Laid] = {}

    def build(self) -> KernelGraph:
        """Return the µGraph. Raises: NotApplicableError when no layout of it is legal."""
        try:
            return self._build()
        except NotApplicableError:
            raise
        except WorkbenchError as error:
            raise NotApplicableError(f"it cannot be built: {error}") from error

    def _build(self) -> KernelGraph:
        self._inputs()
        by_time: dict[int, list[tuple[int, Edge]]] = {time: [] for time in range(5)}
        for node, edge in self.sketch.chosen:
            by_time[_time(self.graph.places[node])].append((node, edge))
        for time in range(5):
            if time in (1, 3):
                if by_time[time]:
                    self._block(time // 2, by_time[time])
                continue
            for node, edge in by_time[time]:
                if edge.kind == "kernel":
                    dtype = self._program_output(node).dtype if node in self.sketch.outputs else None
                    self.device[node] = Layouts(self.kernel, self.order).product(
                        self._device(edge.operands[0]), self._device(edge.operands[1]), edge.axis, dtype
                    )
        self.kernel.output(*(self._output(number) for number in range(len(self.sketch.outputs))))
        return self.kernel.build()

    # --------------------------------------------------------------------------------------------------- device level
    def _inputs(self) -> None:
        """Add the program's inputs with the extents asked for."""
        values: dict[int, Value] = {}
        for start in self.problem.starts:
            tensor = self.problem.program.inputs[start.position]
            if start.position not in values:
                shape = self._shape(start.own)
                strides = dense_strides(tensor.shape, tensor.strides, shape)
                values[start.position] = self.kernel.input(tensor.name, shape, tensor.dtype, strides)
        self._input_values = values

    def _device(self, node: int) -> Laid:
        """Return a device tensor with one dimension per axis."""
        if node not in self.device:
            starts = self.graph.expressions.starts
            number = starts.index(self.graph.values[node])
            start = self.problem.starts[number]
            dims = _flat_dims(start.dims)
            self.device[node] = Laid(self._reshaped(self._input_values[start.position], dims), dims)
        return self.device[node]

    def _shape(self, dims: Sequence[DimNames]) -> tuple[int, ...]:
        return tuple(prod(self.extents[name] for name in dim) for dim in dims)

    def _reshaped(self, value: Value, dims: Sequence[DimNames]) -> Value:
        """Return a device tensor with these dimensions."""
        shape = self._shape(dims)
        return value if value.shape == shape else self.kernel.apply("reshape", value, shape=shape)

    def _output(self, number: int) -> Value:
        """Return an output in the program's shape."""
        goal = self.problem.goals[number]
        laid = self._device(self.sketch.outputs[number])
        flat = _flat_dims(goal.dims)
        value = Layouts(self.kernel, self.order).arranged(laid, flat, exactly=True)
        return self._reshaped(value, goal.own)

    # ---------------------------------------------------------------------------------------------------- block level
    def _block(self, kernel: int, chosen: Sequence[tuple[int, Edge]]) -> None:
        counts = self.counts[kernel]
        loads = [(node, edge) for node, edge in chosen if edge.kind == "load"]
        sources = {edge.operands[0]: self._device(edge.operands[0]) for _, edge in loads}
        operands = {laid.value.name: laid.value for laid in sources.values()}
        # An axis that lies side by side with blocks in one dimension is not cut.
        merged = {name for laid in sources.values() for dim in laid.dims if len(dim) > 1 for name in dim}
        counts = Counts(tuple([item for item in counts.grid if item[0] not in merged]), counts.loop)
        block = self.kernel.block(
            *operands.values(), grid=[count for _, count in counts.grid] or (1, 1, 1), loop=counts.loop
        )
        stored = [
            (node, edge)
            for node, edge in self.sketch.chosen
            if edge.kind == "store" and self.graph.places[edge.operands[0]].kernel == kernel
        ]
        # Edges are told apart by identity: of one graph, which the key keeps alive and they with it.
        key = (
            self.graph, kernel, tuple([(node, id(edge)) for node, edge in (*chosen, *stored)]), self.sketch.outputs,
            block.operands, tuple([laid.dims for laid in sources.values()]), counts, tuple(self.extents.values()),
        )  # fmt: skip
        built = self.blocks.find(key)
        if built is None:
            built = self._built(kernel, block, counts, chosen, stored, sources)
            self.blocks.keep(key, built)
        self.loads.append(built.loads)
        results = self.kernel.graph_defined(
            built.block,
            list(operands.values()),
            dtypes=[dtype for _, _, dtype in built.saved],
            names=[self._name(node) for node, _, _ in built.saved],
        )
        for (node, dims, _), value in zip(built.saved, results, strict=True):
            self.device[node] = Laid(value, dims)

    def _built(
        self,
        kernel: int,
        block: BlockBuilder,
        counts: Counts,
        chosen: Sequence[tuple[int, Edge]],
        stored: Sequence[tuple[int, Edge]],
        sources: Mapping[int, Laid],
    ) -> BuiltBlock:
        """Return a block graph of the nodes that were chosen, and those of device memory that it stores."""
        layouts = Layouts(block, self.order)
        loop = self.graph.plan.loops[kernel]
        loads = {}
        for node, edge in chosen:
            if edge.kind == "load":
                laid = sources[edge.operands[0]]
                imap = [self._index(laid, axis) for axis, _ in counts.grid]
                looped = self.graph.places[node].stage == LOOP and loop is not None
                fmap = self._index(laid, loop) if looped and loop is not None else None
                tile = block.load(laid.value, imap=imap, fmap=fmap)
                self.tiles[node], loads[tile.name] = Laid(tile, laid.dims), laid.dims
        for node, edge in chosen:
            if edge.kind != "load":
                self.tiles[node] = self._operator(layouts, block, edge)
        block.threads = (_threads(self._accumulated(chosen)),)
        saved = tuple([self._save(block, layouts, counts, node, edge) for node, edge in stored])
        return BuiltBlock(block.build(), loads, saved)

    def _accumulated(self, chosen: Sequence[tuple[int, Edge]]) -> int:
        """Return how many elements the products have that live together, in the fragments that tensor cores work on.

        Those of the loop and those of after it do not meet. Whether a product is added up as it is or after another
        operator, its elements stay in registers.
        """
        total = {False: 0, True: 0}
        for node, edge in chosen:
            is_product = edge.operator is not None and edge.operator.effect in (Effect.CONTRACT, Effect.JOIN)
            if is_product and edge.kind == "operator":
                *outer, rows, columns = self.tiles[node].value.shape
                in_loop = self.graph.places[node].stage == LOOP
                total[in_loop] += prod(outer) * -(-rows // FRAGMENT) * -(-columns // FRAGMENT) * FRAGMENT**2
        return max(total.values())

    def _index(self, laid: Laid, axis: str) -> int | None:
        """Return which dimension an axis is, None if the tensor has no such dimension."""
        return laid.dims.index((axis,)) if (axis,) in laid.dims else None

    def _save(
        self, block: BlockBuilder, layouts: Layouts, counts: Counts, node: int, edge: Edge
    ) -> tuple[int, tuple[DimNames, ...], DType]:
        """Store a tile as a node of device memory; returns the node, its dimensions and type."""
        laid = self.tiles[edge.operands[0]]
        if node in self.sketch.outputs:
            goal = self.problem.goals[self.sketch.outputs.index(node)]
            dims = _flat_dims(goal.dims)
            laid = Laid(layouts.arranged(laid, dims, exactly=True), dims)
        split = self.graph.plan.split if self.mask[self.graph.values[node]] & self.graph.grid else None
        partial = split is not None and self.graph.is_partial(self.graph.values[node])
        omap: list[int | None] = []
        for axis, _ in counts.grid:
            omap.append(len(laid.dims) - 1 if partial and axis == split else self._index(laid, axis))
        block.save(laid.value, omap=omap)
        dims = laid.dims
        if partial and split is not None:
            dims = (*dims[:-1], (f"{split}.g", *dims[-1]))
        return node, dims, self._stored_dtype(node, block.tile(laid.value).dtype)

    def _stored_dtype(self, node: int, tile: DType) -> DType:
        """Return the program's type for an output; what the next kernel reads keeps the type it was computed in."""
        if node in self.sketch.outputs:
            return self._program_output(node).dtype
        return tile

    def _name(self, node: int) -> str | None:
        if node not in self.sketch.outputs:
            return None
        goal = self.problem.goals[self._number(node)]
        if self._shape(_flat_dims(goal.dims)) != self._shape(goal.own):  # it is reshaped afterwards
            return None
        name = self._program_output(node).name
        taken = {tensor.name for tensor in self.problem.program.inputs}
        if re.fullmatch(r"t\d+", name):  # names that a builder gives, perhaps to another tensor
            return None
        return name if name not in taken and self.sketch.outputs.count(node) == 1 else None

    def _number(self, node: int) -> int:
        return self.sketch.outputs.index(node)

    def _program_output(self, node: int) -> DeviceTensor:
        return self.problem.program.outputs[self._number(node)]

    # ------------------------------------------------------------------------------------------------------ operators
    def _operator(self, layouts: Layouts, block: BlockBuilder, edge: Edge) -> Laid:
        operands = [self.tiles[operand] for operand in edge.operands]
        op = edge.operator
        assert op is not None
        if edge.kind == "accumulate":
            return self._accumulate(block, op, operands[0], edge.axis)
        if edge.kind == "combine":
            return self._combine(block, op, operands[0])
        match op.effect:
            case Effect.CONTRACT:
                return layouts.product(operands[0], operands[1], edge.axis)
            case Effect.JOIN:
                x, y, w, z = operands
                return layouts.joined_product((x, w, edge.parts[0][0]), (y, z, edge.parts[1][0]))
            case Effect.BINARY:
                left, right, dims = layouts.together(*operands)
                return Laid(block.apply(op.name, left, right, **_attributes(op)), dims)
            case Effect.UNARY:
                return Laid(self._unary(block, op, operands[0].value), operands[0].dims)
            case Effect.FOLD:
                return self._fold(block, op, operands[0], edge.axis)
            case Effect.WHOLE:
                return self._whole(block, op, operands[0], edge.axis)

    def _unary(self, block: BlockBuilder, op: Operator, value: Value) -> Value:
        if op.completes:
            return block.apply("scale", value, factor=Fraction(1, self.extents[op.completes]))
        if op.constant is None:
            return block.apply(op.name, value, **_attributes(op))
        operands: list[Value | Fraction] = [value]
        operands.insert(op.position, op.constant)
        return block.apply(op.name, *operands, **_attributes(op))

    def _fold(self, block: BlockBuilder, op: Operator, laid: Laid, axis: str) -> Laid:
        place = laid.position(axis)
        value = block.apply(op.name, laid.value, axis=place - len(laid.dims), **_attributes(op))
        return Laid(value, (*laid.dims[:place], (), *laid.dims[place + 1 :]))

    def _whole(self, block: BlockBuilder, op: Operator, laid: Laid, axis: str) -> Laid:
        place = laid.position(axis) - len(laid.dims)
        if op.has_axis:
            return Laid(block.apply(op.name, laid.value, axis=place, **_attributes(op)), laid.dims)
        if place == -1:
            return Laid(block.apply(op.name, laid.value, **_attributes(op)), laid.dims)
        expand = op.spec.expand
        if expand is None:
            raise NotApplicableError(f"{op.name} works on the last axis only, and {axis} is not the last")

        def apply(name: str, *operands: Value, **attributes: AttributeValue) -> Value:
            if "axis" in attributes:
                attributes["axis"] = place
            given: dict[str, Any] = attributes
            return block.apply(name, *operands, **given)

        return Laid(expand(apply, (laid.value,), (laid.value.shape,), dict(op.attributes)), laid.dims)

    def _accumulate(self, block: BlockBuilder, op: Operator, laid: Laid, axis: str) -> Laid:
        kind = "max" if op.name == "max" else "sum"
        if not axis:
            return Laid(block.accumulate(laid.value, kind), laid.dims)
        place = laid.position(axis)
        dims = (*laid.dims[:place], (), *laid.dims[place + 1 :])
        eps = Fraction(str(dict(op.attributes).get("eps", 0)))
        if place == len(laid.dims) - 1:
            sugar = {"sum": "sum_dim", "max": "max_dim", "mean": "mean", "rms": "rms"}[op.name]
            return Laid(block.accumulate(laid.value, sugar, eps=eps), dims)
        value = block.apply("square", laid.value) if op.name == "rms" else laid.value
        value = block.accumulate(block.apply(kind, value, axis=place - len(laid.dims)), kind)
        if op.name in ("mean", "rms"):
            value = block.apply("scale", value, factor=Fraction(1, self.extents[axis]))
        if op.name == "rms":
            value = block.apply("sqrt", block.apply("add", value, eps) if eps else value)
        return Laid(value, dims)

    def _combine(self, block: BlockBuilder, op: Operator, laid: Laid) -> Laid:
        """Return the blocks' partial results summed: they lie side by side along the last dimension."""
        rest = laid.dims[-1][1:]
        if not rest:
            return Laid(block.apply(op.name, laid.value, axis=-1), (*laid.dims[:-1], ()))
        if op.name != "sum":
            raise NotApplicableError(f"{op.name} over blocks of a tile with a last axis of its own")
        columns = prod(self.extents[name] for name in rest)
        return Laid(block.apply("sum_to_columns", laid.value, columns=columns), (*laid.dims[:-1], rest))


def _threads(accumulated: int) -> int:
    """Return how many threads a block starts with: more where the sums of products would not fit in registers."""
    threads = THREADS
    while threads < MAX_THREADS and accumulated > threads * ACCUMULATORS:
        threads *= 2
    return threads


def _attributes(op: Operator) -> dict[str, Any]:
    """Return an operator's attributes as keywords."""
    return dict(op.attributes)


def _time(place: Place) -> int:
    """Return when a place is: before, first block graph, between, second block graph, after."""
    if place.kernel is not None:
        return 1 + 2 * place.kernel
    return {Place.BEFORE: 0, Place.BETWEEN: 2, Place.AFTER: 4}[place]


def _flat_dims(dims: Sequence[DimNames]) -> tuple[DimNames, ...]:
    """Return dimensions with products taken apart."""
    flat: list[DimNames] = []
    for dim in dims:
        flat += [(name,) for name in dim] if len(dim) > 1 else [dim]
    return tuple(flat)


__all__ = ["Builder", "Counts", "Instantiation"]
