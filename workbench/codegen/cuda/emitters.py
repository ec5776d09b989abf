"""How each operator is written in CUDA: a total table from operator names to rules that build tile values.

Invariant: `EMITTERS` has a rule for exactly the operators that the backend claims, `CLAIMED`; a test compares both with
the registry. An operator with a one-element C expression needs no rule of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from workbench.codegen.cuda.tile_values import Folding, Joined, TileValue, View
from workbench.ops.attributes import fraction, integer
from workbench.ops.registry import operator, operators
from workbench.ops.spec import Attributes, AttributeValue, OpKind

if TYPE_CHECKING:
    from workbench.codegen.cuda.lowering import Lowering

Operands = tuple[TileValue, ...]
Rule = Callable[["Lowering", Operands, Attributes, tuple[str, ...]], tuple[TileValue, ...]]
"""Lowering under way, operands, attributes, names of the results -> the results."""


def _elementwise(op: str) -> Rule:
    def rule(low: Lowering, operands: Operands, attributes: Attributes, labels: tuple[str, ...]) -> Operands:
        return (low.mapped(op, operands, attributes, labels[0]),)

    return rule


def _expanded(op: str) -> Rule:
    """Return the rule of a composite: its expansion, the same that every other domain may use."""

    def rule(low: Lowering, operands: Operands, attributes: Attributes, labels: tuple[str, ...]) -> Operands:
        expansion = operator(op).expand
        assert expansion is not None

        def apply(name: str, *inner: TileValue, **given: AttributeValue) -> TileValue:
            return low.apply(name, *inner, **given)

        return (expansion(apply, operands, tuple(value.shape for value in operands), attributes),)

    return rule


def _constant(low: Lowering, operands: Operands, attributes: Attributes, labels: tuple[str, ...]) -> Operands:
    return (low.constant(fraction(attributes, "value"), labels[0]),)


# -------------------------------------------------------------------------------------------------------- reductions
def _fold(folding: Folding) -> Rule:
    def rule(low: Lowering, operands: Operands, attributes: Attributes, labels: tuple[str, ...]) -> Operands:
        return (low.folded(operands[0], integer(attributes, "axis"), folding, labels[0]),)

    return rule


def _mean(low: Lowering, operands: Operands, attributes: Attributes, labels: tuple[str, ...]) -> Operands:
    axis = integer(attributes, "axis")
    total = low.folded(operands[0], axis, Folding.SUM, f"{labels[0]}_sum")
    return (low.divided_by_count(total, operands[0], axis, 1, labels[0]),)


def _sum_to_columns(low: Lowering, operands: Operands, attributes: Attributes, labels: tuple[str, ...]) -> Operands:
    """Fold the groups of [.., groups, columns], a view of the last axis."""
    (operand,), columns, label = operands, integer(attributes, "columns"), labels[0]
    groups = operand.shape[-1] // columns
    grouped, ragged = (*operand.shape[:-1], groups, columns), (*operand.ragged, None)
    view = low.viewed(operand, View.RESHAPE, grouped, ragged, f"{label}_groups")
    total = low.folded(view, -2, Folding.SUM, f"{label}_sum")
    return (low.viewed(total, View.RESHAPE, (*operand.shape[:-1], columns), operand.ragged, label),)


def _softmax(low: Lowering, operands: Operands, attributes: Attributes, labels: tuple[str, ...]) -> Operands:
    """Subtract the largest element first, which changes no result and keeps every exponential below 1."""
    (x,), axis = operands, integer(attributes, "axis")
    weights = low.apply("exp", low.apply("sub", x, low.apply("max", x, axis=axis)))
    return (low.mapped("div", (weights, low.apply("sum", weights, axis=axis)), {}, labels[0]),)


# ---------------------------------------------------------------------------------------------------------- movement
def _viewed(op: str, view: View) -> Rule:
    def rule(low: Lowering, operands: Operands, attributes: Attributes, labels: tuple[str, ...]) -> Operands:
        ((shape, ragged),) = low.infer(op, operands, attributes)
        return (low.viewed(operands[0], view, shape, ragged, labels[0]),)

    return rule


def _concat(low: Lowering, operands: Operands, attributes: Attributes, labels: tuple[str, ...]) -> Operands:
    ((shape, ragged),) = low.infer("concat", operands, attributes)
    value = Joined(
        name=low.names.claim(labels[0]), label=labels[0], shape=shape, ragged=ragged, dtype=operands[0].dtype,
        place=low.place(*operands), operands=operands, axis=integer(attributes, "axis"),
    )  # fmt: skip
    return (value,)


def _split(low: Lowering, operands: Operands, attributes: Attributes, labels: tuple[str, ...]) -> Operands:
    axis, start, made = integer(attributes, "axis"), 0, []
    for label, (shape, ragged) in zip(labels, low.infer("split", operands, attributes), strict=True):
        made.append(low.viewed(operands[0], View.PIECE, shape, ragged, label, axis, start))
        start += shape[axis]
    return tuple(made)


# -------------------------------------------------------------------------------------------------------- contraction
def _matmul(low: Lowering, operands: Operands, attributes: Attributes, labels: tuple[str, ...]) -> Operands:
    """Multiply; two concatenations that meet piece by piece along the contracted axis are a sum of products."""
    ((shape, ragged),) = low.infer("matmul", operands, attributes)
    left, right = operands
    pairs: tuple[tuple[TileValue, TileValue], ...] = ((left, right),)
    if isinstance(left, Joined) and isinstance(right, Joined) and (left.axis, right.axis) == (-1, -2):
        pieces = tuple(zip(left.operands, right.operands, strict=False))
        if len(left.operands) == len(right.operands) and all(a.shape[-1] == b.shape[-2] for a, b in pieces):
            pairs = pieces
    return (low.contracted(pairs, shape, ragged, labels[0]),)


_OWN_RULES: dict[str, Rule] = {
    "constant": _constant,
    "sum": _fold(Folding.SUM),
    "max": _fold(Folding.MAX),
    "mean": _mean,
    "sum_to_columns": _sum_to_columns,
    "rms": _expanded("rms"),
    "rms_norm": _expanded("rms_norm"),
    "l2_norm": _expanded("l2_norm"),
    "layer_norm": _expanded("layer_norm"),
    "softmax": _softmax,
    "transpose": _viewed("transpose", View.TRANSPOSE),
    "reshape": _viewed("reshape", View.RESHAPE),
    "broadcast": _viewed("broadcast", View.BROADCAST),
    "concat": _concat,
    "split": _split,
    "matmul": _matmul,
}

EMITTERS: dict[str, Rule] = _OWN_RULES | {
    spec.name: _elementwise(spec.name)
    for spec in operators()
    if spec.kind is OpKind.ELEMENTWISE and spec.scalar_c is not None and spec.name not in _OWN_RULES
}

CLAIMED = frozenset(EMITTERS)
"""The operators that kernels are written for."""
