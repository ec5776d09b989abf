"""On what every operator is tried: shapes with distinct prime extents, attributes, and what its operands must be.

Also an oracle per operator: its meaning once more, written plainly with NumPy and without the code under test. The
oracles of rational operators also work on arrays of fractions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from workbench.core.shapes import Shape
from workbench.ops import complete_attributes
from workbench.ops.spec import Array, AttributeValue, OpSpec

ANY, POSITIVE = "any", "positive"


@dataclass(frozen=True)
class Case:
    """One way to apply an operator: operand shapes, given attributes, and per operand what its elements are."""

    shapes: tuple[Shape, ...]
    attributes: Mapping[str, object] = field(default_factory=dict)
    signs: tuple[str, ...] = ()

    def complete(self, spec: OpSpec) -> dict[str, AttributeValue]:
        """Return the attributes as a node stores them."""
        return complete_attributes(spec, self.attributes, self.shapes)

    def sign(self, operand: int) -> str:
        """Return what elements of an operand are: positive, or any but near zero."""
        return self.signs[operand] if self.signs else ANY


def draw(rng: np.random.Generator, shape: Shape, sign: str) -> Array:
    """Return random elements between 0.3 and 2 in size."""
    magnitude = rng.uniform(0.3, 2.0, shape)
    return np.asarray(magnitude if sign == POSITIVE else magnitude * rng.choice([-1.0, 1.0], shape))


def operands_of(case: Case, rng: np.random.Generator) -> tuple[Array, ...]:
    """Return random operands for a case."""
    return tuple(draw(rng, shape, case.sign(number)) for number, shape in enumerate(case.shapes))


_UNARY = (Case(((2, 3, 5),)), Case(((),)), Case(((7,),)))
_POSITIVE_UNARY = tuple(Case(case.shapes, {}, (POSITIVE,)) for case in _UNARY)
_PAIRS = (((2, 3, 5), (3, 1)), ((3, 5), (3, 5)), ((5,), (2, 1, 5)), ((), (3,)), ((7, 1), (1, 2)))
_BINARY = tuple(Case(pair) for pair in _PAIRS)
_LAST = (Case(((2, 3, 5),)), Case(((7,),)))
_AXES = (*(Case(((2, 3, 5),), {"axis": axis}) for axis in (-1, -2, -3)), Case(((7, 3),), {"axis": 0}))


def _with(cases: tuple[Case, ...], **attributes: object) -> tuple[Case, ...]:
    return tuple(Case(case.shapes, {**case.attributes, **attributes}, case.signs) for case in cases)


CASES: dict[str, tuple[Case, ...]] = {
    "add": _BINARY,
    "sub": _BINARY,
    "mul": _BINARY,
    "div": _BINARY,
    "neg": _UNARY,
    "scale": _with(_UNARY, factor=0.375) + _with(_UNARY, factor=-3),
    "square": _UNARY,
    "sqrt": _POSITIVE_UNARY,
    "rsqrt": _POSITIVE_UNARY,
    "power": tuple(Case(((2, 5),), {"exponent": n}) for n in (1, 2, 3, 7, 10, -1, -2, -6)),
    "pow": tuple(Case(pair, {}, (POSITIVE, ANY)) for pair in _PAIRS),
    "exp": _UNARY,
    "log": _POSITIVE_UNARY,
    "erf": _UNARY,
    "sigmoid": _UNARY,
    "tanh": _UNARY,
    "silu": _UNARY,
    "gelu": _UNARY + _with(_UNARY, approximate="tanh"),
    "relu": _UNARY,
    "abs": _UNARY,
    "clamp": _with(_UNARY, lo=-0.5, hi=0.75) + _with(_UNARY, lo=-1, hi=Fraction(1, 3)),
    "maximum": _BINARY,
    "minimum": _BINARY,
    "sum": _AXES,
    "mean": _AXES,
    "max": _AXES,
    "sum_to_columns": tuple(
        Case((shape,), {"columns": columns})
        for shape, columns in (((2, 6), 3), ((2, 6), 2), ((5, 3, 10), 2), ((5,), 5), ((7,), 1))
    ),
    "rms": _with(_AXES, eps=0) + _with(_AXES, eps=0.25),
    "rms_norm": _with(_LAST, eps=0) + _with(_LAST, eps=0.25) + _LAST,
    "l2_norm": _with(_LAST, eps=0) + _with(_LAST, eps=0.25),
    "layer_norm": _with(_LAST, eps=0) + _with(_LAST, eps=0.25) + _LAST,
    "softmax": _AXES,
    "transpose": (Case(((2, 3),)), Case(((7, 5, 3),)), Case(((2, 7, 5, 3),))),
    "reshape": tuple(
        Case((shape,), {"shape": new})
        for shape, new in (
            ((2, 3, 5), (6, 5)),
            ((2, 15), (2, 3, 5)),
            ((6, 4), (8, 3)),
            ((1, 6), (2, 3, 1)),
            ((2, 3, 1, 5), (-1,)),
            ((7, 10), (7, -1, 5)),
            ((3,), (1, 3)),
            ((), (1,)),
        )
    ),
    "concat": (
        Case(((2, 3), (2, 5)), {"axis": -1}),
        Case(((2, 3, 5), (7, 3, 5), (1, 3, 5)), {"axis": 0}),
        Case(((7, 2, 3), (7, 5, 3)), {"axis": -2}),
        Case(((2, 3),)),
    ),
    "split": (
        Case(((3, 10),), {"parts": 2}),
        Case(((5, 7),), {"parts": (2, 3), "axis": -2}),
        Case(((6, 2, 5),), {"parts": 3, "axis": 0}),
        Case(((3, 7),), {"parts": (1, 4, 2)}),
    ),
    "broadcast": tuple(
        Case((shape,), {"shape": new}) for shape, new in (((3, 1), (2, 3, 5)), ((), (3,)), ((2, 3), (2, 3)))
    ),
    "matmul": tuple(
        Case(pair)
        for pair in (
            ((3, 2), (2, 5)),
            ((7, 3, 2), (7, 2, 5)),
            ((2, 1, 3, 5), (7, 5, 2)),
            ((3, 2), (7, 2, 5)),
            ((1, 11), (11, 1)),
        )
    ),
    "constant": tuple(Case((), {"value": value}) for value in (2, 0.1, Fraction(-1, 3))),
}

# ------------------------------------------------------------------------------------------------------------ oracles
Oracle = Callable[[tuple[Any, ...], Mapping[str, Any]], Any]


def _each(function: Callable[[float], float]) -> Callable[[Any], Any]:
    return np.vectorize(function, otypes=[float])


def _columns(x: Any, columns: int) -> Any:
    return sum(x[..., start : start + columns] for start in range(0, x.shape[-1], columns))


def _pieces(x: Any, parts: Any, axis: int) -> Any:
    moved = np.moveaxis(x, axis, 0)
    extents = [x.shape[axis] // parts] * parts if isinstance(parts, int) else list(parts)
    ends = [sum(extents[: k + 1]) for k in range(len(extents))]
    return tuple(np.moveaxis(moved[end - extent : end], 0, axis) for end, extent in zip(ends, extents, strict=True))


def _norm(x: Any, mean: Any, eps: Any) -> Any:
    return (x - mean) / np.sqrt(np.average((x - mean) ** 2, axis=-1, keepdims=True) + float(eps))


def _gelu(x: float, form: str) -> float:
    inner = math.erf(x / math.sqrt(2)) if form == "none" else math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
    return x / 2 * (1 + inner)


def _softmax(x: Any, axis: int) -> Any:
    return np.exp(x) / np.exp(x).sum(axis=axis, keepdims=True)


def _number(value: Any, like: Any) -> Any:
    return value if like.dtype == object else float(value)


ORACLES: dict[str, Oracle] = {
    "add": lambda x, a: np.add(x[0], x[1]),
    "sub": lambda x, a: np.subtract(x[0], x[1]),
    "mul": lambda x, a: np.multiply(x[0], x[1]),
    "div": lambda x, a: np.true_divide(x[0], x[1]),
    "neg": lambda x, a: np.negative(x[0]),
    "scale": lambda x, a: np.multiply(x[0], _number(a["factor"], x[0])),
    "square": lambda x, a: np.power(x[0], 2),
    "sqrt": lambda x, a: np.power(x[0], 0.5),
    "rsqrt": lambda x, a: np.power(x[0], -0.5),
    "power": lambda x, a: (
        1 / np.prod([x[0]] * -a["exponent"], axis=0) if a["exponent"] < 0 else np.prod([x[0]] * a["exponent"], axis=0)
    ),
    "pow": lambda x, a: np.exp(x[1] * np.log(x[0])),
    "exp": lambda x, a: _each(math.exp)(x[0]),
    "log": lambda x, a: _each(math.log)(x[0]),
    "erf": lambda x, a: _each(math.erf)(x[0]),
    "sigmoid": lambda x, a: _each(lambda v: 0.5 * (1 + math.tanh(v / 2)))(x[0]),
    "tanh": lambda x, a: _each(math.tanh)(x[0]),
    "silu": lambda x, a: _each(lambda v: v * 0.5 * (1 + math.tanh(v / 2)))(x[0]),
    "gelu": lambda x, a: _each(lambda v: _gelu(v, a["approximate"]))(x[0]),
    "relu": lambda x, a: np.where(x[0] > 0, x[0], 0 * x[0]),
    "abs": lambda x, a: np.where(x[0] > 0, x[0], -x[0]),
    "clamp": lambda x, a: np.clip(x[0], _number(a["lo"], x[0]), _number(a["hi"], x[0])),
    "maximum": lambda x, a: np.where(np.greater(x[0], x[1]), x[0], x[1]),
    "minimum": lambda x, a: np.where(np.greater(x[0], x[1]), x[1], x[0]),
    "sum": lambda x, a: np.add.reduce(x[0], axis=a["axis"], keepdims=True),
    "mean": lambda x, a: np.add.reduce(x[0], axis=a["axis"], keepdims=True) / x[0].shape[a["axis"]],
    "max": lambda x, a: np.sort(x[0], axis=a["axis"]).take([-1], axis=a["axis"]),
    "sum_to_columns": lambda x, a: _columns(x[0], a["columns"]),
    "rms": lambda x, a: np.sqrt(np.average(x[0] ** 2, axis=a["axis"], keepdims=True) + float(a["eps"])),
    "rms_norm": lambda x, a: _norm(x[0], 0.0, a["eps"]),
    "l2_norm": lambda x, a: x[0] / np.sqrt(np.linalg.norm(x[0], axis=-1, keepdims=True) ** 2 + float(a["eps"])),
    "layer_norm": lambda x, a: _norm(x[0], np.average(x[0], axis=-1, keepdims=True), a["eps"]),
    "softmax": lambda x, a: _softmax(x[0], a["axis"]),
    "transpose": lambda x, a: np.moveaxis(x[0], -1, -2),
    "reshape": lambda x, a: np.array(list(x[0].flat), dtype=x[0].dtype).reshape(a["shape"]),
    "concat": lambda x, a: np.moveaxis(
        np.array([row for part in x for row in np.moveaxis(part, a["axis"], 0)]), 0, a["axis"]
    ),
    "split": lambda x, a: _pieces(x[0], a["parts"], a["axis"]),
    "broadcast": lambda x, a: x[0] + np.zeros(a["shape"], dtype=int),
    "matmul": lambda x, a: np.add.reduce(x[0][..., :, :, None] * x[1][..., None, :, :], axis=-2),
    "constant": lambda x, a: np.array(float(a["value"])),
}

# Operators whose results on rational operands are rational: there the field must agree with the oracle exactly.
RATIONAL = {"add", "sub", "mul", "div", "neg", "scale", "square", "power"}
RATIONAL |= {"sum", "mean", "sum_to_columns", "matmul", "relu", "abs", "clamp", "maximum", "minimum", "max"}
RATIONAL |= {"transpose", "reshape", "concat", "split", "broadcast"}


def oracle(name: str, operands: tuple[Any, ...], attributes: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the results by the oracle, as a tuple of arrays."""
    results = ORACLES[name](operands, attributes)
    return results if isinstance(results, tuple) else (np.asarray(results),)
