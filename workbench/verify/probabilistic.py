"""The random test in a pair of finite fields: two programs at the same random points (paper, section 5).

Invariant: every output element is compared, on every side that both have; equal programs always pass; how often others
pass is `error_bound`'s to say.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from workbench.domains.field_pairs import FieldPair
from workbench.domains.finite_field import FieldArithmetic
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.verify.sampling import MAX_SECONDS, Draw, Sampler, features


@dataclass(frozen=True, slots=True, eq=False)
class Mismatch:
    """Where two programs differ at a random point: output, element, residues of both, side."""

    output: int
    index: tuple[int, ...]
    side: str
    left: int
    right: int


@dataclass(frozen=True, slots=True, eq=False)
class FieldTests:
    """What some random tests said.

    Attributes: passed: how many points agreed before the first mismatch; mismatch: None if all agreed; resampled: parts of
    inputs that were drawn again; opaque: operators taken as random functions; pieces: applications of piecewise operators.
    """

    passed: int
    mismatch: Mismatch | None
    resampled: int
    opaque: tuple[str, ...]
    pieces: int


def run_tests(
    program: KernelGraph,
    candidate: KernelGraph,
    pair: FieldPair,
    tests: int,
    rng: np.random.Generator,
    *,
    watch: Callable[[Draw, FieldArithmetic], None] | None = None,
    seconds: float = MAX_SECONDS,
) -> FieldTests:
    """Return what `tests` independent random points say, each with its own root of unity; stops at a mismatch.

    watch: called with every point, for those who want to look at values; seconds: as for `Sampler`.
    Raises: NotApplicableError when no point has a meaning, OutsideLaxError for an operator without meaning in a field.
    """
    kinds = [features(graph) for graph in (program, candidate)]
    with_real = any(kind.piecewise for kind in kinds)
    resampled, pieces = 0, 0
    opaque: dict[str, None] = {}
    arithmetic = FieldArithmetic(pair, pair.random_omega(rng))
    sampler = Sampler((program, candidate), arithmetic, rng, with_real=with_real, seconds=seconds)
    for number in range(tests):
        if number:
            sampler.arithmetic = arithmetic = FieldArithmetic(pair, pair.random_omega(rng))
        draw = sampler.draw(int(rng.integers(2**31)))
        resampled += draw.resampled
        pieces += sum(len(trace.pieces) for trace in draw.traces)
        opaque.update(dict.fromkeys(name for trace in draw.traces for name in trace.opaque))
        if watch is not None:
            watch(draw, arithmetic)
        mismatch = first_mismatch(draw, arithmetic)
        if mismatch is not None:
            return FieldTests(number, mismatch, resampled, tuple(opaque), pieces)
    return FieldTests(tests, None, resampled, tuple(opaque), pieces)


def first_mismatch(draw: Draw, arithmetic: FieldArithmetic) -> Mismatch | None:
    """Return the first output element in which two programs differ at a point, None if all agree."""
    left, right = draw.outputs
    for number, (a, b) in enumerate(zip(left, right, strict=True)):
        mask = arithmetic.differs(a.residues, b.residues)
        if mask.any():
            index = tuple(int(i) for i in np.unravel_index(int(np.argmax(mask)), mask.shape))
            side = "p" if a.residues.p[index] != b.residues.p[index] else "q"
            values = [getattr(value.residues, side)[index] for value in (a, b)]
            return Mismatch(number, index, side, int(values[0]), int(values[1]))
    return None
