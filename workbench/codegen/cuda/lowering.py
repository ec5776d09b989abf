"""From a block graph to tile values: every node replaced by what `emitters.py` makes of its operator.

Invariant: the values of a block graph's tiles are those of the graph in real arithmetic. A loop of one iteration leaves no
accumulators; dead nodes leave nothing, since only what the savers need is ever visited.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod
from typing import assert_never

from workbench.codegen.cuda.c_names import CNames
from workbench.codegen.cuda.emitters import EMITTERS
from workbench.codegen.cuda.tile_values import (
    Accumulated,
    Constant,
    Contracted,
    Counted,
    Folded,
    Folding,
    Keeping,
    Loaded,
    Mapped,
    MaximumShift,
    Ragged,
    RunningMaximum,
    Saved,
    Stored,
    TileValue,
    View,
    Viewed,
)
from workbench.codegen.cuda.value_paths import UNBOUNDED, is_below_maximum
from workbench.core.dtypes import DType
from workbench.core.shapes import Shape
from workbench.core.tensors import DeviceTensor, RaggedSplit, RegisterTensor, SharedTensor
from workbench.errors import EmitError
from workbench.ops.attributes import complete_attributes
from workbench.ops.registry import operator
from workbench.ops.spec import Attributes, AttributeValue, OpKind
from workbench.ugraph import inference
from workbench.ugraph.block_graph import BlockGraph
from workbench.ugraph.inference import LOOP, Place
from workbench.ugraph.nodes import (
    Accumulator,
    AccumulatorKind,
    InputIterator,
    OpNode,
    OutputSaver,
    RunningMax,
    Tensor,
    ThreadNode,
)

COSTLY = frozenset({"div", "sqrt", "rsqrt", "exp", "log", "pow", "power", "sigmoid", "silu", "gelu", "tanh"})
"""Operators that take several instructions, or one of the unit for special functions."""

MANY_TIMES = 8
"""Times that an expression is read from which on it is stored rather than computed at each of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoweredBlock:
    """A block graph as tile values: what is stored, over which grid and how many iterations."""

    saved: tuple[Saved, ...]
    grid: Shape
    iterations: int
    parameters: tuple[DeviceTensor, ...]


class Lowering:
    """Builds tile values; the rules of `emitters.py` call its methods."""

    def __init__(self, names: CNames) -> None:
        self.names = names

    # ----------------------------------------------------------------------------------------------------- operators
    def operator(
        self, op: str, operands: Sequence[TileValue], attributes: Attributes, results: Sequence[Tensor]
    ) -> list[TileValue]:
        """Return the values of an operator's results, which bear the recorded names and types."""
        made = EMITTERS[op](self, tuple(operands), attributes, tuple(tensor.name for tensor in results))
        return [self.renamed(value, tensor) for value, tensor in zip(made, results, strict=True)]

    def apply(self, op: str, *operands: TileValue, **given: AttributeValue) -> TileValue:
        """Return the value of an operator inside an expansion; it is named after the first operand."""
        shapes = tuple(value.shape for value in operands)
        attributes = complete_attributes(operator(op), given, shapes)
        stem = f"{operands[0].label}_{op}" if operands else op
        (value,) = EMITTERS[op](self, operands, attributes, (stem,))
        return value

    def infer(self, op: str, operands: Sequence[TileValue], attributes: Attributes) -> list[tuple[Shape, Ragged]]:
        """Return shape and raggedness of an operator's results."""
        tiles = [SharedTensor("tile", value.shape, value.dtype, value.ragged) for value in operands]
        found = inference.apply_operator(operator(op), attributes, tiles, node=op)
        return [(shape, tuple(ragged)) for shape, ragged in found]

    def place(self, *operands: TileValue) -> Place:
        """Return when a value of these operands exists."""
        return inference.merge_places([value.place for value in operands], node="") if operands else Place.INVARIANT

    def renamed(self, value: TileValue, tensor: Tensor) -> TileValue:
        """Return a value under the name and type of a tile of the graph."""
        if tensor.dtype is DType.FLOAT64:
            raise EmitError("float64 is not claimed", tensor.name, "use float32, or a 16-bit type")
        return replace(value, dtype=tensor.dtype)  # fresh from its rule, so nobody else refers to it yet

    # --------------------------------------------------------------------------------------------- what rules build
    def constant(self, number: Fraction, label: str) -> TileValue:
        """Return an exact number."""
        return Constant(
            name=self.names.claim(label), label=label, shape=(), ragged=(), dtype=DType.FLOAT32, place=Place.INVARIANT,
            value=number,
        )  # fmt: skip

    def mapped(self, op: str, operands: tuple[TileValue, ...], attributes: Attributes, label: str) -> TileValue:
        """Return an operator on each element."""
        ((shape, ragged),) = self.infer(op, operands, attributes)
        return Mapped(
            name=self.names.claim(label), label=label, shape=shape, ragged=ragged, dtype=DType.FLOAT32,
            place=self.place(*operands), op=op, attributes=tuple(sorted(attributes.items())), operands=operands,
        )  # fmt: skip

    def viewed(
        self, operand: TileValue, view: View, shape: Shape, ragged: Ragged, label: str, axis: int = -1, start: int = 0
    ) -> TileValue:
        """Return a view of another tile."""
        return Viewed(
            name=self.names.claim(label), label=label, shape=shape, ragged=ragged, dtype=operand.dtype,
            place=operand.place, operand=operand, view=view, axis=axis, start=start,
        )  # fmt: skip

    def same(self, operand: TileValue, label: str) -> TileValue:
        """Return a value under another name."""
        return self.viewed(operand, View.BROADCAST, operand.shape, operand.ragged, label)

    def folded(self, operand: TileValue, axis: int, folding: Folding, label: str) -> Folded:
        """Return a tile folded along an axis."""
        shape, ragged = list(operand.shape), list(operand.ragged)
        shape[axis], ragged[axis] = 1, None
        return Folded(
            name=self.names.claim(label), label=label, shape=tuple(shape), ragged=tuple(ragged), dtype=DType.FLOAT32,
            place=operand.place, operand=operand, axis=axis, folding=folding,
        )  # fmt: skip

    def contracted(
        self, pairs: tuple[tuple[TileValue, TileValue], ...], shape: Shape, ragged: Ragged, label: str
    ) -> TileValue:
        """Return a sum of matrix products."""
        factors = [value for pair in pairs for value in pair]
        return Contracted(
            name=self.names.claim(label), label=label, shape=shape, ragged=ragged, dtype=DType.FLOAT32,
            place=self.place(*factors), pairs=pairs,
        )  # fmt: skip

    def divided_by_count(
        self, total: TileValue, operand: TileValue, axis: int, iterations: int, label: str
    ) -> TileValue:
        """Return a sum over an axis, and over `iterations`, divided by the number of its elements.

        Over iterations that cut the axis raggedly, the elements are those of the block's whole part of the axis.
        """
        split = operand.ragged[axis]
        if split is not None and iterations > 1 and any(cut == LOOP for cut, _ in split.parts):
            rest = tuple(part for part in split.parts if part[0] != LOOP)
            if not rest:
                return self.mapped("scale", (total,), {"factor": Fraction(1, split.extent)}, label)
            split, iterations = RaggedSplit(split.extent, rest), 1
        if split is None:
            return self.mapped("scale", (total,), {"factor": Fraction(1, operand.shape[axis] * iterations)}, label)
        counted: TileValue = Counted(
            name=self.names.claim(f"{label}_count"), label=f"{label}_count", shape=(), ragged=(), dtype=DType.FLOAT32,
            place=total.place, split=split,
        )  # fmt: skip
        if iterations > 1:
            counted = self.mapped("scale", (counted,), {"factor": Fraction(iterations)}, f"{label}_elements")
        return self.mapped("div", (total, counted), {}, label)


class BlockLowering(Lowering):
    """Lowers one block graph; fuses: elementwise operators are evaluated where they are read."""

    def __init__(
        self, block: BlockGraph, results: Sequence[DeviceTensor], names: CNames, *, fuses: bool = True
    ) -> None:
        super().__init__(names)
        self.block, self.results, self.fuses = block, results, fuses
        self.tiles: dict[str, TileValue] = {}
        self.kept_once: dict[TileValue, TileValue] = {}

    def run(self) -> LoweredBlock:
        """Return the block graph lowered. Raises: EmitError for types that kernels do not read or write."""
        for tensor in (*self.block.operands, *self.results):
            if tensor.dtype is DType.FLOAT64:
                raise EmitError("float64 is not claimed", tensor.name, "use float32, or a 16-bit type")
        saved: list[Saved] = []
        for node in self.block.nodes:
            read = [self.tiles[name] for name in node.operands]
            made: list[TileValue]
            match node:
                case InputIterator():
                    made = [self.loaded(node)]
                case OpNode():
                    made = self.operator(node.op, read, node.attribute_map, node.results)
                    if not self.fuses and node.spec.kind is OpKind.ELEMENTWISE:
                        made = [self.stored(value) for value in made]
                case Accumulator():
                    made = [self.renamed(self.accumulated(node, read), node.result)]
                case RunningMax():
                    made = self.running_maximum(node, read[0])
                case ThreadNode():
                    made = [self.thread(node, read)]
                case OutputSaver():
                    saved.append(Saved(read[0], node.omap, self.results[len(saved)]))
                    continue
                case _:
                    assert_never(node)
            self.tiles.update(zip((tensor.name for tensor in node.results), made, strict=True))
        return LoweredBlock(
            saved=tuple(saved),
            grid=self.block.grid_dims,
            iterations=self.block.forloop_range,
            parameters=self.block.operands,
        )

    def loaded(self, node: InputIterator) -> TileValue:
        """Return the tile that an input iterator brings."""
        tile, loop = node.result, self.block.forloop_range
        is_looped = node.fmap is not None and loop > 1
        return Loaded(
            name=self.names.claim(tile.name), label=tile.name, shape=tile.shape, ragged=tile.ragged, dtype=tile.dtype,
            place=Place.LOOP if is_looped else Place.INVARIANT, parameter=node.operand,
            tensor=self.block.operands[node.operand], imap=node.imap, fmap=node.fmap if is_looped else None,
        )  # fmt: skip

    def mapped(self, op: str, operands: tuple[TileValue, ...], attributes: Attributes, label: str) -> TileValue:
        """Return an operator on each element; in the loop, what is costly and the same for many elements is stored first."""
        if self.block.forloop_range > 1 and self.place(*operands) is Place.LOOP:
            ((shape, _),) = self.infer(op, operands, attributes)
            operands = tuple(self.once(operand, shape) for operand in operands)
        return super().mapped(op, operands, attributes, label)

    def once(self, operand: TileValue, shape: Shape) -> TileValue:
        """Return an operand of an operator on `shape`, stored where every row of it would be computed again and again."""
        is_of_columns = operand.shape[-1:] not in ((), (1,)) and prod(shape) >= MANY_TIMES * prod(operand.shape)
        if not is_of_columns or not isinstance(operand, Mapped) or not is_costly(operand):
            return operand
        if operand not in self.kept_once:
            self.kept_once[operand] = self.stored(operand)
        return self.kept_once[operand]

    def stored(self, value: TileValue) -> TileValue:
        """Return a value as a tile of its own; a single number is not worth one.

        It is kept in float32 and, if it may be far larger than its operands, handed on as that.
        """
        if prod(value.shape) == 1:
            return value
        is_large = isinstance(value, Mapped) and value.op in UNBOUNDED and not is_below_maximum(value)
        return Stored(
            name=self.names.claim(value.label), label=value.label, shape=value.shape, ragged=value.ragged,
            dtype=DType.FLOAT32 if is_large else value.dtype, place=value.place, operand=value,
        )  # fmt: skip

    def thread(self, node: ThreadNode, read: list[TileValue]) -> TileValue:
        """Return the value of a thread graph's root; its operators are register code like any other elementwise chain."""
        values = dict(zip((tensor.name for tensor in node.graph.inputs), read, strict=True))
        root = node.results[0]
        for inner in node.graph.nodes:
            operands = [values[name] for name in inner.operands]
            named = [
                root if tensor.name == node.graph.output else RegisterTensor(f"{root.name}_{tensor.name}", tensor.shape)
                for tensor in inner.results
            ]
            made = self.operator(inner.op, operands, inner.attribute_map, named)
            values.update(zip((tensor.name for tensor in inner.results), made, strict=True))
        return values[node.graph.output]

    # -------------------------------------------------------------------------------------------------- accumulators
    def keep(self, kind: Keeping, operand: TileValue, label: str, rescale: TileValue | None = None) -> TileValue:
        """Return a value accumulated over the loop; in a loop of one iteration it is the value itself."""
        loop = self.block.forloop_range
        if loop == 1 or (kind is Keeping.MAX and operand.place is Place.INVARIANT):
            return self.same(operand, label)
        if kind is Keeping.SUM and operand.place is Place.INVARIANT:
            return self.mapped("scale", (operand,), {"factor": Fraction(loop)}, label)
        return Accumulated(
            name=self.names.claim(label), label=label, shape=operand.shape, ragged=operand.ragged, dtype=DType.FLOAT32,
            place=Place.AFTER, operand=operand, kind=kind, rescale=rescale,
        )  # fmt: skip

    def accumulated(self, node: Accumulator, read: list[TileValue]) -> TileValue:
        """Return what an accumulator leaves after the loop."""
        operand, label = read[0], node.result.name
        match node.kind:
            case AccumulatorKind.SUM:
                return self.keep(Keeping.SUM, operand, label)
            case AccumulatorKind.MAX:
                return self.keep(Keeping.MAX, operand, label)
            case AccumulatorKind.SUM_DIM:
                return self.keep(Keeping.SUM, self.folded(operand, -1, Folding.SUM, f"{label}_sum"), label)
            case AccumulatorKind.MAX_DIM:
                return self.keep(Keeping.MAX, self.folded(operand, -1, Folding.MAX, f"{label}_max"), label)
            case AccumulatorKind.SUM_TO_COLUMNS:
                assert node.columns is not None
                return self.keep(Keeping.SUM, self.apply("sum_to_columns", operand, columns=node.columns), label)
            case AccumulatorKind.MEAN:
                return self.mean(operand, label)
            case AccumulatorKind.RMS:
                mean = self.mean(self.mapped("square", (operand,), {}, f"{label}_square"), f"{label}_mean")
                if node.eps:
                    mean = self.mapped("add", (mean, self.constant(node.eps, f"{label}_eps")), {}, f"{label}_shifted")
                return self.mapped("sqrt", (mean,), {}, label)
            case AccumulatorKind.RESCALE:
                return self.keep(Keeping.RESCALE, operand, label, read[1])
            case AccumulatorKind.RESCALE_SUM:
                return self.rescaled_sum(operand, read[1], label)
            case _:
                assert_never(node.kind)

    def mean(self, operand: TileValue, label: str) -> TileValue:
        """Return the mean over the last axis and the iterations."""
        total = self.keep(Keeping.SUM, self.folded(operand, -1, Folding.SUM, f"{label}_row_sum"), f"{label}_sum")
        return self.divided_by_count(total, operand, -1, self.block.forloop_range, label)

    def rescaled_sum(self, operand: TileValue, rescale: TileValue, label: str) -> TileValue:
        """Return sum over the last axis of (acc <- acc * r + x); the sum comes first where r is one number a row."""
        if rescale.shape[-1:] in ((1,), ()):
            folded = self.folded(operand, -1, Folding.SUM, f"{label}_row_sum")
            return self.keep(Keeping.RESCALE, folded, label, rescale)
        split = operand.ragged[-1]
        if split is not None and any(axis == LOOP for axis, _ in split.parts):
            raise EmitError(
                "a raggedly looped axis is rescaled by a factor that varies along it",
                label,
                "choose a loop count that divides the axis",
            )
        return self.folded(self.keep(Keeping.RESCALE, operand, f"{label}_kept", rescale), -1, Folding.SUM, label)

    def running_maximum(self, node: RunningMax, operand: TileValue) -> list[TileValue]:
        """Return the running maximum and its shift."""
        best = self.folded(operand, -1, Folding.MAX, f"{node.maximum.name}_of_tile")
        if self.block.forloop_range == 1:
            zero = self.constant(Fraction(0), f"{node.shift.name}_zero")
            shift = self.viewed(zero, View.BROADCAST, best.shape, best.ragged, node.shift.name)
            lowest = self.constant(-Fraction(DType.FLOAT32.largest), f"{node.maximum.name}_lowest")
            return [self.mapped("maximum", (best, lowest), {}, node.maximum.name), shift]
        maximum = RunningMaximum(
            name=self.names.claim(node.maximum.name), label=node.maximum.name, shape=best.shape, ragged=best.ragged,
            dtype=DType.FLOAT32, place=Place.LOOP, operand=best,
        )  # fmt: skip
        shift = MaximumShift(
            name=self.names.claim(node.shift.name), label=node.shift.name, shape=best.shape, ragged=best.ragged,
            dtype=DType.FLOAT32, place=Place.LOOP, maximum=maximum,
        )  # fmt: skip
        return [maximum, shift]


def is_costly(value: TileValue) -> bool:
    """Return True for elementwise expressions with an operator of several instructions."""
    return isinstance(value, Mapped) and (value.op in COSTLY or any(is_costly(operand) for operand in value.operands))


def lower_block(
    block: BlockGraph, results: Sequence[DeviceTensor], names: CNames, *, fuses: bool = True
) -> LoweredBlock:
    """Return a block graph as tile values. fuses: see `choices.Choices`. Raises: EmitError."""
    return BlockLowering(block, results, names, fuses=fuses).run()
