"""How warps read and fill the tiles of a block graph in the layouts that were chosen: what a cost model needs of them.

Invariant: a tile that is read in one pass and filled along the rows of its tensor is left out, so that a choice without
conflicts costs what a model says that knows of no layouts. Passes are counted from addresses (`banks.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from workbench.core.layouts import Layout, SharedLayout, TileAccess, innermost_axis
from workbench.core.tensors import DeviceTensor, SharedTensor
from workbench.ops.spec import OpKind
from workbench.optimize import banks
from workbench.optimize.layout_rules import SCALAR_PASSES, factors_of, joined_factors
from workbench.optimize.tile_views import lies_in
from workbench.ugraph.block_graph import BlockGraph
from workbench.ugraph.nodes import InputIterator, OpNode, ThreadNode


def tile_accesses(block: BlockGraph, layouts: Mapping[str, Layout]) -> dict[str, TileAccess]:
    """Return the tiles, by name, whose layout makes warps read them in several passes or fill them across device memory.

    layouts: of tiles that lie in shared memory; one that is missing or in registers costs nothing. Factors of products are
    read by ldmatrix, 8 rows of 16 bytes at a time, or, where a left factor is worked out on its fragments, what it is
    worked out of; inputs are copied from their device tensors as these lie.
    """
    homes = lies_in(block)
    shared = {
        name: layout
        for name, home in homes.items()
        if isinstance(layout := layouts.get(home), SharedLayout) and len(block.tiles[home].shape) > 1
    }
    inputs = {node.result.name: block.operands[node.operand] for node in block.nodes if isinstance(node, InputIterator)}
    passes: dict[str, int] = {}
    for name, place in _factors(block):
        read = _read_for(block, name) if place == 0 else (name,)
        found = [
            _product_passes(block.tiles[homes[each]], shared[each], is_padded=homes[each] not in inputs)
            for each in read
            if each in shared
        ]
        passes[name] = max([passes.get(name, 1), *found])
    across = {
        name
        for name, tensor in inputs.items()
        if name in shared and min(block.tiles[name].shape[-2:]) > 1 and _is_across(tensor, shared[name])
    }
    found_for = {name: TileAccess(passes.get(name, 1), name in across) for name in (*passes, *across)}
    return {name: access for name, access in found_for.items() if access != TileAccess()}


def _factors(block: BlockGraph) -> Iterator[tuple[str, int]]:
    """Yield the factors of a block graph's products, and 0 for a left one, 1 for a right one."""
    joined = joined_factors(block)
    for node in block.nodes:
        for number, name in enumerate(factors_of(node)):
            for piece in joined.get(name, (name,)):
                yield piece, number % 2


def _read_for(block: BlockGraph, name: str) -> tuple[str, ...]:
    """Return the tiles in shared memory that are read for a left factor: itself, or inputs it is worked out of in fragments.

    Empty where it is worked out of a product, whose fragments it takes over.
    """
    shape = block.tiles[name].shape[-2:]
    sources, stack = list[str](), [name]
    while stack:
        tile = stack.pop()
        node = block.producer(tile)
        if factors_of(node):
            return ()
        if isinstance(node, InputIterator) and block.tiles[tile].shape[-2:] == shape:
            sources.append(tile)
        elif isinstance(node, ThreadNode) or (isinstance(node, OpNode) and node.spec.kind is OpKind.ELEMENTWISE):
            stack += node.operands
    return tuple(sources) or (name,)


def _product_passes(tile: SharedTensor, layout: SharedLayout, *, is_padded: bool) -> int:
    """Return the passes in which a product reads 8 rows of 16 bytes of a tile; element by element where it must.

    is_padded: rows stand in the tile up to those that tensor cores read; else its last row is read again for them.
    """
    if tile.dtype.nbytes > 2:
        return 1  # multiplied as float32, read element by element whatever the layout
    passes = banks.ldmatrix_passes(tile.shape[layout.innermost], tile.dtype.nbytes, layout.spread) or SCALAR_PASSES
    return passes if is_padded else min(passes, tile.shape[-3 - layout.innermost])


def _is_across(tensor: DeviceTensor, layout: SharedLayout) -> bool:
    """Return True for a tile whose rows run across the contiguous axis of its tensor, so that no copy of it is wide."""
    innermost = innermost_axis(tensor.shape, tensor.strides)
    return innermost in (-1, -2) and innermost != layout.innermost
