"""Exponentials that are the left operand of a product in float16: scaled in the exponent instead of after it.

    largest = max of the row's x          one pass, which also leaves x in the fragments
    shift: 2^(x log2 e + shift) stays below 2^15; what was accumulated follows when it changes, which is rare
    fragment = 2^(x log2 e + shift)       second pass: one multiply-add and one ex2 an element

Invariant: shift is one number a row for the whole block of lanes that share it; sums of the exponentials themselves take
fragment * 2^-shift, and the product's result is multiplied by 2^-shift at its end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.codegen.cuda.indices import Level
from workbench.codegen.cuda.steps import FoldSink, HandOverSink, ProductStep, Section, Stage
from workbench.codegen.cuda.tile_values import Keeping, Mapped, TileValue
from workbench.codegen.cuda.walks import FragmentWalk, indented, loop

if TYPE_CHECKING:
    from workbench.codegen.cuda.plan import KernelPlan
    from workbench.codegen.cuda.stage_text import StageWriter

LOG2_E = "1.44269504f"
LARGEST, TARGET, START = 15, 12, 126
"""Binary logarithms: above the first a row is shifted anew, to the second; from the third on."""


def mark_exponentials(plan: KernelPlan, *, fast: bool) -> None:
    """Choose the products whose rows are scaled in the exponent; with `fast` only, since 2^(x log2 e) is what exp is then."""
    for section in Section:
        for step in plan.steps[section]:
            if isinstance(step, ProductStep) and step.scale and fast and hand_over_stage(plan, step) is not None:
                step.shift, step.scale = step.scale, ""


def hand_over_stage(plan: KernelPlan, step: ProductStep) -> Stage | None:
    """Return the stage that leaves an exponential in the fragments of a product's left operand, if it may be split in two."""
    left = step.operands[0][0]
    if step.kept is None:
        return None  # nothing is accumulated yet where the arguments are
    for stage in plan.stages_of(step.section):
        for sink in stage.sinks:
            if isinstance(sink, HandOverSink) and sink.variable == left.registers:
                is_exponential = isinstance(sink.value, Mapped) and sink.value.op == "exp"
                others = [other for other in stage.sinks if other is not sink]
                is_plain = all(isinstance(other, FoldSink) and is_unrescaled(other) for other in others)
                return stage if is_exponential and is_plain and isinstance(stage.walk, FragmentWalk) else None
    return None


def is_unrescaled(sink: FoldSink) -> bool:
    """Return True for folds that add or maximise only."""
    return sink.kept is None or sink.kept.kind is not Keeping.RESCALE


def shifted_product(plan: KernelPlan, stage: Stage) -> tuple[ProductStep, HandOverSink] | None:
    """Return the product that reads what a stage hands over, if it is scaled in the exponent."""
    for sink in stage.sinks:
        if isinstance(sink, HandOverSink):
            for step in plan.steps[stage.section]:
                if isinstance(step, ProductStep) and step.shift and step.operands[0][0].registers == sink.variable:
                    return step, sink
    return None


def row_place(step: ProductStep) -> str:
    """Return the subscripts of the current row among a product's numbers a row."""
    layout = step.layout
    return f"{'[matrix]' if layout.matrices > 1 else ''}[{'mt' if layout.row_tiles > 1 else '0'}][half]"


def shift_start(step: ProductStep) -> list[str]:
    """Return the definition of a product's shifts."""
    layout = step.layout
    batch = f"[{layout.matrices}]" if layout.matrices > 1 else ""
    count = 2 * layout.matrices * layout.row_tiles
    first = "[0]" * (3 if batch else 2)
    left = step.operands[0][0].value.label
    return [
        f"// a row of {left} is kept as 2^(x log2 e + shift), at most 2^{LARGEST}: what a row's shift is, from {START} down",
        f"float {step.shift}{batch}[{layout.row_tiles}][2];",
        *loop(f"int e = 0; e < {count}; e++", [f"(&{step.shift}{first})[e] = {START}.0f;"], unroll=True),
    ]


def over_sums(step: ProductStep, line: str, head: list[str]) -> list[str]:
    """Return loops over a product's accumulators of the current row; `line` is written for each."""
    lines = loop("int e = 0; e < 2; e++", [line], unroll=True)
    return [*head, *loop(f"int nt = 0; nt < {step.layout.column_tiles}; nt++", lines, unroll=True)]


def sum_place(step: ProductStep) -> str:
    """Return the current accumulator of the current row."""
    layout = step.layout
    batch = "[matrix]" if layout.matrices > 1 else ""
    return f"{step.variable}{batch}[{'mt' if layout.row_tiles > 1 else '0'}][nt][2 * half + e]"


def unshifted_lines(step: ProductStep) -> list[str]:
    """Return statements that undo the shifts of a product's result."""
    layout = step.layout
    head = [f"const float back = fast_exp2(-{step.shift}{row_place(step)});"]
    lines = loop("int half = 0; half < 2; half++", over_sums(step, f"{sum_place(step)} *= back;", head), unroll=True)
    if layout.row_tiles > 1:
        lines = loop(f"int mt = 0; mt < {layout.row_tiles}; mt++", lines, unroll=True)
    if layout.matrices > 1:
        lines = loop(f"int matrix = 0; matrix < {layout.matrices}; matrix++", lines, unroll=True)
    return lines


def row_divisor(argument: TileValue) -> TileValue | None:
    """Return what an exponential's argument is divided by where that is a root, one of each row, else None.

    A row is divided by a number that is not negative, so its largest stays its largest, and the division joins log2 e.
    """
    if isinstance(argument, Mapped) and argument.op == "div":
        over, under = argument.operands
        is_of_rows = under.shape[-1:] == (1,) and over.shape == argument.shape and over.shape[-1] > 1
        if is_of_rows and isinstance(under, Mapped) and under.op == "sqrt":
            return under
    return None


def factors_of(step: ProductStep, sink: HandOverSink) -> str:
    """Return the C name of what multiplies each row's arguments, log2 e included, "" where it is log2 e alone."""
    return f"{sink.variable}_factor" if row_divisor(sink.value.reads[0]) is not None else ""


def write_arguments(writer: StageWriter, step: ProductStep, sink: HandOverSink) -> list[str]:
    """Return the first pass: arguments into the fragments, the largest of each row, and the shift where it must change."""
    (argument,) = sink.value.reads
    nest, place = writer.nest, f"{sink.variable}{writer.walk.element_slot}"
    shift, factors = f"{step.shift}{row_place(step)}", factors_of(step, sink)
    divisor = row_divisor(argument)
    declared = [f"float {sink.variable}{writer.walk.element_dims};"]
    scale = LOG2_E
    if divisor is not None:
        assert isinstance(argument, Mapped)
        argument = argument.operands[0]
        scale = f"{factors}{row_place(step)}"
        declared.append(f"float {factors}{writer.walk.row_dims};")
        nest.row.append(f"{scale} = fast_reciprocal({writer.term(divisor)}) * {LOG2_E};")
    nest.row_first.append("float largest = -infinity();")
    nest.element += [
        f"{place} = {writer.guarded(writer.term(argument), '-infinity()')};",
        f"largest = maximum(largest, {place});",
    ]
    renewed = [
        f"const float now = {TARGET}.0f - best;  // the row's largest becomes 2^{TARGET}, its sums follow",
        f"const float shrink = fast_exp2(now - {shift});",
        f"{shift} = now;",
        *over_sums(step, f"{sum_place(step)} *= shrink;", []),
    ]
    nest.row_last += [
        f"if (warp_ballot(largest * {scale} + {shift} > {LARGEST}.0f)) {{",
        *indented([
            f"const float best = warp_max<4>(largest) * {scale};",
            f"if (best + {shift} > {LARGEST}.0f) {{",
            *indented(renewed),
            "}",
        ]),
        "}",
    ]  # fmt: skip
    return [*declared, *writer.walk.text(nest)]


def start_exponentials(writer: StageWriter, step: ProductStep, sink: HandOverSink) -> None:
    """Begin the second pass: the fragments become the scaled exponentials, which other sinks read scaled back."""
    value, place = sink.value, f"{sink.variable}{writer.walk.element_slot}"
    scaled = writer.elements.local(value.name)
    writer.nest.row_first += [
        f"const float shift = {step.shift}{row_place(step)};",
        "const float back = fast_exp2(-shift);",
    ]
    factors = factors_of(step, sink)
    scale = f"{factors}{row_place(step)}" if factors else LOG2_E
    writer.nest.element += [
        f"const float {scaled} = fast_exp2({place} * {scale} + shift);",
        f"{place} = {scaled};",
    ]
    writer.elements.set_known(value, f"({scaled} * back)", Level.ELEMENT)
