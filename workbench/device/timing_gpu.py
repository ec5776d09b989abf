"""What timing asks of a GPU: memory by address, one stream, captured graphs, events. CuPy's is here; tests bring their own.

Invariant: a read is ordered on the stream that it names, so it sees what that stream has done and nothing more by right.
"""

from __future__ import annotations

import importlib
import importlib.util
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from workbench.codegen.cuda.storage import storage_dtype
from workbench.core.dtypes import DType
from workbench.core.tensors import DeviceTensor
from workbench.device.array_kinds import ArrayKind
from workbench.device.host_copies import DEVICE_TO_HOST, HOST_TO_DEVICE
from workbench.device.launch import load_cupy
from workbench.device.streams import existing_stream
from workbench.errors import LaunchError

Bytes = npt.NDArray[np.uint8]
Results = Sequence[Sequence[Any]]
"""Arrays that hold outputs: for each run, for each output."""

DEVICE_TO_DEVICE = 3  # cudaMemcpyKind, driver_types.h


class Graph(Protocol):
    """Captured work."""

    def launch(self) -> None:
        """Enqueue all of it once on the stream of its capture."""
        ...


class TimingGpu(Protocol):
    """The parts of a GPU that timing uses; addresses are in bytes, times in seconds."""

    stream: int
    l2_bytes: int

    def allocate(self, nbytes: int) -> int:
        """Return the address of new memory, which lives as long as this object or until `free`."""
        ...

    def free(self) -> None:
        """Give back all that was allocated."""
        ...

    def fill(self, address: int, byte: int, nbytes: int) -> None:
        """Fill memory and wait."""
        ...

    def write(self, address: int, data: Bytes) -> None:
        """Copy bytes to the device and wait."""
        ...

    def read(self, address: int, nbytes: int, stream: int | None = None) -> Bytes:
        """Return bytes as they are once `stream` (None: the whole device) has done what was enqueued."""
        ...

    def copy(self, target: int, source: int, nbytes: int) -> None:
        """Copy on the device and wait."""
        ...

    def checksum(self, address: int, nbytes: int) -> int:
        """Return a number that changes with any byte of a multiple of 8 bytes, and with their order."""
        ...

    def array(self, address: int, tensor: DeviceTensor, kind: ArrayKind) -> Any:
        """Return the memory at an address as an array with a tensor's shape, type and strides."""
        ...

    def current(self) -> AbstractContextManager[object]:
        """Make the stream the one that libraries launch on, as it is during a capture."""
        ...

    def capture(self, action: Callable[[], Results]) -> tuple[Graph, Results]:
        """Return what `action` enqueues on the stream, as a graph, and what it returns. Raises: LaunchError."""
        ...

    def elapsed_s(self, graph: Graph) -> float:
        """Launch a graph between two events, wait for the second, and return the time between them."""
        ...

    def synchronize(self, stream: int | None = None) -> None:
        """Wait for a stream, or for the whole device. Raises: LaunchError when something faulted."""
        ...

    def empty_node_s(self) -> float:
        """Return the time that one kernel which does nothing takes inside a graph."""
        ...


@dataclass(frozen=True, slots=True)
class _TorchGraph:
    graph: Any
    stream: Any
    torch: Any

    def launch(self) -> None:
        with self.torch.cuda.stream(self.stream):
            self.graph.replay()


@dataclass(frozen=True, slots=True)
class _CupyGraph:
    graph: Any
    stream: Any

    def launch(self) -> None:
        self.graph.launch(self.stream)


WEIGHTS = 1 << 16
"""Words that the checksum weighs differently; a power of two, so that it divides the rest of the arithmetic evenly."""


class CupyGpu:
    """The current CUDA device. With torch installed, captures go through torch, whose allocator then keeps to them."""

    def __init__(self, *, with_torch: bool | None = None) -> None:
        """Take a stream of its own. Raises: LaunchError when there is no GPU."""
        self._cupy = load_cupy()
        uses_torch = importlib.util.find_spec("torch") is not None if with_torch is None else with_torch
        self.torch: Any = importlib.import_module("torch") if uses_torch else None
        if self.torch is not None and not self.torch.cuda.is_available():
            self.torch = None
        self._torch_stream = None if self.torch is None else self.torch.cuda.Stream()
        if self._torch_stream is not None:
            self.stream = int(self._torch_stream.cuda_stream)
            self._stream = existing_stream(self._cupy, self.stream)
        else:
            self._stream = self._cupy.cuda.Stream(non_blocking=True)
            self.stream = int(self._stream.ptr)
        self.l2_bytes = int(self._cupy.cuda.Device().attributes["L2CacheSize"])
        self._memory: list[Any] = []

    # -------------------------------------------------------------------------------------------------------- memory
    def allocate(self, nbytes: int) -> int:
        """Return the address of new memory, all of it from the device itself, outside of any pool."""
        memory = self._cupy.cuda.MemoryPointer(self._cupy.cuda.Memory(max(nbytes, 256)), 0)
        self._memory.append(memory)
        return int(memory.ptr)

    def free(self) -> None:
        """Give back all that was allocated."""
        self.synchronize()
        self._memory.clear()
        self._cupy.get_default_memory_pool().free_all_blocks()
        if self.torch is not None:
            self.torch.cuda.empty_cache()

    def fill(self, address: int, byte: int, nbytes: int) -> None:
        """Fill memory and wait."""
        self._cupy.cuda.runtime.memsetAsync(address, byte, nbytes, self.stream)
        self._stream.synchronize()

    def write(self, address: int, data: Bytes) -> None:
        """Copy bytes to the device and wait."""
        data = np.ascontiguousarray(data)
        runtime = self._cupy.cuda.runtime
        runtime.memcpyAsync(address, data.ctypes.data, data.nbytes, HOST_TO_DEVICE, self.stream)
        self._stream.synchronize()

    def read(self, address: int, nbytes: int, stream: int | None = None) -> Bytes:
        """Return bytes as they are once a stream, or the whole device, has done what was enqueued."""
        if stream is None:
            self.synchronize()
        data = np.empty(nbytes, np.uint8)
        there = self.stream if stream is None else stream
        self._cupy.cuda.runtime.memcpyAsync(data.ctypes.data, address, nbytes, DEVICE_TO_HOST, there)
        self.synchronize(there)
        return data

    def copy(self, target: int, source: int, nbytes: int) -> None:
        """Copy on the device and wait."""
        self._cupy.cuda.runtime.memcpyAsync(target, source, nbytes, DEVICE_TO_DEVICE, self.stream)
        self._stream.synchronize()

    def checksum(self, address: int, nbytes: int) -> int:
        """Return the sum, modulo 2^64, of all 8-byte words times odd weights that go by position."""
        cupy = self._cupy
        memory = cupy.cuda.UnownedMemory(address, nbytes, self)
        words = cupy.ndarray((nbytes // 8,), cupy.uint64, cupy.cuda.MemoryPointer(memory, 0))
        total = 0
        with self._stream:
            weights = cupy.arange(WEIGHTS, dtype=cupy.uint64) * cupy.uint64(0x9E3779B97F4A7C15) | cupy.uint64(1)
            whole = len(words) // WEIGHTS * WEIGHTS
            rows = (words[:whole].reshape(-1, WEIGHTS) * weights).sum(axis=1)
            scale = cupy.arange(len(rows), dtype=cupy.uint64) * cupy.uint64(0xC2B2AE3D27D4EB4E) | cupy.uint64(1)
            total += int((rows * scale).sum()) if len(rows) else 0
            rest = words[whole:]
            total += int((rest * weights[: len(rest)]).sum()) * 7 if len(rest) else 0
        return total % (1 << 64)

    def array(self, address: int, tensor: DeviceTensor, kind: ArrayKind) -> Any:
        """Return the memory at an address as a CuPy array, or as a torch tensor."""
        if kind is ArrayKind.NUMPY:
            raise LaunchError("timing works on arrays on the device; NumPy arrays are copied by every call")
        cupy = self._cupy
        dtype = storage_dtype(tensor.dtype)
        nbytes = (1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.strides, strict=True))) * dtype.itemsize
        memory = cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(address, nbytes, self), 0)
        if kind is not ArrayKind.TORCH:
            strides = tuple(stride * dtype.itemsize for stride in tensor.strides)
            return cupy.ndarray(tensor.shape, dtype, memory, strides)
        is_bfloat16 = tensor.dtype is DType.BFLOAT16  # neither CuPy nor DLPack from CuPy has it
        flat = cupy.ndarray((nbytes // dtype.itemsize,), np.int16 if is_bfloat16 else dtype, memory)
        flat = self.torch.from_dlpack(flat)
        flat = flat.view(self.torch.bfloat16) if is_bfloat16 else flat
        return flat.as_strided(tensor.shape, tensor.strides)

    # ---------------------------------------------------------------------------------------------------------- time
    @contextmanager
    def current(self) -> Iterator[None]:
        """Make the stream the one that CuPy and torch launch on."""
        with ExitStack() as stack:
            if self.torch is not None:
                stack.enter_context(self.torch.cuda.stream(self._torch_stream))
            stack.enter_context(self._stream)
            yield

    def capture(self, action: Callable[[], Results]) -> tuple[Graph, Results]:
        """Return what `action` enqueues on the stream as a graph, and what it returns. Raises: LaunchError."""
        self.synchronize()
        try:
            if self.torch is not None:
                graph = self.torch.cuda.CUDAGraph()
                with self.current(), warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # that a graph is empty: the traps say so in their words
                    graph.capture_begin()  # `torch.cuda.graph` would also collect garbage, which takes longer than the rest
                    try:
                        results = action()
                    finally:
                        graph.capture_end()
                return _TorchGraph(graph, self._torch_stream, self.torch), results
            with self.current():
                self._stream.begin_capture()
                try:
                    results = action()
                finally:
                    captured = self._stream.end_capture()
            return _CupyGraph(captured, self._stream), results
        except RuntimeError as error:
            if isinstance(error, LaunchError):
                raise
            raise LaunchError(f"cannot be captured in a CUDA graph: {error}") from error

    def elapsed_s(self, graph: Graph) -> float:
        """Launch a graph between two events, wait for the second, and return the time between them."""
        cupy = self._cupy
        start, end = cupy.cuda.Event(), cupy.cuda.Event()
        start.record(self._stream)
        graph.launch()
        end.record(self._stream)
        end.synchronize()
        return float(cupy.cuda.get_elapsed_time(start, end)) * 1e-3

    def synchronize(self, stream: int | None = None) -> None:
        """Wait for a stream, or for the whole device. Raises: LaunchError when something faulted."""
        try:
            if stream is None:
                self._cupy.cuda.runtime.deviceSynchronize()
            else:
                self._cupy.cuda.runtime.streamSynchronize(stream)
        except RuntimeError as error:
            raise LaunchError(f"faulted on the device: {error}") from error

    def empty_node_s(self) -> float:
        """Return the time that one kernel which does nothing takes inside a graph of 256, the median of 20 replays."""
        from workbench.device.architecture import architecture_name
        from workbench.device.compile import compile_cubin

        count = 256
        arch = architecture_name(str(self._cupy.cuda.Device().compute_capability))
        compiled = compile_cubin('extern "C" __global__ void nothing() {}', arch)
        kernel = self._cupy.RawModule(path=str(compiled.path)).get_function("nothing").kernel

        def action() -> Results:
            for _ in range(count):
                kernel((1, 1, 1), (32, 1, 1), (), 0, self._stream)
            return ()

        graph, _ = self.capture(action)
        times = [self.elapsed_s(graph) for _ in range(23)][3:]
        return float(np.median(times)) / count


def host_seconds(run: Callable[[], Any], count: int = 20) -> float:
    """Return the host's time for one call of an asynchronous function, the median of `count`."""
    times = []
    for _ in range(count):
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    return float(np.median(times))
