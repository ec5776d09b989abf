"""Which walk each stage takes, and where the values that steps make are kept for their readers.

A stage that works on a product's fragments walks over them; one that works on results of one number a row goes on with the
rows as they lie; everything else deals rows to groups of threads. Invariant: a value whose reader cannot find it in its own
registers is in shared memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.codegen.cuda.across_walk import AcrossWalk, across_walk
from workbench.codegen.cuda.launch_shape import WARP
from workbench.codegen.cuda.own_maxima import find_own_maxima
from workbench.codegen.cuda.steps import (
    FinishStep,
    FoldSink,
    KeepSink,
    ProductStep,
    RescaleSink,
    RunningSink,
    SaveSink,
    Section,
    Stage,
    StoreSink,
    leaves,
)
from workbench.codegen.cuda.tile_storage import EVERYWHERE, Registers, SharedTile, plain_tile
from workbench.codegen.cuda.tile_values import (
    Accumulated,
    Folded,
    Folding,
    Keeping,
    Loaded,
    MaximumShift,
    RunningMaximum,
    TileValue,
)
from workbench.codegen.cuda.value_paths import has_plain_views, is_aligned
from workbench.codegen.cuda.walks import FragmentWalk, OperandWalk, RowsWalk, Walk, choose_width
from workbench.core.shapes import Shape
from workbench.errors import EmitError

if TYPE_CHECKING:
    from workbench.codegen.cuda.plan import KernelPlan

MAX_COUNT = 2**31
"""Counters of rows and elements have 32 bits; where a tensor lies is computed in 64."""

MAX_ROW_SLOTS = 256
"""Rows of a stage whose totals or maxima a thread may hold; far below, they spill already."""

MAX_SLOTS = 64
"""Registers of one array that a sink may keep in a thread."""

MOST_BESIDE_PRODUCTS = 144
"""Registers that the fragments of a loop's products and one such array may take together (with 160 they spilled)."""

FEW_SLOTS = 8
"""Registers of such an array that are found in any case."""


class WalkChooser:
    """Chooses walks in order of the steps, then places results."""

    def __init__(self, plan: KernelPlan) -> None:
        self.plan = plan
        self.made_by = plan.makers
        self.slices: dict[TileValue, int] = {}
        self.own = [] if plan.shares_maxima else find_own_maxima(plan)
        self.own_numbers = {value for one in self.own for value in one.numbers}
        self.of_own = {value: one.warps for one in self.own for value in one.greatest}

    def choose(self) -> None:
        """Fill in the plan."""
        for section in Section:
            for step in self.plan.steps[section]:
                if isinstance(step, ProductStep):
                    for prologue in step.prologues:
                        prologue.walk = OperandWalk(step.layout, prologue.space)
                        self.note_stage(prologue)
                    self.note_product(step)
                else:
                    step.walk = self.walk_of(step)
                    self.note_stage(step)
        self.place_results()

    # --------------------------------------------------------------------------------------------------------- walks
    def walk_of(self, stage: Stage) -> Walk:
        """Return the walk of a stage."""
        for sink in stage.sinks:
            if isinstance(sink, RescaleSink):
                return FragmentWalk(self.plan.products[sink.value].layout, stage.space)
        rows = self.row_producer(stage)
        if rows is not None:
            return rows
        product = self.fragment_source(stage)
        if product is not None:
            return FragmentWalk(product.layout, stage.space)
        return across_walk(self.plan, stage) or self.rows_walk(stage)

    def fragment_source(self, stage: Stage) -> ProductStep | None:
        """Return the product whose fragments the stage works on."""
        if stage.inner not in (None, -1) or not has_plain_views(stage.roots) or len(stage.space) < 2:
            return None
        if self.plan.cluster > 1 and stage.section is Section.AFTER and only_saves(stage):
            return None  # the blocks of the cluster share the elements
        for leaf in leaves(stage.roots):
            step = self.plan.products.get(leaf)
            registers = self.plan.registers.get(leaf)
            if (
                step is not None
                and registers is not None
                and leaf.shape == stage.space
                and self.is_here(leaf, stage)
                and any(is_aligned(root, leaf) for root in stage.roots)
            ):
                return step
        return None

    def row_producer(self, stage: Stage) -> Walk | None:
        """Return the walk over rows in whose registers a stage of one number a row finds its operands."""
        if stage.space[-1:] != (1,) or not all(isinstance(sink, KeepSink | RunningSink) for sink in stage.sinks):
            return None
        for leaf in leaves(stage.roots):
            registers, maker = self.plan.registers.get(leaf), self.made_by.get(leaf)
            if registers is None or not registers.by_row or not self.is_here(leaf, stage) or leaf.shape != stage.space:
                continue
            walk = maker.walk if isinstance(maker, Stage) else None
            if isinstance(walk, FragmentWalk):
                return FragmentWalk(walk.layout, stage.space, rows_only=True)
            if isinstance(walk, RowsWalk):
                return RowsWalk(
                    stage.space, len(stage.space) - 1, threads=self.plan.threads, width=1, has_slots=True,
                    group_size=walk.group_size, rows_only=True,
                )  # fmt: skip
        return None

    def is_here(self, leaf: TileValue, stage: Stage) -> bool:
        """Return True when a value is made in the stage's section, or is complete before it."""
        return self.plan.sections[leaf] is stage.section

    def rows_walk(self, stage: Stage) -> Walk:
        """Return rows dealt to threads."""
        plan = self.plan
        inner = self.inner_axis(stage)
        dealt = plan.cluster * plan.spread if stage.section is Section.AFTER and only_saves(stage) else 1
        has_slots = any(isinstance(sink, FoldSink | KeepSink | RunningSink) for sink in stage.sinks)
        most = self.most_neighbours(stage)
        width = choose_width(stage.space, inner, plan.threads * dealt, most)
        walk = RowsWalk(stage.space, inner, threads=plan.threads, width=width, cluster=dealt, has_slots=has_slots)
        if walk.rows == 1 and walk.group_size <= WARP and self.is_read_maximum(stage):
            walk = RowsWalk(stage.space, inner, threads=plan.threads, width=width, has_slots=True, for_all=True)
        check_counts(walk, stage, has_slots=has_slots)
        for sink in stage.sinks:
            if isinstance(sink, KeepSink) and walk.element_slots > self.most_kept and sink.tile is None:
                sink.tile = plain_tile(plan.names.claim(f"{sink.value.name}_kept"), sink.value.shape)
                plan.tiles.append(sink.tile)
            if isinstance(sink, RunningSink) and walk.element_slots > MAX_SLOTS and sink.tile is None:
                sink.tile = plain_tile(plan.names.claim(f"{sink.value.name}_kept"), sink.value.shape)
                plan.tiles.append(sink.tile)
        return walk

    def is_read_maximum(self, stage: Stage) -> bool:
        """Return True for the maximum of inputs after the loop: on it wait exponentials, and on a barrier what they scale."""
        return stage.section is Section.AFTER and all(
            isinstance(sink, FoldSink)
            and sink.kept is None
            and sink.value.folding is Folding.MAX
            and all(isinstance(leaf, Loaded) for leaf in leaves((sink.value.operand,)))
            for sink in stage.sinks
        )

    @property
    def most_kept(self) -> int:
        """The elements of an accumulator that a thread keeps in registers: fewer where the loop's products fill them."""
        steps = [step for step in self.plan.steps[Section.LOOP] if isinstance(step, ProductStep)]
        products = sum(step.layout.accumulators for step in steps if step.kept is not None)
        products += max((step.layout.accumulators for step in steps if step.kept is None), default=0)
        return min(MAX_SLOTS, max(FEW_SLOTS, MOST_BESIDE_PRODUCTS - products))

    def inner_axis(self, stage: Stage) -> int | None:
        """Return the axis (from the front) along which neighbouring threads take neighbouring elements."""
        rank = len(stage.space)
        if rank == 0:
            return None
        if stage.inner is not None:
            return rank + stage.inner
        for sink in stage.sinks:
            if isinstance(sink, SaveSink):
                strides = sink.saved.tensor.strides
                unit = [axis for axis in range(rank) if strides[axis] == 1 and stage.space[axis] > 1]
                if unit:
                    return unit[-1]
            elif isinstance(sink, StoreSink) and rank >= 2:
                return rank + sink.tile.contiguous_axis
        for leaf in leaves(stage.roots):
            if isinstance(leaf, Loaded) and leaf.shape == stage.space and leaf in self.plan.direct:
                unit = [axis for axis in range(rank) if leaf.tensor.strides[axis] == 1 and stage.space[axis] > 1]
                if unit:
                    return unit[-1]
        return rank - 1

    def most_neighbours(self, stage: Stage) -> int:
        """Return how many neighbours fill a 16-byte access of the narrowest type that the stage touches."""
        sizes = [4]
        for sink in stage.sinks:
            if isinstance(sink, StoreSink):
                sizes.append(2 if sink.tile.c_type != "float" else 4)
            elif isinstance(sink, SaveSink):
                sizes.append(sink.saved.tensor.dtype.nbytes)
        for leaf in leaves(stage.roots):
            if isinstance(leaf, Loaded):
                sizes.append(leaf.dtype.nbytes)
            elif isinstance(leaf, Accumulated) and self.plan.cluster > 1:
                return 4
        return 16 // min(sizes)

    # ------------------------------------------------------------------------------------------------------- results
    def note_product(self, step: ProductStep) -> None:
        """Remember where a product leaves its result."""
        value = step.kept or step.value
        self.made_by[value], self.slices[value] = step, step.layout.warp_depth
        if step.layout.warp_depth == 1 and (step.kept is None or self.plan.cluster == 1):
            self.plan.registers[value] = Registers(step.variable, step.layout.key, False)

    def note_stage(self, stage: Stage) -> None:
        """Remember where the sinks of a stage leave their results."""
        walk, plan = stage.walk, self.plan
        assert walk is not None
        rows_only = walk.rows_only
        for sink in stage.sinks:
            if isinstance(sink, FoldSink):
                value: TileValue = sink.kept or sink.value
                self.made_by[value], self.slices[value] = stage, walk.slices
                plan.parts[value] = plan.names.claim(f"{value.name}_part")
                is_whole = (walk.slices == 1 or value in self.own_numbers) and not isinstance(walk, AcrossWalk)
                if is_whole and (sink.kept is None or plan.cluster == 1):
                    for_all = isinstance(walk, RowsWalk) and walk.for_all
                    plan.registers[value] = Registers(plan.parts[value], EVERYWHERE if for_all else walk.row_key, True)
            elif isinstance(sink, KeepSink):
                self.made_by[sink.value], self.slices[sink.value] = stage, self.of_own.get(sink.value, 1)
                if sink.tile is None:
                    plan.parts[sink.value] = plan.names.claim(f"{sink.value.name}_part")
                    if plan.cluster == 1 and sink.value not in self.of_own:
                        key = walk.row_key if rows_only else walk.element_key
                        plan.registers[sink.value] = Registers(plan.parts[sink.value], key, rows_only)
            elif isinstance(sink, RunningSink):
                self.made_by[sink.value], self.slices[sink.value] = stage, 1
                shift = self.shift_of(sink.value)
                if shift is not None:
                    self.made_by[shift], self.slices[shift] = stage, 1
                if sink.tile is None:
                    plan.parts[sink.value] = plan.names.claim(f"{sink.value.name}_so_far")
                if rows_only:
                    plan.registers[sink.value] = Registers(plan.parts[sink.value], walk.row_key, True)
                    if shift is not None:
                        plan.parts[shift] = plan.names.claim(f"{shift.name}_row")
                        plan.registers[shift] = Registers(plan.parts[shift], walk.row_key, True)

    def shift_of(self, maximum: RunningMaximum) -> MaximumShift | None:
        """Return the shift of a running maximum, if anybody reads it."""
        for reader in self.plan.readers.get(maximum, []):
            if isinstance(reader, MaximumShift):
                return reader
        return None

    def place_results(self) -> None:
        """Give a shared tile to every result that some reader does not find in its registers."""
        plan = self.plan
        wanted: dict[TileValue, bool] = {}
        used: set[TileValue] = set()
        for section in Section:
            for stage in plan.stages_of(section):
                for leaf in leaves(stage.roots):
                    if leaf in self.made_by:
                        found = self.reads_registers(stage, leaf)
                        wanted[leaf] = wanted.get(leaf, False) or not found
                        if found:
                            used.add(leaf)
                            if isinstance(stage.walk, RowsWalk):
                                stage.walk.has_slots = True
        for value, is_wanted in wanted.items():
            if is_wanted:
                plan.shared[value] = self.result_tile(value)
        for value in list(plan.registers):
            if value not in used:
                del plan.registers[value]
        self.place_own_maxima()

    def place_own_maxima(self) -> None:
        """Give the maxima of warps a place after the loop; where somebody looks for one in it, warps must share them."""
        plan = self.plan
        for own in self.own:
            walks = [self.made_by[value].walk for value in (own.maximum, *own.greatest) if value in self.made_by]  # type: ignore[union-attr]
            is_apart = all(isinstance(walk, FragmentWalk) and walk.slices == own.warps for walk in walks)
            if not is_apart or any(value in plan.shared for value in own.numbers):
                plan.shares_maxima = True  # this plan is given up
                return
            tile = plain_tile(plan.names.claim(f"{own.maximum.name}_of_warps"), own.maximum.shape, slices=own.warps)
            plan.own[own.maximum] = tile
            plan.tiles.append(tile)
            plan.finishes.insert(0, FinishStep(value=own.maximum))
            for value in own.kept:
                if value in plan.shared:
                    plan.shared[value].factors = tile

    def reads_registers(self, stage: Stage, leaf: TileValue) -> bool:
        """Return True when a stage finds a value in registers of its own walk."""
        registers, walk = self.plan.registers.get(leaf), stage.walk
        if registers is None or walk is None or not self.is_here(leaf, stage):
            return False
        if registers.key == EVERYWHERE:
            return True
        if not all(is_aligned(root, leaf) for root in stage.roots):
            return False
        if registers.by_row:
            return registers.key == walk.row_key and padded(leaf.shape, len(stage.space)) == row_shape(
                stage.space, walk
            )
        return registers.key == walk.element_key and leaf.shape == stage.space

    @staticmethod
    def keeps_fragments(maker: Stage, value: TileValue) -> bool:
        """Return True when a stage accumulates a value element by element in a product's fragments."""
        is_kept = any(isinstance(sink, KeepSink) and sink.value is value for sink in maker.sinks)
        return is_kept and isinstance(maker.walk, FragmentWalk) and not maker.walk.rows_only

    def result_tile(self, value: TileValue) -> SharedTile:
        """Return the shared tile in which readers find a result."""
        plan, maker = self.plan, self.made_by[value]
        for sink in maker.sinks if isinstance(maker, Stage) else []:
            if isinstance(sink, KeepSink) and sink.value is value and sink.tile is not None:
                tile = sink.tile
                break
        else:
            is_product = isinstance(maker, ProductStep) or self.keeps_fragments(maker, value)
            name = plan.names.claim(f"{value.name}_tile")
            tile = plain_tile(name, value.shape, slices=self.slices[value], is_product=is_product)
            plan.tiles.append(tile)
        if isinstance(value, Accumulated) and plan.cluster > 1:
            tile.cluster, tile.is_combined = plan.cluster, tile.slices > 1
        is_max = (isinstance(value, Accumulated) and value.kind is Keeping.MAX) or (
            isinstance(value, Folded) and value.folding.value == "max"
        )
        tile.folding = "max" if is_max else "sum"
        return tile


def check_counts(walk: RowsWalk, stage: Stage, *, has_slots: bool) -> None:
    """Raises: EmitError for a walk that 32-bit counters or the registers of a thread cannot take."""
    name = ", ".join(dict.fromkeys(root.label for root in stage.roots))
    if max(walk.rows + walk.row_step, walk.columns + walk.group_size * walk.width) >= MAX_COUNT:
        raise EmitError(
            f"{walk.rows:,} rows of {walk.columns:,} elements are counted in 32 bits",
            name,
            "cut the tensor along the grid, or give its axes other extents",
        )
    if has_slots and walk.row_slots > MAX_ROW_SLOTS:
        raise EmitError(
            f"a thread would hold {walk.row_slots:,} numbers, one for each of its rows; {MAX_ROW_SLOTS} are allowed",
            name,
            "cut the rows along the grid, or use more threads",
        )


def only_saves(stage: Stage) -> bool:
    """Return True when a stage only writes to device memory, so that the blocks of a cluster may share it."""
    return all(isinstance(sink, SaveSink) for sink in stage.sinks)


def padded(shape: Shape, rank: int) -> Shape:
    """Return a shape with ones before it, of a rank."""
    return (1,) * (rank - len(shape)) + shape


def row_shape(space: Shape, walk: Walk) -> Shape:
    """Return the space with extent 1 along the walk's inner axis."""
    return tuple(1 if axis == walk.inner else extent for axis, extent in enumerate(space))
