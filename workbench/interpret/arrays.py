"""Evaluation in domains whose values are arrays (floats, field pairs), vectorised over blocks and iterations.

Invariant: the tile logic (cutting, raggedness, accumulation, joining) is written once here, on coordinates; a domain
adds how a value splits into coordinate arrays and what an operator does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Generic, TypeVar, assert_never

import numpy as np

from workbench.core.dtypes import DType
from workbench.core.namespaces import array_namespace
from workbench.core.shapes import Shape
from workbench.core.tensors import DeviceTensor, RaggedSplit, SharedTensor
from workbench.errors import MissingRuleError
from workbench.interpret.tiling import PREFIX, cut_tiles, join_tiles, take_cells, valid_mask
from workbench.interpret.walk import Observer, walk_block
from workbench.ops.registry import operator
from workbench.ops.spec import Array, Attributes, AttributeValue, Dim, OpKind, OpSpec
from workbench.ugraph import inference
from workbench.ugraph.block_graph import BlockGraph
from workbench.ugraph.inference import LOOP
from workbench.ugraph.nodes import (
    Accumulator,
    AccumulatorKind,
    GraphDefinedNode,
    InputIterator,
    OpNode,
    RunningMax,
)

V = TypeVar("V")
Cells = tuple[slice, slice, slice]
ALL_CELLS: Cells = (slice(None), slice(None), slice(None))


@dataclass(frozen=True, slots=True)
class Tile(Generic[V]):
    """A tile of all blocks and iterations: a value with four leading axes, the full tile's shape, its raggedness."""

    value: V
    shape: Shape
    ragged: tuple[RaggedSplit | None, ...]


class ArrayDomain(ABC, Generic[V]):
    """A domain whose values are made of arrays of one shape.

    chunk_elements: a block graph whose largest tile, over all blocks and iterations, has more elements than this is
    evaluated in parts of the grid, so that memory stays bounded.
    """

    def __init__(self, chunk_elements: int = 1 << 24) -> None:
        self.chunk_elements = chunk_elements
        self._cells: Cells = ALL_CELLS

    # -------------------------------------------------------------------------------------------- what a domain supplies
    @abstractmethod
    def map(self, function: Callable[..., Array], *values: V) -> V:
        """Return the value whose every coordinate is `function` of the operands' coordinates (data movement only)."""

    @abstractmethod
    def rule(self, spec: OpSpec, operands: tuple[V, ...], attributes: Attributes, prefix: int) -> tuple[V, ...]:
        """Return the results of an operator; the operands carry `prefix` leading batch axes."""

    @abstractmethod
    def shape_of(self, value: V) -> Shape:
        """Return the shape of a value, leading axes included."""

    @abstractmethod
    def fill(self, value: V, valid: Array, identity: str) -> V:
        """Return the value with slots outside `valid` set to the identity of a 'sum' or of a 'max'."""

    def at_least_lowest(self, value: V, dtype: DType) -> V:
        """Return the value with -inf replaced by the lowest number of a type; as it is where -inf does not occur."""
        return value

    @abstractmethod
    def integers(self, values: Array) -> V:
        """Return an array of whole numbers as a value of the domain."""

    # --------------------------------------------------------------------------- what several domains' rules have in common
    def _moved(self, spec: OpSpec, operands: tuple[V, ...], attributes: Attributes, prefix: int) -> tuple[V, ...]:
        """Return the results of a movement: every coordinate moves as floats do."""
        return tuple(
            self.map(lambda *arrays, number=number: spec.on_float(arrays, attributes, prefix)[number], *operands)
            for number in range(spec.num_results(attributes))
        )

    def _expanded(self, spec: OpSpec, operands: tuple[V, ...], attributes: Attributes, prefix: int) -> tuple[V, ...]:
        """Return the result of a composite: what its expansion gives."""
        assert spec.expand is not None
        shapes = tuple(self.shape_of(value)[prefix:] for value in operands)
        return (spec.expand(self._applier(prefix), operands, shapes, attributes),)

    def _applier(self, prefix: int) -> Callable[..., V]:
        """Return what applies an operator, by name, to operands with `prefix` leading axes."""

        def apply(name: str, *operands: V, **attributes: AttributeValue) -> V:
            spec = operator(name)
            (result,) = self.rule(spec, operands, spec.check_attributes(attributes), prefix)
            return result

        return apply

    # ------------------------------------------------------------------------------------------------------ kernel level
    def operator(self, node: OpNode, operands: tuple[V, ...]) -> tuple[V, ...]:
        """Return the results of a predefined kernel operator."""
        return self.rule(node.spec, operands, node.attribute_map, 0)

    def launch(self, node: GraphDefinedNode, operands: tuple[V, ...], observe: Observer | None) -> tuple[V, ...]:
        """Return the results of a graph-defined operator, evaluated in as many parts of the grid as memory asks for."""
        block = node.block
        depends = _dependencies(block)
        axis, slices = self._parts(block, depends)
        parts: list[list[Tile[V]]] = []
        for part in slices:
            cells = [slice(None)] * 3
            cells[axis] = part
            self._cells = (cells[0], cells[1], cells[2])
            watch = observe if len(slices) == 1 else None
            parts.append(walk_block(block, operands, self, watch, (node.results[0].name,)))
        self._cells = ALL_CELLS
        results = []
        for number, saver in enumerate(block.savers):
            tiles = [part[number] for part in parts]
            value = tiles[0].value
            if len(tiles) > 1 and axis in depends[saver.operand]:
                value = self._concatenate([tile.value for tile in tiles], axis)
            ragged = tiles[0].ragged
            results.append(
                self.map(
                    lambda array, saver=saver, ragged=ragged: join_tiles(array, saver.omap, block.grid_dims, ragged),
                    value,
                )
            )
        return tuple(results)

    def _parts(self, block: BlockGraph, depends: Mapping[str, frozenset[int]]) -> tuple[int, list[slice]]:
        """Return along which grid axis, and in which slices, the block graph is evaluated."""
        largest, of_largest = 0, frozenset[int]()
        for node in block.nodes:
            if isinstance(node, InputIterator):
                continue  # a view of the kernel tensor
            axes = frozenset[int]().union(*(depends[name] for name in node.operands))
            for tensor in node.results:
                counts = prod((*block.grid_dims, block.forloop_range)[axis] for axis in axes)
                if counts * prod(tensor.shape) > largest:
                    largest, of_largest = counts * prod(tensor.shape), axes
        grid = sorted(axis for axis in of_largest if axis < LOOP)
        if largest <= self.chunk_elements or not grid:
            return 0, [slice(None)]
        axis = max(grid, key=lambda candidate: block.grid_dims[candidate])
        count = block.grid_dims[axis]
        step = max(1, count * self.chunk_elements // largest)
        return axis, [slice(start, min(start + step, count)) for start in range(0, count, step)]

    def _concatenate(self, values: Sequence[V], axis: int) -> V:
        shapes = [self.shape_of(value) for value in values]
        common = [max(shape[dim] for shape in shapes) for dim in range(len(shapes[0]))]

        def join(*arrays: Array) -> Array:
            widened = [
                _broadcast_to(array, [array.shape[dim] if dim == axis else common[dim] for dim in range(array.ndim)])
                for array in arrays
            ]
            joined: Array = array_namespace(arrays[0]).concatenate(widened, axis=axis)
            return joined

        return self.map(join, *values)

    # ------------------------------------------------------------------------------------------------------- block level
    def load(self, node: InputIterator, value: V, tensor: DeviceTensor, block: BlockGraph) -> Tile[V]:
        """Return the tiles an input iterator brings."""
        cells = self._cells
        loop = block.forloop_range

        def cut(array: Array) -> Array:
            return take_cells(cut_tiles(array, node.imap, node.fmap, block.grid_dims, loop), cells)

        return Tile(self.map(cut, value), node.result.shape, node.result.ragged)

    def tile_operator(self, node: OpNode, operands: tuple[Tile[V], ...]) -> tuple[Tile[V], ...]:
        """Return the results of an operator on tiles."""
        return self.apply_tiles(node.spec, node.attribute_map, operands)

    def apply_tiles(self, spec: OpSpec, attributes: Attributes, operands: tuple[Tile[V], ...]) -> tuple[Tile[V], ...]:
        """Return the results of an operator on tiles, slots of ragged tiles left out of what is folded."""
        if spec.kind is OpKind.CONSTANT:
            (value,) = self.rule(spec, (), attributes, 0)
            return (Tile(self.map(lambda a: a.reshape((1,) * PREFIX + a.shape), value), (), ()),)
        tiles = [SharedTensor("tile", tile.shape, ragged=tile.ragged) for tile in operands]
        inferred = inference.apply_operator(spec, attributes, tiles, node=spec.name)
        if any(tile.is_ragged for tile in tiles):
            axis_map = spec.axes(tuple(tile.shape for tile in tiles), attributes)
            folded = [dim for group in axis_map.reduced for dim in group if isinstance(dim, Dim)]
            folded = [dim for dim in folded if tiles[dim.operand].ragged[dim.axis] is not None]
            if folded:
                return self._fold_ragged(spec, attributes, operands, folded, inferred)
        values = self.rule(spec, self._aligned(spec, operands), attributes, PREFIX)
        return tuple(Tile(value, shape, ragged) for value, (shape, ragged) in zip(values, inferred, strict=True))

    def _aligned(self, spec: OpSpec, operands: tuple[Tile[V], ...]) -> tuple[V, ...]:
        """Return the operands' values with unit axes after the leading ones, so that trailing axes meet."""
        if len(operands) < 2:
            return tuple(tile.value for tile in operands)
        rank = max(len(tile.shape) for tile in operands)
        values = []
        for tile in operands:
            missing = rank - len(tile.shape)
            values.append(
                self.map(lambda a, n=missing: a.reshape(*a.shape[:PREFIX], *(1,) * n, *a.shape[PREFIX:]), tile.value)
                if missing
                else tile.value
            )
        if spec.kind is OpKind.MOVEMENT:  # concatenation wants equal leading axes
            shapes = [self.shape_of(value)[:PREFIX] for value in values]
            common = [max(shape[axis] for shape in shapes) for axis in range(PREFIX)]
            values = [self.map(lambda a: _broadcast_to(a, [*common, *a.shape[PREFIX:]]), value) for value in values]
        return tuple(values)

    def _fold_ragged(
        self,
        spec: OpSpec,
        attributes: Attributes,
        operands: tuple[Tile[V], ...],
        folded: Sequence[Dim],
        inferred: Sequence[tuple[Shape, tuple[RaggedSplit | None, ...]]],
    ) -> tuple[Tile[V], ...]:
        if spec.name == "mean":
            axis = _axis(attributes)
            split = operands[0].ragged[axis]
            assert split is not None
            total = self.apply_tiles(operator("sum"), {"axis": axis}, operands)[0]
            mask = valid_mask(split, axis, len(operands[0].shape), self._cells)
            return (self._divide(total, mask.sum(axis=axis, keepdims=True)),)
        if spec.name in ("sum", "matmul", "max"):
            identity = "max" if spec.name == "max" else "sum"
            filled = list(operands)
            for dim in folded:
                tile = filled[dim.operand]
                split = tile.ragged[dim.axis]
                assert split is not None
                mask = valid_mask(split, dim.axis, len(tile.shape), self._cells)
                filled[dim.operand] = Tile(self.fill(tile.value, mask, identity), tile.shape, tile.ragged)
            values = self.rule(spec, self._aligned(spec, tuple(filled)), attributes, PREFIX)
            return tuple(Tile(value, shape, ragged) for value, (shape, ragged) in zip(values, inferred, strict=True))
        if spec.expand is None:
            raise MissingRuleError(
                f"operator {spec.name} folds a ragged axis and has neither a rule for it nor an expansion"
            )
        return (spec.expand(self._apply, operands, tuple(tile.shape for tile in operands), attributes),)

    def _apply(self, name: str, *operands: Tile[V], **attributes: AttributeValue) -> Tile[V]:
        spec = operator(name)
        (result,) = self.apply_tiles(spec, spec.check_attributes(attributes), operands)
        return result

    def _divide(self, tile: Tile[V], counts: Array) -> Tile[V]:
        whole = self.integers(np.maximum(counts, 1))  # an empty part sums to 0; 0/1 keeps it 0
        (value,) = self.rule(operator("div"), (tile.value, whole), {}, PREFIX)
        return Tile(value, tile.shape, tile.ragged)

    def accumulate(self, node: Accumulator, operand: Tile[V], rescale: Tile[V] | None, block: BlockGraph) -> Tile[V]:
        """Return what an accumulator leaves after the loop."""
        loop = block.forloop_range
        match node.kind:
            case AccumulatorKind.SUM:
                return self._over_iterations("sum", operand, loop)
            case AccumulatorKind.SUM_DIM:
                return self._over_iterations("sum", self._apply("sum", operand, axis=-1), loop)
            case AccumulatorKind.SUM_TO_COLUMNS:
                assert node.columns is not None
                return self._over_iterations("sum", self._apply("sum_to_columns", operand, columns=node.columns), loop)
            case AccumulatorKind.MAX:
                return self._over_iterations("max", operand, loop)
            case AccumulatorKind.MAX_DIM:
                return self._over_iterations("max", self._apply("max", operand, axis=-1), loop)
            case AccumulatorKind.MEAN:
                return self._mean(operand, loop)
            case AccumulatorKind.RMS:
                mean = self._mean(self._apply("square", operand), loop)
                if node.eps:
                    mean = self._apply("add", mean, self._apply("constant", value=node.eps))
                return self._apply("sqrt", mean)
            case AccumulatorKind.RESCALE:
                assert rescale is not None
                return self._rescaled(operand, rescale, loop)
            case AccumulatorKind.RESCALE_SUM:
                assert rescale is not None
                split = operand.ragged[-1]
                if split is not None:
                    mask = valid_mask(split, -1, len(operand.shape), self._cells)
                    operand = Tile(self.fill(operand.value, mask, "sum"), operand.shape, (*operand.ragged[:-1], None))
                    if rescale.ragged and rescale.ragged[-1] is not None:  # a factor that varies along the axis
                        mask = valid_mask(split, -1, len(rescale.shape), self._cells)
                        filled = self.fill(rescale.value, mask, "sum")
                        rescale = Tile(filled, rescale.shape, (*rescale.ragged[:-1], None))
                return self._apply("sum", self._rescaled(operand, rescale, loop), axis=-1)
            case _:
                assert_never(node.kind)

    def _over_iterations(self, name: str, tile: Tile[V], loop: int) -> Tile[V]:
        """Return the sum or maximum over the loop axis; a loop-invariant tile is added once per iteration."""
        value = tile.value
        if self.shape_of(value)[PREFIX - 1] != loop:
            if name == "max":
                return tile
            value = self.map(lambda a: _broadcast_to(a, [*a.shape[:3], loop, *a.shape[PREFIX:]]), value)
        axis = -(len(tile.shape) + 1)
        (total,) = self.rule(operator(name), (value,), {"axis": axis}, PREFIX - 1)
        return Tile(total, tile.shape, tile.ragged)

    def _mean(self, tile: Tile[V], loop: int) -> Tile[V]:
        total = self._over_iterations("sum", self._apply("sum", tile, axis=-1), loop)
        split = tile.ragged[-1]
        if split is None:
            count = np.full((1,) * (PREFIX + len(tile.shape)), tile.shape[-1] * loop, dtype=np.int64)
        else:
            mask = valid_mask(split, -1, len(tile.shape), self._cells).sum(axis=-1, keepdims=True)
            looped = any(cut == PREFIX - 1 for cut, _ in split.parts)
            count = mask.sum(axis=PREFIX - 1, keepdims=True) if looped else mask * loop
        return self._divide(total, count)

    def _iteration(self, tile: Tile[V], step: int) -> Tile[V]:
        if self.shape_of(tile.value)[PREFIX - 1] == 1:
            return tile
        return Tile(self.map(lambda a: a[:, :, :, step : step + 1], tile.value), tile.shape, tile.ragged)

    def _rescaled(self, tile: Tile[V], rescale: Tile[V], loop: int) -> Tile[V]:
        total = self._iteration(tile, 0)
        for step in range(1, loop):
            kept = self._apply("mul", total, self._iteration(rescale, step))
            total = self._apply("add", kept, self._iteration(tile, step))
        return total

    def running_max(self, node: RunningMax, operand: Tile[V], block: BlockGraph) -> tuple[Tile[V], Tile[V]]:
        """Return the running maximum over the last axis and its shift, per iteration.

        The shift is 0 as long as no element was seen before, in the first iteration and after empty tiles: there a
        difference would be -inf - -inf. For the same reason a row of -inf, one that a mask has left nothing of, has the
        lowest finite number as its maximum.
        """
        best = self._apply("max", operand, axis=-1)
        split, rank = operand.ragged[-1], len(operand.shape)
        elements: Array = np.ones((1,) * (PREFIX + rank), dtype=bool)
        if split is not None:
            elements = np.max(valid_mask(split, -1, rank, self._cells), axis=-1, keepdims=True)
        best = Tile(self.at_least_lowest(best.value, node.maximum.dtype), best.shape, best.ragged)
        maxima = [self._iteration(best, 0)]
        shifts = [
            Tile(self.fill(maxima[0].value, np.zeros_like(elements[:, :, :, :1]), "sum"), best.shape, best.ragged)
        ]
        for step in range(1, block.forloop_range):
            maxima.append(self._apply("maximum", maxima[-1], self._iteration(best, step)))
            shift = self._apply("sub", maxima[-2], maxima[-1])
            if split is not None:
                seen = np.max(elements[:, :, :, :step], axis=PREFIX - 1, keepdims=True)
                shift = Tile(self.fill(shift.value, seen, "sum"), shift.shape, shift.ragged)
            shifts.append(shift)
        joined = [self._concatenate([tile.value for tile in tiles], PREFIX - 1) for tiles in (maxima, shifts)]
        return Tile(joined[0], best.shape, best.ragged), Tile(joined[1], best.shape, best.ragged)


def _axis(attributes: Mapping[str, AttributeValue]) -> int:
    axis = attributes["axis"]
    assert isinstance(axis, int)
    return axis


def _broadcast_to(array: Array, shape: Sequence[int]) -> Array:
    result: Array = array_namespace(array).broadcast_to(array, tuple(shape))
    return result


def _dependencies(block: BlockGraph) -> dict[str, frozenset[int]]:
    """Return, per tile, along which grid axes (0 to 2) and whether over the iterations (3) its elements differ."""
    counts = (*block.grid_dims, block.forloop_range)
    depends: dict[str, frozenset[int]] = {}
    for node in block.nodes:
        axes = frozenset[int]().union(*(depends[name] for name in node.operands))
        if isinstance(node, InputIterator):
            mapped = {axis for axis in range(LOOP) if node.imap[axis] is not None}
            axes = frozenset(axis for axis in mapped | ({LOOP} if node.fmap is not None else set()) if counts[axis] > 1)
        elif isinstance(node, Accumulator):
            axes -= {LOOP}
        elif isinstance(node, RunningMax) and counts[LOOP] > 1:
            axes |= {LOOP}
        depends.update({tensor.name: axes for tensor in node.results})
    return depends
