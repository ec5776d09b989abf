"""The arrays that timing turns over: as many sets of inputs and outputs as exceed the L2 cache, in one allocation.

Invariant: every set holds the same numbers at addresses of its own; nothing is allocated after the sets are made.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from workbench.codegen.cuda.storage import Array, laid_out, span, storage_dtype
from workbench.core.layouts import Strides
from workbench.core.tensors import DeviceTensor
from workbench.device.array_kinds import ArrayKind
from workbench.device.timing_gpu import TimingGpu

ALIGNMENT = 512
LEAST_COLD_BYTES = 200_000_000
COLD_FACTOR = 2.5
"""The sets together exceed the L2 cache by this factor, and `LEAST_COLD_BYTES`."""

MOST_SETS = 2000
POISON = 0xFF  # every float type reads it as NaN


def sets_needed(set_bytes: int, l2_bytes: int) -> int:
    """Return how many sets of this many bytes turn the L2 cache over, at most `MOST_SETS`."""
    return max(2, min(MOST_SETS, math.ceil(max(COLD_FACTOR * l2_bytes, LEAST_COLD_BYTES) / max(set_bytes, 1))))


class ArraySets:
    """Sets of inputs and outputs; `layouts`: the strides that some contender wants of an input, beside the program's."""

    def __init__(
        self,
        gpu: TimingGpu,
        inputs: Sequence[DeviceTensor],
        outputs: Sequence[DeviceTensor],
        layouts: Sequence[Mapping[int, Strides]] = (),
        count: int | None = None,
    ) -> None:
        """Allocate, and poison everything."""
        self._gpu = gpu
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self.set_bytes = sum(tensor.nbytes for tensor in (*self.inputs, *self.outputs))
        self.count = count or sets_needed(self.set_bytes, gpu.l2_bytes)
        wanted = {(position, tensor.strides): tensor for position, tensor in enumerate(self.inputs)}
        for layout in layouts:
            for position, strides in layout.items():
                tensor = self.inputs[position]
                wanted[position, strides] = DeviceTensor(tensor.name, tensor.shape, tensor.dtype, strides)
        self._slots: dict[tuple[int, Strides], tuple[DeviceTensor, int]] = {}
        offset = 0
        for key, tensor in wanted.items():
            self._slots[key] = (tensor, offset)
            offset += _padded(tensor)
        self._input_bytes = offset
        self._result_offsets: list[int] = []
        offset = 0
        for tensor in self.outputs:
            self._result_offsets.append(offset)
            offset += _padded(tensor)
        self._output_bytes = offset
        self._first_input = gpu.allocate(self._input_bytes * self.count)
        self._first_output = gpu.allocate(max(self._output_bytes, ALIGNMENT) * self.count)
        gpu.fill(self._first_input, POISON, self._input_bytes * self.count)
        self.poison()

    # --------------------------------------------------------------------------------------------------------- arrays
    def input_arrays(self, number: int, kind: ArrayKind, layouts: Mapping[int, Strides]) -> list[Any]:
        """Return the inputs of a set as arrays of a library, in the program's layout or the one wanted."""
        arrays = []
        for position, declared in enumerate(self.inputs):
            tensor, offset = self._slots[position, layouts.get(position, declared.strides)]
            arrays.append(self._gpu.array(self._first_input + number * self._input_bytes + offset, tensor, kind))
        return arrays

    def output_arrays(self, number: int, kind: ArrayKind) -> list[Any]:
        """Return the arrays that a contender may write its outputs to."""
        start = self._first_output + number * self._output_bytes
        return [
            self._gpu.array(start + offset, tensor, kind)
            for tensor, offset in zip(self.outputs, self._result_offsets, strict=True)
        ]

    # ------------------------------------------------------------------------------------------------------- contents
    def store(self, values: Sequence[Array]) -> None:
        """Write inputs, as stored, into every set and every layout; what lies between strides becomes poison."""
        image = np.full(self._input_bytes, POISON, np.uint8)
        for (position, _), (tensor, offset) in self._slots.items():
            nbytes = span(tensor) * tensor.dtype.nbytes
            memory = image[offset : offset + nbytes].view(storage_dtype(tensor.dtype))
            laid_out(memory, tensor)[...] = values[position]
        self._gpu.write(self._first_input, image)
        done = 1
        while done < self.count:  # doubling: as many copies as the count has bits
            step = min(done, self.count - done)
            target = self._first_input + done * self._input_bytes
            self._gpu.copy(target, self._first_input, step * self._input_bytes)
            done += step

    def poison(self) -> None:
        """Fill the outputs of every set with NaN."""
        self._gpu.fill(self._first_output, POISON, max(self._output_bytes, ALIGNMENT) * self.count)

    def checksum(self) -> int:
        """Return a number that changes when any byte of any input does."""
        return self._gpu.checksum(self._first_input, self._input_bytes * self.count)

    def holds_input(self, start: int, end: int) -> bool:
        """Return whether a range of addresses meets the inputs."""
        return start < self._first_input + self._input_bytes * self.count and self._first_input < end

    def holds_output(self, start: int, end: int) -> bool:
        """Return whether a range of addresses lies in the outputs that contenders are given."""
        return self._first_output <= start and end <= self._first_output + self._output_bytes * self.count


def _padded(tensor: DeviceTensor) -> int:
    nbytes = span(tensor) * tensor.dtype.nbytes
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
