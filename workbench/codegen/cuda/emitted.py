"""What the emitter hands over: kernels as text with all that a launch needs, and whole programs as ordered steps.

The two doors (`kernel.py`, `kernel_level.py`):

    emit_block(node: GraphDefinedNode, *, name: str | None = None, schedule: Schedule = DEFAULT_SCHEDULE) -> KernelSource
    emit_program(graph: KernelGraph, *, schedules: Mapping[str, Schedule] = {}, library: bool = True) -> EmittedProgram

`schedules` is keyed by the name of the first result of a graph-defined operator; `library=False` writes every product
as a kernel of our own. Both raise `EmitError` (node, rule, cure) for what is not claimed, before anything is compiled.

Invariant: an argument of a launch is named, so that whoever runs a program (host, device, export) needs no order but the
steps' own; every intermediate buffer says from which to which step it lives.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from workbench.codegen.cuda.header import kernel_source
from workbench.codegen.cuda.launch_shape import LaunchShape
from workbench.codegen.cuda.schedule import Schedule
from workbench.core.dtypes import DType
from workbench.core.tensors import DeviceTensor

C_TYPES = {DType.FLOAT16: "f16", DType.BFLOAT16: "bf16", DType.FLOAT32: "float"}
"""The element types that kernels read and write, as the device header calls them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelParameter:
    """One pointer that a kernel takes: its C name, and shape, type and strides of the array behind it."""

    name: str
    tensor: DeviceTensor
    is_output: bool

    @property
    def dtype(self) -> DType:
        """Element type."""
        return self.tensor.dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSource:
    """One kernel: text, launch, parameters in order (inputs, then outputs), and what was decided about it.

    Attributes:
        name: the kernel's C name. body: its text without the device header.
        schedule: the schedule with every choice settled. notes: the plan, one readable line each.
        products: number of matrix products that run on tensor cores.
    """

    name: str
    body: str = field(repr=False)
    launch: LaunchShape
    parameters: tuple[KernelParameter, ...]
    schedule: Schedule
    notes: tuple[str, ...]
    products: int

    @property
    def source(self) -> str:
        """The self-contained text for NVRTC, nvcc and the host."""
        return kernel_source(self.body)

    @property
    def inputs(self) -> tuple[KernelParameter, ...]:
        """Parameters that are read, in order."""
        return tuple(parameter for parameter in self.parameters if not parameter.is_output)

    @property
    def outputs(self) -> tuple[KernelParameter, ...]:
        """Parameters that are written, in order."""
        return tuple(parameter for parameter in self.parameters if parameter.is_output)


@dataclass(frozen=True, slots=True)
class KernelLaunch:
    """Run a kernel; `arguments`: a buffer name for each of its parameters, in order."""

    kernel: KernelSource
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LibraryMatmul:
    """result = left @ right by the vendor's library, leading axes broadcast, float32 accumulation; buffer names."""

    left: str
    right: str
    result: str


ProgramStep = KernelLaunch | LibraryMatmul


@dataclass(frozen=True, slots=True)
class Buffer:
    """An array in device memory.

    Attributes: name; tensor: shape, type, strides; role: "input", "output" or "intermediate"; first, last: steps between
    which an intermediate holds its value (written by `first`, last read by `last`); offset: its place in the workspace,
    in bytes, None for inputs and outputs.
    """

    name: str
    tensor: DeviceTensor
    role: str
    first: int
    last: int
    offset: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EmittedProgram:
    """A program as steps in order over named buffers.

    Attributes: inputs, outputs: buffer names in the program's order (an output that is an input is copied); buffers: all
    of them; workspace_bytes: one allocation that holds every intermediate at its offset (256-byte aligned).
    """

    name: str
    steps: tuple[ProgramStep, ...]
    buffers: tuple[Buffer, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    workspace_bytes: int

    def buffer(self, name: str) -> Buffer:
        """Return the buffer of this name; KeyError is a fault of ours."""
        return {buffer.name: buffer for buffer in self.buffers}[name]

    @property
    def kernels(self) -> tuple[KernelSource, ...]:
        """The kernels in order of launch."""
        return tuple(step.kernel for step in self.steps if isinstance(step, KernelLaunch))

    @property
    def library_calls(self) -> tuple[LibraryMatmul, ...]:
        """The library's products in order."""
        return tuple(step for step in self.steps if isinstance(step, LibraryMatmul))
