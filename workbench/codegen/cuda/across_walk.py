"""A walk that folds an axis across the one along which memory runs: threads side by side take neighbouring columns.

    columns ->  thread 0: 0..7 | thread 1: 8..15 | ...      each thread keeps one total for each of its columns
    rows          v                v                        and takes every n-th row

Invariant: a column's totals meet first among the lanes of a warp that share it, then as slices in shared memory.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from workbench.codegen.cuda.indices import ZERO, Index, Level
from workbench.codegen.cuda.launch_shape import WARP
from workbench.codegen.cuda.steps import FoldSink, SaveSink, Stage, StoreSink, leaves
from workbench.codegen.cuda.tile_values import Loaded
from workbench.codegen.cuda.walks import MOST_UNROLLED, Nest, Walk, indented, loop
from workbench.core.shapes import Shape

if TYPE_CHECKING:
    from workbench.codegen.cuda.plan import KernelPlan


class AcrossWalk(Walk):
    """Columns dealt to threads, `width` neighbours each; the rows of a column to the threads that share it."""

    def __init__(self, space: Shape, *, threads: int, width: int) -> None:
        self.space, self.inner, self.width, self.rows_only = space, len(space) - 2, width, False
        self.chunks = space[-1] // width
        self.shares = threads // self.chunks
        self.lanes = max(1, WARP // self.chunks)
        self.slices = threads // max(WARP, self.chunks)
        self.slice_text = "0" if self.slices == 1 else f"thread / {max(WARP, self.chunks)}"
        self.leader = f"lane < {self.chunks}" if self.lanes > 1 else ""
        self.row_guard = []
        self.rounds = -(-space[-2] // self.shares)
        self.row_key = self.element_key = ("across", id(self))
        self.row_dims = self.element_dims = f"[{width}]"
        self.row_slot = self.element_slot = "[e]"
        self.row_slots = self.element_slots = width
        row = Index("row", Level.ROW, space[-2]) if space[-2] > 1 else ZERO
        self.index = (*(ZERO for _ in space[:-2]), row, Index("(col + e)", Level.ELEMENT, space[-1], "col"))

    def text(self, nest: Nest) -> list[str]:
        """Return the loop nest."""
        elements = loop(f"int e = 0; e < {self.width}; e++", nest.element, unroll=True) if nest.element else []
        body = [*nest.row_first, *nest.row, *nest.group, *elements, *nest.group_last, *nest.row_last]
        share = "0" if self.shares == 1 else f"thread / {self.chunks}"
        row = [f"const int row = {share if self.rounds == 1 else f'rr * {self.shares} + {share}'};"]
        if self.space[-2] % self.shares:
            body = [f"if (row < {self.space[-2]}) {{", *indented(body), "}"]
        body = [*row, *body]
        unroll: bool | int = True if self.rounds <= MOST_UNROLLED else 4
        body = loop(f"int rr = 0; rr < {self.rounds}; rr++", body, unroll=unroll) if self.rounds > 1 else body
        column = f"const int col = thread % {self.chunks} * {self.width};" if self.chunks > 1 else "const int col = 0;"
        return ["{", *indented([column, *nest.outside, *body, *nest.row_always]), "}"]


def across_walk(plan: KernelPlan, stage: Stage) -> AcrossWalk | None:
    """Return the walk of a stage that folds across the contiguous axis of all it reads at full shape, else None."""
    space = stage.space
    if stage.inner != -2 or len(space) < 2 or prod(space[:-2]) != 1 or plan.spread > 1:
        return None
    for sink in stage.sinks:
        if isinstance(sink, FoldSink) and sink.kept is None:
            continue
        if not isinstance(sink, StoreSink | SaveSink) or plan.cluster > 1:
            return None
    width = 4
    for leaf in leaves(stage.roots):
        if leaf.shape != space:
            continue
        if not isinstance(leaf, Loaded):
            return None
        tile = plan.staged.get(leaf)
        if tile.transposed if tile is not None else leaf.tensor.strides[-1] != 1:
            return None
        width = max(width, 16 // leaf.dtype.nbytes)
    while width > 1 and (space[-1] % width or space[-1] // width < min(WARP, plan.threads) // 4):
        width //= 2
    chunks = space[-1] // width
    is_even = WARP % chunks == 0 if chunks <= WARP else chunks % WARP == 0 and plan.threads % chunks == 0
    return AcrossWalk(space, threads=plan.threads, width=width) if is_even and width > 1 else None
