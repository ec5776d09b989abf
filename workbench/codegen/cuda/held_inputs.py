"""Inputs that several stages read in the same places are read once, before the first of them, and held in registers.

    fold of h                 h_held, x_held <- device memory, all at once
    step of h, x       ->     fold of h_held; step of h_held, x_held; quotient of both
    quotient of h, x

So one latency of device memory is paid instead of one for each stage. Invariant: who holds an element is who reads it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.codegen.cuda.steps import Section, Stage, leaves
from workbench.codegen.cuda.tile_values import Loaded
from workbench.codegen.cuda.walks import RowsWalk

if TYPE_CHECKING:
    from workbench.codegen.cuda.plan import KernelPlan

MOST_WORDS, MOST_WORDS_TOGETHER = 16, 48
"""Registers that one input, and all of them, may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """An input in registers. variable: C name of the array of groups, one for each round of the walk; walk: who reads."""

    variable: str
    walk: RowsWalk

    @property
    def dims(self) -> str:
        """Dimensions of the array."""
        return f"[{self.walk.row_count}][{self.walk.chunk_count}]"

    @property
    def slot(self) -> str:
        """Subscripts of the current group."""
        return f"[{'0' if self.walk.row_count == 1 else 'rr'}][{'0' if self.walk.chunk_count == 1 else 'cc'}]"


def choose_held(plan: KernelPlan) -> None:
    """Fill in which inputs are held. Kernels without a loop only: a loop's registers belong to its products."""
    if plan.iterations != 1 or plan.cluster > 1 or plan.spread > 1:
        return
    stages = [stage for section in Section for stage in plan.stages_of(section)]
    left = MOST_WORDS_TOGETHER
    for value in plan.direct:
        readers = [stage for stage in stages if value in leaves(stage.roots)]
        walks = [walk for stage in readers if (walk := whole_walk(stage, value)) is not None]
        if len(readers) < 2 or len(walks) != len(readers) or len({walk.element_key for walk in walks}) != 1:
            continue
        words = walks[0].element_slots * value.dtype.nbytes // 4
        if words <= min(MOST_WORDS, left):
            left -= words
            plan.held[value] = Held(variable=plan.names.claim(f"{value.name}_held"), walk=walks[0])
            for walk in walks:
                walk.has_slots = True


def whole_walk(stage: Stage, value: Loaded) -> RowsWalk | None:
    """Return the walk in which a stage reads all of a value group by group."""
    walk = stage.walk
    is_whole = isinstance(walk, RowsWalk) and not walk.rows_only and walk.width > 1 and value.shape == stage.space
    return walk if is_whole and isinstance(walk, RowsWalk) else None
