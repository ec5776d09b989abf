"""Which fragments of left factors are not loaded again: shared by neighbouring products, or held over the whole loop.

Fragments that are held are loaded in the loop's first iteration, not before the loop: there ptxas (CUDA 13.0) takes them for
free once wgmma has read them, gives their registers to the next product of the loop, and the second iteration multiplies
something else (tests/unit/device/test_known_good_kernels.py looks for this in the SASS).

Invariant: a product reads the same numbers as if it had loaded them itself, since nothing writes the tile in between.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import TYPE_CHECKING

from workbench.codegen.cuda.contraction import FULL_UNROLL
from workbench.codegen.cuda.steps import ProductStep, Section
from workbench.codegen.cuda.tile_values import Loaded

if TYPE_CHECKING:
    from workbench.codegen.cuda.plan import KernelPlan

MOST_WITH_LEFT = 136
"""Registers that accumulators and held fragments of left factors may take together."""


def join_products(plan: KernelPlan, arrival: Hashable) -> None:
    """Let products that stand side by side and read the same left factor share its fragments; `arrival`: as `arrival()`."""
    for steps in plan.steps.values():
        head: ProductStep | None = None
        for step in steps:
            if not isinstance(step, ProductStep):
                head = None
            elif head is not None and shares_left(head, step) and id(step) not in plan.barriers and id(step) != arrival:
                head.joined.append(step)
                step.is_joined = True
            else:
                head = step


def shares_left(one: ProductStep, other: ProductStep) -> bool:
    """Return True when two accumulating products take the same fragments of one left factor at the same time."""
    if len(one.operands) != 1 or len(other.operands) != 1 or one.c_type != other.c_type:
        return False
    if any(step.kept is None or step.scale or step.operands[0][0].prologue for step in (one, other)):
        return False
    left, right = one.operands[0][0], other.operands[0][0]
    layouts = [replace(step.layout, column_tiles=1) for step in (one, other)]
    is_same = left.tile is not None and left.tile is right.tile and left.is_transposed == right.is_transposed
    return is_same and one.value.shape[:-2] == other.value.shape[:-2] and layouts[0] == layouts[1]


def hold_left(plan: KernelPlan) -> None:
    """Let a product in the loop keep the fragments of a left factor that the loop does not change, where they fit."""
    steps = [step for step in plan.steps[Section.LOOP] if isinstance(step, ProductStep)]
    kept = sum(step.layout.accumulators for step in steps if step.kept is not None)
    used = kept + max((step.layout.accumulators for step in steps if step.kept is None), default=0)
    for step in steps:
        registers = 4 * step.layout.row_tiles * step.layout.depth_steps
        if is_unchanging(plan, step) and not step.is_joined and used + registers <= MOST_WITH_LEFT:
            used += registers
            step.held_left = plan.names.claim(f"{step.operands[0][0].value.name}_left")


def is_unchanging(plan: KernelPlan, step: ProductStep) -> bool:
    """Return True when a product's left factor lies in a tile that is complete before the loop."""
    left, layout = step.operands[0][0], step.layout
    if len(step.operands) != 1 or left.tile is None or left.prologue is not None or step.c_type == "float":
        return False
    if layout.matrices != 1 or layout.depth_steps > FULL_UNROLL or plan.iterations_each < 2:
        return False
    if isinstance(left.value, Loaded):
        return left.value in plan.staged and not left.tile.is_looped
    return plan.sections[left.value] is Section.BEFORE


def held_declaration(step: ProductStep) -> str:
    """Return the definition of a product's held fragments."""
    return f"u32 {step.held_left}[{step.layout.depth_steps}][{step.layout.row_tiles}][4] = {{}};"
