"""Block graphs made by rule for predefined kernel operators: rows that are reduced, and products.

Invariant: a block graph made here means what its operators mean, so there is one path from graphs to kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import prod

from workbench.core.dtypes import DType
from workbench.core.shapes import Shape
from workbench.core.tensors import DeviceTensor
from workbench.ops.attributes import fraction
from workbench.ugraph.builder import BlockBuilder
from workbench.ugraph.kernel_units import Unit
from workbench.ugraph.nodes import GraphDefinedNode, OpNode
from workbench.ugraph.value import Value

MOST_BLOCKS = (2**31 - 1, 65535, 65535)
"""Blocks along x, y, z that a launch takes (CUDA C++ Programming Guide, compute capability 9.0)."""

ROW_ELEMENTS = 4096
"""Elements of a block of rows, about; a row is never cut."""


def parts(extent: int, tile: int) -> int:
    """Return into how many parts an axis is cut so that none exceeds `tile` and none is empty.

    Cuts give tiles of ceil(extent / count), so the count that `tile` suggests may leave the last parts empty; the count
    returned does not.
    """
    count = -(-extent // tile)
    return -(-extent // -(-extent // count))


def grid_cuts(space: Shape, tiles: Sequence[int]) -> list[tuple[int, int]]:
    """Return (dimension, count) of at most three cuts, the largest first, since grid x holds the most blocks.

    Along y and z tiles grow where there would be more blocks than a launch takes.
    """
    counts = [(dim, parts(extent, tile)) for dim, (extent, tile) in enumerate(zip(space, tiles, strict=True))]
    cuts = sorted((cut for cut in counts if cut[1] > 1), key=lambda cut: (-cut[1], cut[0]))[:3]
    return [
        (dim, count if count <= most else parts(space[dim], -(-space[dim] // most)))
        for (dim, count), most in zip(cuts, MOST_BLOCKS, strict=False)
    ]


def row_tiles(space: Shape, axis: int) -> list[int]:
    """Return the extents of a block of rows: whole along the folded axis, neighbours along the last where that is another."""
    tiles, left = list(space), max(1, ROW_ELEMENTS // space[axis])
    for dim in reversed(range(len(space))):
        if dim == len(space) + axis:
            continue
        least = 32 if dim == len(space) - 1 else 1
        tiles[dim] = min(space[dim], max(left, least))
        left = max(1, left // tiles[dim])
    return tiles


def rows_block(
    unit: Unit,
    tensors: Mapping[str, DeviceTensor],
    inputs: Sequence[str],
    results: Sequence[str],
    constants: Mapping[str, OpNode],
) -> GraphDefinedNode:
    """Return a graph-defined operator that computes a rows unit: blocks of rows over the grid, the folded axis whole."""
    assert unit.axis is not None
    cuts = grid_cuts(unit.space, row_tiles(unit.space, unit.axis))
    threads = 256 if unit.space[unit.axis] >= 2048 else 128
    operands = [tensors[name] for name in inputs]
    grid = [count for _, count in cuts] or [1]
    builder = BlockBuilder(operands, grid=grid, threads=(threads,))
    values: dict[str, Value] = {}
    for position, tensor in enumerate(operands):
        values[tensor.name] = builder.load(position, imap=maps_onto(tensor.shape, unit.space, cuts))
    for node in unit.operators:
        read = []
        for name in node.operands:
            if name not in values:
                values[name] = builder.apply("constant", value=fraction(constants[name].attribute_map, "value"))
            read.append(values[name])
        given: dict[str, object] = dict(node.attribute_map)
        made = builder.apply_all(node.op, *read, name=None, **given)
        values.update(zip((tensor.name for tensor in node.results), made, strict=True))
    for name in results:
        builder.save(values[name], omap=maps_onto(tensors[name].shape, unit.space, cuts))
    return GraphDefinedNode(builder.build(), tuple(inputs), tuple(tensors[name] for name in results))


def maps_onto(shape: Shape, space: Shape, cuts: Sequence[tuple[int, int]]) -> list[int | None]:
    """Return which dimension of a tensor each grid axis cuts, None where the tensor is the same in all its blocks."""
    missing = len(space) - len(shape)
    return [
        dim - missing if dim >= missing and shape[dim - missing] == space[dim] and space[dim] > 1 else None
        for dim, _ in cuts
    ]


# ------------------------------------------------------------------------------------------------------------ products
def product_block(node: OpNode, tensors: Mapping[str, DeviceTensor]) -> GraphDefinedNode:
    """Return a graph-defined operator for a matrix product: tiles of 64 x 64, the inner axis looped.

    Leading axes are taken as one where the strides of all three tensors allow.
    """
    left, right, result = (tensors[name] for name in (*node.operands, node.results[0].name))
    merged = [merged_leading(tensor) for tensor in (left, right, result)]
    whole = result.shape[:-2]
    if (
        len(whole) > 1
        and all(tensor is not None for tensor in merged)
        and all(t.shape[:-2] in (whole, ()) or prod(t.shape[:-2]) == 1 for t in (left, right))
    ):
        left, right, result = (tensor for tensor in merged if tensor is not None)
    m, n, k = result.shape[-2], result.shape[-1], left.shape[-1]
    depth = 64 if left.dtype is not DType.FLOAT32 and right.dtype is not DType.FLOAT32 else 32
    rank = len(result.shape)
    tiles = [1] * (rank - 2) + [min(m, 64), min(n, 64)]
    cuts = grid_cuts(result.shape, tiles)
    builder = BlockBuilder([left, right], grid=[count for _, count in cuts] or [1], loop=parts(k, depth))
    a = builder.load(0, imap=factor_maps(left, result, cuts, rank - 2), fmap=len(left.shape) - 1)
    b = builder.load(1, imap=factor_maps(right, result, cuts, rank - 1), fmap=len(right.shape) - 2)
    builder.save(builder.accumulate(builder.apply("matmul", a, b)), omap=[dim for dim, _ in cuts])
    return GraphDefinedNode(builder.build(), node.operands, (result,))


def merged_leading(tensor: DeviceTensor) -> DeviceTensor | None:
    """Return the tensor with its leading axes as one, None where the strides do not allow it."""
    lead, strides = tensor.shape[:-2], tensor.strides[:-2]
    kept = [(extent, stride) for extent, stride in zip(lead, strides, strict=True) if extent > 1]
    if any(outer[1] != inner[0] * inner[1] for outer, inner in pairwise(kept)):
        return None
    if not lead:
        return tensor
    step = kept[-1][1] if kept else 0
    shape, steps = (prod(lead), *tensor.shape[-2:]), (step or prod(tensor.shape[-2:]), *tensor.strides[-2:])
    return replace(tensor, shape=shape, strides=steps)


def factor_maps(
    factor: DeviceTensor, result: DeviceTensor, cuts: Sequence[tuple[int, int]], own: int
) -> list[int | None]:
    """Return which dimension of a factor each grid axis cuts; `own`: the result's dimension that comes from it."""
    missing = len(result.shape) - len(factor.shape)
    maps: list[int | None] = []
    for dim, _ in cuts:
        at = dim - missing
        if dim >= len(result.shape) - 2:
            maps.append(at if dim == own else None)
        else:
            maps.append(at if at >= 0 and factor.shape[at] == result.shape[dim] else None)
    return maps
