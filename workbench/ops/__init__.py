"""What an operator is: one frozen record each. Importing this package fills the registry."""

from __future__ import annotations

from workbench.ops import (
    activation,
    constant,
    contraction,
    elementwise,
    movement,
    normalization,
    piecewise,
    power,
    reduction,
)
from workbench.ops.attributes import complete_attributes, normalize_attributes
from workbench.ops.broadcasting import align_ranks
from workbench.ops.registry import operator, operators, register
from workbench.ops.spec import OpSpec

__all__ = [
    "OpSpec",
    "activation",
    "align_ranks",
    "complete_attributes",
    "constant",
    "contraction",
    "elementwise",
    "movement",
    "normalization",
    "normalize_attributes",
    "operator",
    "operators",
    "piecewise",
    "power",
    "reduction",
    "register",
]
