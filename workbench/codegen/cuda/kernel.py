"""A block graph as one CUDA kernel: plan, then text.

    emit_block(node: GraphDefinedNode, *, name: str | None = None, schedule: Schedule = DEFAULT_SCHEDULE) -> KernelSource

The kernel takes one pointer for each operand of the block graph, in order, then one for each result of the node; shapes,
strides and types are fixed in its text. Raises `EmitError` for what is not claimed.

Invariant: the same text, by hash, runs on the device and on the host; every node of the µGraph that takes a step of its own
is a commented block that bears its name.

Long because the parts of a kernel's text are written in the order in which they stand.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from workbench.codegen.cuda.accumulators import finish_product, finish_stage, state_lines
from workbench.codegen.cuda.addressing import (
    STEP,
    TileAddress,
    cuts_of,
    depends_on_loop,
    start_of,
    tile_address,
    valid_text,
)
from workbench.codegen.cuda.c_names import CNames
from workbench.codegen.cuda.contraction import (
    product_lines,
    scale_start,
    store_fragments,
    unscaled_lines,
    zeroed,
)
from workbench.codegen.cuda.element import Elements
from workbench.codegen.cuda.emitted import C_TYPES, KernelParameter, KernelSource
from workbench.codegen.cuda.exponentials import mark_exponentials, shift_start, unshifted_lines
from workbench.codegen.cuda.held_inputs import Held
from workbench.codegen.cuda.launch_shape import MAX_THREADS, WARP, LaunchShape
from workbench.codegen.cuda.left_fragments import held_declaration, hold_left, join_products
from workbench.codegen.cuda.loads import Copy, copy_lines, load_comment
from workbench.codegen.cuda.lowering import LoweredBlock, lower_block
from workbench.codegen.cuda.plan import KernelPlan, make_plan
from workbench.codegen.cuda.plan_notes import plan_notes, step_comment
from workbench.codegen.cuda.schedule import DEFAULT_SCHEDULE, SHARED_LIMIT, Schedule
from workbench.codegen.cuda.shared_memory import (
    COMBINE,
    FINISH,
    TOP,
    allocate,
    arrival,
    combined_tiles,
    derive_barriers,
)
from workbench.codegen.cuda.stage_text import StageWriter, stage_lines
from workbench.codegen.cuda.steps import ProductStep, SaveSink, Section, Step
from workbench.codegen.cuda.tile_storage import Registers, SharedTile
from workbench.codegen.cuda.tile_values import Loaded, TileValue
from workbench.codegen.cuda.unused_names import without_unused
from workbench.codegen.cuda.walks import Nest, indented, loop
from workbench.codegen.cuda.warpgroups import choose_warpgroups, has_warpgroups
from workbench.core.dtypes import DType
from workbench.core.tensors import DeviceTensor, RaggedSplit
from workbench.errors import EmitError, LaunchShapeError
from workbench.ugraph.nodes import GraphDefinedNode

MULTIPROCESSORS = 132
"""Of an H100 or H200 SXM."""


class KernelWriter:
    """Writes one planned kernel; it is the `Places` of the evaluator."""

    def __init__(self, plan: KernelPlan, name: str, parameters: tuple[KernelParameter, ...], fast_math: bool) -> None:
        self.plan, self.name, self.parameters, self.fast_math = plan, name, parameters, fast_math
        self.names = plan.names
        self.section, self.arrival = Section.BEFORE, arrival(plan)
        self.extents: dict[RaggedSplit, str] = {}
        self.pointers: dict[TileValue, str] = {}
        self.outputs: dict[int, str] = {}
        self.loop_head: list[str] = []
        self.kernel_head: list[str] = []

    # ------------------------------------------------------------------------------------- what the evaluator asks for
    def registers_of(self, value: TileValue) -> Registers | None:
        """Return where a value lies in registers."""
        return self.plan.registers.get(value)

    def tile_of(self, value: TileValue) -> SharedTile | None:
        """Return where a value lies in shared memory."""
        return self.plan.staged.get(value) if isinstance(value, Loaded) else self.plan.shared.get(value)

    def address(self, value: Loaded) -> TileAddress:
        """Return where the tiles of an input lie."""
        grid, loops = self.plan.lowered.grid, self.plan.iterations
        return tile_address(value.tensor.shape, value.tensor.strides, value.imap, value.fmap, grid, loops)

    def address_of(self, value: Loaded) -> tuple[str, TileAddress]:
        """Return the pointer to a tile that is read from device memory directly."""
        address = self.address(value)
        if value not in self.pointers:
            pointer = self.pointers[value] = self.names.claim(f"{value.name}_global")
            offset = address.offset()
            start = f"{self.parameters[value.parameter].name}{f' + {offset}' if offset else ''}"
            is_looped = any(start_.is_looped for start_ in address.starts)
            head = self.loop_head if is_looped else self.kernel_head
            head.append(f"const {C_TYPES[value.dtype]}* const {pointer} = {start};")
        return self.pointers[value], address

    def held_of(self, value: Loaded) -> Held | None:
        """Return where an input is held in registers from the start."""
        return self.plan.held.get(value)

    def held_lines(self) -> list[str]:
        """Return the statements that read the inputs which are held, all before any is used."""
        lines: list[str] = []
        for value, held in list(self.plan.held.items()):
            nest = Nest()
            elements = Elements(self, held.walk, nest)
            if not elements.can_hold(value):
                del self.plan.held[value]
                continue
            elements.hold(value, held)
            kind = f"Vec<{C_TYPES[value.dtype]}, {held.walk.width}>"
            lines += [f"// {value.label} is read once", f"{kind} {held.variable}{held.dims};", *held.walk.text(nest)]
        return lines

    def output_of(self, sink: SaveSink) -> tuple[str, TileAddress]:
        """Return the pointer to an output's tile."""
        saved, grid = sink.saved, self.plan.lowered.grid
        starts = []
        for dim, extent in enumerate(saved.tensor.shape):
            split = saved.operand.ragged[dim]
            cuts = list(split.parts) if split is not None else cuts_of(dim, saved.omap, None, grid, 1)
            starts.append(start_of(extent, cuts))
        address = TileAddress(tuple(starts), saved.tensor.strides)
        if sink.number not in self.outputs:
            outputs = [parameter for parameter in self.parameters if parameter.is_output]
            offset, name = address.offset(), outputs[sink.number].name
            self.outputs[sink.number] = name
            if offset:
                self.outputs[sink.number] = self.names.claim(f"{name}_tile")
                c_type = C_TYPES[saved.tensor.dtype]
                self.kernel_head.append(f"{c_type}* const {self.outputs[sink.number]} = {name} + {offset};")
        return self.outputs[sink.number], address

    def extent(self, split: RaggedSplit) -> str:
        """Return the name of a valid extent; one that the loop changes is defined in the loop."""
        if split not in self.extents:
            self.extents[split] = self.names.claim(f"{self.extent_stem(split)}_extent")
            head = self.loop_head if depends_on_loop(split) else self.kernel_head
            head.append(f"const int {self.extents[split]} = {valid_text(split)};")
        return self.extents[split]

    def extent_stem(self, split: RaggedSplit) -> str:
        """Return what a valid extent is called after: the first input that is cut so."""
        for value in (*self.plan.staged, *self.plan.direct):
            for axis, other in enumerate(value.ragged):
                if other == split:
                    return f"{value.name}_{axis}"
        return "tile"

    # -------------------------------------------------------------------------------------------------------- steps
    def step_lines(self, step: Step) -> list[str]:
        """Return a step's statements, the barrier before it included."""
        lines = ["block_barrier();"] if id(step) in self.plan.barriers else []
        if id(step) == self.arrival:
            pending = self.plan.stages - 1 if self.plan.has_ring and self.section is Section.BEFORE else 0
            lines.insert(0, f"cp_async_wait<{pending}>();")
        lines += [f"// {line}" for line in step_comment(self.plan, step)]
        for other in step.joined if isinstance(step, ProductStep) else []:
            lines += [f"// {line}" for line in step_comment(self.plan, other)]
        if not isinstance(step, ProductStep):
            return [*lines, *stage_lines(self.plan, self, step)]
        if step.kept is None:
            lines.append(zeroed(step.variable, step.layout.dims))
            lines += scale_start(step) if step.scale else shift_start(step) if step.shift else []
        c_type = step.c_type
        lines += product_lines(
            step,
            lambda stage, value, fragment: StageWriter(self.plan, self, stage).operand_text(value, c_type, fragment),
        )
        if step.kept is None:
            lines += unscaled_lines(step) if step.scale else unshifted_lines(step) if step.shift else []
        tile = self.plan.shared.get(step.value) if step.kept is None else None
        if tile is not None:
            lines += store_fragments(step.layout, step.variable, tile)
        return lines

    def section_lines(self, section: Section) -> list[str]:
        """Return the statements of a section."""
        self.section = section
        lines: list[str] = []
        for step in self.plan.steps[section]:
            if not (isinstance(step, ProductStep) and step.is_joined):
                lines += [*([""] if lines else []), *self.step_lines(step)]
        return lines

    # -------------------------------------------------------------------------------------------------------- loads
    def place(self, tile: SharedTile, copy: str = "") -> str:
        """Return C text of a tile's place in shared memory."""
        offset = f"memory + {tile.offset}" if tile.offset else "memory"
        return f"{offset} + {copy} * {tile.bytes_each}" if copy and tile.copies > 1 else offset

    def prologue(self) -> list[str]:
        """Return the statements that clear padding and start the copies."""
        plan, lines = self.plan, []
        zero = [tile for tile in plan.tiles if tile.needs_zero and tile.offset is not None]
        if zero:
            lines.append("// padding that tensor cores read is zero")
            lines += [f"zero_shared<{plan.threads}>({self.place(tile)}, {tile.nbytes});" for tile in zero]
            lines.append("block_barrier();")
        once = {value: tile for value, tile in plan.staged.items() if not tile.is_looped}
        for value, tile in once.items():
            lines.append(f"// {load_comment(value, tile, self.address(value))}")
            lines += self.copy(value, tile, STEP, self.place(tile))
        if once:
            lines.append("cp_async_commit();")
        if plan.has_ring:
            lines += self.ring_start()
        for tile in once.values():
            lines.append(tile.declaration(self.place(tile)))
        if self.arrival == TOP:
            lines += ["cp_async_wait<0>();", "block_barrier();"]
        return lines

    def copy(self, value: Loaded, tile: SharedTile, step: str, place: str) -> list[str]:
        """Return the statements that copy one tile."""
        pointer, threads = self.parameters[value.parameter].name, self.plan.threads
        return copy_lines(
            Copy(
                value=value, tile=tile, address=self.address(value), pointer=pointer, memory=place, step=step, threads=threads
            )
        )  # fmt: skip

    def ring_start(self) -> list[str]:
        """Return the definition of the copies of one iteration, and those of the first iterations."""
        plan, body = self.plan, list[str]()
        for value, tile in plan.staged.items():
            if tile.is_looped:
                body.append(f"// {load_comment(value, tile, self.address(value))}")
                body += self.copy(value, tile, "ahead", self.place(tile, "slot"))
        ahead = plan.stages - 1
        is_certain = plan.cluster == 1 and plan.iterations >= ahead
        call = "load(first + slot, slot);" if plan.cluster > 1 else "load(slot, slot);"
        start = [call if is_certain else f"if (first + slot < last) {call}", "cp_async_commit();"]
        return [
            "const auto load = [&](int ahead, int slot) {",
            *indented(body),
            "};",
            *loop(f"int slot = 0; slot < {ahead}; slot++", start, unroll=True),
        ]

    # ------------------------------------------------------------------------------------------------------ the loop
    def loop_lines(self) -> list[str]:
        """Return the loop over the iterations."""
        plan = self.plan
        body = self.section_lines(Section.LOOP)
        if not body:
            return []
        head: list[str] = []
        if plan.has_ring:
            ahead = plan.stages - 1
            number = "step - first" if plan.cluster > 1 else "step"
            fence = ["shared_to_warpgroup_fence();"] if has_warpgroups(plan) else []
            head += [f"cp_async_wait<{plan.stages - 2}>();", *fence, "block_barrier();"]
            slot = f"({number} + {ahead}) % {plan.stages}"
            head.append(f"if (step + {ahead} < last) load(step + {ahead}, {slot});")
            head.append("cp_async_commit();")
            head.append(f"const int slot = {f'({number})' if plan.cluster > 1 else number} % {plan.stages};")
            for tile in plan.staged.values():
                if tile.is_looped:
                    head.append(tile.declaration(self.place(tile, "slot")))
        head += self.loop_head
        return loop("int step = first; step < last; step++", [*head, *([""] if head else []), *body], unroll=False)

    def after_loop(self) -> list[str]:
        """Return what ends the loop: accumulators brought to where they are read, and the meeting of the cluster."""
        plan, lines = self.plan, list[str]()
        for step in plan.finishes:
            maker = plan.makers[step.value]
            if isinstance(maker, ProductStep):
                lines += unscaled_lines(maker) if maker.scale else unshifted_lines(maker) if maker.shift else []
                lines += finish_product(plan, maker)
            else:
                lines += finish_stage(StageWriter(plan, self, maker), step.value)
        if lines and FINISH in plan.barriers:
            lines.insert(0, "block_barrier();")
        tiles = combined_tiles(plan)
        if tiles:
            lines += ["block_barrier();"] if COMBINE in plan.barriers else []
            for tile in tiles:
                is_max = ", true" if tile.folding == "max" else ""
                lines.append(
                    f"combine_slices<{plan.threads}, {tile.slices}, {tile.slice_rows}, {tile.columns}, {tile.stride}{is_max}>"
                    f"({tile.variable}.base);"
                )
        if any(tile.cluster > 1 for tile in plan.shared.values()):
            lines.append("cluster_barrier();")
        return lines

    # ------------------------------------------------------------------------------------------------------ assembly
    def tile_declarations(self) -> list[str]:
        """Return the definitions of the tiles that are no inputs."""
        staged = set(self.plan.staged.values())
        tiles = {tile: None for tile in (*self.plan.tiles, *self.plan.shared.values()) if tile not in staged}
        return [tile.declaration(self.place(tile)) for tile in tiles if tile.offset is not None]

    def coordinates(self) -> list[str]:
        """Return the definitions of all coordinates, of which a body need not use any."""
        plan = self.plan
        cluster = plan.cluster
        last = str(plan.iterations)
        if cluster > 1:
            last = f"first + {plan.iterations_each}"
            last = last if plan.iterations % cluster == 0 else f"lesser({plan.iterations}, {last})"
        defined = [
            ("thread", "thread_index()"),
            ("warp", "warp_index()"),
            ("lane", "lane_index()"),
            ("bx", f"(int)blockIdx.x / {cluster}" if cluster > 1 else "(int)blockIdx.x"),
            ("by", "(int)blockIdx.y"),
            ("bz", "(int)blockIdx.z"),
            ("rank", "(int)cluster_rank()"),
            ("worker", f"thread + {'bx' if plan.spread > 1 else 'rank'} * {plan.threads}"),
            ("first", f"rank * {plan.iterations_each}" if cluster > 1 else "0"),
            ("last", last),
        ]
        return [f"const int {name} = {value};" for name, value in defined]

    def body(self) -> str:
        """Return the kernel's text."""
        plan = self.plan
        held = self.held_lines()
        before = self.section_lines(Section.BEFORE)
        looped = self.loop_lines()
        finish = self.after_loop()
        after = self.section_lines(Section.AFTER)
        declared = self.tile_declarations()
        kept: list[str] = []
        for step in plan.products.values():
            if step.held_left:
                kept.append(held_declaration(step))
            if step.kept is not None:
                kept.append(zeroed(step.variable, step.layout.dims))
                kept += scale_start(step) if step.scale else shift_start(step) if step.shift else []
        states = state_lines(plan)
        parts = [self.kernel_head, declared, held, self.prologue(), before, [*kept, *states], looped, finish, after]
        lines: list[str] = []
        for part in parts:
            if part:
                lines += [*([""] if lines else []), *part]
        if any(tile.cluster > 1 for tile in plan.shared.values()):
            lines += ["cluster_barrier();  // no block ends while others read its shared memory"]
        used = without_unused([*self.coordinates(), "", *lines])
        head, lines = used[: used.index("")], used[used.index("") + 1 :]
        if plan.schedule.releases == "start":
            head.append("grid_dependency_launch();")
        elif plan.schedule.releases:
            lines.append("grid_dependency_launch();")
        if plan.schedule.programmatic:
            head.append("grid_dependency_wait();")
        memory = ["WB_DYNAMIC_SHARED(memory);"] if plan.shared_bytes else []
        cluster = f" WB_CLUSTER({plan.cluster}, 1, 1)" if plan.cluster > 1 else ""
        restrict = "" if plan.schedule.programmatic else " __restrict__"  # it would allow reads before the wait
        arguments = ", ".join(self.parameter_text(parameter, restrict) for parameter in self.parameters)
        bounds = f"__launch_bounds__({plan.threads}, {resident_blocks(plan)})"
        signature = f'extern "C" __global__ void {bounds}{cluster}\n    {self.name}({arguments}) {{'
        comments = "\n".join(f"// {line}" for line in plan_notes(plan))
        return f"{comments}\n{signature}\n" + "\n".join(indented([*memory, *head, "", *lines])).rstrip() + "\n}\n"

    @staticmethod
    def parameter_text(parameter: KernelParameter, restrict: str = " __restrict__") -> str:
        """Return the declaration of a parameter."""
        const = "" if parameter.is_output else "const "
        return f"{const}{C_TYPES[parameter.dtype]}*{restrict} {parameter.name}"


def lower_with_parameters(
    node: GraphDefinedNode, names: CNames, *, fuses: bool = True
) -> tuple[LoweredBlock, tuple[KernelParameter, ...]]:
    """Return the block graph lowered, and the kernel's parameters: operands, then results."""
    inputs = [KernelParameter(name=names.claim(t.name), tensor=t, is_output=False) for t in node.block.operands]
    outputs = [KernelParameter(name=names.claim(t.name), tensor=t, is_output=True) for t in node.results]
    return lower_block(node.block, node.results, names, fuses=fuses), (*inputs, *outputs)


def resident_blocks(plan: KernelPlan) -> int:
    """Return how many blocks a multiprocessor should hold: what shared memory, the grid and the accumulators allow.

    Without it the compiler spills registers for an occupancy that nobody needs.
    """
    by_memory = (SHARED_LIMIT + 1024) // (plan.shared_bytes + 1024)  # each block takes 1 KB more
    by_grid = -(-prod(plan.lowered.grid) * plan.cluster * plan.spread // MULTIPROCESSORS)
    held = sum(step.layout.accumulators * (2 if step.scale else 1) for step in plan.products.values())
    beside = 60 if has_warpgroups(plan) else 128  # addresses and fragments, of which warpgroups need few
    by_registers = 65536 // (plan.threads * min(beside + held, 255))
    return max(1, min(by_memory, by_grid, by_registers))


def settled_fast_math(schedule: Schedule, parameters: tuple[KernelParameter, ...]) -> bool:
    """Return whether approximate instructions are used: as the schedule says, else by the types."""
    if schedule.fast_math is not None:
        return schedule.fast_math
    inputs, outputs = ([p.tensor for p in parameters if p.is_output is is_output] for is_output in (False, True))
    return has_narrow_side(inputs, outputs)


def has_narrow_side(inputs: Sequence[DeviceTensor], outputs: Sequence[DeviceTensor]) -> bool:
    """Return True where all inputs or all outputs have 16 bits, which then limit what a result is worth."""
    return any(side and all(tensor.dtype is not DType.FLOAT32 for tensor in side) for side in (inputs, outputs))


def settle_threads(node: GraphDefinedNode, schedule: Schedule) -> list[int]:
    """Return the thread counts to try: the schedule's, else the block graph's, doubled while registers do not suffice."""
    if schedule.threads is not None:
        return [schedule.threads]
    asked = -(-prod(node.block.block_dims) // WARP) * WARP
    return [asked, *(asked << n for n in (1, 2, 3) if asked << n <= MAX_THREADS)]


def emit_block(
    node: GraphDefinedNode, *, name: str | None = None, schedule: Schedule = DEFAULT_SCHEDULE
) -> KernelSource:
    """Return a block graph as a kernel.

    node: its block graph and results; name: the kernel's C name (the node's by default); schedule: choices that do not
    change the meaning. Raises: EmitError.
    """
    refusal: EmitError | None = None
    for threads in settle_threads(node, schedule):
        try:
            return emit_with_threads(node, name or node.name or "kernel", schedule, threads)
        except EmitError as error:
            refusal = refusal or error
            if "accumulators a thread" not in error.rule:
                break
    assert refusal is not None
    raise refusal


def emit_with_threads(node: GraphDefinedNode, name: str, schedule: Schedule, threads: int) -> KernelSource:
    """Return a kernel of a certain number of threads. Raises: EmitError."""
    block, names = node.block, CNames()
    kernel_name = names.claim(name)
    lowered, parameters = lower_with_parameters(node, names, fuses=schedule.choices.fuses)
    cluster = schedule.cluster or prod(block.cluster_dims)
    if cluster > block.forloop_range:
        raise EmitError(
            f"{cluster} blocks of a cluster share {block.forloop_range} iterations", name, "use a smaller cluster"
        )
    plan = make_plan(lowered, schedule, names, threads, cluster)
    allocate(plan)
    derive_barriers(plan)
    fast = settled_fast_math(schedule, parameters)
    mark_exponentials(plan, fast=fast)
    join_products(plan, arrival(plan))
    hold_left(plan)
    choose_warpgroups(plan)
    body = KernelWriter(plan, kernel_name, parameters, fast).body()
    grid = (block.grid_dims[0] * cluster, block.grid_dims[1], block.grid_dims[2])
    try:
        launch = LaunchShape(
            kernel=kernel_name, grid=grid, threads=threads, cluster=(cluster, 1, 1), shared_bytes=plan.shared_bytes
        )
    except LaunchShapeError as error:
        raise EmitError(str(error), name, "choose other grid dimensions") from error
    settled = Schedule(
        threads=threads,
        stages=plan.stages if plan.has_ring else None,
        cluster=cluster,
        layouts=schedule.layouts,
        shared_limit=schedule.shared_limit,
        fast_math=fast,
        programmatic=bool(schedule.programmatic),
        releases=schedule.releases,
        choices=schedule.choices,
    )
    return KernelSource(
        name=kernel_name, body=body, launch=launch, parameters=parameters, schedule=settled,
        notes=tuple(plan_notes(plan)), products=len(plan.products),
    )  # fmt: skip
