"""What one operator of a palette can do at once, and how many operators a value takes at least.

Invariant: both err on the side of fewer operators, so that a bound built on them is admissible.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from workbench.domains.abstract_normal_form import Algebra


@dataclass(frozen=True, slots=True)
class StepCosts:
    """What one operator of the palette can do at once; the fewer operators a path needs, the smaller the distance.

    Attributes:
        product_sums: a product may sum over tile axes too (matmul).
        sum_scales: a sum may multiply by a constant too (mean).
        folds_whole: an operator may sum over all parts of an axis at once (a predefined kernel, or a block graph that
            does not cut the axis); else a sum over a loop or a grid part takes an operator of its own.
        crossing: operators for a crossing (`exp`, `sqrt`, `div`, `max`, or a function's name), 1 where not listed.
        absorbs: how many operators below a crossing one composite does as well (rms: {"sqrt": 4} takes square, sum,
            scale and the addition of an epsilon along).
    """

    product_sums: bool = True
    sum_scales: bool = False
    folds_whole: bool = False
    crossing: Mapping[str, int] = field(default_factory=dict)
    absorbs: Mapping[str, int] = field(default_factory=dict)


def fewest_operators(algebra: Algebra, value: int, costs: StepCosts | None = None) -> int:
    """Return how many operators make a value from input tensors, at least (operators with at most two operands).

    Each of n different inputs but the first needs an operator that joins it; each kind of function that occurs needs
    one of its own, and so does a sum over iterations, unless the palette has a composite that may include it.
    """
    costs = costs or StepCosts()
    inputs = needed = 0
    sums_loop = False
    for key in algebra.feature_counts(algebra.count[value]):
        match key:
            case ("symbol", _, _):
                inputs += 1
            case ("apply", str(name)):
                needed += costs.crossing.get(name, 1)
            case "exp" | "sqrt":
                needed += costs.crossing.get(str(key), 1)
            case ("sum", int(axis)):
                sums_loop = sums_loop or bool(axis & algebra.loop_mask)
    return needed + max(inputs - 1, 0) + (sums_loop and not costs.absorbs and not costs.folds_whole)
