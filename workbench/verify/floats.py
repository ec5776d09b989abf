"""Do two programs agree over the reals: random inputs in float64, and in longer arithmetic where the gap is small.

Invariant: a witness is inputs on which both sides are finite and differ by more than rounding explains; agreement here
is necessary for "equal", never sufficient.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench.core.shapes import Shape
from workbench.interpret.floats import FloatDomain
from workbench.interpret.walk import walk
from workbench.ops.spec import Array
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.verify.verdict import Witness

AGREE = 1e-10
"""Gap, relative to the output's scale, below which float64 cannot tell two programs apart."""
CLEAR = 1e-4
"""Gap from which float64 alone is a witness; between the two, longer arithmetic decides."""
LONG_AGREE = 1e-14
SEEN_BEFORE = 1e-8
"""Gap at true shapes that confirms a difference already seen on a reduced instance."""

STYLES = ("normal", "small", "positive", "rows")
"""How inputs are drawn: N(0,1); N(0, 0.3^2); uniform in (0.2, 1.5), for roots and logarithms; rows of unlike scale."""


@dataclass(frozen=True, slots=True, eq=False)
class FloatCheck:
    """What float64 says: the witness if there is one, how many draws had a common finite part, the largest gap seen."""

    witness: Witness | None
    compared: int
    gap: float


def draw_inputs(shapes: Sequence[Shape], rng: np.random.Generator, style: str) -> list[Array]:
    """Return one float64 array per shape, drawn in a style of `STYLES`."""
    inputs: list[Array] = []
    for shape in shapes:
        if style == "positive":
            inputs.append(rng.uniform(0.2, 1.5, shape))
            continue
        array = rng.standard_normal(shape) * (0.3 if style == "small" else 1.0)
        if style == "rows" and shape:
            scales = np.exp(rng.uniform(-1.5, 1.0, (*shape[:-1], 1)))
            array = array * scales * 0.5 + 0.2
        inputs.append(array)
    return inputs


def evaluate_real(graph: KernelGraph, inputs: Sequence[Array], dtype: Any = np.float64) -> list[Array]:
    """Return the outputs in float64 or in `np.longdouble`."""
    return walk(graph, [array.astype(dtype) for array in inputs], FloatDomain())


def compare_real(
    program: KernelGraph,
    candidate: KernelGraph,
    rng: np.random.Generator,
    *,
    styles: Sequence[str] = STYLES,
    exact: bool = True,
) -> FloatCheck:
    """Return the first real inputs on which the programs differ, or that none were found.

    exact: confirm small gaps in longer arithmetic (reduced instances); otherwise only clear gaps count.
    """
    shapes = [tensor.shape for tensor in program.inputs]
    compared, largest = 0, 0.0
    for style in styles:
        inputs = draw_inputs(shapes, rng, style)
        left, right = evaluate_real(program, inputs), evaluate_real(candidate, inputs)
        found = _largest_gap(left, right)
        if found is None:
            continue
        compared += 1
        gap, output, index = found
        largest = max(largest, gap)
        how = "float64"
        if gap <= AGREE and not exact:
            continue
        if gap < CLEAR and exact and gap > LONG_AGREE:
            left, right = (evaluate_real(graph, inputs, np.longdouble) for graph in (program, candidate))
            again = _largest_gap(left, right)
            if again is None or again[0] <= max(LONG_AGREE, 1e-3 * gap):
                continue  # the gap was rounding
            gap, output, index = again
            how = "longdouble"
        elif gap < CLEAR:
            continue
        return FloatCheck(
            Witness(
                output=output,
                index=index,
                left=float(left[output][index]),
                right=float(right[output][index]),
                shapes=tuple(shapes),
                inputs=tuple(inputs),
                how=how,
            ),
            compared,
            gap,
        )
    return FloatCheck(None, compared, largest)


_KEPT: OrderedDict[tuple[int, str], tuple[KernelGraph, list[Array], list[Array]]] = OrderedDict()


def confirm_at_true_shapes(program: KernelGraph, candidate: KernelGraph) -> FloatCheck:
    """Return whether a difference seen on a reduced instance shows at the programs' own shapes too.

    The inputs are the same for every candidate, so that a program's outputs are computed once for many candidates.
    """
    for style in ("normal", "positive", "small"):
        kept = _KEPT.get((id(program), style))
        if kept is None or kept[0] is not program:
            inputs = draw_inputs([tensor.shape for tensor in program.inputs], np.random.default_rng(7), style)
            kept = (program, inputs, evaluate_real(program, inputs))
            _KEPT[id(program), style] = kept
            while len(_KEPT) > 3:
                _KEPT.popitem(last=False)
        _, inputs, left = kept
        right = evaluate_real(candidate, inputs)
        found = _largest_gap(left, right)
        if found is None:
            continue
        gap, output, index = found
        witness = None
        if gap > SEEN_BEFORE:
            values = float(left[output][index]), float(right[output][index])
            shapes = tuple(tensor.shape for tensor in program.inputs)
            witness = Witness(output=output, index=index, left=values[0], right=values[1], shapes=shapes,
                              inputs=tuple(inputs))  # fmt: skip
        return FloatCheck(witness, 1, gap)
    return FloatCheck(None, 0, 0.0)


def _largest_gap(left: Sequence[Array], right: Sequence[Array]) -> tuple[float, int, tuple[int, ...]] | None:
    """Return (gap relative to the output's scale, output, index) where both sides are finite; None if nowhere."""
    best: tuple[float, int, tuple[int, ...]] | None = None
    with np.errstate(
        over="ignore"
    ):  # constants near the largest float64 make infinite gaps, which are gaps all the same
        return _best_gap(left, right, best)


def _best_gap(
    left: Sequence[Array], right: Sequence[Array], best: tuple[float, int, tuple[int, ...]] | None
) -> tuple[float, int, tuple[int, ...]] | None:
    for number, (a, b) in enumerate(zip(left, right, strict=True)):
        finite = np.isfinite(a) & np.isfinite(b)
        if not finite.any():
            continue
        scale = float(np.sqrt(np.mean(np.square(np.where(finite, a, 0.0), dtype=np.float64))))
        difference = np.where(finite, np.abs(np.where(finite, a, 0) - np.where(finite, b, 0)), 0.0)
        position = int(np.argmax(difference))
        index = tuple(int(i) for i in np.unravel_index(position, a.shape))
        gap = float(difference[index]) / (max(scale, float(abs(a[index])), float(abs(b[index]))) or 1.0)
        if best is None or gap > best[0]:
            best = (gap, number, index)
    return best
