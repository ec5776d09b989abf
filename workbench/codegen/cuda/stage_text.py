"""One stage as C text: a walk whose nest is filled by the stage's sinks.

Invariant: what an element outside the tile's valid extents would give is replaced by the sink's neutral element, or not
written at all.
"""

from __future__ import annotations

from typing import assert_never

from workbench.codegen.cuda.accumulators import keep, rescale_fragments, rescale_only_when, run_maximum
from workbench.codegen.cuda.element import Elements, Places
from workbench.codegen.cuda.exponentials import shifted_product, start_exponentials, write_arguments
from workbench.codegen.cuda.indices import Level
from workbench.codegen.cuda.plan import KernelPlan
from workbench.codegen.cuda.reduction import fold
from workbench.codegen.cuda.savers import save
from workbench.codegen.cuda.steps import (
    FoldSink,
    HandOverSink,
    KeepSink,
    RescaleSink,
    RunningSink,
    SaveSink,
    Sink,
    Stage,
    StoreSink,
)
from workbench.codegen.cuda.storing import hand_over, replace_fragment, store
from workbench.codegen.cuda.tile_values import TileValue
from workbench.codegen.cuda.walks import Nest, OperandWalk
from workbench.core.tensors import RaggedSplit


class StageWriter:
    """What sinks write with: the plan, the evaluator, the nest, and whether the current element is valid.

    Attributes: before: statements in front of the nest, such as arrays that later steps read; fragment, c_type: C name and
    element type of the registers that hold the current elements of a product's left operand, "" in any other stage.
    """

    def __init__(self, plan: KernelPlan, places: Places, stage: Stage) -> None:
        assert stage.walk is not None
        self.plan, self.places, self.stage, self.walk = plan, places, stage, stage.walk
        self.nest = Nest()
        self.elements = Elements(places, self.walk, self.nest)
        self.before: list[str] = []
        self.fragment, self.c_type = "", ""
        self._valid: str | None = None
        self._valid_row: str | None = None

    def term(self, value: TileValue) -> str:
        """Return C text of a value at the current element."""
        return self.elements.at_walk(value).text

    @property
    def level(self) -> Level:
        """The level of one element."""
        return Level.ROW if self.walk.rows_only else Level.ELEMENT

    def limit(self, axis: int) -> str | None:
        """Return C text of the first invalid index along an axis of the space, None where all are valid."""
        split: RaggedSplit | None = self.stage.ragged[axis]
        if split is not None:
            return self.places.extent(split)
        index = self.walk.index[axis]
        return str(self.stage.space[axis]) if index.bound > self.stage.space[axis] else None

    def conditions(self, *, inner: bool) -> list[str]:
        """Return the conditions under which the current element (row, without `inner`) exists."""
        found = []
        for axis, index in enumerate(self.walk.index):
            limit = self.limit(axis)
            if self.fragment and axis != self.walk.inner:
                continue  # rows that do not exist give rows of the product that are not read
            if limit is not None and (inner or axis != self.walk.inner):
                found.append(f"{index.text} < {limit}")
        return found

    def valid(self) -> str:
        """Return the name of a condition that the current element exists, "" where it always does."""
        if self._valid is None:
            conditions = self.conditions(inner=True)
            self._valid = "valid" if conditions else ""
            if conditions:
                self.nest.at(self.level).insert(0, f"const bool valid = {' && '.join(conditions)};")
        return self._valid

    def valid_row(self) -> str:
        """Return a condition that the current row exists, "" where it always does."""
        if self._valid_row is None:
            conditions = self.conditions(inner=False)
            self._valid_row = "valid_row" if conditions else ""
            if conditions:
                self.nest.row_first.insert(0, f"const bool valid_row = {' && '.join(conditions)};")
        return self._valid_row

    def guarded(self, text: str, neutral: str = "0.0f") -> str:
        """Return C text of a value, or of the neutral element where the current element does not exist."""
        return f"{self.valid()} ? {text} : {neutral}" if self.valid() else text

    def text(self) -> list[str]:
        """Return the stage's statements."""
        self.write_sinks()
        lines, condition = self.walk.text(self.nest), rescale_only_when(self)
        if condition:
            lines = [f"if ({condition}) {{", *lines[1:-1], "}"]  # in the place of the walk's own braces
        return [*self.before, *lines]

    def operand_text(self, source: TileValue, c_type: str, fragment: str) -> list[str]:
        """Return the statements for one fragment of a product's left operand, which holds `source`."""
        assert isinstance(self.walk, OperandWalk)
        pair = self.elements.local(f"{source.name}_pair")
        self.nest.group += [f"float {pair}[2];", f"unpack2<{c_type}>({fragment}[quad], {pair}[0], {pair}[1]);"]
        self.elements.pairs[source] = pair
        self.fragment, self.c_type = fragment, c_type
        self.walk.row_slot = self.walk.quad_slot
        self.write_sinks()
        self.walk.row_slot = self.walk.own_slot
        return self.walk.operand_lines(self.nest)

    def write_sinks(self, done: Sink | None = None) -> None:
        """Let every sink but `done` write into the nest."""
        for sink in self.stage.sinks:
            if sink is done:
                continue
            match sink:
                case StoreSink() if self.fragment:
                    replace_fragment(self, sink)
                case StoreSink():
                    store(self, sink)
                case HandOverSink():
                    hand_over(self, sink)
                case FoldSink():
                    fold(self, sink)
                case KeepSink():
                    keep(self, sink)
                case RescaleSink():
                    rescale_fragments(self, sink)
                case RunningSink():
                    run_maximum(self, sink)
                case SaveSink():
                    save(self, sink)
                case _:
                    assert_never(sink)


def stage_lines(plan: KernelPlan, places: Places, stage: Stage) -> list[str]:
    """Return the statements of a stage."""
    writer, found = StageWriter(plan, places, stage), shifted_product(plan, stage)
    if found is None:
        return writer.text()
    step, sink = found
    first = write_arguments(StageWriter(plan, places, stage), step, sink)
    start_exponentials(writer, step, sink)
    writer.write_sinks(done=sink)
    return [*first, *writer.before, *writer.walk.text(writer.nest)]
