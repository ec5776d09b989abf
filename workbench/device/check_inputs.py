"""Inputs to check a kernel on: random ones, and hard ones whose rows, columns and heads differ in scale and offset.

With identically distributed rows all row statistics are nearly equal, and a kernel that divides by another row's passes.
Invariant: inputs are as stored (rounded), the reference has finite numbers on them, no tensor comes near its type's
largest number, and an exponential whose argument is not a difference from a maximum stays within exp(-10) .. exp(10).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.codegen.cuda.numeric_limits import (
    HEADROOM,
    LOGIT_LIMIT,
    Floats,
    evaluate_within_types,
    exponents_of,
    survey,
)
from workbench.codegen.cuda.storage import Array, from_storage, to_storage
from workbench.core.tensors import DeviceTensor
from workbench.errors import UsageError
from workbench.ugraph.kernel_graph import KernelGraph

STANDARD_DEVIATION = 0.3
ATTEMPTS = 40


class InputKind(Enum):
    """RANDOM: independent N(0, 0.3^2). HARD: rows, columns and heads differ in scale and offset; logits up to 10."""

    RANDOM = "random"
    HARD = "hard"


@dataclass(frozen=True, slots=True)
class CheckCase:
    """One set of inputs, as stored and by position, and the float64 outputs that are right."""

    name: str
    inputs: tuple[Array, ...]
    expected: tuple[Floats, ...]


def make_cases(
    reference: KernelGraph,
    candidates: Sequence[KernelGraph] = (),
    *,
    seed: int = 0,
    kinds: Iterable[InputKind] = tuple(InputKind),
    namespace: Any = np,
) -> tuple[CheckCase, ...]:
    """Return a case of each kind; `reference` says what is right, `candidates` may take exponentials that it does not.

    namespace: numpy, or cupy to evaluate the reference on a GPU.
    Raises: UsageError when no scale of the inputs keeps all values within their types; what `evaluate` raises.
    """
    return tuple(_make_case(reference, candidates or (reference,), seed, kind, namespace) for kind in kinds)


def _make_case(
    reference: KernelGraph, candidates: Sequence[KernelGraph], seed: int, kind: InputKind, namespace: Any
) -> CheckCase:
    rng = np.random.default_rng([seed, *kind.value.encode()])
    drawn = [draw(tensor, kind, rng) for tensor in reference.inputs]
    watched = [graph for graph in candidates if exponents_of(graph) or (graph != reference and len(graph.nodes) > 1)]
    shared = {position for graph in watched for position in exponents_of(graph)}
    factors = np.ones(len(drawn))
    is_final = False
    for _ in range(ATTEMPTS):
        stored = [
            to_storage(array * np.float32(factor), tensor.dtype)
            for array, factor, tensor in zip(drawn, factors, reference.inputs, strict=True)
        ]
        values = [from_storage(array, tensor.dtype) for array, tensor in zip(stored, reference.inputs, strict=True)]
        surveys = [survey(graph, values) for graph in watched]
        logits = max((found.logit for found in surveys), default=0.0)
        is_small = kind is InputKind.HARD and 0 < logits < LOGIT_LIMIT / 2 and not is_final
        if logits > LOGIT_LIMIT or is_small:
            step = float(np.clip(np.sqrt(LOGIT_LIMIT * 0.9 / logits), 0.25, 4.0))
            is_final = is_final or not is_small  # once it was too large, it only shrinks
            for position in shared:
                factors[position] *= step
            continue
        if any(found.ratio * HEADROOM > 1 for found in surveys):  # an intermediate that the reference lacks
            for position in shared or range(len(drawn)):
                factors[position] *= 0.8
            is_final = True
            continue
        expected, ratio = evaluate_within_types(reference, values, namespace)
        if ratio * HEADROOM <= 1:
            return CheckCase(kind.value, tuple(stored), tuple(expected))
        factors *= 0.5
        is_final = True
    raise UsageError(
        f"no scale of {kind.value} inputs keeps {reference.name or 'the program'} within its data types; "
        "check it on inputs of your own"
    )


def draw(tensor: DeviceTensor, kind: InputKind, rng: np.random.Generator) -> npt.NDArray[np.float32]:
    """Return random numbers of a tensor's shape. HARD: scales from 0.2 to 4.5 along rows, 0.4 to 2.7 along heads, ..."""
    shape = tensor.shape
    rank = len(shape)
    array = np.asarray(rng.standard_normal(shape, dtype=np.float32))
    array *= np.float32(STANDARD_DEVIATION)
    if kind is InputKind.HARD:
        for axis, extent in enumerate(shape):
            along = [1] * rank
            along[axis] = extent
            spread, offset = {1: (0.7, 0.25), 2: (1.5, 0.5)}.get(rank - axis, (1.0, 0.25))
            if rank == 1:
                spread, offset = 1.0, 0.5
            array += np.float32(offset * STANDARD_DEVIATION) * rng.standard_normal(along, dtype=np.float32)
            array *= np.exp(rng.uniform(-spread, spread, along)).astype(np.float32)
    return array
