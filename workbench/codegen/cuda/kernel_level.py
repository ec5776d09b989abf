"""A whole kernel graph as steps: kernels in order, the library's products, and the buffers between them.

    emit_program(graph: KernelGraph, *, schedules: Mapping[str, Schedule] = {}, library: bool = True) -> EmittedProgram

Graph-defined operators become one kernel each; predefined ones share kernels (`ugraph/kernel_units.py`), products go to the
library or, with library=False or where it does not take them, to a kernel of our own. `schedules` is keyed by the name of
a kernel's first result. Raises `EmitError` for what is not claimed.

Invariant: running the steps in order on buffers that live as stated gives the graph's outputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from workbench.codegen.cuda.emitted import (
    Buffer,
    EmittedProgram,
    KernelLaunch,
    KernelParameter,
    KernelSource,
    LibraryMatmul,
    ProgramStep,
)
from workbench.codegen.cuda.flat_kernel import flat_kernel, flat_source
from workbench.codegen.cuda.kernel import emit_block, has_narrow_side
from workbench.codegen.cuda.library_matmul import plan_matmul
from workbench.codegen.cuda.schedule import DEFAULT_SCHEDULE, Schedule
from workbench.core.dtypes import DType
from workbench.core.tensors import DeviceTensor
from workbench.errors import EmitError
from workbench.optimize.memory import Lifetime, plan_memory, without_reuse
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.kernel_units import Grouping, Unit, UnitKind
from workbench.ugraph.nodes import GraphDefinedNode, OpNode
from workbench.ugraph.rule_blocks import product_block, rows_block

WORKSPACE_ALIGNMENT = 256
NO_SCHEDULES: Mapping[str, Schedule] = MappingProxyType({})


class ProgramEmitter:
    """Emits one kernel graph, unit by unit."""

    def __init__(
        self, graph: KernelGraph, schedules: Mapping[str, Schedule], *, library: bool, reuse: bool = True
    ) -> None:
        self.graph, self.schedules, self.library, self.reuse = graph, schedules, library, reuse
        self.grouping = Grouping(graph)
        self.taken: set[str] = set()
        self.copied: dict[str, str] = {}
        self.steps: list[ProgramStep] = []
        outputs = [graph.tensors[name] for name in graph.output_names]
        self.is_narrow = has_narrow_side(graph.inputs, outputs)  # intermediates limit nothing

    def run(self) -> EmittedProgram:
        """Return the program."""
        for tensor in self.graph.inputs:  # an input that nothing reads is an array of the launch all the same
            if tensor.dtype is DType.FLOAT64:
                raise EmitError("float64 is not claimed", tensor.name, "use float32, or a 16-bit type")
        units = list(self.grouping.run())
        for number, unit in enumerate(units):
            follower = units[number + 1] if number + 1 < len(units) else None
            self.steps.append(self.step(unit, follower))
        outputs = [self.output(name) for name in self.graph.output_names]
        buffers, total = place_buffers(self.graph, self.steps, outputs, reuse=self.reuse)
        return EmittedProgram(
            name=self.graph.name,
            steps=tuple(self.steps),
            buffers=buffers,
            inputs=tuple(tensor.name for tensor in self.graph.inputs),
            outputs=tuple(outputs),
            workspace_bytes=total,
        )

    def output(self, name: str) -> str:
        """Return the buffer of an output; an input that is one is copied."""
        tensor = next((tensor for tensor in self.graph.inputs if tensor.name == name), None)
        if tensor is None:
            return name
        if name in self.copied:
            return self.copied[name]
        copy = replace(tensor, name=self.fresh(f"{name}_copy"))
        node = OpNode("broadcast", (name,), (copy,), (("shape", tensor.shape),))
        kernel = flat_source([node], [tensor], [copy], {}, self.kernel_name("copy"), DEFAULT_SCHEDULE)
        self.steps.append(KernelLaunch(kernel, (name, copy.name)))
        self.copied[name] = copy.name
        return copy.name

    def fresh(self, name: str) -> str:
        """Return a buffer name that no tensor of the graph bears."""
        found, count = name, 2
        while found in self.graph.tensors:
            found, count = f"{name}_{count}", count + 1
        return found

    def kernel_name(self, name: str) -> str:
        """Return a kernel name that no kernel of the program bears."""
        found, count = name or "kernel", 2
        while found in self.taken:
            found, count = f"{name}_{count}", count + 1
        self.taken.add(found)
        return found

    @staticmethod
    def is_kernel(unit: Unit) -> bool:
        """Return True for a unit that becomes one kernel of ours whatever else is asked for."""
        return unit.kind is not UnitKind.PRODUCT

    def released(self, follower: Unit | None) -> str:
        """Return when a unit's blocks let the next unit start.

        Blocks that wait lie where there is room, not evenly: a kernel with a loop gets room only when others end.
        """
        if follower is None or not self.is_kernel(follower):
            return ""
        first = follower.nodes[0]
        has_loop = isinstance(first, GraphDefinedNode) and first.block.forloop_range > 1
        return "end" if has_loop else "start"

    def step(self, unit: Unit, follower: Unit | None) -> ProgramStep:
        """Return the step of a unit; follower: the next one.

        A kernel behind another of ours is launched while that one still runs and waits for its end, which hides its start.
        """
        inputs, results = self.grouping.inputs(unit), self.grouping.results(unit)
        schedule = self.schedules.get(results[0], DEFAULT_SCHEDULE)
        if schedule.programmatic is None:
            is_behind = bool(self.steps) and isinstance(self.steps[-1], KernelLaunch) and self.is_kernel(unit)
            schedule = replace(schedule, programmatic=is_behind)
        schedule = replace(schedule, releases=schedule.releases or self.released(follower))
        if schedule.fast_math is None:
            schedule = replace(schedule, fast_math=self.is_narrow)
        tensors, constants = self.graph.tensors, self.grouping.constants
        first = unit.nodes[0]
        match unit.kind:
            case UnitKind.BLOCK:
                assert isinstance(first, GraphDefinedNode)
                return self.launch(first, first.name or results[0], schedule)
            case UnitKind.PRODUCT:
                assert isinstance(first, OpNode)
                return self.product(first, schedule)
            case UnitKind.ROWS:
                node = rows_block(unit, tensors, inputs, results, constants)
                return self.launch(node, unit_name(unit, results[0]), schedule)
            case UnitKind.FLAT:
                name = self.kernel_name(unit_name(unit, results[0]))
                kernel = flat_kernel(unit, tensors, inputs, results, constants, name, schedule)
                return self.launched(kernel, (*inputs, *results))

    def launch(self, node: GraphDefinedNode, name: str, schedule: Schedule) -> KernelLaunch:
        """Return the launch of a block graph's kernel."""
        kernel = emit_block(node, name=self.kernel_name(name), schedule=schedule)
        return self.launched(kernel, (*node.operands, *(tensor.name for tensor in node.results)))

    def launched(self, kernel: KernelSource, tensors: Sequence[str]) -> KernelLaunch:
        """Return the launch of a kernel on the memory of these tensors."""
        return KernelLaunch(kernel, tuple(self.grouping.home(name) for name in tensors))

    def product(self, node: OpNode, schedule: Schedule) -> ProgramStep:
        """Return a product: the library's where it takes the types and strides, else a kernel."""
        left, right, result = (self.graph.tensors[name] for name in (*node.operands, node.results[0].name))
        if self.library:
            try:
                plan_matmul(left, right, result)
            except EmitError:
                pass  # a kernel of our own takes any strides and mixed types
            else:
                return LibraryMatmul(left.name, right.name, result.name)
        launch = self.launch(product_block(node, self.graph.tensors), f"matmul_{result.name}", schedule)
        return replace(launch, kernel=with_tensors(launch.kernel, (left, right, result)))


def unit_name(unit: Unit, result: str) -> str:
    """Return a name for a kernel of predefined operators: the first few, and what they make."""
    return "_".join([*(node.op for node in unit.operators[:3]), result])


def with_tensors(kernel: KernelSource, tensors: tuple[DeviceTensor, ...]) -> KernelSource:
    """Return a kernel whose parameters are stated with these tensors (the same memory under other shapes)."""
    parameters = tuple(
        KernelParameter(name=parameter.name, tensor=tensor, is_output=parameter.is_output)
        for parameter, tensor in zip(kernel.parameters, tensors, strict=True)
    )
    return replace(kernel, parameters=parameters)


# -------------------------------------------------------------------------------------------------------------- buffers
def step_tensors(step: ProgramStep) -> tuple[list[str], list[str]]:
    """Return the buffers that a step reads and writes."""
    if isinstance(step, LibraryMatmul):
        return [step.left, step.right], [step.result]
    pairs = list(zip(step.kernel.parameters, step.arguments, strict=True))
    return [n for p, n in pairs if not p.is_output], [n for p, n in pairs if p.is_output]


def buffer_bytes(tensor: DeviceTensor) -> int:
    """Return the bytes between a tensor's first and last element, both counted."""
    reach = sum((extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.strides, strict=True))
    return (reach + 1) * tensor.dtype.nbytes


def place_buffers(
    graph: KernelGraph, steps: list[ProgramStep], outputs: list[str], *, reuse: bool = True
) -> tuple[tuple[Buffer, ...], int]:
    """Return every buffer, intermediates placed by their lifetimes in the least memory, and the bytes of the workspace."""
    known = dict(graph.tensors)
    for step in steps:
        if isinstance(step, KernelLaunch):
            for parameter, name in zip(step.kernel.parameters, step.arguments, strict=True):
                known.setdefault(name, replace(parameter.tensor, name=name))
    uses: dict[str, list[int]] = {}
    for number, step in enumerate(steps):
        for name in (*step_tensors(step)[0], *step_tensors(step)[1]):
            uses.setdefault(name, []).append(number)
    inputs = [tensor.name for tensor in graph.inputs]
    names = list(dict.fromkeys([*inputs, *uses, *outputs]))
    between = [name for name in names if name not in inputs and name not in outputs]
    lifetimes = [Lifetime(name, buffer_bytes(known[name]), uses[name][0], uses[name][-1]) for name in between]
    planned = (plan_memory if reuse else without_reuse)(lifetimes, alignment=WORKSPACE_ALIGNMENT)
    offsets = dict(zip(between, planned.offsets, strict=True))
    buffers = []
    for name in names:
        span = uses.get(name, [0])
        role = "input" if name in inputs else "output" if name in outputs else "intermediate"
        buffers.append(Buffer(name, known[name], role, span[0], span[-1], offsets.get(name)))
    return tuple(buffers), planned.total


def emit_program(
    graph: KernelGraph,
    *,
    schedules: Mapping[str, Schedule] = NO_SCHEDULES,
    library: bool = True,
    reuse: bool = True,
) -> EmittedProgram:
    """Return a kernel graph as steps over buffers.

    schedules: by the name of a kernel's first result; library: products of predefined operators by the vendor's library;
    reuse: intermediates that are not needed at the same time share their place. Raises: EmitError.
    """
    return ProgramEmitter(graph, schedules, library=library, reuse=reuse).run()
