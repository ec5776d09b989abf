"""From tile values to a plan: which steps a kernel takes, in which order, and where every value is kept.

Invariant: a plan that exists can be written; what cannot be is refused here, with the node, the rule and the cure. The
meaning of a block graph never depends on a choice made here.

Long because one object decides together: sections, products, stages, walks, places.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from workbench.codegen.cuda.c_names import CNames
from workbench.codegen.cuda.choices import ordered, spread
from workbench.codegen.cuda.emitted import C_TYPES
from workbench.codegen.cuda.held_inputs import Held, choose_held
from workbench.codegen.cuda.layouts import (
    MAX_ACCUMULATORS,
    MOST_HELD,
    ProductShape,
    check_layout,
    default_layout,
    fragment_layout,
)
from workbench.codegen.cuda.lowering import LoweredBlock
from workbench.codegen.cuda.operand_tiles import staged_tile, trim_operands
from workbench.codegen.cuda.prologues import fuse_prologues
from workbench.codegen.cuda.schedule import Schedule, WarpLayout
from workbench.codegen.cuda.stage_walks import WalkChooser, only_saves
from workbench.codegen.cuda.steps import (
    FinishStep,
    FoldSink,
    HandOverSink,
    KeepSink,
    Operand,
    ProductStep,
    RescaleSink,
    RunningSink,
    SaveSink,
    Section,
    Sink,
    Stage,
    Step,
    StoreSink,
    leaves,
    sink_roots,
)
from workbench.codegen.cuda.tile_storage import Registers, SharedTile, input_tile, operand_tile, plain_tile
from workbench.codegen.cuda.tile_values import (
    Accumulated,
    Contracted,
    Folded,
    Folding,
    Keeping,
    Loaded,
    Mapped,
    MaximumShift,
    Ragged,
    RunningMaximum,
    Stored,
    TileValue,
    walk_values,
)
from workbench.codegen.cuda.value_paths import (
    UNBOUNDED,
    has_plain_views,
    is_aligned,
    is_below_maximum,
    lazy_values,
    peeled,
)
from workbench.codegen.cuda.walks import ProductLayout
from workbench.codegen.cuda.warpgroups import suits_warpgroups, warpgroup_layout
from workbench.core.shapes import Shape
from workbench.errors import EmitError
from workbench.ugraph.inference import Place

MOST_LOGITS = 64
"""Floats of a product that a thread holds within an iteration by choice, where it could do with fewer."""

SMALL_INPUT = 16384
"""Elements of an input that is staged without asking whether there is room."""

LONG_LOOP = 4
"""Iterations from which adding up the warps' partial results after the loop is paid for by less to read in it."""


@dataclass(eq=False, kw_only=True)
class KernelPlan:
    """Everything that is decided about a kernel.

    Attributes:
        spread: blocks over which the elements of every stage are dealt.
        steps: per section, in order. tiles: everything in shared memory.
        shared, registers: where a value is found after its step. makers: the step that makes a value.
        staged: inputs that are copied to shared memory; direct: inputs read from device memory where they are needed,
            held: those of them that are read once, at the start.
        parts: C names of the register arrays that sinks keep, by value.
        stages: buffers of a looped input's ring. barriers: the steps that a block barrier precedes.
        shares_maxima: warps share all running maxima; own: where those of which each warp has its own lie after the loop.
    """

    lowered: LoweredBlock
    schedule: Schedule
    names: CNames
    threads: int
    cluster: int
    spread: int = 1
    finishes: list[FinishStep] = field(default_factory=list)
    steps: dict[Section, list[Step]] = field(default_factory=lambda: {section: [] for section in Section})
    staged: dict[Loaded, SharedTile] = field(default_factory=dict)
    direct: list[Loaded] = field(default_factory=list)
    held: dict[Loaded, Held] = field(default_factory=dict)
    shared: dict[TileValue, SharedTile] = field(default_factory=dict)
    registers: dict[TileValue, Registers] = field(default_factory=dict)
    parts: dict[TileValue, str] = field(default_factory=dict)
    tiles: list[SharedTile] = field(default_factory=list)
    readers: dict[TileValue, list[TileValue]] = field(default_factory=dict)
    sections: dict[TileValue, Section] = field(default_factory=dict)
    products: dict[TileValue, ProductStep] = field(default_factory=dict)
    makers: dict[TileValue, Stage | ProductStep] = field(default_factory=dict)
    stages: int = 1
    shared_bytes: int = 0
    barriers: set[object] = field(default_factory=set)
    shares_maxima: bool = False
    own: dict[TileValue, SharedTile] = field(default_factory=dict)

    @property
    def iterations(self) -> int:
        """Iterations of the loop, over all blocks of a cluster together."""
        return self.lowered.iterations

    @property
    def iterations_each(self) -> int:
        """Iterations of one block, at most."""
        return -(-self.iterations // self.cluster)

    @property
    def has_ring(self) -> bool:
        """True when some looped input is staged."""
        return any(tile.is_looped for tile in self.staged.values())

    @property
    def warps(self) -> int:
        """Warps of a block."""
        return self.threads // 32

    def stages_of(self, section: Section) -> list[Stage]:
        """Return the stages of a section, those inside products included."""
        found = []
        for step in self.steps[section]:
            if isinstance(step, Stage):
                found.append(step)
            else:
                found += step.prologues
        return found


class Planner:
    """Makes a plan; the order of the methods is the order of the decisions."""

    def __init__(self, plan: KernelPlan) -> None:
        lowered = plan.lowered
        self.lowered, self.schedule, self.names, self.result = lowered, plan.schedule, plan.names, plan
        values = walk_values(tuple(saved.operand for saved in lowered.saved))
        self.order = ordered(values, plan.schedule.choices.order)
        self.ready: dict[TileValue, int] = {}
        self.operands: dict[tuple[TileValue, str], SharedTile] = {}
        self.layouts: dict[TileValue, ProductLayout] = {}
        self.types: dict[TileValue, str] = {}
        self.feeds: dict[TileValue, Contracted] = {}
        self.scaled: set[TileValue] = set()

    def plan(self) -> KernelPlan:
        """Return the plan. Raises: EmitError."""
        self.find_readers()
        self.find_sections()
        self.check_cluster()
        self.choose_layouts()
        for value in self.order:
            self.add(value)
        for number, saved in enumerate(self.lowered.saved):
            tile = saved.operand
            self.place_sink(Section.AFTER, tile.shape, tile.ragged, None, SaveSink(saved, number))
        self.place_inputs()
        fuse_prologues(self.result)
        trim_operands(self.result)
        self.spread_tiles()
        WalkChooser(self.result).choose()
        choose_held(self.result)
        return self.result

    # ------------------------------------------------------------------------------------------------ looking around
    def find_readers(self) -> None:
        """List, per value, the values that read it."""
        for value in self.order:
            for read in dict.fromkeys(value.reads):
                self.result.readers.setdefault(read, []).append(value)

    def sole_reader(self, value: TileValue) -> TileValue | None:
        """Return the one value that reads this one, None if there are several or it is also saved."""
        readers = self.result.readers.get(value, [])
        is_saved = any(saved.operand is value for saved in self.lowered.saved)
        return readers[0] if len(readers) == 1 and not is_saved else None

    def find_sections(self) -> None:
        """Decide when each value is computed; an invariant one before the loop only if the loop reads it."""
        sections = self.result.sections
        for value in reversed(self.order):
            if value.place is Place.LOOP:
                sections[value] = Section.LOOP
            elif value.place is Place.AFTER or self.lowered.iterations == 1:
                sections[value] = Section.AFTER
            else:
                needed = any(
                    isinstance(reader, Accumulated) or sections[reader] is not Section.AFTER
                    for reader in self.result.readers.get(value, [])
                )
                sections[value] = Section.BEFORE if needed else Section.AFTER

    def check_cluster(self) -> None:
        """Raises: EmitError for accumulators that need their iterations in order when a cluster shares them."""
        if self.result.cluster == 1:
            return
        for value in self.order:
            if isinstance(value, RunningMaximum) or (isinstance(value, Accumulated) and value.kind is Keeping.RESCALE):
                raise EmitError(
                    "a rescaled accumulator needs its iterations in order, but a cluster shares them",
                    value.label,
                    "use cluster (1, 1, 1), or split the axis over blocks and combine in a second kernel",
                )

    # ---------------------------------------------------------------------------------------------------- products
    def element_type(self, value: Contracted) -> str:
        """Return the 16-bit type that all factors of a product have, else float."""
        types = {C_TYPES[factor.dtype] for factor in value.reads}
        (only,) = types if len(types) == 1 else ("float",)
        return only

    def narrow_type(self, value: Contracted) -> str:
        """Return the 16-bit type in which a product with a computed left factor of float32 could be done, else float.

        Rounding that factor to 16 bits where it is handed over loses no more than rounding the others did.
        """
        left, right = value.pairs[0]
        narrow = C_TYPES[right.dtype]
        return narrow if narrow != "float" and C_TYPES[left.dtype] in (narrow, "float") else "float"

    def may_overflow(self, factor: TileValue) -> bool:
        """Return True when a computed factor may leave the range of float16 though its inputs are tame: it has an exp."""
        return any(
            (isinstance(value, Mapped) and value.op in UNBOUNDED and not is_below_maximum(value))
            or (isinstance(value, Stored) and self.may_overflow(value.operand))
            for value in (*lazy_values((factor,)), *leaves((factor,)))
        )

    def kept_by(self, value: Contracted) -> Accumulated | None:
        """Return the accumulator that a product adds to directly."""
        reader = self.sole_reader(value)
        if not isinstance(reader, Accumulated) or reader.operand is not value or reader.rescale is value:
            return None
        return reader if reader.kind in (Keeping.SUM, Keeping.RESCALE) else None

    def product_shape(self, value: Contracted, c_type: str) -> ProductShape:
        """Return the extents of a product in tensor-core tiles; one that feeds another has whole steps of its depth."""
        depths = tuple(left.shape[-1] for left, _ in value.pairs)
        products = [other for other in self.order if isinstance(other, Contracted)]
        feeds = any(value in leaves((left,)) for other in products for left, _ in other.pairs)
        return ProductShape(
            prod(value.shape[:-2]), value.shape[-2], value.shape[-1], depths, c_type, is_narrow=not feeds
        )

    def choose_layouts(self) -> None:
        """Decide in which type tensor cores multiply, and how warps share each product.

        A left factor that may overflow float16 is scaled row by row where it is handed over in registers; any other
        such factor is multiplied as float32.
        """
        products = [value for value in self.order if isinstance(value, Contracted)]
        kept = [value for value in products if self.kept_by(value) is not None]
        most = MAX_ACCUMULATORS if len(kept) < 2 else max(32, MAX_ACCUMULATORS // len(kept))
        for value in products:
            c_type, warps = self.narrow_type(value), self.result.warps
            shape = self.product_shape(value, c_type)
            source = self.fed_by(value)
            given = self.schedule.layouts.get(value.label)
            chosen = given or (self.following(source, shape) if source is not None else None)
            is_handed = False
            if source is not None and chosen is not None and shape.fits(chosen, warps):
                is_handed = self.hands_over(source, shape.layout(chosen, warps))
            wide = [factor for factor in value.reads if c_type == "f16" and self.may_overflow(factor)]
            if not is_handed and (wide or self.element_type(value) != c_type):
                c_type, chosen = "float", given
                shape = self.product_shape(value, c_type)
            elif wide and wide != [value.pairs[0][0]]:
                c_type, chosen, is_handed = "float", given, False
                shape = self.product_shape(value, c_type)
            elif c_type == "f16" and (wide or self.element_type(value) != c_type):
                self.scaled.add(value)
            if is_handed:
                assert source is not None
                self.feeds[value] = source
            if given is not None:
                check_layout(shape, given, warps, value.label)
            layout = shape.layout(chosen or self.free_layout(value, shape, most), warps)
            self.types[value], self.layouts[value] = c_type, layout
        self.check_registers()

    def free_layout(self, value: Contracted, shape: ProductShape, most: int) -> WarpLayout:
        """Return the layout of a product that follows no other."""
        section, warps = self.result.sections[value], self.result.warps
        is_kept = self.kept_by(value) is not None
        is_worked_on = self.works_on_left(value) and value.pairs[0][0].place is Place.LOOP
        if suits_warpgroups(value, self.narrow_type(value)) and not is_worked_on:
            together = warpgroup_layout(shape, warps, split_depth=is_kept, most=most if is_kept else MOST_LOGITS)
            if together is not None:
                return together
        if section is Section.LOOP and not is_kept:
            return fragment_layout(shape, warps, whole_rows=not self.keeps_all_folds())
        steps = self.lowered.iterations if section is Section.LOOP else 1
        whole_rows = section is Section.LOOP and self.works_on_left(value)
        return default_layout(shape, warps, steps, most=most, whole_rows=whole_rows)

    def keeps_all_folds(self) -> bool:
        """Return True when the loop is long and needs no number of a row before its end, so that warps may share rows."""
        if self.result.iterations_each < LONG_LOOP:
            return False
        for value in self.order:
            if isinstance(value, RunningMaximum) or (isinstance(value, Accumulated) and value.kind is Keeping.RESCALE):
                return False
            if isinstance(value, Folded) and value.axis == -1 and self.result.sections[value] is Section.LOOP:
                reader = self.sole_reader(value)
                if not (isinstance(reader, Accumulated) and self.folds_while_keeping(reader, value)):
                    return False
        return True

    def works_on_left(self, value: Contracted) -> bool:
        """Return True when there is more to do with the left operand than to multiply it: computing it, or folding it."""
        left = value.pairs[0][0]
        inputs = [leaf for leaf in leaves((left,)) if isinstance(leaf, Loaded) and leaf.shape == left.shape]
        if not isinstance(left, Loaded):
            return bool(inputs) and has_plain_views((left,))
        folds = [other for other in self.order if isinstance(other, Folded) and other.operand.shape == left.shape]
        return any(left in leaves((fold.operand,)) and fold.axis == -1 for fold in folds)

    def check_registers(self) -> None:
        """Raises: EmitError when a thread would hold too many accumulators at a time."""
        for section in Section:
            here = [
                value
                for value in self.order
                if isinstance(value, Contracted) and self.result.sections[value] is section
            ]
            kept = sum(self.layouts[value].accumulators for value in here if self.kept_by(value) is not None)
            others = [self.layouts[value].accumulators for value in here if self.kept_by(value) is None]
            held = kept + max(others, default=0)
            if held > MOST_HELD:
                raise EmitError(
                    f"the products {section.value} take {held} accumulators a thread, {MOST_HELD} fit",
                    ", ".join(value.label for value in here),
                    f"use more threads (now {self.result.threads}) or a smaller tile",
                )

    def fed_by(self, value: Contracted) -> Contracted | None:
        """Return the product whose fragments, worked on in registers, become the left operand of this one."""
        if len(value.pairs) != 1 or self.narrow_type(value) == "float":
            return None
        left, right = value.pairs[0]
        products = [reader for reader in self.result.readers[left] if isinstance(reader, Contracted)]
        if isinstance(left, Loaded) or products != [value] or peeled(right)[0] is left:
            return None
        section = self.result.sections[value]
        for leaf in leaves((left,)):
            if (
                isinstance(leaf, Contracted)
                and leaf in self.layouts
                and leaf.shape == left.shape
                and {self.result.sections[leaf], self.result.sections[left]} == {section}
                and self.kept_by(leaf) is None
                and has_plain_views((left,))
                and is_aligned(left, leaf)
            ):
                return leaf
        return None

    def following(self, source: Contracted, shape: ProductShape) -> WarpLayout | None:
        """Return the layout in which each warp goes on with the columns it has of `source`, as its depth."""
        before = self.layouts[source]
        warps = WarpLayout(before.warp_rows, 1, before.warp_columns)
        if before.warp_depth != 1 or before.matrices != shape.matrices or not shape.fits(warps, self.result.warps):
            return None
        is_same_rows = shape.rows // warps.rows == before.row_tiles
        is_same_depth = shape.depths[0] * shape.depth_step == before.columns
        return warps if is_same_rows and is_same_depth and shape.accumulators(warps) <= MAX_ACCUMULATORS else None

    # ------------------------------------------------------------------------------------------------------- stages
    def place_sink(self, section: Section, space: Shape, ragged: Ragged, inner: int | None, sink: Sink) -> int:
        """Add a sink to the first stage that walks its space after all it reads is there, else to a new one."""
        steps = self.result.steps[section]
        after = self.ready_after(section, sink_roots(sink))
        for number, step in enumerate(steps):
            if (
                number > after
                and isinstance(step, Stage)
                and (step.space, step.ragged) == (space, ragged)
                and (inner is None or step.inner in (None, inner))
                and not any(isinstance(other, RescaleSink) for other in step.sinks)
                and (self.result.cluster == 1 or not isinstance(sink, SaveSink) or only_saves(step))
                and has_plain_views(step.roots) == has_plain_views(sink_roots(sink))
            ):
                step.inner = inner if inner is not None else step.inner
                step.sinks.append(sink)
                return number
        steps.append(Stage(section=section, space=space, ragged=ragged, inner=inner, sinks=[sink]))
        return len(steps) - 1

    def ready_after(self, section: Section, roots: tuple[TileValue, ...]) -> int:
        """Return the number of the last step of a section that makes something the roots read, -1 if none does."""
        made = [leaf for leaf in leaves(roots) if leaf in self.ready and self.result.sections[leaf] is section]
        return max((self.ready[leaf] for leaf in made), default=-1)

    def add(self, value: TileValue) -> None:
        """Add the steps that make a value."""
        match value:
            case Contracted():
                self.add_product(value)
            case Folded():
                reader = self.sole_reader(value)
                if not (isinstance(reader, Accumulated) and self.folds_while_keeping(reader, value)):
                    section = self.result.sections[value]
                    operand = value.operand
                    sink = FoldSink(value, None)
                    self.ready[value] = self.place_sink(section, operand.shape, operand.ragged, value.axis, sink)
            case Accumulated():
                self.add_accumulated(value)
            case RunningMaximum():
                sink_ = RunningSink(value)
                self.ready[value] = self.place_sink(Section.LOOP, value.shape, value.ragged, None, sink_)
            case MaximumShift():
                self.ready[value] = self.ready[value.maximum]
            case Stored():
                tile = plain_tile(self.names.claim(f"{value.name}_tile"), value.shape, is_product=True)
                self.result.tiles.append(tile)
                self.result.shared[value] = tile
                section, made = self.result.sections[value], StoreSink(value.operand, tile)
                self.ready[value] = self.place_sink(section, value.shape, value.ragged, None, made)
            case _:
                pass

    def folds_while_keeping(self, kept: Accumulated, folded: Folded) -> bool:
        """Return True when an accumulator of a fold may add up each thread's share and fold after the loop."""
        if kept.operand is not folded or kept.rescale is folded or self.result.sections[folded] is not Section.LOOP:
            return False
        expected = Folding.MAX if kept.kind is Keeping.MAX else Folding.SUM
        threads, rows = self.result.threads, prod(folded.shape)
        sharing = min(threads, 1 << (folded.operand.shape[folded.axis] - 1).bit_length())
        return folded.folding is expected and rows * sharing <= 64 * threads

    def add_accumulated(self, value: Accumulated) -> None:
        """Add the sink of an accumulator, and its end after the loop."""
        operand = value.operand
        if isinstance(operand, Contracted) and self.kept_by(operand) is value:
            pass  # its product step adds to it
        elif (
            isinstance(operand, Folded)
            and self.sole_reader(operand) is value
            and self.folds_while_keeping(value, operand)
        ):
            inner = operand.operand
            self.place_sink(Section.LOOP, inner.shape, inner.ragged, operand.axis, FoldSink(operand, value))
        else:
            self.place_sink(Section.LOOP, value.shape, value.ragged, None, KeepSink(value))
        self.result.finishes.append(FinishStep(value=value))

    def add_product(self, value: Contracted) -> None:
        """Add a product after the stages that make its operands."""
        section, c_type, layout = self.result.sections[value], self.types[value], self.layouts[value]
        pairs = []
        for left, right in value.pairs:
            if value in self.feeds:
                variable = self.names.claim(f"{left.name}_fragment")
                self.place_sink(section, left.shape, left.ragged, -1, HandOverSink(left, variable))
                first = Operand(value=left, is_transposed=False, tile=None, registers=variable)
            else:
                first = self.operand(left, c_type, section)
            pairs.append((first, self.operand(right, c_type, section)))
        kept = self.kept_by(value)
        if kept is not None and kept.rescale is not None:
            stage = Stage(
                section=section, space=value.shape, ragged=value.ragged, inner=None, sinks=[RescaleSink(kept)]
            )
            self.result.steps[section].append(stage)
        name = kept.name if kept is not None else value.name
        step = ProductStep(
            section=section, value=value, kept=kept, layout=layout, c_type=c_type, operands=pairs,
            variable=self.names.claim(f"{name}_sum"),
            scale=self.names.claim(f"{name}_scale") if value in self.scaled else "",
        )  # fmt: skip
        self.result.steps[section].append(step)
        self.ready[value] = len(self.result.steps[section]) - 1
        self.result.products[kept or value] = step

    def hands_over(self, source: Contracted, after: ProductLayout) -> bool:
        """Return True when a layout lets the fragments of one product be the left operand of the next."""
        before = self.layouts[source]
        return (
            (before.warp_rows, before.row_tiles, before.matrices) == (after.warp_rows, after.row_tiles, after.matrices)
            and (before.warp_depth, after.warp_columns, after.warp_depth) == (1, 1, before.warp_columns)
            and after.depth_steps * 16 == before.column_tiles * 8
            and before.used_warps == after.used_warps
        )

    def operand(self, factor: TileValue, c_type: str, section: Section) -> Operand:
        """Return where a product finds a factor, adding the stage that stores it if it is computed."""
        base, is_transposed = peeled(factor)
        if isinstance(base, Loaded) and (c_type == "float" or C_TYPES[base.dtype] == c_type):
            return Operand(value=base, is_transposed=is_transposed, tile=self.stage_input(base, is_operand=True))
        kind = C_TYPES[base.dtype] if c_type == "float" else c_type
        if (base, kind) not in self.operands:
            tile = operand_tile(self.names.claim(f"{base.name}_tile"), kind, base.shape, transposed=False)
            self.operands[base, kind] = tile
            self.result.tiles.append(tile)
            made = self.result.sections[base]
            sink = StoreSink(base, tile)
            self.place_sink(made, base.shape, base.ragged, None, sink)
        return Operand(value=base, is_transposed=is_transposed, tile=self.operands[base, kind])

    # ------------------------------------------------------------------------------------------------------- inputs
    def stage_input(self, value: Loaded, *, is_operand: bool) -> SharedTile:
        """Return the shared tile of an input, made at the first request."""
        if value not in self.result.staged:
            chosen = self.schedule.choices.layout(value.label)
            tile = staged_tile(value, self.names.claim(f"{value.name}_tile"), is_operand=is_operand, layout=chosen)
            tile.is_looped = value.place is Place.LOOP
            self.result.staged[value] = tile
            self.result.tiles.append(tile)
        return self.result.staged[value]

    def spread_tiles(self) -> None:
        """Spread staged inputs and stored factors over the banks as the optimizer chose."""
        choices = self.schedule.choices
        stored = [(base, tile) for (base, _), tile in self.operands.items()]
        for value, tile in [*self.result.staged.items(), *stored]:
            layout = choices.layout(value.label)
            if layout is not None:
                spread(tile, layout)

    def place_inputs(self) -> None:
        """Decide which inputs that no product reads are staged: those the loop reads beside staged ones or repeatedly.

        So are those from which the loop computes factors of products: read where they are needed, nothing would hide their
        way from device memory. A loop of elementwise operators alone waits for nothing else, so it reads them directly.
        """
        steps = self.result.steps[Section.LOOP]
        has_ring = any(tile.is_looped for tile in self.result.staged.values())
        is_staging = has_ring or any(isinstance(step, ProductStep) for step in steps)
        in_loop = {
            leaf
            for stage in self.result.stages_of(Section.LOOP)
            for leaf in leaves(stage.roots)
            if isinstance(leaf, Loaded)
        }
        for value in self.order:
            if not isinstance(value, Loaded) or value in self.result.staged:
                continue
            is_looped = value.place is Place.LOOP
            is_wanted = value in in_loop and (is_staging or not is_looped)
            if is_wanted and (prod(value.shape) <= SMALL_INPUT or (is_looped and self.has_room(value))):
                self.stage_input(value, is_operand=False)
            else:
                self.result.direct.append(value)

    def has_room(self, value: Loaded) -> bool:
        """Return True when shared memory has room for the ring of one more input, with a quarter left for what comes later."""
        copies = self.schedule.stages or 2
        taken = sum(tile.bytes_each * (copies if tile.is_looped else 1) for tile in self.result.tiles)
        more = input_tile("", C_TYPES[value.dtype], value.shape, transposed=False).bytes_each * copies
        return 4 * (taken + more) <= 3 * self.schedule.shared_limit


def make_plan(
    lowered: LoweredBlock, schedule: Schedule, names: CNames, threads: int, cluster: int, *, spread: int = 1
) -> KernelPlan:
    """Return the plan of a kernel. Raises: EmitError."""

    def planned(*, shares_maxima: bool) -> KernelPlan:
        plan = KernelPlan(
            lowered=lowered, schedule=schedule, names=names, threads=threads, cluster=cluster, spread=spread,
            shares_maxima=shares_maxima,
        )  # fmt: skip
        return Planner(plan).plan()

    plan = planned(shares_maxima=False)
    return planned(shares_maxima=True) if plan.shares_maxima else plan
