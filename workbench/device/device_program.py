"""An emitted program on a GPU: kernels loaded, library calls planned, one workspace; run on addresses.

Invariant: a run launches on one stream, allocates nothing and waits for nothing; two runs that would share the workspace
on different streams are ordered by an event.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from workbench.codegen.cuda.emitted import EmittedProgram, KernelLaunch, KernelSource, LibraryMatmul
from workbench.codegen.cuda.library_matmul import GemmCall, plan_matmul
from workbench.codegen.cuda.storage import span
from workbench.core.dtypes import DType
from workbench.core.tensors import DeviceTensor
from workbench.device.compile import CompiledKernel
from workbench.device.launch import ArrayParameter, LoadedKernel, load_cupy
from workbench.device.library_calls import cublas_of
from workbench.device.streams import existing_stream
from workbench.errors import LaunchError

DEVICE_TO_DEVICE = 3  # cudaMemcpyKind, driver_types.h
Action = Callable[[int], None]
"""Enqueues something on the stream of this address."""


def span_bytes(tensor: DeviceTensor) -> int:
    """Return the bytes between a tensor's first and last element, both counted."""
    return span(tensor) * tensor.dtype.nbytes


def load_kernel(kernel: KernelSource, compiled: CompiledKernel) -> LoadedKernel:
    """Return a kernel loaded on the current device. Raises: LaunchError."""
    parameters = [
        ArrayParameter(p.name, p.dtype.value, p.tensor.shape, p.tensor.strides, p.is_output) for p in kernel.parameters
    ]
    return LoadedKernel(compiled, kernel.launch, parameters, programmatic=bool(kernel.schedule.programmatic))


class DeviceProgram:
    """A program loaded on the current device."""

    def __init__(self, program: EmittedProgram, compiled: Mapping[str, CompiledKernel]) -> None:
        """Load every kernel and take the workspace; `compiled`: by kernel name.

        Raises: LaunchError when there is no GPU or it does not take a kernel; EmitError for a product that cuBLAS lacks.
        """
        self.program = program
        self._cupy = load_cupy()
        self.device = int(self._cupy.cuda.Device().id)
        self._kernels = {kernel.name: load_kernel(kernel, compiled[kernel.name]) for kernel in program.kernels}
        self._calls = [self._plan(call) for call in program.library_calls]
        self._cublas = cublas_of(self.device) if self._calls else None
        self._workspace = self._cupy.cuda.alloc(program.workspace_bytes) if program.workspace_bytes else None
        self._last: tuple[int, Any] | None = None

    def _plan(self, call: LibraryMatmul) -> tuple[tuple[GemmCall, ...], tuple[DType, DType, DType]]:
        left, right, result = (self.program.buffer(name).tensor for name in (call.left, call.right, call.result))
        return plan_matmul(left, right, result), (left.dtype, right.dtype, result.dtype)

    def fill_workspace(self, byte: int) -> None:
        """Fill the intermediates with a byte and wait; a check poisons them so."""
        if self._workspace is not None:
            runtime = self._cupy.cuda.runtime
            runtime.memset(self._workspace.ptr, byte, self.program.workspace_bytes)
            runtime.deviceSynchronize()

    def bind(self, inputs: Sequence[int], outputs: Sequence[int]) -> Action:
        """Return what runs the program on arrays at these addresses, in the program's order, on a given stream.

        The arrays have the tensors' shapes, types and strides and stay alive.
        """
        program = self.program
        addresses = dict(zip(program.inputs, inputs, strict=True))
        copies: list[Action] = []
        for name, address in zip(program.outputs, outputs, strict=True):
            if name in addresses:  # an output that is an input, or one that is asked for twice
                copies.append(self._copy(addresses[name], address, span_bytes(program.buffer(name).tensor)))
            else:
                addresses[name] = address
        for buffer in program.buffers:
            if buffer.name not in addresses:
                assert self._workspace is not None
                assert buffer.offset is not None
                addresses[buffer.name] = self._workspace.ptr + buffer.offset
        actions: list[Action] = []
        calls = iter(self._calls)
        for step in program.steps:
            if isinstance(step, KernelLaunch):
                actions.append(self._launch(step, addresses))
            else:
                actions.append(self._multiply(step, addresses, *next(calls)))
        actions += copies
        return lambda stream: self._run(actions, stream)

    def _launch(self, step: KernelLaunch, addresses: Mapping[str, int]) -> Action:
        kernel = self._kernels[step.kernel.name]
        packed = tuple(np.uint64(addresses[name]) for name in step.arguments)
        return lambda stream: kernel.launch_packed(packed, stream)

    def _multiply(
        self,
        step: LibraryMatmul,
        addresses: Mapping[str, int],
        calls: tuple[GemmCall, ...],
        dtypes: tuple[DType, DType, DType],
    ) -> Action:
        assert self._cublas is not None
        cublas = self._cublas
        pointers = (addresses[step.left], addresses[step.right], addresses[step.result])
        return lambda stream: cublas.multiply(calls, dtypes, pointers, stream)

    def _copy(self, source: int, target: int, size: int) -> Action:
        runtime = self._cupy.cuda.runtime
        return lambda stream: runtime.memcpyAsync(target, source, size, DEVICE_TO_DEVICE, stream)

    def _run(self, actions: Sequence[Action], stream: int) -> None:
        current = int(self._cupy.cuda.runtime.getDevice())
        if current != self.device:
            raise LaunchError(
                f"program {self.program.name} was loaded on cuda:{self.device}, the current device is cuda:{current}; "
                "make that one current, or compile once for each device"
            )
        capturing = self._workspace is not None and self._is_capturing(stream)
        if self._workspace is not None and not capturing and self._last is not None and self._last[0] != stream:
            existing_stream(self._cupy, stream).wait_event(self._last[1])
        for action in actions:
            action(stream)
        if self._workspace is not None and not capturing:
            event = self._last[1] if self._last is not None else self._cupy.cuda.Event(disable_timing=True)
            event.record(existing_stream(self._cupy, stream))
            self._last = stream, event

    def _is_capturing(self, stream: int) -> bool:
        try:
            return bool(self._cupy.cuda.runtime.streamIsCapturing(stream))
        except RuntimeError:  # the legacy stream, while another one is captured
            return False
