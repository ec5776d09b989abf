"""How a contender may look fast without being so, and the check that catches each way.

Invariant: a check is told what the timed graph itself did, on inputs that the contender had not seen when it was captured;
leaving a name out of the set of traps leaves out that check and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from workbench.codegen.cuda.numeric_limits import Floats
from workbench.codegen.cuda.storage import Array, from_storage
from workbench.core.tensors import DeviceTensor
from workbench.device.comparison import OutputComparison, compare

Outputs = tuple[Array, ...]
"""Stored elements of each output."""

NO_OP = "no-op"
SIDE_STREAM = "side stream"
MUTATED_INPUT = "mutated input"
NAN_OUTPUT = "NaN output"
CACHED_RESULT = "cached result"
SKIPPED_SET = "skipped set"
WRONG_RESULT = "wrong result"
TOO_FAST = "faster than the hardware"


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """What one replay of a timed graph did.

    Attributes:
        tensors: the outputs' tensors. expected: right values, float64.
        unlaunched: the first set's outputs before the replay, the device idle; None where they were not poisoned then.
        ordered: the first set's outputs when the timed stream had done the replay.
        settled: the outputs of every set when the whole device had.
        inputs_changed: whether any byte of any input changed.
        stale: what was expected of the inputs before these; None where there were none.
        tolerance: largest relative error.
    """

    tensors: tuple[DeviceTensor, ...]
    expected: tuple[Floats, ...]
    unlaunched: Outputs | None
    ordered: Outputs
    settled: Sequence[Outputs]
    inputs_changed: bool
    stale: tuple[Floats, ...] | None
    tolerance: float

    def comparisons(self) -> list[OutputComparison]:
        """Return how far the first set's outputs are from what is right."""
        return _comparisons(self, self.expected)


def _comparisons(seen: Examination, right: tuple[Floats, ...]) -> list[OutputComparison]:
    return [
        compare(tensor.name, from_storage(found, tensor.dtype), expected, seen.tolerance)
        for tensor, found, expected in zip(seen.tensors, seen.settled[0], right, strict=True)
    ]


def _bits(array: Array) -> Array:
    return np.ascontiguousarray(array).view(f"u{array.itemsize}")


def _poisoned(array: Array) -> int:
    """Return how many elements still hold poison."""
    bits = _bits(array)
    return int(np.count_nonzero(bits == np.iinfo(bits.dtype).max))


def _equal(left: Outputs, right: Outputs) -> bool:
    return all(np.array_equal(_bits(a), _bits(b)) for a, b in zip(left, right, strict=True))


def check_side_stream(seen: Examination) -> str:
    """Work on a stream that is not timed: outputs written without a replay, or not yet when the timed stream was done."""
    if seen.unlaunched is not None:
        for tensor, found in zip(seen.tensors, seen.unlaunched, strict=True):
            if (left := _poisoned(found)) < found.size:
                return (
                    f"{found.size - left} elements of output {tensor.name} were written while the graph was captured, "
                    "so the work ran on another stream"
                )
    if not _equal(seen.ordered, seen.settled[0]):
        return "outputs changed after the timed stream was done, so work goes on elsewhere"
    return ""


def check_no_op(seen: Examination) -> str:
    """Outputs that were not written."""
    for number, outputs in enumerate(seen.settled):
        for tensor, found in zip(seen.tensors, outputs, strict=True):
            if left := _poisoned(found):
                return f"{left} of {found.size} elements of output {tensor.name} of set {number} were not written"
    return ""


def check_mutated_input(seen: Examination) -> str:
    """Inputs that are not what they were."""
    return "an input was changed" if seen.inputs_changed else ""


def check_nan_output(seen: Examination) -> str:
    """Outputs that are no numbers, in any set."""
    for number, outputs in enumerate(seen.settled):
        for tensor, found in zip(seen.tensors, outputs, strict=True):
            values = from_storage(found, tensor.dtype)
            if missing := int(values.size - np.isfinite(values).sum()):
                return f"{missing} elements of output {tensor.name} of set {number} are not finite"
    return ""


def check_cached_result(seen: Examination) -> str:
    """Outputs that are right for inputs which are not there any more."""
    if seen.stale is None or all(np.array_equal(a, b) for a, b in zip(seen.stale, seen.expected, strict=True)):
        return ""
    if any(found.problem for found in _comparisons(seen, seen.expected)) and not any(
        found.problem for found in _comparisons(seen, seen.stale)
    ):
        return "the outputs are those of earlier inputs"
    return ""


def check_skipped_set(seen: Examination) -> str:
    """Sets with equal inputs and unequal outputs."""
    first = seen.settled[0]
    for number, outputs in enumerate(seen.settled[1:], 1):
        if _equal(first, outputs):
            continue
        for tensor, one, other in zip(seen.tensors, first, outputs, strict=True):
            a, b = from_storage(one, tensor.dtype), from_storage(other, tensor.dtype)
            size = float(np.linalg.norm(a))
            if not float(np.linalg.norm(a - b)) <= seen.tolerance * size:
                return f"output {tensor.name} of set {number} differs from that of set 0, on equal inputs"
    return ""


def check_wrong_result(seen: Examination) -> str:
    """Outputs that are off."""
    return next((found.problem for found in seen.comparisons() if found.problem), "")


REPLAY_TRAPS: Mapping[str, Callable[[Examination], str]] = {
    SIDE_STREAM: check_side_stream,
    NO_OP: check_no_op,
    MUTATED_INPUT: check_mutated_input,
    CACHED_RESULT: check_cached_result,
    NAN_OUTPUT: check_nan_output,
    SKIPPED_SET: check_skipped_set,
    WRONG_RESULT: check_wrong_result,
}
"""What is looked for in a replay, in this order; each returns what was seen, "" if nothing."""

ALL_TRAPS = frozenset({*REPLAY_TRAPS, TOO_FAST})


def examine(seen: Examination, traps: frozenset[str] = ALL_TRAPS) -> tuple[str, str]:
    """Return the first trap that caught something and what it saw; ("", "") if none did."""
    for name, check in REPLAY_TRAPS.items():
        if name in traps and (reason := check(seen)):
            return name, reason
    return "", ""


@dataclass(frozen=True, slots=True)
class HardwareLimit:
    """What no kernel can undercut: bytes a run over the memory's peak, operations over the peak of the fastest unit.

    Attributes: bytes: inputs read and outputs written once; flops; bytes_per_s and flops_per_s: peaks of the data sheet,
    not what a benchmark reaches.
    """

    bytes: int
    flops: int
    bytes_per_s: float
    flops_per_s: float

    def cold_s(self, sets: int, l2_bytes: int) -> float:
        """Return seconds a run at least, over many turns of `sets` sets: what the cache keeps from turn to turn is free."""
        moved = max(0.0, self.bytes - l2_bytes / sets)
        return max(moved / self.bytes_per_s, self.warm_s)

    @property
    def warm_s(self) -> float:
        """Seconds a run at least, everything in the cache."""
        return self.flops / self.flops_per_s


def check_too_fast(cold_s: float, warm_s: float, limit: HardwareLimit, sets: int, l2_bytes: int) -> str:
    """Return what is impossible about a time, "" if nothing."""
    for what, found, least in (
        ("cold", cold_s, limit.cold_s(sets, l2_bytes)),
        ("warm", warm_s, limit.warm_s),
    ):
        if not found >= least:
            return f"{found * 1e6:.3f} us {what}, the hardware needs {least * 1e6:.3f} us at least"
    return ""
