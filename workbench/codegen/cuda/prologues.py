"""Work on a product's left operand in its fragments, between ldmatrix and mma, instead of in a stage of its own.

    stage: store x * g; fold sum of x * x        product: ldmatrix x
    barrier                                  ->      fragment <- x * g, row sums += x * x
    product: ldmatrix (x * g); mma                   mma

Invariant: every element of the operand is seen by exactly one warp (no warps side by side along the columns), so folds
count each element once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from workbench.codegen.cuda.emitted import C_TYPES
from workbench.codegen.cuda.steps import FoldSink, ProductStep, Section, Stage, StoreSink, leaves
from workbench.codegen.cuda.tile_storage import SharedTile, operand_tile
from workbench.codegen.cuda.tile_values import Keeping, Loaded, TileValue
from workbench.codegen.cuda.value_paths import has_plain_views, is_aligned

if TYPE_CHECKING:
    from workbench.codegen.cuda.plan import KernelPlan


def fuse_prologues(plan: KernelPlan) -> None:
    """Move stages of the loop into the product that follows, where they only work on its left operand."""
    steps = plan.steps[Section.LOOP]
    for product in [step for step in steps if isinstance(step, ProductStep)]:
        if product.layout.warp_columns > 1 or product.c_type == "float" or len(product.operands) != 1:
            continue
        before = steps[: steps.index(product)]
        for stage in [step for step in steps if isinstance(step, Stage)]:
            source = fragment_leaf(plan, product, stage)
            if source is None or not reads_early(plan, stage, before):
                continue
            steps.remove(stage)
            prologue = product.operands[0][0].prologue
            if prologue is None:
                prologue = Stage(section=Section.LOOP, space=stage.space, ragged=stage.ragged, inner=-1)
            prologue.sinks += stage.sinks
            stored = [sink for sink in prologue.sinks if isinstance(sink, StoreSink)]
            for sink in stored:
                plan.tiles.remove(sink.tile)
            as_operand(plan.staged[source])
            left, right = product.operands[0]
            left = replace(left, value=source, is_transposed=False, tile=plan.staged[source], prologue=prologue)
            product.operands[0] = (left, right)


def fragment_leaf(plan: KernelPlan, product: ProductStep, stage: Stage) -> Loaded | None:
    """Return the input whose fragments a stage can work on in a product, None if it does anything else."""
    left = product.operands[0][0]
    if left.registers or left.is_transposed or stage.inner not in (None, -1) or not has_plain_views(stage.roots):
        return None
    if left.prologue is not None and (left.prologue.space, left.prologue.ragged) != (stage.space, stage.ragged):
        return None
    for sink in stage.sinks:
        is_fold = isinstance(sink, FoldSink) and sink.kept is not None and sink.kept.kind is not Keeping.RESCALE
        is_operand = isinstance(sink, StoreSink) and sink.tile is left.tile and uses_of(plan, sink.tile) == 1
        if not is_fold and not is_operand:
            return None
    is_stored = any(isinstance(sink, StoreSink) for sink in stage.sinks)
    candidates: list[TileValue] = [left.value] if not is_stored else leaves(stage.roots)
    for leaf in candidates:
        if (
            isinstance(leaf, Loaded)
            and leaf in plan.staged
            and leaf.shape == stage.space
            and C_TYPES[leaf.dtype] == product.c_type
            and all(is_aligned(root, leaf) for root in stage.roots)
        ):
            return leaf
    return None


def as_operand(tile: SharedTile) -> None:
    """Make the staged tile of an input one that ldmatrix can read."""
    wanted = operand_tile(tile.variable, tile.c_type, tile.shape, transposed=tile.transposed)
    for name in ("rows", "columns", "stride", "swizzle", "needs_zero"):
        setattr(tile, name, getattr(wanted, name))


def uses_of(plan: KernelPlan, tile: SharedTile | None) -> int:
    """Return how many operands lie in a tile."""
    steps = [step for section in Section for step in plan.steps[section] if isinstance(step, ProductStep)]
    return sum(operand.tile is tile for step in steps for pair in step.operands for operand in pair)


def reads_early(plan: KernelPlan, stage: Stage, before: list[Stage | ProductStep]) -> bool:
    """Return True when everything a stage reads is there once the steps before its product have run."""
    loop = plan.steps[Section.LOOP]
    late = {id(step) for step in loop} - {id(step) for step in before}
    for leaf in leaves(stage.roots):
        for step in loop:
            if id(step) in late and step is not stage and makes(step, leaf):
                return False
    return True


def makes(step: Stage | ProductStep, value: TileValue) -> bool:
    """Return True when a step makes a value."""
    if isinstance(step, ProductStep):
        return step.value is value
    return any(getattr(sink, "value", None) is value for sink in step.sinks)
