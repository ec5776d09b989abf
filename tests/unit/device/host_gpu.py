"""A GPU made of host memory: the few parts of CuPy that programs use; kernels run through the host shim.

What it launches is the text that a GPU would get, on memory of exactly the size allocated.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.unit.device.fake_gpu import FakeDeviceArray
from workbench.codegen.cuda.emitted import EmittedProgram, KernelSource
from workbench.codegen.cuda.host_run import HostOptions, run_on_host
from workbench.codegen.cuda.library_matmul import GemmCall
from workbench.codegen.cuda.storage import span, storage_dtype
from workbench.core.dtypes import DType
from workbench.core.tensors import DeviceTensor
from workbench.device import check, device_program, executable, launch
from workbench.device.compile import CompiledKernel, KernelUsage

ALIGNMENT = 256
OPTIONS = HostOptions(instrument=False, races=False)


class Memory:
    """Device memory; an aligned host buffer."""

    def __init__(self, size: int) -> None:
        self._raw = np.empty(size + ALIGNMENT, np.uint8)
        start = -self._raw.ctypes.data % ALIGNMENT
        self.bytes = self._raw[start : start + size]
        self.bytes[:] = 0xA5
        self.ptr = self.bytes.ctypes.data


class Stream(AbstractContextManager["Stream"]):
    def __init__(self, ptr: int, gpu: HostGpu) -> None:
        self.ptr, self._gpu = ptr, gpu

    def synchronize(self) -> None:
        self._gpu.waited.append(self.ptr)

    def wait_event(self, event: Event) -> None:
        self._gpu.orders.append((event.stream, self.ptr))

    def __exit__(self, *error: object) -> None:
        return None


class Event:
    def __init__(self, **options: bool) -> None:
        self.stream = 0

    def record(self, stream: Stream) -> None:
        self.stream = stream.ptr


class DeviceArray(FakeDeviceArray):
    """What `cupy.ndarray(shape, dtype, memory, strides)` makes."""

    def __init__(self, shape: tuple[int, ...], dtype: Any, memory: Memory, strides: tuple[int, ...]) -> None:
        self.memory = memory
        flat = memory.bytes.view(dtype)
        super().__init__(np.lib.stride_tricks.as_strided(flat, shape, strides))

    def __setitem__(self, index: Any, values: Any) -> None:
        self.array[index] = values


class HostKernel:
    """A kernel as CuPy's RawModule gives it."""

    def __init__(self, source: KernelSource, gpu: HostGpu) -> None:
        self._source, self._gpu, self.kernel = source, gpu, self
        self.ptr, self.max_dynamic_shared_size_bytes = 77, 48 * 1024

    def __call__(self, grid: Any, block: Any, arguments: Sequence[int], shared_bytes: int, stream: Stream) -> None:
        self._gpu.launched.append((self._source.name, stream.ptr))
        behaviour = self._gpu.behaviours.get(self._source.name)
        if behaviour is not None:
            behaviour(*(int(argument) for argument in arguments))
            return
        views = [memory_at(int(a), p.tensor) for a, p in zip(arguments, self._source.parameters, strict=True)]
        run = run_on_host(self._source.source, self._source.launch, views, OPTIONS)
        outputs = [view for view, p in zip(views, self._source.parameters, strict=True) if p.is_output]
        for view, result in zip(outputs, run.outputs, strict=True):
            view[...] = result


def memory_at(address: int, tensor: DeviceTensor) -> Any:
    """Return the flat memory of a tensor at an address."""
    dtype = storage_dtype(tensor.dtype)
    size = span(tensor) * dtype.itemsize
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address)).view(dtype)


class HostCublas:
    """The products of `library_matmul`, by their definition."""

    def __init__(self, gpu: HostGpu) -> None:
        self._gpu = gpu

    def multiply(
        self, calls: Sequence[GemmCall], dtypes: tuple[DType, ...], pointers: tuple[int, ...], stream: int
    ) -> None:
        self._gpu.launched.append(("cublas", stream))
        kinds = [np.dtype(kind.value) for kind in dtypes]  # float16, float32
        for call in calls:
            order = (1, 0) if call.is_swapped else (0, 1)
            for batch in range(call.batch):
                a, b = (
                    _matrix(pointers[which], kinds[which], offset + batch * stride, leading, shape)
                    for which, offset, stride, leading, shape in (
                        (order[0], call.offset_a, call.stride_a, call.lda,
                         (call.k, call.m) if call.transpose_a else (call.m, call.k)),
                        (order[1], call.offset_b, call.stride_b, call.ldb,
                         (call.n, call.k) if call.transpose_b else (call.k, call.n)),
                    )
                )  # fmt: skip
                c = _matrix(pointers[2], kinds[2], call.offset_c + batch * call.stride_c, call.ldc, (call.m, call.n))
                a, b = (a.T if call.transpose_a else a), (b.T if call.transpose_b else b)
                c[...] = a.astype(np.float32) @ b.astype(np.float32)


def _matrix(pointer: int, dtype: Any, offset: int, leading: int, shape: tuple[int, int]) -> Any:
    """Return a column-major matrix in memory."""
    count = leading * (shape[1] - 1) + shape[0]
    raw = (ctypes.c_uint8 * (count * dtype.itemsize)).from_address(pointer + offset * dtype.itemsize)
    flat = np.ctypeslib.as_array(raw).view(dtype)
    return np.lib.stride_tricks.as_strided(flat, shape, (dtype.itemsize, leading * dtype.itemsize))


class HostGpu:
    """What programs take from CuPy, and a record of what they did with it."""

    def __init__(self) -> None:
        self.kernels: dict[str, KernelSource] = {}
        self.allocated: list[int] = []
        self.launched: list[tuple[str, int]] = []
        self.behaviours: dict[str, Callable[..., None]] = {}  # what a kernel does on addresses, instead of its text
        self.waited: list[int] = []
        self.orders: list[tuple[int, int]] = []
        self.capturing: set[int] = set()
        self.ndarray = DeviceArray
        self.asarray, self.where = np.asarray, np.where  # what the reference is evaluated with
        gpu = self

        class Device:
            id = 0
            attributes = {"MaxSharedMemoryPerBlockOptin": 232448}  # noqa: RUF012  # as CuPy has it

        class Runtime:
            @staticmethod
            def memcpyAsync(target: int, source: int, size: int, kind: int, stream: int) -> None:
                ctypes.memmove(target, source, size)

            @staticmethod
            def memcpy(target: int, source: int, size: int, kind: int) -> None:
                ctypes.memmove(target, source, size)

            @staticmethod
            def memset(target: int, byte: int, size: int) -> None:
                ctypes.memset(target, byte, size)

            @staticmethod
            def getDevice() -> int:
                return 0

            @staticmethod
            def deviceSynchronize() -> None:
                return None

            @staticmethod
            def streamIsCapturing(stream: int) -> bool:
                return stream in gpu.capturing

        class Cuda:
            runtime, Event = Runtime, Event

            @staticmethod
            def Device() -> Any:
                return Device()

            @staticmethod
            def ExternalStream(ptr: int) -> Stream:
                return Stream(ptr, gpu)

            @staticmethod
            def get_current_stream() -> Stream:
                return Stream(5, gpu)

            @staticmethod
            def alloc(size: int) -> Memory:
                gpu.allocated.append(size)
                return Memory(size)

        self.cuda = Cuda

    def RawModule(self, path: str) -> Any:
        gpu, source = self, self.kernels[path]

        class Module:
            @staticmethod
            def get_function(name: str) -> HostKernel:
                assert name == source.launch.kernel
                return HostKernel(source, gpu)

        return Module()

    def compiled(self, program: EmittedProgram) -> dict[str, CompiledKernel]:
        """Return what stands for the compiled kernels of a program."""
        found = {}
        for kernel in program.kernels:
            path = f"{kernel.name}.cubin"
            self.kernels[path] = kernel
            found[kernel.name] = CompiledKernel(
                cubin=b"", path=Path(path), arch="sm_90a", compiler="host", log="", compile_s=0.25, load_s=0.0,
                is_cached=False, kernels=(KernelUsage(kernel.launch.kernel, 32, 0, 0, 16),),
            )  # fmt: skip
        return found

    def array(self, values: Any, tensor: DeviceTensor) -> DeviceArray:
        """Return an array on the device with these stored values and the tensor's strides."""
        dtype = storage_dtype(tensor.dtype)
        made = DeviceArray(
            tensor.shape,
            dtype,
            Memory(span(tensor) * dtype.itemsize),
            tuple(s * dtype.itemsize for s in tensor.strides),
        )
        made.array[...] = values
        return made


def install(monkeypatch: pytest.MonkeyPatch) -> HostGpu:
    """Let launches find a GPU of host memory."""
    gpu = HostGpu()
    for module in (launch, device_program, executable, check):
        monkeypatch.setattr(module, "load_cupy", lambda: gpu)
    monkeypatch.setattr(device_program, "cublas_of", lambda device: HostCublas(gpu))
    return gpu
