"""A value under construction, and the operators that programs are written with.

Invariant: `f(x)` adds one node to the builder that `x` belongs to, whatever its level, so one spelling serves all levels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from workbench.core.shapes import Shape
from workbench.errors import UsageError
from workbench.ops.spec import as_fraction


class Builder(Protocol):
    """What a value needs of the graph it belongs to."""

    def apply(
        self, op: str, *operands: Value | int | float | Fraction, name: str | None = None, **attributes: object
    ) -> Value:
        """Add an operator with one result."""
        ...

    def apply_all(
        self, op: str, *operands: Value | int | float | Fraction, name: str | None = None, **attributes: object
    ) -> tuple[Value, ...]:
        """Add an operator, return all results."""
        ...


Number = int | float | Fraction

_NEITHER = "neither a tensor of the graph nor a number"


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A tensor of a graph under construction: `@ + - * /`, unary minus and `**` with numbers work on it.

    Attributes: builder; name; shape.
    """

    builder: Builder
    name: str
    shape: Shape

    __array_ufunc__ = None  # NumPy arrays must not broadcast over a Value

    def __matmul__(self, other: Value) -> Value:
        return matmul(self, other)

    def __add__(self, other: Value | Number) -> Value:
        return self.builder.apply("add", self, other)

    def __radd__(self, other: Number) -> Value:
        return self.builder.apply("add", other, self)

    def __sub__(self, other: Value | Number) -> Value:
        return self.builder.apply("sub", self, other)

    def __rsub__(self, other: Number) -> Value:
        return self.builder.apply("sub", other, self)

    def __mul__(self, other: Value | Number) -> Value:
        return _product(self, other)

    def __rmul__(self, other: Number) -> Value:
        return _product(self, other)

    def __truediv__(self, other: Value | Number) -> Value:
        if isinstance(other, Value):
            return self.builder.apply("div", self, other)
        number = as_number(other, _NEITHER)
        if number == 0:
            raise UsageError(f"{self.name} is divided by the number 0")
        return self.builder.apply("scale", self, factor=1 / number)

    def __rtruediv__(self, other: Number) -> Value:
        return self.builder.apply("div", other, self)

    def __neg__(self) -> Value:
        return self.builder.apply("neg", self)

    def __pow__(self, exponent: Value | Number) -> Value:
        return pow(self, exponent)

    def __rpow__(self, base: Number) -> Value:
        return pow(base, self)

    def __bool__(self) -> bool:
        raise UsageError(
            f"the truth of tensor {self.name} is not known while a program is traced; use maximum, relu, clamp"
        )

    def __iter__(self) -> Value:
        raise UsageError(f"tensor {self.name} cannot be iterated over while a program is traced; use split")


def as_number(operand: object, otherwise: str = "no number") -> Fraction:
    """Return a Python or NumPy number as an exact fraction (a float means the decimal that repr prints).

    Raises: UsageError for everything else, NaN, infinities and truth values included; `otherwise` says what it is not.
    """
    shown = repr(operand)
    if len(shown) > 40 or "\n" in shown:
        shown = f"a value of type {type(operand).__name__}"
    if isinstance(operand, str):  # text is a number in files only
        raise UsageError(f"{shown} is {otherwise}")
    try:
        return as_fraction(operand)
    except TypeError as error:
        raise UsageError(f"{shown} is {otherwise}") from error
    except ValueError as error:
        raise UsageError(f"{shown} is not finite; constants of a program are finite numbers") from error


def _builder(*operands: Value | Number) -> Builder:
    for operand in operands:
        if isinstance(operand, Value):
            return operand.builder
    raise UsageError(
        "an operator of the workbench needs a traced tensor among its operands, got "
        f"{', '.join(type(operand).__name__ for operand in operands) or 'none'}; use it inside wb.trace or @wb.program"
    )


def _product(left: Value, right: Value | Number) -> Value:
    if isinstance(right, Value):
        return left.builder.apply("mul", left, right)
    return left.builder.apply("scale", left, factor=as_number(right, _NEITHER))


def _unary(op: str, operand: Value, **attributes: object) -> Value:
    return _builder(operand).apply(op, operand, name=None, **attributes)


def matmul(left: Value, right: Value) -> Value:
    """Return left @ right; (..., m, k) by (..., k, n), leading axes broadcast. Raises: ShapeError."""
    return _builder(left, right).apply("matmul", left, right)


def add(left: Value | Number, right: Value | Number) -> Value:
    """Return left + right, broadcast over trailing axes."""
    return _builder(left, right).apply("add", left, right)


def sub(left: Value | Number, right: Value | Number) -> Value:
    """Return left - right, broadcast over trailing axes."""
    return _builder(left, right).apply("sub", left, right)


def mul(left: Value | Number, right: Value | Number) -> Value:
    """Return left * right elementwise, broadcast over trailing axes."""
    if isinstance(left, Value):
        return _product(left, right)
    return _product(right, left) if isinstance(right, Value) else _builder(left, right).apply("mul", left, right)


def div(left: Value | Number, right: Value | Number) -> Value:
    """Return left / right elementwise, broadcast over trailing axes."""
    return left / right if isinstance(left, Value) else _builder(left, right).apply("div", left, right)


def scale(operand: Value, factor: Number) -> Value:
    """Return operand times a number (a float means the decimal that repr prints)."""
    return _unary("scale", operand, factor=factor)


def pow(base: Value | Number, exponent: Value | Number) -> Value:
    """Return base ** exponent; whole and half exponents become products and roots, others stay opaque.

    With exponent 1 it is the base itself. Raises: AttributeValueError for exponent 0, which makes a constant 1.
    """
    if not isinstance(base, Value) or isinstance(exponent, Value):
        return _builder(base, exponent).apply("pow", base, exponent)
    number = as_number(exponent, _NEITHER)
    if number == 1:
        return base
    roots = {Fraction(2): "square", Fraction(1, 2): "sqrt", Fraction(-1, 2): "rsqrt"}
    if number in roots:
        return _unary(roots[number], base)
    if number.denominator == 1:
        return _unary("power", base, exponent=int(number))
    return base.builder.apply("pow", base, number)


def neg(operand: Value) -> Value:
    """Return -operand."""
    return _unary("neg", operand)


def exp(operand: Value) -> Value:
    """Return e to the operand."""
    return _unary("exp", operand)


def log(operand: Value) -> Value:
    """Return the natural logarithm."""
    return _unary("log", operand)


def sqrt(operand: Value) -> Value:
    """Return the square root."""
    return _unary("sqrt", operand)


def rsqrt(operand: Value) -> Value:
    """Return one over the square root."""
    return _unary("rsqrt", operand)


def square(operand: Value) -> Value:
    """Return operand * operand."""
    return _unary("square", operand)


def silu(operand: Value) -> Value:
    """Return operand * sigmoid(operand)."""
    return _unary("silu", operand)


def gelu(operand: Value, approximate: str = "none") -> Value:
    """Return GELU: approximate='none' is the erf form, 'tanh' the tanh form (two different functions)."""
    return _unary("gelu", operand, approximate=approximate)


def sigmoid(operand: Value) -> Value:
    """Return 1 / (1 + e^-operand)."""
    return _unary("sigmoid", operand)


def tanh(operand: Value) -> Value:
    """Return the hyperbolic tangent."""
    return _unary("tanh", operand)


def relu(operand: Value) -> Value:
    """Return max(operand, 0)."""
    return _unary("relu", operand)


def abs(operand: Value) -> Value:
    """Return the absolute value."""
    return _unary("abs", operand)


def clamp(operand: Value, lo: Number, hi: Number) -> Value:
    """Return operand limited to lo..hi. Raises: AttributeValueError when lo > hi."""
    return _unary("clamp", operand, lo=lo, hi=hi)


def maximum(left: Value | Number, right: Value | Number) -> Value:
    """Return the larger of both, elementwise."""
    return _builder(left, right).apply("maximum", left, right)


def minimum(left: Value | Number, right: Value | Number) -> Value:
    """Return the smaller of both, elementwise."""
    return _builder(left, right).apply("minimum", left, right)


def sum(operand: Value, axis: int = -1) -> Value:
    """Return the sum over an axis, which stays with extent 1."""
    return _unary("sum", operand, axis=axis)


def mean(operand: Value, axis: int = -1) -> Value:
    """Return the mean over an axis, which stays with extent 1."""
    return _unary("mean", operand, axis=axis)


def max(operand: Value, axis: int = -1) -> Value:
    """Return the maximum over an axis, which stays with extent 1."""
    return _unary("max", operand, axis=axis)


def sum_to_columns(operand: Value, columns: int) -> Value:
    """Return the strided sum to D columns: out[..., j] = sum_k operand[..., k*D + j]."""
    return _unary("sum_to_columns", operand, columns=columns)


def rms(operand: Value, axis: int = -1, eps: Number = 0) -> Value:
    """Return sqrt(mean of squares + eps) over an axis, which stays with extent 1."""
    return _unary("rms", operand, axis=axis, eps=eps)


def rms_norm(operand: Value, eps: Number = 1e-6, gain: Value | None = None) -> Value:
    """Return operand / sqrt(mean of squares over the last axis + eps), times gain if given."""
    result = _unary("rms_norm", operand, eps=eps)
    return result if gain is None else result * gain


def l2_norm(operand: Value, eps: Number = 0) -> Value:
    """Return operand / sqrt(sum of squares over the last axis + eps)."""
    return _unary("l2_norm", operand, eps=eps)


def layer_norm(operand: Value, eps: Number = 1e-5, gain: Value | None = None, bias: Value | None = None) -> Value:
    """Return (operand - mean) / sqrt(variance + eps) over the last axis, times gain, plus bias if given."""
    result = _unary("layer_norm", operand, eps=eps)
    result = result if gain is None else result * gain
    return result if bias is None else result + bias


def softmax(operand: Value, axis: int = -1) -> Value:
    """Return e^operand / sum of e^operand over an axis."""
    return _unary("softmax", operand, axis=axis)


def transpose(operand: Value) -> Value:
    """Return the operand with its last two axes exchanged."""
    return _unary("transpose", operand)


def reshape(operand: Value, shape: Sequence[int] | int) -> Value:
    """Return the elements in row-major order under another shape; one extent may be -1."""
    return _unary("reshape", operand, shape=shape)


def broadcast(operand: Value, shape: Sequence[int] | int) -> Value:
    """Return the operand repeated to a shape, as NumPy broadcasts."""
    return _unary("broadcast", operand, shape=shape)


def concat(*operands: Value, axis: int = -1) -> Value:
    """Return the operands laid one after the other along an axis."""
    return _builder(*operands).apply("concat", *operands, axis=axis)


def split(operand: Value, parts: int, axis: int = -1) -> tuple[Value, ...]:
    """Return a tuple of equal parts along an axis. Raises: ShapeError unless `parts` divides the extent."""
    return _builder(operand).apply_all("split", operand, parts=parts, axis=axis)


FUNCTIONS = (
    matmul, add, sub, mul, div, scale, pow, neg, exp, log, sqrt, rsqrt, square, silu, gelu, sigmoid, tanh, relu, abs,
    clamp, maximum, minimum, sum, mean, max, sum_to_columns, rms, rms_norm, l2_norm, layer_norm, softmax, transpose,
    reshape, broadcast, concat, split,
)  # fmt: skip
