"""Mirage's operators of both levels in terms of ours. Invariant: what a file does not record is refused, never guessed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import TypeVar

from workbench.core.shapes import Shape
from workbench.errors import FormatError
from workbench.ops.spec import as_fraction
from workbench.ugraph.builder import BlockBuilder, KernelBuilder
from workbench.ugraph.json_value import JsonValue
from workbench.ugraph.location import located
from workbench.ugraph.value import Value

T = TypeVar("T")
UNARY = frozenset({"exp", "square", "sqrt", "silu", "gelu", "relu", "sigmoid", "log"})
BINARY = frozenset({"matmul", "add", "mul", "div", "sub", "pow"})
REFUSED = {
    "kn_allreduce_op": "it exchanges data between GPUs, which µGraphs of one GPU do not have",
    "tb_customized_op": "Mirage does not record what it computes",
    "kn_unkown": "Mirage did not know the operator when it wrote the file",
    "tb_unkown": "Mirage did not know the operator when it wrote the file",
}
_OPERATOR = re.compile(r"(?P<level>kn|tb)_(?P<name>[a-z_]+?)(?:_(?P<dim>\d)(?P<form>_to_dimx|_max)?)?_op")


def predefined(
    builder: KernelBuilder | BlockBuilder,
    op: str,
    operands: Sequence[Value],
    entry: JsonValue,
    shapes: Sequence[Shape],
    place: str,
) -> Sequence[Value]:
    """Add an operator that both levels know, and return its results.

    op: Mirage's name; shapes: the recorded results'. Raises: FormatError with the reason, naming
    `place`, for what cannot be imported; errors of the operator.
    """
    found, level = _OPERATOR.fullmatch(op), "kn" if isinstance(builder, KernelBuilder) else "tb"
    if op in REFUSED or found is None or found["level"] != level:
        raise FormatError(
            f"{place}: cannot be imported: {REFUSED.get(op, 'it is no operator of Mirage at this level')}"
        )
    name, dim = found["name"], None if found["dim"] is None else int(found["dim"])
    if name in UNARY | {"clamp", "mul_scalar", "rms_norm", "reduction", "split", "chunk"}:
        exactly(operands, 1, place)
    if dim is not None and (name not in {"reduction", "concat", "split", "chunk"} or not operands):
        raise FormatError(f"{place}: cannot be imported: it is no operator of Mirage at this level")
    if dim is not None and dim >= len(operands[0].shape):
        raise FormatError(f"{place}: cannot be imported: its operand has no dimension {dim}")
    attributes: dict[str, Fraction] = {}
    if name == "mul_scalar":
        attributes = {"factor": _constant(entry, "scalar", place)}
    if name == "clamp":
        attributes = {"lo": _constant(entry, "min_val", place), "hi": _constant(entry, "max_val", place)}
    with located(place):
        if name in UNARY:
            return [builder.apply(name, operands[0])]
        if name in BINARY:
            return [builder.apply(name, *exactly(operands, 2, place))]
        match name, dim:
            case "mul_scalar", None:
                return [builder.apply("scale", operands[0], factor=attributes["factor"])]
            case "clamp", None:
                return [builder.apply("clamp", operands[0], lo=attributes["lo"], hi=attributes["hi"])]
            case "rms_norm", None:
                return [builder.apply("rms_norm", operands[0], eps=Fraction(0))]
            case "reduction", int():
                return [_folded(builder, operands[0], dim, shapes)]
            case "concat", int():
                return [builder.apply("concat", *operands, axis=dim)]
            case (("split" | "chunk"), int()):
                parts = tuple(shape[dim] for shape in shapes if dim < len(shape))
                return builder.apply_all("split", operands[0], parts=parts, axis=dim)
    raise FormatError(f"{place}: cannot be imported: it is no operator of Mirage at this level")


def _folded(builder: KernelBuilder | BlockBuilder, value: Value, dim: int, shapes: Sequence[Shape]) -> Value:
    """Return the strided sum along a dimension down to the recorded extent: out[.., j, ..] = sum_k x[.., k*D + j, ..]."""
    kept = shapes[0][dim] if shapes and dim < len(shapes[0]) else 1
    if kept == 1:
        return builder.apply("sum", value, axis=dim)
    if dim == len(value.shape) - 1:
        return builder.apply("sum_to_columns", value, columns=kept)
    before, after = value.shape[:dim], value.shape[dim + 1 :]
    split = builder.apply("reshape", value, shape=(*before, -1, kept, *after))
    return builder.apply("reshape", builder.apply("sum", split, axis=dim), shape=(*before, kept, *after))


def _constant(entry: JsonValue, name: str, place: str) -> Fraction:
    recorded = entry.optional(name)
    if recorded is None:
        raise FormatError(
            f"{place}: cannot be imported: its constant {name} is not recorded (Mirage's files leave it out)"
        )
    if not isinstance(recorded.value, int | float) or isinstance(recorded.value, bool):
        raise recorded.fail("a number")
    return as_fraction(recorded.value)


def exactly(found: Sequence[T], count: int, place: str) -> Sequence[T]:
    """Return what was found. Raises: FormatError unless it is `count` things."""
    if len(found) != count:
        raise FormatError(f"{place}: takes {count} tensor{'s' * (count != 1)} here, got {len(found)}")
    return found
