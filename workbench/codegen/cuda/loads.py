"""Copies of input tiles from device to shared memory: cp.async where alignment allows, element by element where not.

Invariant: after its copy a tile holds the tensor's elements where they exist and zero elsewhere within the tile's extents.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from workbench.codegen.cuda.addressing import TileAddress, valid_text
from workbench.codegen.cuda.emitted import C_TYPES
from workbench.codegen.cuda.tile_storage import C_BYTES, SharedTile, rounded_up
from workbench.codegen.cuda.tile_values import Loaded
from workbench.codegen.cuda.walks import loop


def copy_bytes(value: Loaded, tile: SharedTile, address: TileAddress) -> int:
    """Return the bytes of one asynchronous copy: the largest of 16, 8, 4 that every row's start allows, else 0."""
    inner = value.rank + tile.contiguous_axis
    size = value.dtype.nbytes
    if value.rank and (inner < 0 or (address.strides[inner] != 1 and value.shape[inner] > 1)):
        return 0
    aligned = address.alignment(inner) * size if value.rank else size
    return next((count for count in (16, 8, 4) if aligned % count == 0), 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """One copy of an input's tile.

    Attributes: pointer: C name of the tensor; memory: C text of the tile's place; step: C text of the iteration; threads.
    """

    value: Loaded
    tile: SharedTile
    address: TileAddress
    pointer: str
    memory: str
    step: str
    threads: int


def copy_lines(copy: Copy) -> list[str]:
    """Return statements that copy a tile."""
    value, tile, address, step, memory = copy.value, copy.tile, copy.address, copy.step, copy.memory
    shape, ragged = (1, 1, *value.shape)[-2:], (None, None, *value.ragged)[-2:]
    strides = (0, 0, *address.strides)[-2:]
    if tile.transposed:
        shape, ragged, strides = shape[::-1], ragged[::-1], strides[::-1]
    rows, columns = shape
    limits = [
        str(extent) if split is None else valid_text(split, step) for extent, split in zip(shape, ragged, strict=True)
    ]
    lead = value.shape[:-2]
    is_ragged = any(split is not None for split in value.ragged)
    offset = address.offset(step=step)
    start = f"{copy.pointer} + {offset}" if offset else copy.pointer
    place, source = memory, start
    guards = [
        f"{matrix_index(lead, axis)} < {valid_text(split, step)}"
        for axis, split in enumerate(value.ragged[:-2])
        if split is not None
    ]
    if guards:
        limits[0] = f"({' && '.join(guards)} ? {limits[0]} : 0)"
    if prod(lead) > 1:
        size = tile.rows * tile.stride * C_BYTES[tile.c_type]
        place = f"{memory} + matrix * {size}"
        steps = [
            f"(i64){matrix_index(lead, axis)} * {address.strides[axis]}" for axis in range(len(lead)) if lead[axis] > 1
        ]
        source = f"{start} + {' + '.join(steps)}"
    size = copy_bytes(value, tile, address)
    swizzle, c_type = "true" if tile.swizzle else "false", C_TYPES[value.dtype]
    if size:
        covered = rounded_up(columns, size // value.dtype.nbytes)
        part = f"SharedTile<{c_type}, {rows}, {covered}, {swizzle}, {tile.stride}>({place})"
        bounds = f", {limits[0]}, {limits[1]}" if is_ragged or covered != columns else ""
        line = f"global_to_shared_tile_async<{copy.threads}, {size}>({part}, {source}, {strides[0]}{bounds});"
    else:
        part = f"SharedTile<{c_type}, {rows}, {columns}, {swizzle}, {tile.stride}>({place})"
        line = f"global_to_shared_tile<{copy.threads}>({part}, {source}, {strides[0]}, {strides[1]}, {limits[0]}, {limits[1]});"
    if prod(lead) > 1:
        return loop(f"int matrix = 0; matrix < {prod(lead)}; matrix++", [line], unroll=False)
    return [line]


def matrix_index(lead: tuple[int, ...], axis: int) -> str:
    """Return C text of a leading axis' index from the number of the matrix."""
    below = prod(lead[axis + 1 :])
    text = "matrix" if below == 1 else f"(matrix / {below})"
    return text if prod(lead[:axis]) == 1 else f"({text} % {lead[axis]})"


def load_comment(value: Loaded, tile: SharedTile, address: TileAddress) -> str:
    """Return what a comment says of an input's copy."""
    size = copy_bytes(value, tile, address)
    how = f"cp.async of {size} bytes" if size else "element by element (rows are not aligned)"
    ring = f", {tile.copies} tiles in flight" if tile.copies > 1 else ""
    kept = ", kept as its transpose" if tile.transposed else ""
    return f"{value.label}: {list(value.shape)} of {value.tensor.name}{list(value.tensor.shape)}, {how}{ring}{kept}"
