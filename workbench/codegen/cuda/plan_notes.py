"""A plan in words: the comments of a kernel's steps and the lines that describe the whole.

Invariant: what is said is read off the plan, so that it cannot differ from the text beside it.
"""

from __future__ import annotations

from typing import assert_never

from workbench.codegen.cuda.plan import KernelPlan
from workbench.codegen.cuda.steps import (
    FoldSink,
    HandOverSink,
    KeepSink,
    ProductStep,
    RescaleSink,
    RunningSink,
    SaveSink,
    Section,
    Sink,
    Step,
    StoreSink,
)
from workbench.codegen.cuda.tile_values import (
    Accumulated,
    Contracted,
    Folded,
    Joined,
    Loaded,
    MaximumShift,
    RunningMaximum,
    TileValue,
    View,
    Viewed,
)


def described(value: TileValue) -> str:
    """Return a value in the words of its µGraph: name, operator, operands, shape."""
    reads = ", ".join(read.label for read in value.reads)
    shape = f"{list(value.shape)}{also_named(value)}"
    match value:
        case Contracted():
            products = " + ".join(f"{left.label} @ {right.label}" for left, right in value.pairs)
            return f"{value.label} = {products}: {shape}"
        case Folded():
            return f"{value.label} = {value.folding.value} of {reads} along axis {value.axis}: {shape}"
        case Accumulated():
            return f"{value.label} = {value.kind.value} of {reads} over the iterations: {shape}"
        case RunningMaximum() | MaximumShift():
            return f"{value.label} = running maximum of {reads}: {shape}"
        case Loaded():
            return f"{value.label}: {shape}"
        case Viewed() | Joined():
            return f"{value.label} = view of {reads}: {shape}"
        case _:
            op = getattr(value, "op", type(value).__name__.lower())
            return f"{value.label} = {op}({reads}): {shape}"


def also_named(value: TileValue) -> str:
    """Return what operands are called elsewhere: an accumulator in a loop of one iteration is what it accumulates."""
    found = []
    for read in value.reads:
        inner = read
        while isinstance(inner, Viewed) and inner.view is View.BROADCAST and inner.operand.shape == read.shape:
            inner = inner.operand
        if inner.label != read.label:
            found.append(f"{read.label} is {inner.label}")
    return f" ({', '.join(dict.fromkeys(found))})" if found else ""


def sink_comment(sink: Sink) -> str:
    """Return what a sink does."""
    match sink:
        case StoreSink():
            return f"{described(sink.value)} -> shared memory as {sink.tile.c_type}"
        case HandOverSink():
            return f"{described(sink.value)} -> fragments of the next product"
        case FoldSink():
            return described(sink.value) if sink.kept is None else f"{described(sink.value)}; {described(sink.kept)}"
        case KeepSink():
            return described(sink.value)
        case RescaleSink():
            assert sink.value.rescale is not None
            return f"{sink.value.label} is rescaled by {sink.value.rescale.label}"
        case RunningSink():
            return described(sink.value)
        case SaveSink():
            return f"{described(sink.saved.operand)} -> {sink.saved.tensor.name}{list(sink.saved.tensor.shape)}"
        case _:
            assert_never(sink)


def prologue_comment(sink: Sink) -> str:
    """Return what a sink does with a product's left operand."""
    return described(sink.value) if isinstance(sink, StoreSink) else sink_comment(sink)


def step_comment(plan: KernelPlan, step: Step) -> list[str]:
    """Return the comment lines of a step."""
    if not isinstance(step, ProductStep):
        return [sink_comment(sink) for sink in step.sinks]
    layout = step.layout
    kept = f", summed over the iterations as {step.kept.label}" if step.kept is not None else ""
    shares = [
        f"{count} along the {name}"
        for count, name in ((layout.warp_rows, "rows"), (layout.warp_columns, "columns"), (layout.warp_depth, "depth"))
        if count > 1
    ]
    warps = f"; warps: {', '.join(shares)}" if shares else ""
    lines = [f"{described(step.value)}{kept}{warps}"]
    for stage in step.prologues:
        lines += [f"  on its left fragments: {prologue_comment(sink)}" for sink in stage.sinks]
    return lines


def plan_notes(plan: KernelPlan) -> list[str]:
    """Return the plan, one readable line each."""
    grid = " x ".join(map(str, plan.lowered.grid))
    loop = f", {plan.iterations} iterations" if plan.iterations > 1 else ""
    cluster = f", shared by clusters of {plan.cluster} blocks" if plan.cluster > 1 else ""
    ring = f", {plan.stages} stages" if plan.has_ring else ""
    lines = [f"grid {grid}{loop}{cluster}; {plan.threads} threads{ring}, {plan.shared_bytes:,} B of shared memory"]
    for value, tile in plan.staged.items():
        lines.append(
            f"{value.label} {list(value.shape)} of {value.tensor.name}: staged in shared memory ({tile.nbytes:,} B)"
        )
    lines += [
        f"{value.label} {list(value.shape)} of {value.tensor.name}: read where it is needed" for value in plan.direct
    ]
    for section in Section:
        for step in plan.steps[section]:
            lines += [f"{section.value}: {line}" for line in step_comment(plan, step)]
    return lines
