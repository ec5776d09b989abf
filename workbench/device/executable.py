"""From a kernel graph to something that is called with arrays: `wb.compile`.

Invariant: compiling needs no GPU; a call launches on the caller's stream, checks every argument first, and allocates
nothing after the first call but outputs that were neither given nor asked to be kept.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from workbench.codegen.cuda.emitted import EmittedProgram, LibraryMatmul
from workbench.codegen.cuda.export import export_program
from workbench.codegen.cuda.kernel_level import emit_program
from workbench.codegen.cuda.launch_shape import LaunchShape
from workbench.codegen.cuda.schedule import DEFAULT_SCHEDULE, Schedule
from workbench.core.tensors import DeviceTensor
from workbench.device.architecture import Architecture, architecture
from workbench.device.array_kinds import ArrayKind, kind_of, new_array, stored_type
from workbench.device.array_view import view_array
from workbench.device.compile import CompiledKernel, CompileRequest
from workbench.device.compile_many import compile_many
from workbench.device.device_program import DeviceProgram, span_bytes
from workbench.device.host_copies import HostCopy, as_stored
from workbench.device.launch import ArrayParameter, check_array, load_cupy, stream_pointer
from workbench.device.nvrtc import load_nvrtc
from workbench.device.streams import existing_stream
from workbench.errors import KernelCompileError, LaunchError
from workbench.ugraph.kernel_graph import KernelGraph, expect_kernel_graph
from workbench.units import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileOptions:
    """How kernels are compiled: compiler "nvrtc" or "nvcc", more flags, threads at most, where cubins are kept."""

    compiler: str = "nvrtc"
    flags: tuple[str, ...] = ()
    workers: int | None = None
    cache_folder: Path | None = None


DEFAULT_OPTIONS = CompileOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelReport:
    """A compiled kernel: its text and launch, and what it needs.

    Attributes: compile_s: seconds the compiler took when it ran; is_cached: it did not run now; registers a thread;
    spills: bytes a thread; shared_bytes: static and dynamic shared memory of a block.
    """

    name: str
    source: str
    arch: str
    launch: LaunchShape
    compile_s: float
    is_cached: bool
    registers: int
    spills: int
    shared_bytes: int
    cubin: Path


def for_architecture(
    graph: KernelGraph, schedules: Mapping[str, Schedule], target: Architecture
) -> dict[str, Schedule]:
    """Return a schedule per kernel node that keeps to what the architecture has: shared memory, no clusters before sm_90."""
    kept = dict(schedules)
    for node in graph.nodes:
        name = node.results[0].name
        given = kept.get(name, DEFAULT_SCHEDULE)
        fitted = replace(given, shared_limit=min(given.shared_limit, target.shared_limit))
        if not target.has_clusters:
            fitted = replace(fitted, cluster=1, programmatic=False)
        if fitted != given:
            kept[name] = fitted
    return kept


def compile(
    graph: KernelGraph,
    device: str = "h200",
    *,
    schedules: Mapping[str, Schedule] | None = None,
    library: bool = True,
    options: CompileOptions = DEFAULT_OPTIONS,
) -> Executable:
    """Return a kernel graph compiled for a device ("h200", "a100", "sm_90a", ...), to be called with arrays.

    schedules: by the name of a node's first result; library: products of the kernel level by cuBLAS, else by kernels of
    our own. No GPU is needed until the first call.
    Raises: UnknownNameError; EmitError for what the emitter does not claim; KernelCompileError.
    """
    expect_kernel_graph(graph, "compiled")
    target = architecture(device)
    chosen = for_architecture(graph, schedules or {}, target)
    program = emit_program(graph, schedules=chosen, library=library)
    return compile_program(program, graph, target.name, options)


@cache
def start_nvrtc() -> None:
    """Let NVRTC load what it loads at its first compilation: when two threads are the first, one of them fails (13.0)."""
    load_nvrtc().compile("", ["-arch=compute_80"], "ptx")


def compile_program(
    program: EmittedProgram, graph: KernelGraph, arch: str, options: CompileOptions = DEFAULT_OPTIONS
) -> Executable:
    """Return an emitted program compiled for an architecture; `graph` is what it computes. Raises: KernelCompileError."""
    kernels = {kernel.name: kernel for kernel in program.kernels}
    requests = [
        CompileRequest(source=kernel.source, arch=arch, flags=options.flags, compiler=options.compiler)
        for kernel in kernels.values()
    ]
    if len(requests) > 1 and options.compiler == "nvrtc":
        start_nvrtc()
    # NVRTC runs without the interpreter's lock, so threads do; a process for each kernel starts slower than it compiles
    with ThreadPoolExecutor(options.workers or os.cpu_count() or 1) as executor:
        results = compile_many(requests, executor=executor, cache_folder=options.cache_folder)
    compiled: dict[str, CompiledKernel] = {}
    for name, result in zip(kernels, results, strict=True):
        if isinstance(result, KernelCompileError):
            result.add_note(f"in kernel {name} of program {program.name}")
            raise result
        compiled[name] = result
    return Executable(graph, program, compiled, arch)


class Executable:
    """A program that is called with one array per input, in order, and returns its output (several: a tuple).

    Arrays of torch, CuPy and others (DLPack) are used where they lie, outputs are of the first input's kind. NumPy arrays
    are copied to buffers that are kept, and the call waits for the result. bfloat16 is torch.bfloat16, or its bits as
    uint16. A call is asynchronous otherwise, goes to the caller's current stream, and can be captured in a CUDA graph
    once it has been called before, with `out` or `reuse=True`; calls share one workspace, so a captured graph is not
    replayed beside other calls of the same executable on another stream.
    """

    def __init__(
        self, graph: KernelGraph, program: EmittedProgram, compiled: Mapping[str, CompiledKernel], arch: str
    ) -> None:
        """Keep what was compiled; nothing is loaded yet."""
        self.graph, self.program, self.arch = graph, program, arch
        self.compiled = dict(compiled)
        self._loaded: DeviceProgram | None = None
        self._host: list[HostCopy] = []
        self._kept: dict[ArrayKind, list[Any]] = {}

    # ------------------------------------------------------------------------------------------------ what was compiled
    @property
    def inputs(self) -> tuple[DeviceTensor, ...]:
        """The inputs' tensors in order."""
        return tuple(self.program.buffer(name).tensor for name in self.program.inputs)

    @property
    def outputs(self) -> tuple[DeviceTensor, ...]:
        """The outputs' tensors in order."""
        return tuple(self.program.buffer(name).tensor for name in self.program.outputs)

    @property
    def kernels(self) -> tuple[KernelReport, ...]:
        """The kernels in order of launch, with what each needs."""
        reports = []
        for kernel in self.program.kernels:
            compiled = self.compiled[kernel.name]
            usage = compiled.usage(kernel.launch.kernel)
            reports.append(
                KernelReport(
                    name=kernel.name, source=kernel.source, arch=compiled.arch, launch=kernel.launch,
                    compile_s=compiled.compile_s, is_cached=compiled.is_cached, registers=usage.registers,
                    spills=usage.spill_bytes, shared_bytes=usage.shared_bytes + kernel.launch.shared_bytes,
                    cubin=compiled.path,
                )
            )  # fmt: skip
        return tuple(reports)

    @property
    def library_calls(self) -> tuple[LibraryMatmul, ...]:
        """The products that cuBLAS computes, in order."""
        return self.program.library_calls

    def describe(self) -> str:
        """Return one line for each step: launch and needs of a kernel, operands of a product."""
        reports = {report.name: report for report in self.kernels}
        lines = [
            f"{self.program.name or 'program'} for {self.arch}: {self.program.workspace_bytes:,} B of intermediates"
        ]
        for step in self.program.steps:
            if isinstance(step, LibraryMatmul):
                lines.append(f"  cuBLAS: {step.result} = {step.left} @ {step.right}")
                continue
            report = reports[step.kernel.name]
            grid = "x".join(str(count) for count in report.launch.grid)
            lines.append(
                f"  {report.name}: {grid} blocks of {report.launch.threads} threads, {report.registers} registers, "
                f"{report.shared_bytes:,} B shared, {report.spills} B spilled"
            )
        return "\n".join(lines)

    def __repr__(self) -> str:
        shapes = ", ".join(f"{tensor.name}{list(tensor.shape)}" for tensor in self.inputs)
        return (
            f"<Executable {self.program.name or 'unnamed'}({shapes}) for {self.arch}, "
            f"{counted(len(self.program.steps), 'step')}>"
        )

    # ------------------------------------------------------------------------------------------------------------- calls
    def load(self) -> DeviceProgram:
        """Return the program on the current device, loaded at the first call. Raises: LaunchError."""
        if self._loaded is None:
            self._loaded = DeviceProgram(self.program, self.compiled)
        return self._loaded

    def __call__(self, *arrays: Any, out: Any = None, reuse: bool = False, stream: Any = None) -> Any:
        """Run on arrays; see the class.

        out: an array, or one per output in a sequence, to be written and returned; reuse: return arrays that are kept and
        that the next such call overwrites; stream: None for the caller's current one.
        Raises: LaunchError that names the argument which does not fit.
        """
        program, kind = self._start(arrays)
        outputs = self._outputs(kind, out, reuse=reuse)
        pointer = stream_pointer(stream, [*arrays, *outputs], load_cupy())
        if kind.is_on_host:
            self._run_on_host_arrays(program, arrays, outputs, pointer)
        else:
            self._bind(program, arrays, outputs)(pointer)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def prepare(self, *arrays: Any, out: Any, stream: Any = None) -> Callable[[], None]:
        """Check arrays on the device once and return a function that runs on them; they must stay alive.

        Raises: LaunchError as a call does, and for NumPy arrays, which a call copies.
        """
        program, kind = self._start(arrays)
        if kind.is_on_host:
            raise LaunchError("prepare takes arrays on the device; NumPy arrays are copied by a call")
        outputs = self._outputs(kind, out, reuse=False)
        pointer = stream_pointer(stream, [*arrays, *outputs], load_cupy())
        action = self._bind(program, arrays, outputs)
        return lambda: action(pointer)

    def export(self, folder: str | os.PathLike[str], *, certificate: Mapping[str, object] | None = None) -> list[Path]:
        """Write kernel, launchers and description into a folder and return the files; they run without the workbench.

        certificate: what is known of the program's correctness, kept in the description. Raises: OSError, EmitError.
        """
        resources = {report.name: report for report in self.kernels}
        needs: dict[str, dict[str, object]] = {
            name: {"registers": report.registers, "spills": report.spills, "shared_bytes": report.shared_bytes}
            for name, report in resources.items()
        }
        return export_program(
            self.program, self.graph, Path(folder), arch=self.arch, needs=needs, certificate=certificate
        )

    # --------------------------------------------------------------------------------------------------------- arguments
    def _start(self, arrays: Sequence[Any]) -> tuple[DeviceProgram, ArrayKind]:
        """Return the loaded program and the kind of the arrays. Raises: LaunchError."""
        if len(arrays) != len(self.program.inputs):
            names = ", ".join(self.program.inputs)
            raise LaunchError(f"{self._name} takes {len(self.program.inputs)} inputs ({names}), got {len(arrays)}")
        program = self.load()
        kinds = [kind_of(array) for array in arrays]
        kind = kinds[0] if kinds else ArrayKind.CUPY
        for position, other in enumerate(kinds):
            if other.is_on_host is not kind.is_on_host:
                raise LaunchError(
                    f"{self._where(position)} is an array of {other.value}, input 0 ({self.program.inputs[0]}) one of "
                    f"{kind.value}; give all inputs as NumPy arrays, or all on the device"
                )
        return program, kind

    @property
    def _name(self) -> str:
        return self.program.name or "the program"

    def _where(self, position: int) -> str:
        return f"{self._name}: input {position} ({self.program.inputs[position]})"

    def _outputs(self, kind: ArrayKind, out: Any, *, reuse: bool) -> list[Any]:
        """Return the arrays to be written: those given, those kept, or new ones."""
        if out is not None:
            given = list(out) if isinstance(out, tuple | list) else [out]
            if len(given) != len(self.outputs):
                raise LaunchError(f"{self._name} has {len(self.outputs)} outputs, `out` gives {len(given)}")
            for position, array in enumerate(given):
                if kind_of(array).is_on_host is not kind.is_on_host:
                    raise LaunchError(
                        f"{self._name}: output {position} ({self.program.outputs[position]}) is an array of "
                        f"{kind_of(array).value}, the inputs are of {kind.value}; give all on one side"
                    )
            return given
        if reuse and kind in self._kept:
            return self._kept[kind]
        device, cupy = self.load().device, load_cupy()
        made = [new_array(kind, tensor, device, cupy) for tensor in self.outputs]
        if reuse:
            self._kept[kind] = made
        return made

    def _bind(self, program: DeviceProgram, arrays: Sequence[Any], outputs: Sequence[Any]) -> Callable[[int], None]:
        """Check arrays on the device and return what runs on them. Raises: LaunchError."""
        spans: list[tuple[int, int, str]] = []
        pointers = []
        for position, (array, tensor) in enumerate(zip(arrays, self.inputs, strict=True)):
            pointers.append(self._address(array, tensor, self._where(position), program.device))
        for position, (array, tensor) in enumerate(zip(outputs, self.outputs, strict=True)):
            where = f"{self._name}: output {position} ({self.program.outputs[position]})"
            pointers.append(self._address(array, tensor, where, program.device))
            spans.append((pointers[-1], pointers[-1] + span_bytes(tensor), where))
        inputs = pointers[: len(arrays)]
        ranges = [
            (pointer, pointer + span_bytes(tensor), self._where(position))
            for position, (pointer, tensor) in enumerate(zip(inputs, self.inputs, strict=True))
        ]
        for number, (start, end, where) in enumerate(spans):
            for other_start, other_end, other in [*ranges, *spans[:number]]:
                if start < other_end and other_start < end:
                    raise LaunchError(f"{where} shares memory with {other}; give it memory of its own")
        return program.bind(inputs, pointers[len(arrays) :])

    @staticmethod
    def _address(array: Any, tensor: DeviceTensor, where: str, device: int) -> int:
        view = view_array(array, where)
        kind = stored_type(view.dtype, tensor.dtype)
        check_array(view, ArrayParameter(tensor.name, kind, tensor.shape, tensor.strides), where, device)
        return view.pointer

    def _run_on_host_arrays(
        self, program: DeviceProgram, arrays: Sequence[Any], outputs: Sequence[Any], stream: int
    ) -> None:
        """Copy NumPy arrays to the device, run, wait, and copy the results back."""
        cupy = load_cupy()
        if not self._host:
            self._host = [HostCopy(tensor, cupy) for tensor in (*self.inputs, *self.outputs)]
        copies, count = self._host, len(arrays)
        sent = [
            as_stored(array, tensor, self._where(position))
            for position, (array, tensor) in enumerate(zip(arrays, self.inputs, strict=True))
        ]
        received = []
        for position, (array, tensor) in enumerate(zip(outputs, self.outputs, strict=True)):
            where = f"{self._name}: output {position} ({tensor.name})"
            if not array.flags.writeable:
                raise LaunchError(f"{where} is read-only; give an array that may be written")
            received.append(as_stored(array, tensor, where))
        for copy, array in zip(copies[:count], sent, strict=True):
            copy.send(array, stream)
        program.bind([copy.pointer for copy in copies[:count]], [copy.pointer for copy in copies[count:]])(stream)
        for copy in copies[count:]:
            copy.fetch(stream)
        existing_stream(cupy, stream).synchronize()
        for copy, array in zip(copies[count:], received, strict=True):
            copy.read(array)
