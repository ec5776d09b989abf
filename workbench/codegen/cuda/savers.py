"""Output savers: elements of a tile written to device memory, neighbours together where they lie together.

Invariant: only elements that exist are written, each by one thread of one block.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.codegen.cuda.addressing import TileAddress
from workbench.codegen.cuda.element import offset_text
from workbench.codegen.cuda.emitted import C_TYPES
from workbench.codegen.cuda.indices import Level
from workbench.codegen.cuda.steps import SaveSink

if TYPE_CHECKING:
    from workbench.codegen.cuda.stage_text import StageWriter


def save(writer: StageWriter, sink: SaveSink) -> None:
    """Write the value to its output."""
    saved, nest, walk = sink.saved, writer.nest, writer.walk
    pointer, address = writer.places.output_of(sink)
    c_type, shape = C_TYPES[saved.tensor.dtype], saved.operand.shape
    text = writer.term(saved.operand)
    axis = group_axis(writer, sink, address)
    if axis is None:
        place = offset_text([index.text for index in walk.index], saved.tensor.strides, shape)
        rounded = text if c_type == "float" else f"from_f32<{c_type}>({text})"
        line = f"{pointer}[{place}] = {rounded};"
        valid = writer.valid()
        nest.at(writer.level).append(f"if ({valid}) {line}" if valid else line)
        return
    width, limit = walk.width, writer.limit(axis)
    out = writer.elements.local(f"{saved.operand.name}_out")
    nest.group.append(f"Vec<float, {width}> {out};")
    nest.element.append(f"{out}.value[e] = {text};")
    texts = [
        index.group if position == axis and index.group else index.text for position, index in enumerate(walk.index)
    ]
    place = offset_text(texts, saved.tensor.strides, shape)
    to = f"{pointer} + {place}" if place != "0" else pointer
    lines = [f"register_to_global({to}, rounded<{c_type}>({out}));"]
    if limit is not None:
        lines = [
            f"if (col + {width} <= {limit}) {lines[0]}",
            f"else register_to_global_edge({to}, rounded<{c_type}>({out}), {limit} - col);",
        ]
    row = writer.valid_row()
    if row:
        lines = [f"if ({row}) {{", *[f"  {line}" for line in lines], "}"]
    nest.group_last += lines


def group_axis(writer: StageWriter, sink: SaveSink, address: TileAddress) -> int | None:
    """Return the axis along which neighbours are written with one access, None if they are not."""
    walk, size = writer.walk, sink.saved.tensor.dtype.nbytes
    if walk.width == 1 or walk.inner is None or walk.width * size not in (4, 8, 16, 32):
        return None
    index = walk.index[walk.inner]
    if index.group != "col" or sink.saved.tensor.strides[walk.inner] != 1:
        return None
    if any(part.level > Level.ROW for axis, part in enumerate(walk.index) if axis != walk.inner):
        return None
    is_aligned = address.alignment(walk.inner) % min(walk.width, 16 // size) == 0
    return walk.inner if is_aligned else None
