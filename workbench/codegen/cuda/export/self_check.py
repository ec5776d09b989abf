"""The inputs that exported code makes for itself, and the outputs that are right for them.

Element i of input s is (k + o) * 2^-(7 + shift + r), where k in -127 .. 127 is drawn from a hash of (s, i), and o in
-32 .. 32 and r in 0 .. 2 from one of the row, so that rows differ in offset and scale; `shift` is one number an input.
Invariant: every element is exact in float16, bfloat16 and float32 (8 bits of mantissa), so that Python and C++ make the
same bits without agreeing on a rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from workbench.codegen.cuda.numeric_limits import (
    HEADROOM,
    LOGIT_LIMIT,
    evaluate_within_types,
    exponents_of,
    survey,
)
from workbench.core.dtypes import DType
from workbench.core.tensors import DeviceTensor
from workbench.errors import UsageError
from workbench.ugraph.kernel_graph import KernelGraph

Floats = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint64]
LARGEST_SHIFT = 14  # 2^-(7 + 14 + 2) is still a float16
TOLERANCES = {DType.FLOAT16: 2e-3, DType.BFLOAT16: 1e-2, DType.FLOAT32: 1e-4}


@dataclass(frozen=True, slots=True)
class SelfCheck:
    """The shift of each input, the right outputs (float64, in order), and the relative error that is allowed."""

    shifts: tuple[int, ...]
    expected: tuple[Floats, ...]
    tolerance: float


def mix(words: Words) -> Words:
    """Return the output function of splitmix64 on each word (Steele, Lea, Flood, OOPSLA 2014)."""
    with np.errstate(over="ignore"):
        z = words + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def make_input(tensor: DeviceTensor, position: int, shift: int) -> Floats:
    """Return the numbers of input `position`; see the module."""
    columns = tensor.shape[-1] if tensor.shape else 1
    index = np.arange(int(np.prod(tensor.shape)), dtype=np.uint64)
    stream = np.uint64(position) << np.uint64(40)
    drawn = mix(stream + index) >> np.uint64(32)
    of_row = mix(stream + index // np.uint64(columns) + (np.uint64(1) << np.uint64(62))) >> np.uint64(32)
    steps = (drawn % np.uint64(255)).astype(np.int64) - 127 + (of_row % np.uint64(65)).astype(np.int64) - 32
    exponents = 7 + shift + (of_row // np.uint64(65) % np.uint64(3)).astype(np.int64)
    return np.ldexp(steps.astype(np.float64), -exponents).reshape(tensor.shape)


def make_self_check(graph: KernelGraph) -> SelfCheck:
    """Return shifts at which nothing overflows, with the right outputs. Raises: UsageError when there are none."""
    shifts = [1] * len(graph.inputs)
    shared = exponents_of(graph)
    types = [tensor.dtype for tensor in (*graph.inputs, *graph.tensors.values()) if tensor.dtype in TOLERANCES]
    tolerance = max(TOLERANCES[dtype] for dtype in types)
    while max(shifts) <= LARGEST_SHIFT:
        values = make_inputs(graph.inputs, shifts)
        if shared and survey(graph, values).logit > LOGIT_LIMIT:
            grown: Sequence[int] = sorted(shared)
        else:
            expected, ratio = evaluate_within_types(graph, values)
            if ratio * HEADROOM <= 1:
                return SelfCheck(tuple(shifts), tuple(expected), tolerance)
            grown = range(len(shifts))
        for position in grown:
            shifts[position] += 1
    raise UsageError(
        f"no scale of the self check's inputs keeps {graph.name or 'the program'} within its data types; "
        "export it with checked=False"
    )


def make_inputs(tensors: Sequence[DeviceTensor], shifts: Sequence[int]) -> list[Floats]:
    """Return the self check's inputs in order."""
    return [
        make_input(tensor, position, shift)
        for position, (tensor, shift) in enumerate(zip(tensors, shifts, strict=True))
    ]
