"""What lives over the iterations: accumulators in registers or shared memory, their rescaling, and the running maximum.

Invariant: an element of an accumulator belongs to one thread for the whole loop, so accumulating needs no barrier.
"""

from __future__ import annotations

import re
from itertools import product
from math import prod
from typing import TYPE_CHECKING

from workbench.codegen.cuda.contraction import store_fragments
from workbench.codegen.cuda.element import LOWEST
from workbench.codegen.cuda.indices import Level
from workbench.codegen.cuda.reduction import fold_lanes, store_row
from workbench.codegen.cuda.steps import FoldSink, KeepSink, ProductStep, RescaleSink, RunningSink, Section
from workbench.codegen.cuda.storing import place_text
from workbench.codegen.cuda.tile_values import Accumulated, Keeping, Mapped, MaximumShift, RunningMaximum
from workbench.codegen.cuda.walks import loop

if TYPE_CHECKING:
    from workbench.codegen.cuda.plan import KernelPlan
    from workbench.codegen.cuda.stage_text import StageWriter


MOST_ASKED = 8
"""Rows of a thread up to which it asks whether any of their maxima grew."""


def neutral(kind: Keeping) -> str:
    """Return C text of what an accumulator holds before the first iteration."""
    return "-infinity()" if kind is Keeping.MAX else "0.0f"


def updated(value: Accumulated, old: str, element: str, factor: str) -> str:
    """Return C text of an accumulator's element after an iteration."""
    match value.kind:
        case Keeping.SUM:
            return f"{old} + {element}"
        case Keeping.MAX:
            return f"maximum({old}, {element})"
        case Keeping.RESCALE:
            return f"step == first ? {element} : {old} * {factor} + {element}"


def keep(writer: StageWriter, sink: KeepSink) -> None:
    """Accumulate the operand element by element."""
    value = sink.value
    element = writer.term(value.operand)
    factor = writer.term(value.rescale) if value.rescale is not None else ""
    lines = writer.nest.at(writer.level)
    if sink.tile is None:
        old = f"{writer.plan.parts[value]}{writer.walk.element_slot}"
        lines.append(f"{old} = {updated(value, old, element, factor)};")
        return
    place = writer.elements.local(f"{value.name}_place")
    lines.append(f"float* const {place} = {place_text(writer, sink.tile)};")
    if value.kind is Keeping.RESCALE:
        lines.append(f"*{place} = {updated(value, f'*{place}', element, factor)};")
    else:
        lines.append(f"*{place} = step == first ? {element} : {updated(value, f'*{place}', element, factor)};")


def rescale_fragments(writer: StageWriter, sink: RescaleSink) -> None:
    """Multiply what a product has accumulated by this iteration's factor."""
    value = sink.value
    assert value.rescale is not None
    factor = writer.term(value.rescale)
    slot = f"{writer.plan.products[value].variable}{writer.walk.element_slot}"
    writer.nest.element.append(f"{slot} = step == first ? 0.0f : {slot} * {factor};")


def rescale_only_when(writer: StageWriter) -> str:
    """Return the C condition under which a stage that only rescales a product has anything to do, "" where it always has.

    A maximum that did not grow has a shift of 0; in the first iteration there is nothing to rescale. All lanes of a warp go
    the same way. Products of warpgroups are left alone, for their accumulators must not be touched on one of two ways; so are
    those whose warps read the shift from shared memory, because the registers that hold it are other warps'.
    """
    plan, (sink, *others) = writer.plan, writer.stage.sinks
    if others or not isinstance(sink, RescaleSink):
        return ""
    step = plan.products[sink.value]
    if step.is_warpgroup or step.layout.used_warps < step.layout.warps:
        return ""
    factor = sink.value.rescale
    shift = factor.operands[0] if isinstance(factor, Mapped) and factor.op == "exp" else None
    if not isinstance(shift, MaximumShift) or writer.walk.row_slots > MOST_ASKED:
        return ""
    held = plan.registers.get(shift)
    if held is None or not held.by_row or held.key != writer.walk.row_key:
        return ""
    extents = [range(int(extent)) for extent in re.findall(r"\d+", writer.walk.row_dims)]
    places = ("".join(f"[{number}]" for number in place) for place in product(*extents))
    return f"warp_ballot({' || '.join(f'{plan.parts[shift]}{place} != 0.0f' for place in places)})"


def run_maximum(writer: StageWriter, sink: RunningSink) -> None:
    """Update the running maximum and, if it is read, its shift."""
    value, walk, plan = sink.value, writer.walk, writer.plan
    best = writer.term(value.operand)
    lines = writer.nest.at(writer.level)
    old = writer.elements.local(f"{value.name}_before")
    if sink.tile is None:
        state = f"{plan.parts[value]}{walk.element_slot}"
        lines.append(f"const float {old} = {state};")
    else:
        place = writer.elements.local(f"{value.name}_place")
        lines.append(f"float* const {place} = {place_text(writer, sink.tile)};")
        lines.append(f"const float {old} = *{place};")
        state = f"*{place}"
    new = writer.elements.local(f"{value.name}_now")
    so_far = f"step == first ? {LOWEST} : {old}" if sink.tile is not None else old
    lines.append(f"const float {new} = maximum({so_far}, {best});")
    lines.append(f"{state} = {new};")
    publish(writer, value, new)
    shift = next((reader for reader in plan.readers.get(value, []) if isinstance(reader, MaximumShift)), None)
    if shift is None:
        return
    moved = writer.elements.local(f"{shift.name}_now")
    split = value.operand.operand.ragged[-1]
    unseen = "step == first" if split is None else f"step == first || {writer.places.extent(split)} == 0"
    lines.append(f"const float {moved} = {unseen} ? 0.0f : {old} - {new};")
    if shift in plan.registers:
        writer.before.append(f"float {plan.parts[shift]}{walk.row_dims};")
        lines.append(f"{plan.parts[shift]}{walk.row_slot} = {moved};")
    publish(writer, shift, moved)


def publish(writer: StageWriter, value: RunningMaximum | MaximumShift, text: str) -> None:
    """Write a row's number to shared memory, if a reader looks for it there."""
    tile = writer.plan.shared.get(value)
    if tile is None:
        return
    if writer.walk.rows_only:
        writer.nest.at(Level.ROW).extend(store_row(writer, tile, value, text))
    else:
        writer.nest.element.append(f"*{place_text(writer, tile)} = {text};")


def state_lines(plan: KernelPlan) -> list[str]:
    """Return the definitions of everything in registers that outlives an iteration."""
    lines = []
    for stage in plan.stages_of(Section.LOOP):
        walk = stage.walk
        assert walk is not None
        for sink in stage.sinks:
            if isinstance(sink, FoldSink) and sink.kept is not None:
                start = neutral(sink.kept.kind)
                lines += filled(plan.parts[sink.kept], walk.row_dims, start)
            elif isinstance(sink, KeepSink) and sink.tile is None:
                lines += filled(plan.parts[sink.value], walk.element_dims, neutral(sink.value.kind))
            elif isinstance(sink, RunningSink) and sink.tile is None:
                lines += filled(plan.parts[sink.value], walk.element_dims, LOWEST)
    return lines


def filled(variable: str, dims: str, value: str) -> list[str]:
    """Return the definition of an array all of whose elements are `value`."""
    if value == "0.0f":
        return [f"float {variable}{dims} = {{}};"]
    count = prod(int(extent) for extent in re.findall(r"\d+", dims))
    if count == 1:
        return [f"float {variable}{dims} = {{{value}}};"]
    return [
        f"float {variable}{dims};",
        *loop(f"int e = 0; e < {count}; e++", [f"(&{variable}{'[0]' * dims.count('[')})[e] = {value};"], unroll=True),
    ]


def finish_product(plan: KernelPlan, step: ProductStep) -> list[str]:
    """Return the statements that bring the fragments of an accumulated product to where its readers find them."""
    tile = plan.shared.get(step.kept) if step.kept is not None else None
    return store_fragments(step.layout, step.variable, tile) if tile is not None else []


def finish_stage(writer: StageWriter, value: Accumulated | RunningMaximum) -> list[str]:
    """Return the statements that bring an accumulator of a stage to where its readers find it; `writer`: its stage's."""
    plan = writer.plan
    tile = plan.shared.get(value)
    for sink in writer.stage.sinks:
        if isinstance(sink, RunningSink) and sink.value is value:
            part = f"{plan.parts[value]}{writer.walk.row_slot}"
            writer.nest.row_always += store_row(writer, plan.own[value], value, part)
            return [f"// {value.label}: each warp has that of its own columns", *writer.walk.text(writer.nest)]
        if isinstance(sink, FoldSink) and sink.kept is value:
            part = f"{plan.parts[value]}{writer.walk.row_slot}"
            writer.nest.row_always += fold_lanes(writer, sink.value.folding, part)
            if tile is not None:
                writer.nest.row_always += store_row(writer, tile, value, part)
            return writer.walk.text(writer.nest)
        if isinstance(sink, KeepSink) and sink.value is value and sink.tile is None and tile is not None:
            part = f"{plan.parts[value]}{writer.walk.element_slot}"
            if writer.walk.rows_only:
                writer.nest.row_always += store_row(writer, tile, value, part)
            else:
                writer.nest.element.append(f"*{place_text(writer, tile)} = {part};")
            return writer.walk.text(writer.nest)
    return []
