"""What each primitive operator costs a multiprocessor: instructions of ordinary lanes, of special-function units.

Composites are expanded before, so the table names primitives only. Invariant: an operator that is not in the table is an
error (`MissingRuleError`), never free; what is free (a view, a constant) says so here.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from workbench.errors import MissingRuleError


class Shape(Enum):
    """Along which elements an operator's work goes."""

    ELEMENTWISE = "one result element each"
    FOLD = "one operand element each"
    PRODUCT = "one multiply-add each"
    MOVE = "other offsets: only what was just computed is written to shared memory for it"
    FREE = "no work: a view or a constant"


@dataclass(frozen=True, slots=True)
class Rule:
    """Work of one element. Attributes: shape; lanes: ordinary instructions; special: results of special-function units."""

    shape: Shape
    lanes: float = 0.0
    special: float = 0.0


def _elementwise(lanes: float, special: float = 0.0) -> Rule:
    return Rule(Shape.ELEMENTWISE, lanes, special)


_DIVISION = 4.0  # reciprocal by the special unit, one correction step, a range check
_RULES = {
    "add": _elementwise(1),
    "sub": _elementwise(1),
    "mul": _elementwise(1),
    "scale": _elementwise(1),
    "neg": _elementwise(1),
    "abs": _elementwise(1),
    "relu": _elementwise(1),
    "maximum": _elementwise(1),
    "minimum": _elementwise(1),
    "clamp": _elementwise(2),
    "div": _elementwise(_DIVISION, 1),
    "exp": _elementwise(2, 1),
    "log": _elementwise(2, 1),
    "sqrt": _elementwise(3, 1),
    "pow": _elementwise(6, 2),
    "erf": _elementwise(18, 1),
    "sum": Rule(Shape.FOLD, 1.5),
    "mean": Rule(Shape.FOLD, 1.5),
    "max": Rule(Shape.FOLD, 1.5),
    "sum_to_columns": Rule(Shape.FOLD, 1.5),
    "matmul": Rule(Shape.PRODUCT),
    "transpose": Rule(Shape.MOVE),
    "concat": Rule(Shape.MOVE),
    "split": Rule(Shape.MOVE),
    "broadcast": Rule(Shape.FREE),
    "reshape": Rule(Shape.FREE),
    "constant": Rule(Shape.FREE),
}


def rule_of(op: str) -> Rule:
    """Return what a primitive operator costs. Raises: MissingRuleError."""
    if op not in _RULES:
        raise MissingRuleError(f"the cost model has no rule for operator {op!r}; add one to cost/rules.py")
    return _RULES[op]
