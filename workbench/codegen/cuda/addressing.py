"""Where a tile lies in its kernel tensor: C text of starts, offsets and valid extents from the maps of a block graph.

Invariant: grid axes cut a dimension first, in the order x, y, z, then the loop; each cut gives parts of ceil(length / count)
and the last parts are shorter or empty (`ugraph.inference.tile_of`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

from workbench.core.layouts import Strides
from workbench.core.shapes import Shape
from workbench.core.tensors import RaggedSplit
from workbench.ugraph.inference import LOOP
from workbench.ugraph.nodes import DimMap

GRID_NAMES = ("bx", "by", "bz")
STEP = "step"


@dataclass(frozen=True, slots=True)
class Start:
    """Where tiles begin along one dimension: the sum of coordinate * multiple over the cuts.

    Attributes: terms: (coordinate's C name, multiple in elements); tile: extent of a full tile.
    """

    terms: tuple[tuple[str, int], ...]
    tile: int

    def text(self, step: str = STEP) -> str:
        """Return the start as C text; `step`: C text of the iteration."""
        parts = [_times(step if name == STEP else name, multiple) for name, multiple in self.terms]
        return " + ".join(parts) or "0"

    @property
    def is_looped(self) -> bool:
        """True when it changes from iteration to iteration."""
        return any(name == STEP for name, _ in self.terms)


def _times(text: str, factor: int) -> str:
    if factor == 1:
        return text
    return f"({text}) * {factor}" if " " in text else f"{text} * {factor}"


def start_of(extent: int, cuts: Sequence[tuple[int, int]]) -> Start:
    """Return where the tiles of a dimension begin; cuts: (axis 0 to 2 of the grid or LOOP, count) from the outermost."""
    terms, tile = [], extent
    for axis, count in cuts:
        tile = -(-tile // count)
        terms.append((STEP if axis == LOOP else GRID_NAMES[axis], tile))
    return Start(tuple(terms), tile)


def cuts_of(dim: int, imap: DimMap, fmap: int | None, grid: Shape, iterations: int) -> list[tuple[int, int]]:
    """Return the cuts of a dimension, counts of 1 left out."""
    cuts = [(axis, grid[axis]) for axis in range(3) if imap[axis] == dim and grid[axis] > 1]
    if fmap == dim and iterations > 1:
        cuts.append((LOOP, iterations))
    return cuts


def valid_text(split: RaggedSplit, step: str = STEP) -> str:
    """Return C text of how many elements of a ragged tile exist, between 0 and the full tile."""
    start = start_of(split.extent, split.parts)
    ends = [str(split.extent)]
    for number in range(1, len(split.parts)):
        outer = start_of(split.extent, split.parts[:number])
        ends.append(f"{outer.text(step)} + {outer.tile}")
    end = ends[0]
    for other in ends[1:]:
        end = f"lesser({end}, {other})"
    return f"clamped({end} - ({start.text(step)}), {start.tile})"


def depends_on_loop(split: RaggedSplit) -> bool:
    """Return True when the valid extent changes from iteration to iteration."""
    return any(axis == LOOP for axis, _ in split.parts)


@dataclass(frozen=True, slots=True)
class TileAddress:
    """A tile in a tensor: per dimension where it starts, and the tensor's strides in elements."""

    starts: tuple[Start, ...]
    strides: Strides

    def offset(self, *, looped: bool | None = None, step: str = STEP) -> str:
        """Return C text of the offset of the tile's first element; `looped`: only the loop's terms, or only the others."""
        parts = []
        for start, stride in zip(self.starts, self.strides, strict=True):
            for name, multiple in start.terms:
                if looped is None or looped == (name == STEP):
                    parts.append(_offset_term(step if name == STEP else name, multiple * stride))
        return " + ".join(parts)

    def alignment(self, inner: int) -> int:
        """Return a number of elements that divides the offset of every row of the tile along dimension `inner`."""
        divisor = 0
        for dim, (start, stride) in enumerate(zip(self.starts, self.strides, strict=True)):
            if dim != inner and start.tile > 1:
                divisor = gcd(divisor, stride)
            for _, multiple in start.terms:
                divisor = gcd(divisor, multiple * stride)
        return divisor or 1 << 20


def _offset_term(text: str, factor: int) -> str:
    name = f"({text})" if " " in text else text
    return f"(i64){name}" if factor == 1 else f"(i64){name} * {factor}"


def tile_address(
    shape: Shape, strides: Strides, imap: DimMap, fmap: int | None, grid: Shape, iterations: int
) -> TileAddress:
    """Return where the tiles of a tensor lie."""
    starts = [start_of(extent, cuts_of(dim, imap, fmap, grid, iterations)) for dim, extent in enumerate(shape)]
    return TileAddress(tuple(starts), strides)
