"""Folds of an axis: each thread folds its share of a row, lanes that share the row exchange, slices meet in shared memory.

Invariant: elements outside the valid extents count as the neutral element; the order of additions is fixed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.codegen.cuda.across_walk import AcrossWalk
from workbench.codegen.cuda.element import bare, broadcast
from workbench.codegen.cuda.indices import Index, Level, shifted
from workbench.codegen.cuda.steps import FoldSink
from workbench.codegen.cuda.tile_storage import SharedTile
from workbench.codegen.cuda.tile_values import Folded, Folding, Keeping, TileValue
from workbench.codegen.cuda.walks import loop

if TYPE_CHECKING:
    from workbench.codegen.cuda.stage_text import StageWriter


def added(folding: Folding, total: str, text: str) -> str:
    """Return the statement that folds an element into a total."""
    return f"{total} += {text};" if folding is Folding.SUM else f"{total} = maximum({total}, {text});"


def fold(writer: StageWriter, sink: FoldSink) -> None:
    """Fold the operand along the walk's inner axis."""
    walk, nest, value = writer.walk, writer.nest, sink.value
    element = writer.guarded(writer.term(value.operand), value.folding.neutral)
    if " ? " in element and value.folding is Folding.SUM:
        element = f"({element})"
    part = writer.plan.parts[sink.kept or value]
    if isinstance(walk, AcrossWalk):
        fold_across(writer, walk, value, part, element)
        return
    if sink.kept is not None:
        slot = f"{part}{walk.row_slot}"
        if sink.kept.kind is Keeping.RESCALE:
            assert sink.kept.rescale is not None
            factor = writer.elements.value(sink.kept.rescale, row_index(writer, sink.kept.rescale))
            nest.row.append(f"{slot} = step == first ? 0.0f : {slot} * {factor.text};")
        nest.at(Level.ELEMENT).append(added(value.folding, slot, element))
        return
    registers = writer.plan.registers.get(value)
    total = f"{part}{walk.row_slot}" if registers is not None else part
    if registers is not None:
        writer.before.append(f"float {part}{walk.row_dims};")
        nest.row_first.append(f"{total} = {value.folding.neutral};")
    else:
        nest.row_first.append(f"float {total} = {value.folding.neutral};")
    nest.element.append(added(value.folding, total, element))
    nest.row_always += fold_lanes(writer, value.folding, total)
    tile = writer.plan.shared.get(value)
    if tile is not None:
        nest.row_always += store_row(writer, tile, value, total)


def fold_across(writer: StageWriter, walk: AcrossWalk, value: Folded, part: str, element: str) -> None:
    """Fold each of a thread's columns, then over the lanes that share them; slices meet where they are read."""
    nest = writer.nest
    each = f"int e = 0; e < {walk.width}; e++"
    nest.outside += [
        f"float {part}[{walk.width}];",
        *loop(each, [f"{part}[e] = {value.folding.neutral};"], unroll=True),
    ]
    nest.element.append(added(value.folding, f"{part}[e]", element))
    name = "warp_sum" if value.folding is Folding.SUM else "warp_max"
    lines = [f"{part}[e] = {name}<{walk.lanes}, {walk.chunks}>({part}[e]);"] if walk.lanes > 1 else []
    tile = writer.plan.shared.get(value)
    if tile is not None:
        lines += store_row(writer, tile, value, f"{part}[e]")
    nest.row_always += loop(each, lines, unroll=True)


def row_index(writer: StageWriter, value: TileValue) -> list[Index]:
    """Return the index of a value of one number a row at the current row."""
    return broadcast(writer.walk.row_index, value.shape)


def fold_lanes(writer: StageWriter, folding: Folding, total: str) -> list[str]:
    """Return the statement that folds a row's total over the lanes that share it."""
    lanes = writer.walk.lanes
    name = "warp_sum" if folding is Folding.SUM else "warp_max"
    return [f"{total} = {name}<{lanes}>({total});"] if lanes > 1 else []


def store_row(writer: StageWriter, tile: SharedTile, value: TileValue, total: str) -> list[str]:
    """Return the statement by which one lane writes a row's total, or its slice of it, to shared memory."""
    walk = writer.walk
    index = row_index(writer, value)
    row, column = tile.row_and_column(index)
    conditions = [walk.leader] if walk.leader else []
    for axis, part in enumerate(walk.row_index):
        extent = writer.stage.space[axis]
        if part.bound > extent and axis != walk.inner:
            conditions.append(f"{part.text} < {extent}")
    conditions += walk.row_guard
    if walk.slices > 1:
        step = tile.slice_rows
        scaled = f"({walk.slice_text}) * {step}" if step > 1 else walk.slice_text
        row_text = scaled if row.text == "0" else f"{scaled} + {bare(row.text)}"
    else:
        row_text = bare(shifted(row, 0).text)
    line = f"*{tile.variable}.at({row_text}, {bare(column.text)}) = {total};"
    return [f"if ({' && '.join(conditions)}) {line}" if conditions else line]
