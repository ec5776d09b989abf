"""A GPU for timing that is made of host memory: streams that run when they are waited for, graphs that replay, told times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.unit.device.fake_gpu import FakeDeviceArray
from workbench.codegen.cuda.storage import storage_dtype
from workbench.core.tensors import DeviceTensor
from workbench.device.array_kinds import ArrayKind
from workbench.device.contenders import Contender, Launch
from workbench.device.timing_gpu import Graph, Results

Work = Callable[[], None]


@dataclass
class FakeGraph:
    """Work with the microseconds that each piece takes."""

    work: list[tuple[Work, float]]
    gpu: FakeTimingGpu

    def launch(self) -> None:
        self.gpu.pending.setdefault(self.gpu.stream, []).extend(work for work, _ in self.work)


class FakeTimingGpu:
    """Nothing runs before its stream, or the device, is waited for. `drift`: factors on elapsed times, one a call."""

    def __init__(self, l2_bytes: int = 4096, drift: Callable[[int], float] = lambda _: 1.0) -> None:
        self.stream, self.side_stream, self.l2_bytes = 1, 2, l2_bytes
        self.pending: dict[int, list[Work]] = {}
        self.memory: list[np.ndarray[Any, Any]] = []
        self.recording: list[tuple[Work, float]] | None = None
        self.elapsed_calls, self.drift = 0, drift
        self.freed = 0

    def enqueue(self, work: Work, microseconds: float, stream: int) -> None:
        """What a kernel launch does."""
        if self.recording is not None and stream == self.stream:
            self.recording.append((work, microseconds))
        else:
            self.pending.setdefault(stream, []).append(work)

    def allocate(self, nbytes: int) -> int:
        self.memory.append(np.zeros(nbytes + 512, np.uint8))
        address = self.memory[-1].ctypes.data
        return address + -address % 512

    def free(self) -> None:
        self.freed += 1

    def _bytes(self, address: int, nbytes: int) -> np.ndarray[Any, Any]:
        for memory in self.memory:
            start = address - memory.ctypes.data
            if start >= 0 and start + nbytes <= len(memory):
                return memory[start : start + nbytes]
        raise AssertionError(f"{nbytes} B at {address:#x} were never allocated")

    def fill(self, address: int, byte: int, nbytes: int) -> None:
        self._bytes(address, nbytes)[:] = byte

    def write(self, address: int, data: np.ndarray[Any, Any]) -> None:
        self._bytes(address, data.nbytes)[:] = data

    def read(self, address: int, nbytes: int, stream: int | None = None) -> np.ndarray[Any, Any]:
        self.synchronize(stream)
        return self._bytes(address, nbytes).copy()

    def copy(self, target: int, source: int, nbytes: int) -> None:
        self._bytes(target, nbytes)[:] = self._bytes(source, nbytes).copy()

    def checksum(self, address: int, nbytes: int) -> int:
        return hash(self._bytes(address, nbytes).tobytes())

    def array(self, address: int, tensor: DeviceTensor, kind: ArrayKind) -> FakeDeviceArray:
        dtype = storage_dtype(tensor.dtype)
        count = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.strides, strict=True))
        flat = self._bytes(address, count * dtype.itemsize).view(dtype)
        strides = tuple(stride * dtype.itemsize for stride in tensor.strides)
        return FakeDeviceArray(np.lib.stride_tricks.as_strided(flat, tensor.shape, strides))

    def own_array(self, tensor: DeviceTensor) -> FakeDeviceArray:
        """What a library's allocator gives."""
        return self.array(self.allocate(tensor.nbytes), tensor, ArrayKind.TORCH)

    def current(self) -> AbstractContextManager[object]:
        return nullcontext()

    def capture(self, action: Callable[[], Results]) -> tuple[FakeGraph, Results]:
        self.synchronize()
        self.recording = []
        try:
            results = action()
            return FakeGraph(self.recording, self), results
        finally:
            self.recording = None

    def elapsed_s(self, graph: Graph) -> float:
        assert isinstance(graph, FakeGraph)
        graph.launch()
        self.synchronize()
        self.elapsed_calls += 1
        return sum(microseconds for _, microseconds in graph.work) * 1e-6 * self.drift(self.elapsed_calls)

    def synchronize(self, stream: int | None = None) -> None:
        for number in [stream] if stream is not None else list(self.pending):
            while self.pending.get(number):
                self.pending[number].pop(0)()

    def empty_node_s(self) -> float:
        return 1.2e-6


def contender(
    name: str,
    gpu: FakeTimingGpu,
    compute: Callable[..., Any],
    microseconds: float = 10.0,
    kernel: Callable[[Sequence[Any], Sequence[Any], Callable[[], None]], None] | None = None,
    **options: Any,
) -> Contender:
    """Return a contender whose kernel stores `compute(*inputs)`; `kernel` (inputs, outputs, honest work) replaces it."""

    def prepare(inputs: Sequence[Any], outputs: Sequence[Any], stream: int) -> Launch:
        read, written = [array.array for array in inputs], [array.array for array in outputs]

        def honest() -> None:
            written[0][...] = compute(*read)

        def launch() -> Sequence[Any]:
            gpu.enqueue(honest if kernel is None else lambda: kernel(read, written, honest), microseconds, stream)
            return outputs

        return launch

    return Contender(name=name, prepare=prepare, **options)
