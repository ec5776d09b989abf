"""Which part of each kernel tensor a block reads and writes in an iteration, from imap, fmap and omap: as data, as a picture.

Invariant: parts are those of the interpreter's cuts: each cut gives parts of ceil(length / count), a part ends where its
parent ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from workbench.core.shapes import Shape
from workbench.errors import UsageError
from workbench.interpret.tiling import cuts_of
from workbench.ugraph.block_graph import BlockGraph
from workbench.ugraph.nodes import DimMap, GraphDefinedNode, InputIterator, OutputSaver
from workbench.views.graph_labels import map_text, read_maps_text
from workbench.views.markup import words

Range = tuple[int, int]
_LARGEST, _SMALLEST, _CELLS = 132.0, 16.0, 64
_CHARACTER, _LONGEST = 6.0, 34  # width of a usual character; characters of a line


@dataclass(frozen=True, slots=True)
class TileView:
    """One tile of one kernel tensor.

    Attributes: node: position in the block graph; tensor: name; tile: name of the tile; shape: of the tensor; ranges: per
    dimension, first and end of what is read or written; counts: per dimension, tiles along it; role; maps: in words.
    """

    node: int
    tensor: str
    tile: str
    shape: Shape
    ranges: tuple[Range, ...]
    counts: tuple[int, ...]
    role: Literal["read", "written"]
    maps: str

    @property
    def is_empty(self) -> bool:
        """Whether the tile lies beyond the tensor's end."""
        return any(first >= end for first, end in self.ranges)

    def describe(self) -> str:
        """Return the part as a slice: `X[0:16, 256:512]`."""
        return f"{self.tensor}[{', '.join(f'{first}:{end}' for first, end in self.ranges)}]"


def tile_views(launch: GraphDefinedNode, cell: Sequence[int], iteration: int) -> tuple[TileView, ...]:
    """Return the tiles that a block reads in an iteration, and those that it writes at its end.

    cell: of the grid, along x, y, z. Raises: UsageError for a cell or an iteration that there is not.
    """
    block = launch.block
    for axis, (index, count) in enumerate(zip(cell, block.grid_dims, strict=True)):
        if not 0 <= index < count:
            raise UsageError(f"block {index} along {'xyz'[axis]}: there are {count}, counted from 0")
    if not 0 <= iteration < block.forloop_range:
        raise UsageError(f"iteration {iteration}: there are {block.forloop_range}, counted from 0")
    at = (*cell, iteration)
    found = []
    saved = 0
    for number, node in enumerate(block.nodes):
        match node:
            case InputIterator():
                tensor = block.operands[node.operand]
                name = launch.operands[node.operand]
                maps = ", ".join(read_maps_text(node, block))
                found.append(_tile(number, name, node.result.name, tensor.shape, node.imap, node.fmap, block, at, maps))
            case OutputSaver():
                result = launch.results[saved]
                saved += 1
                maps = map_text("omap", node.omap, block)
                tile = _tile(
                    number, result.name, node.operand, result.shape, node.omap, None, block, at, maps, "written"
                )
                found.append(tile)
            case _:
                pass
    return tuple(found)


def _tile(
    number: int, tensor: str, tile: str, shape: Shape, imap: DimMap, fmap: int | None, block: BlockGraph,
    at: tuple[int, ...], maps: str, role: Literal["read", "written"] = "read",
) -> TileView:  # fmt: skip
    ranges, counts = [], []
    for dim, extent in enumerate(shape):
        first, end, size, count = 0, extent, extent, 1
        for axis, parts in cuts_of(dim, imap, fmap, block.grid_dims, block.forloop_range):
            size = -(-size // parts)
            first += at[axis] * size
            end = min(end, first + size)
            count *= parts
        ranges.append((min(first, extent), max(min(first, extent), end)))
        counts.append(count)
    return TileView(number, tensor, tile, shape, tuple(ranges), tuple(counts), role, maps)


def tiles_html(tiles: Sequence[TileView], prefix: str) -> str:
    """Return the tensors side by side, the tile of each filled; the last two dimensions are drawn, others are in words.

    prefix: id of the block graph in the picture, so that a tensor and its node light up together.
    """
    return f'<div class="wb-tiles">{"".join(_tile_svg(tile, f"{prefix}.{tile.node}") for tile in tiles)}</div>'


def _tile_svg(tile: TileView, link: str) -> str:
    told = _captions(tile)
    w, h = _size(tile)
    title = f"{'×'.join(map(str, tile.shape)) or 'scalar'}, {tile.role}"
    longest = max(map(len, (title, *told)))
    width = max(w, _CHARACTER * longest, 1.25 * _CHARACTER * len(tile.tensor)) + 4
    height = 34 + h + 10 + 13 * len(told)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{words(tile.role)}: {words(tile.describe())}" '
        f'data-link="{link}" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}">'
        f"{_tensor(tile, title, told, 2.0, 34.0, w, h)}</svg>"
    )


def _size(tile: TileView) -> tuple[float, float]:
    columns = tile.shape[-1] if tile.shape else 1
    rows = tile.shape[-2] if len(tile.shape) > 1 else 1
    longest = max(rows, columns)
    return max(_SMALLEST, _LARGEST * columns / longest), max(_SMALLEST, _LARGEST * rows / longest)


def _captions(tile: TileView) -> list[str]:
    """Return the lines below a tensor: the part that is touched, whole, then the maps."""
    part = [tile.describe()]
    if len(part[0]) > _LONGEST:
        part = part[0].replace(", ", ",\n").split("\n")  # one dimension a line
    maps = [text for text in tile.maps.split(", ") if text]
    return [*part, *maps, *(["nothing: beyond the end"] if tile.is_empty else [])]


def _tensor(tile: TileView, title: str, told: Sequence[str], x: float, y: float, w: float, h: float) -> str:
    drawn = ([(0, 1, 1, 1)] * 2 + [(*r, e, c) for r, e, c in zip(tile.ranges, tile.shape, tile.counts, strict=True)])[
        -2:
    ]
    (top, bottom, rows, down), (left, right, columns, across) = drawn
    parts = [
        f'<text x="{x:.0f}" y="14" font-size="12" font-weight="600">{words(tile.tensor)}</text>',
        f'<text class="wb-quiet" x="{x:.0f}" y="28" font-size="10.5">{words(title)}</text>',
        f'<rect class="wb-box" x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}"/>',
    ]
    for count, vertical in ((across, True), (down, False)):
        if 1 < count <= _CELLS:
            for line in range(1, count):
                at = (x + w * line / count) if vertical else (y + h * line / count)
                ends = f"M{at:.1f} {y:.1f} v{h:.1f}" if vertical else f"M{x:.1f} {at:.1f} h{w:.1f}"
                parts.append(f'<path class="wb-stroke" stroke-width="0.4" d="{ends}"/>')
    if not tile.is_empty:
        fill = "wb-bar-good" if tile.role == "read" else "wb-bar-bad wb-written"
        wide, high = max(2.0, w * (right - left) / columns), max(2.0, h * (bottom - top) / rows)
        parts.append(
            f'<rect class="{fill}" x="{x + w * left / columns:.1f}" y="{y + h * top / rows:.1f}" width="{wide:.1f}" '
            f'height="{high:.1f}"><title>{words(tile.describe())}</title></rect>'
        )
    for line, text in enumerate(told):
        parts.append(f'<text x="{x:.0f}" y="{y + h + 15 + 13 * line:.0f}" font-size="10.5">{words(text)}</text>')
    return "".join(parts)
