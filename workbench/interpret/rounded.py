"""What a µGraph computes in its own data types, emulated in NumPy: every tensor rounded to its type after each operator.

Invariant: inside one operator and inside an accumulator the arithmetic is float32 (float64 where an operand is), as on a
GPU; overflow becomes infinite and is never hidden.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from workbench.core.dtypes import DType
from workbench.core.shapes import Shape
from workbench.core.tensors import DeviceTensor
from workbench.errors import ShapeError
from workbench.interpret.arrays import ArrayDomain, Tile
from workbench.interpret.walk import Observer, walk
from workbench.ops.spec import Array, Attributes, OpSpec
from workbench.ugraph.block_graph import BlockGraph
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import Accumulator, GraphDefinedNode, InputIterator, OpNode, RunningMax


def round_to(array: Array, dtype: DType) -> Array:
    """Return the nearest numbers of a data type (ties to even, overflow to inf), stored as float32 (float64 for float64)."""
    with np.errstate(all="ignore"):
        match dtype:
            case DType.FLOAT64:
                return np.asarray(array, dtype=np.float64)
            case DType.FLOAT32:
                return np.asarray(array, dtype=np.float32)
            case DType.FLOAT16:
                return np.asarray(array).astype(np.float16).astype(np.float32)
            case DType.BFLOAT16:
                return _round_to_bfloat16(np.asarray(array, dtype=np.float32))


def _round_to_bfloat16(array: Array) -> Array:
    """Keep the upper 16 bits of a float32, rounded to nearest even; a carry out of the largest number gives inf."""
    bits = np.ascontiguousarray(array).reshape(array.shape).view(np.uint32)
    half = np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    rounded = ((bits + half) & np.uint32(0xFFFF0000)).view(np.float32)
    result: Array = np.where(np.isnan(array), array, rounded)  # NaN would carry into the sign
    return result


class RoundedDomain(ArrayDomain[Array]):
    """Values are float32 (float64) arrays that hold numbers of each tensor's data type."""

    def map(self, function: Callable[..., Array], *values: Array) -> Array:
        """Return `function` of the arrays."""
        return function(*values)

    def rule(self, spec: OpSpec, operands: tuple[Array, ...], attributes: Attributes, prefix: int) -> tuple[Array, ...]:
        """Return the operator's results computed in float32, or float64 where an operand is; not yet rounded."""
        kind = np.float64 if any(operand.dtype == np.float64 for operand in operands) else np.float32
        with np.errstate(all="ignore"):  # overflow is what is looked for
            results = spec.on_float(operands, attributes, prefix)
            return tuple(np.asarray(result).astype(kind, copy=False) for result in results)

    def shape_of(self, value: Array) -> Shape:
        """Return the array's shape."""
        return tuple(value.shape)

    def fill(self, value: Array, valid: Array, identity: str) -> Array:
        """Return the array with other slots 0 (sum) or -inf (max)."""
        filled: Array = np.where(valid, value, value.dtype.type(0.0 if identity == "sum" else -np.inf))
        return filled

    def at_least_lowest(self, value: Array, dtype: DType) -> Array:
        """Return the value, what is below the lowest number of the type replaced by it."""
        bounded: Array = np.maximum(value, value.dtype.type(-dtype.largest))
        return bounded

    def integers(self, values: Array) -> Array:
        """Return whole numbers."""
        return np.asarray(values, dtype=np.float32)

    # ------------------------------------------------------------------------------------------- rounding of every node
    def operator(self, node: OpNode, operands: tuple[Array, ...]) -> tuple[Array, ...]:
        """Return the results of a kernel operator, rounded."""
        made = super().operator(node, operands)
        return tuple(round_to(value, tensor.dtype) for value, tensor in zip(made, node.results, strict=True))

    def launch(
        self, node: GraphDefinedNode, operands: tuple[Array, ...], observe: Observer | None
    ) -> tuple[Array, ...]:
        """Return what the output savers store, rounded to the device tensors' types."""
        made = super().launch(node, operands, observe)
        return tuple(round_to(value, tensor.dtype) for value, tensor in zip(made, node.results, strict=True))

    def load(self, node: InputIterator, value: Array, tensor: DeviceTensor, block: BlockGraph) -> Tile[Array]:
        """Return the tiles, rounded where a tile's type is narrower than its tensor's."""
        return self._rounded(super().load(node, value, tensor, block), node.result.dtype)

    def tile_operator(self, node: OpNode, operands: tuple[Tile[Array], ...]) -> tuple[Tile[Array], ...]:
        """Return the results of an operator on tiles, rounded."""
        made = super().tile_operator(node, operands)
        return tuple(self._rounded(tile, tensor.dtype) for tile, tensor in zip(made, node.results, strict=True))

    def accumulate(
        self, node: Accumulator, operand: Tile[Array], rescale: Tile[Array] | None, block: BlockGraph
    ) -> Tile[Array]:
        """Return what an accumulator leaves, rounded once at the end."""
        return self._rounded(super().accumulate(node, operand, rescale, block), node.result.dtype)

    def running_max(self, node: RunningMax, operand: Tile[Array], block: BlockGraph) -> tuple[Tile[Array], Tile[Array]]:
        """Return the running maximum and its shift, rounded."""
        maximum, shift = super().running_max(node, operand, block)
        return self._rounded(maximum, node.maximum.dtype), self._rounded(shift, node.shift.dtype)

    @staticmethod
    def _rounded(tile: Tile[Array], dtype: DType) -> Tile[Array]:
        return Tile(round_to(tile.value, dtype), tile.shape, tile.ragged)


def evaluate_rounded(graph: KernelGraph, inputs: Sequence[Array], *, observe: Observer | None = None) -> list[Array]:
    """Return the outputs of a program computed in its data types; inputs are rounded to theirs first.

    inputs: one array per program input, of the input's shape. Raises: ShapeError.
    """
    arrays = []
    for tensor, given in zip(graph.inputs, inputs, strict=True):
        array = np.asarray(given)
        if tuple(array.shape) != tensor.shape:
            raise ShapeError(f"input {tensor.name} has shape {tuple(array.shape)}, the program takes {tensor.shape}")
        arrays.append(round_to(array, tensor.dtype))
    return walk(graph, arrays, RoundedDomain(), observe)
