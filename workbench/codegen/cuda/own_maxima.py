"""Running maxima that each warp keeps of its own columns, so that warps that share rows need not meet in every iteration.

    in the loop:    each warp's maximum, exponentials below it, and what it accumulates of them, rescaled as that grows
    at its end:     the warps' maxima go to shared memory beside what each accumulated
    read:           sum over the warps of accumulated * exp(own maximum - largest of them)

Invariant: only where everything that is made with a maximum is sum_j exp(x_j - m) v_j, which at the end is the same for
whatever maxima it was accumulated with (Flash-Decoding, within a block); so no reader sees a warp's own maximum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.codegen.cuda.steps import FoldSink, HandOverSink, Section, leaves
from workbench.codegen.cuda.tile_values import (
    Accumulated,
    Contracted,
    Folded,
    Folding,
    Keeping,
    Mapped,
    MaximumShift,
    RunningMaximum,
    TileValue,
)

if TYPE_CHECKING:
    from workbench.codegen.cuda.plan import KernelPlan


@dataclass(frozen=True, slots=True)
class OwnMaximum:
    """A running maximum of which each warp has its own.

    Attributes: maximum; shift: its shift, None where nobody reads it; kept: what is accumulated of exponentials below it;
    greatest: accumulators of the maximum itself; warps: that share its rows.
    """

    maximum: RunningMaximum
    shift: MaximumShift | None
    kept: tuple[Accumulated, ...]
    greatest: tuple[Accumulated, ...]
    warps: int

    @property
    def numbers(self) -> tuple[TileValue, ...]:
        """What every warp has for itself in registers and nobody finds in shared memory."""
        return (self.maximum.operand, self.maximum, *([self.shift] if self.shift is not None else []))


def find_own_maxima(plan: KernelPlan) -> list[OwnMaximum]:
    """Return the running maxima of a kernel that warps may keep for themselves."""
    if plan.cluster > 1 or plan.spread > 1:
        return []
    found = [_own(plan, value) for value in plan.sections if isinstance(value, RunningMaximum)]
    return [own for own in found if own is not None]


def _own(plan: KernelPlan, maximum: RunningMaximum) -> OwnMaximum | None:
    """Return how warps may keep a running maximum for themselves, None where they may not, or one warp has the row."""
    best, readers = maximum.operand, plan.readers
    argument = best.operand
    sources = [leaf for leaf in leaves((argument,)) if isinstance(leaf, Contracted) and leaf.shape == argument.shape]
    step = plan.products.get(sources[0]) if len(sources) == 1 else None
    if step is None or step.layout.warp_columns == 1 or step.layout.warp_depth > 1 or readers[best] != [maximum]:
        return None
    shifts, differences, greatest = list[MaximumShift](), list[TileValue](), list[Accumulated]()
    for reader in readers.get(maximum, []):
        if isinstance(reader, MaximumShift):
            shifts.append(reader)
        elif isinstance(reader, Mapped) and reader.op == "sub" and reader.operands == (argument, maximum):
            differences.append(reader)
        elif isinstance(reader, Accumulated) and reader.kind is Keeping.MAX:
            greatest.append(reader)
        else:
            return None
    factors = [reader for shift in shifts for reader in readers.get(shift, [])]
    weights = [reader for difference in differences for reader in readers.get(difference, [])]
    if not all(isinstance(value, Mapped) and value.op == "exp" for value in (*factors, *weights)):
        return None
    sums = [reader for weight in weights for reader in readers.get(weight, [])]
    kept = [_kept(plan, value, weights, step.layout.warp_columns) for value in sums]
    scaled = [reader for factor in factors for reader in readers.get(factor, [])]
    hidden = {best, maximum, *shifts, *differences, *factors, *weights, *sums}
    if any(saved.operand in hidden for saved in plan.lowered.saved):
        return None
    accumulated = [value for value in kept if value is not None and value.rescale in factors]
    if len(accumulated) < len(kept) or not accumulated or set(scaled) != set(accumulated):
        return None
    return OwnMaximum(
        maximum, shifts[0] if shifts else None, tuple(accumulated), tuple(greatest), step.layout.warp_columns
    )


def _kept(plan: KernelPlan, value: TileValue, weights: list[TileValue], warps: int) -> Accumulated | None:
    """Return the accumulator of a sum of weights, or of their product with anything, that is rescaled; None otherwise."""
    readers = plan.readers.get(value, [])
    reader = readers[0] if len(readers) == 1 else None
    if not isinstance(reader, Accumulated) or reader.kind is not Keeping.RESCALE or reader.operand is not value:
        return None
    stages = plan.stages_of(Section.LOOP)
    if isinstance(value, Contracted):
        ((left, _), *others) = value.pairs
        handed = {sink.value for stage in stages for sink in stage.sinks if isinstance(sink, HandOverSink)}
        step = plan.products.get(reader)
        is_own = step is not None and step.kept is reader and step.layout.warp_depth == warps
        return reader if left in weights and left in handed and not others and is_own else None
    folds = {sink.kept for stage in stages for sink in stage.sinks if isinstance(sink, FoldSink)}
    is_sum = isinstance(value, Folded) and value.folding is Folding.SUM and value.axis == -1
    return reader if is_sum and reader in folds else None
