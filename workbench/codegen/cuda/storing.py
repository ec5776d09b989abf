"""Sinks that leave a value on chip: in a shared tile, or in fragments for the next product.

Invariant: slots outside the valid extents become zero, so that products and sums over a stored tile need no mask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.codegen.cuda.element import bare
from workbench.codegen.cuda.indices import Level
from workbench.codegen.cuda.steps import HandOverSink, StoreSink
from workbench.codegen.cuda.tile_storage import C_BYTES, SharedTile

if TYPE_CHECKING:
    from workbench.codegen.cuda.stage_text import StageWriter


def place_text(writer: StageWriter, tile: SharedTile) -> str:
    """Return C text of the current element's place in a tile."""
    row, column = tile.row_and_column(writer.walk.index)
    return f"{tile.variable}.at({bare(row.text)}, {bare(column.text)})"


def group_place(writer: StageWriter, tile: SharedTile) -> str | None:
    """Return C text of the place of the current group of neighbours, None where they do not lie side by side."""
    walk, size = writer.walk, C_BYTES[tile.c_type]
    if walk.width == 1:
        return None
    row, column = tile.row_and_column(walk.index)
    if column.group != "col" or row.level > Level.ROW or walk.width * size not in (4, 8, 16, 32):
        return None
    if tile.stride % walk.width or (tile.swizzle and walk.width * size > 16):
        return None
    return f"{tile.variable}.at({bare(row.text)}, col)"


def store(writer: StageWriter, sink: StoreSink) -> None:
    """Write the value into its shared tile."""
    tile, nest, width = sink.tile, writer.nest, writer.walk.width
    text = writer.guarded(writer.term(sink.value))
    place = group_place(writer, tile)
    if place is None:
        rounded = text if tile.c_type == "float" else f"from_f32<{tile.c_type}>({text})"
        nest.at(writer.level).append(f"*{place_text(writer, tile)} = {rounded};")
        return
    out = writer.elements.local(f"{sink.value.name}_out")
    nest.group.append(f"Vec<float, {width}> {out};")
    nest.element.append(f"{out}.value[e] = {text};")
    nest.group_last.append(f"register_to_shared({place}, rounded<{tile.c_type}>({out}));")


def hand_over(writer: StageWriter, sink: HandOverSink) -> None:
    """Leave the value where the fragments of the product before it lie."""
    writer.before.append(f"float {sink.variable}{writer.walk.element_dims};")
    writer.nest.element.append(
        f"{sink.variable}{writer.walk.element_slot} = {writer.guarded(writer.term(sink.value))};"
    )


def replace_fragment(writer: StageWriter, sink: StoreSink) -> None:
    """Put the value in the place of the product's left operand."""
    out = writer.elements.local(f"{sink.value.name}_pair")
    writer.nest.group.append(f"float {out}[2];")
    writer.nest.element.append(f"{out}[e] = {writer.guarded(writer.term(sink.value))};")
    writer.nest.group_last.append(f"{writer.fragment}[quad] = pack2<{writer.c_type}>({out}[0], {out}[1]);")
