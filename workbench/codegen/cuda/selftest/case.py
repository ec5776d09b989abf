"""One check of the device header: a small kernel, its inputs, and what NumPy says it must give.

Invariant: the same kernel text and the same numbers are used on the host and on a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.codegen.cuda.header import kernel_source
from workbench.codegen.cuda.launch_shape import LaunchShape

Array = npt.NDArray[Any]
SEED = 20250711


@dataclass(frozen=True, kw_only=True)
class IntrinsicCase:
    """A kernel and its right answer.

    arguments: arrays (bf16 as uint16 bits) and NumPy scalars. outputs: indices of the arrays the kernel writes,
    keep: those of them whose contents it reads.
    expected: one array for each output. tolerance: largest error allowed, relative to the largest finite magnitude
    expected; 0: the same bits, but any NaN equals any NaN. needs: oldest architecture that has the instructions.
    """

    name: str
    body: str = field(repr=False)
    launch: LaunchShape
    arguments: tuple[Any, ...] = field(repr=False)
    outputs: tuple[int, ...]
    expected: tuple[Array, ...] = field(repr=False)
    keep: frozenset[int] = frozenset()
    tolerance: float = 0.0
    needs: str = "sm_80"

    @property
    def source(self) -> str:
        """The self-contained source."""
        return kernel_source(self.body)

    def complaint(self, found: tuple[Array, ...]) -> str:
        """Return what is wrong with the outputs found, "" if nothing."""
        for index, got, want in zip(self.outputs, found, self.expected, strict=True):
            if got.shape != want.shape:
                return f"{self.name}: output {index} has shape {got.shape}, not {want.shape}"
            with np.errstate(invalid="ignore"):  # signalling NaN among the bits
                a, b = got.astype(np.float64), want.astype(np.float64)
                same_nan = np.isnan(a) == np.isnan(b)
                error = np.where(a == b, 0.0, np.abs(a - b))  # infinities are equal to themselves
            error[np.isnan(error)] = 0.0
            finite = np.abs(b[np.isfinite(b)])
            limit = self.tolerance * (float(finite.max()) if finite.size else 1.0)
            wrong = ~same_nan | (error > limit)
            if wrong.any():
                where = tuple(int(i) for i in np.argwhere(wrong)[0])
                return (
                    f"{self.name}: output {index} is wrong at {int(wrong.sum())} of {wrong.size} places, first at {where}: "
                    f"{got[where]} instead of {want[where]} (allowed error {limit:.3g})"
                )
        return ""


def generator(name: str) -> np.random.Generator:
    """Return random numbers that depend on the case's name alone."""
    return np.random.default_rng([SEED, *name.encode()])


def to_bf16(x: npt.ArrayLike) -> npt.NDArray[np.uint16]:
    """Round float32 to the bits of bfloat16, to nearest even; NaN stays NaN."""
    bits = np.asarray(x, np.float32).view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return np.where((bits & 0x7FFFFFFF) > 0x7F800000, 0x7FFF, rounded).astype(np.uint16)


def from_bf16(bits: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    """Return the values of bfloat16 bits."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def to_tf32(x: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """Round float32 to 10 mantissa bits, ties away from zero, as cvt.rna.tf32.f32."""
    bits = np.asarray(x, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x1000) & 0xFFFFE000).astype(np.uint32).view(np.float32)
