"""How arrays are cut into tiles and put together again, vectorised over the grid and the loop.

Invariant: a tile array has four leading axes (grid x, y, z, loop), each of the full count or 1 where the tile does not
depend on it, then the axes of a full tile. Slots of a ragged tile beyond its end hold copies of valid elements.
"""

from __future__ import annotations

from math import prod

import numpy as np

from workbench.core.namespaces import array_namespace
from workbench.core.shapes import Shape
from workbench.core.tensors import RaggedSplit
from workbench.ops.spec import Array
from workbench.ugraph.nodes import DimMap

PREFIX = 4  # grid x, y, z, loop


def cuts_of(dim: int, imap: DimMap, fmap: int | None, grid_dims: Shape, loop: int) -> list[tuple[int, int]]:
    """Return the cuts of a dimension, (prefix axis, count) from the outermost, counts of 1 left out."""
    cuts = [(axis, grid_dims[axis]) for axis in range(3) if imap[axis] == dim and grid_dims[axis] > 1]
    if fmap == dim and loop > 1:
        cuts.append((3, loop))
    return cuts


def split_indices(split: RaggedSplit) -> tuple[Array, Array]:
    """Return (index, valid) of a ragged cut, both of shape (*counts, tile): where each slot reads and whether it exists.

    Each cut gives parts of ceil(length / count); a part ends where its parent ends.
    """
    counts = tuple(count for _, count in split.parts)
    start = np.zeros((1,) * len(counts), dtype=np.int64)
    end = np.full((1,) * len(counts), split.extent, dtype=np.int64)
    tile = split.extent
    for position, count in enumerate(counts):
        tile = -(-tile // count)
        steps = np.arange(count).reshape([-1 if axis == position else 1 for axis in range(len(counts))])
        start = start + steps * tile
        end = np.minimum(end, start + tile)
    index = start[..., None] + np.arange(tile)
    valid = np.broadcast_to(index < end[..., None], (*counts, tile))
    return np.minimum(np.broadcast_to(index, (*counts, tile)), split.extent - 1), valid


def valid_mask(split: RaggedSplit, axis: int, rank: int, cells: tuple[slice, slice, slice]) -> Array:
    """Return which slots exist along tile axis `axis` (from the end) as an array that broadcasts over a tile array."""
    _, valid = split_indices(split)
    shape = [1] * (PREFIX + rank)
    for cut, count in split.parts:
        shape[cut] = count
    shape[axis] = valid.shape[-1]
    order = sorted(range(len(split.parts)), key=lambda position: split.parts[position][0])
    mask = valid.transpose([*order, len(order)]).reshape(shape)
    return take_cells(mask, cells)


def take_cells(tiles: Array, cells: tuple[slice, slice, slice]) -> Array:
    """Return the part of a tile array that belongs to some cells of the grid; axes of extent 1 stay."""
    index = tuple(cells[axis] if tiles.shape[axis] > 1 else slice(None) for axis in range(3))
    return tiles[index]


def cut_tiles(array: Array, imap: DimMap, fmap: int | None, grid_dims: Shape, loop: int) -> Array:
    """Return the tiles of a kernel tensor: shape (gx, gy, gz, loop, *tile); a view where all cuts are even."""
    shape: list[int] = []
    places: list[tuple[int, int]] = []  # (prefix axis, axis of the cut array)
    tile_axes: list[int] = []
    for dim in range(array.ndim):
        cuts = cuts_of(dim, imap, fmap, grid_dims, loop)
        extent, tile, even = array.shape[dim], array.shape[dim], True
        for _, count in cuts:
            even = even and tile % count == 0
            tile = -(-tile // count)
        if not even:
            index, _ = split_indices(RaggedSplit(extent, tuple(cuts)))
            array = array.take(index.ravel(), axis=dim)
        for axis, count in cuts:
            places.append((axis, len(shape)))
            shape.append(count)
        tile_axes.append(len(shape))
        shape.append(tile)
    cut = array.reshape(shape)
    places.sort()
    moved = cut.transpose([position for _, position in places] + tile_axes)
    prefix = [1] * PREFIX
    for axis, position in places:
        prefix[axis] = shape[position]
    return moved.reshape(*prefix, *(shape[axis] for axis in tile_axes))


def join_tiles(tiles: Array, omap: DimMap, grid_dims: Shape, ragged: tuple[RaggedSplit | None, ...]) -> Array:
    """Return the kernel tensor that saved tiles (gx, gy, gz, 1, *tile) make together."""
    rank = tiles.ndim - PREFIX
    counts = [grid_dims[axis] if omap[axis] is not None else 1 for axis in range(3)]
    tile_shape = tiles.shape[PREFIX:]
    full = array_namespace(tiles).broadcast_to(tiles, (*counts, 1, *tile_shape))
    order: list[int] = []
    shape: list[int] = []
    for dim in range(rank):
        axes = [axis for axis in range(3) if omap[axis] == dim]
        order += [*axes, PREFIX + dim]
        shape.append(prod(counts[axis] for axis in axes) * tile_shape[dim])
    order += [axis for axis in range(PREFIX) if axis not in order]
    joined: Array = full.transpose(order).reshape(shape)
    for dim, split in enumerate(ragged):
        if split is not None:
            _, valid = split_indices(split)
            joined = joined.take(np.flatnonzero(valid.ravel()), axis=dim)
    return joined
