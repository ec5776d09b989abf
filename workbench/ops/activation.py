"""Smooth activations: silu, gelu (erf and tanh forms), sigmoid, tanh, and the error function they need.

Invariant: the float rules neither overflow nor cancel for large arguments; the field sees the expansions only.
"""

from __future__ import annotations

import importlib
import math
from fractions import Fraction
from typing import TypeVar

import numpy as np

from workbench.core.namespaces import array_namespace
from workbench.core.shapes import Shape
from workbench.ops.attributes import text
from workbench.ops.broadcasting import elementwise_work, unary
from workbench.ops.elementwise import HALF, elementwise, never_homogeneous
from workbench.ops.expansion import expanded_work
from workbench.ops.registry import register
from workbench.ops.spec import (
    Apply,
    Array,
    Attribute,
    Attributes,
    Expanded,
    Law,
    Opaque,
    TermAlgebra,
    as_fraction,
)

T = TypeVar("T")

# The constants are irrational; as torch does, the operator is defined with their float64 decimals.
ROOT_TWO_OVER_PI = as_fraction(math.sqrt(2.0 / math.pi))
ROOT_HALF = as_fraction(math.sqrt(0.5))
CUBIC = Fraction("0.044715")


# ------------------------------------------------------------------------------------------------- error function
def _through_math(function: np.ufunc, x: Array) -> Array:
    return np.asarray(function(x), dtype=np.float64)


_ERF, _ERFC = np.frompyfunc(math.erf, 1, 1), np.frompyfunc(math.erfc, 1, 1)


def _erf(x: Array) -> Array:
    if array_namespace(x).__name__ == "numpy":
        return _through_math(_ERF, x)
    result: Array = importlib.import_module("cupyx.scipy.special").erf(x)
    return result


def _erfc(x: Array) -> Array:
    if array_namespace(x).__name__ == "numpy":
        return _through_math(_ERFC, x)
    result: Array = importlib.import_module("cupyx.scipy.special").erfc(x)
    return result


ERF = register(
    elementwise(
        name="erf",
        arity=1,
        attributes=(),
        on_float=unary(_erf),
        field=Opaque("the error function is an integral with no closed form, so it has no meaning in a finite field"),
        abstract=lambda b, terms, shapes, attributes: b.apply("erf", terms[0]),
        work=elementwise_work(1),
        scalar_c="erff({0})",
        expand=None,
        laws=(
            Law("odd", "erf(-x) = -erf(x)", 1,
                lambda b, x: b("erf", b("neg", x)), lambda b, x: b("neg", b("erf", x))),
            Law("linear", "erf(2 x) = 2 erf(x)", 1,
                lambda b, x: b("erf", b("scale", x, factor=2)), lambda b, x: b("scale", b("erf", x), factor=2),
                false_law=True),
        ),
        commutative=False,
        homogeneous=never_homogeneous,
        source="Abramowitz and Stegun 7.1.1; C99 erf",
    )
)  # fmt: skip


# ------------------------------------------------------------------------------------------------ sigmoid and tanh
def _sigmoid(x: Array) -> Array:
    """Return 1 / (1 + e^-x) from e^-|x|, which never overflows."""
    xp = array_namespace(x)
    small = xp.exp(-abs(x))
    result: Array = xp.where(x >= 0, 1.0, small) / (1.0 + small)
    return result


def _expand_sigmoid(b: Apply[T], operands: tuple[T, ...], shapes: tuple[Shape, ...], attributes: Attributes) -> T:
    one = b("constant", value=1)
    return b("div", one, b("add", one, b("exp", b("neg", operands[0]))))


SIGMOID = register(
    elementwise(
        name="sigmoid",
        arity=1,
        attributes=(),
        on_float=unary(_sigmoid),
        field=Expanded(),
        abstract=lambda b, terms, shapes, attributes: b.apply("sigmoid", terms[0]),
        work=expanded_work(_expand_sigmoid),
        scalar_c="(1.0f / (1.0f + expf(-{0})))",
        expand=_expand_sigmoid,
        laws=(
            Law("symmetric", "sigmoid(x) + sigmoid(-x) = x / x", 1,
                lambda b, x: b("add", b("sigmoid", x), b("sigmoid", b("neg", x))), lambda b, x: b("div", x, x)),
            Law("of_sum", "sigmoid(x + y) = sigmoid(x) + sigmoid(y)", 2,
                lambda b, x, y: b("sigmoid", b("add", x, y)),
                lambda b, x, y: b("add", b("sigmoid", x), b("sigmoid", y)), false_law=True),
        ),
        commutative=False,
        homogeneous=never_homogeneous,
        source="torch.sigmoid",
    )
)  # fmt: skip


def _expand_tanh(b: Apply[T], operands: tuple[T, ...], shapes: tuple[Shape, ...], attributes: Attributes) -> T:
    """Build 1 - 2 / (1 + e^2x): one exp, so that tanh stays inside the LAX fragment."""
    one, two = b("constant", value=1), b("constant", value=2)
    return b("sub", one, b("div", two, b("add", one, b("exp", b("scale", operands[0], factor=2)))))


TANH = register(
    elementwise(
        name="tanh",
        arity=1,
        attributes=(),
        on_float=unary(lambda x: array_namespace(x).tanh(x)),
        field=Expanded(),
        abstract=lambda b, terms, shapes, attributes: b.apply("tanh", terms[0]),
        work=expanded_work(_expand_tanh),
        scalar_c="tanhf({0})",
        expand=_expand_tanh,
        laws=(
            Law("odd", "tanh(-x) = -tanh(x)", 1,
                lambda b, x: b("tanh", b("neg", x)), lambda b, x: b("neg", b("tanh", x))),
            Law("by_sigmoid", "tanh(x) + 1 = 2 sigmoid(2 x)", 1,
                lambda b, x: b("add", b("tanh", x), b("constant", value=1)),
                lambda b, x: b("scale", b("sigmoid", b("scale", x, factor=2)), factor=2)),
        ),
        commutative=False,
        homogeneous=never_homogeneous,
        source="torch.tanh",
    )
)  # fmt: skip


# --------------------------------------------------------------------------------------------------- silu and gelu
def _expand_silu(b: Apply[T], operands: tuple[T, ...], shapes: tuple[Shape, ...], attributes: Attributes) -> T:
    return b("div", operands[0], b("add", b("constant", value=1), b("exp", b("neg", operands[0]))))


SILU = register(
    elementwise(
        name="silu",
        arity=1,
        attributes=(),
        on_float=unary(lambda x: x * _sigmoid(x)),
        field=Expanded(),
        abstract=lambda b, terms, shapes, attributes: b.apply("silu", terms[0]),
        work=expanded_work(_expand_silu),
        scalar_c="({0} / (1.0f + expf(-{0})))",
        expand=_expand_silu,
        laws=(
            Law("by_sigmoid", "silu(x) = x sigmoid(x)", 1,
                lambda b, x: b("silu", x), lambda b, x: b("mul", x, b("sigmoid", x))),
            Law("odd_part", "silu(x) - silu(-x) = x", 1,
                lambda b, x: b("sub", b("silu", x), b("silu", b("neg", x))), lambda b, x: x),
            Law("linear", "silu(2 x) = 2 silu(x)", 1,
                lambda b, x: b("silu", b("scale", x, factor=2)), lambda b, x: b("scale", b("silu", x), factor=2),
                false_law=True),
        ),
        commutative=False,
        homogeneous=never_homogeneous,
        source="Mirage OSDI'25, table 1 (SiLU): x / (1 + e^-x)",
    )
)  # fmt: skip


def _as_approximation(value: object) -> str:
    if value not in ("none", "tanh"):
        raise ValueError('it must be "none" (the erf form) or "tanh"')
    return str(value)


def _gelu_float(arrays: tuple[Array, ...], attributes: Attributes, prefix: int) -> tuple[Array, ...]:
    (x,) = arrays
    if text(attributes, "approximate") == "none":
        return (0.5 * x * _erfc(x * -float(ROOT_HALF)),)
    # (1 + tanh u) / 2 is sigmoid(2 u), which does not cancel for negative u.
    return (x * _sigmoid(2.0 * float(ROOT_TWO_OVER_PI) * (x + float(CUBIC) * x * x * x)),)


def _expand_gelu(b: Apply[T], operands: tuple[T, ...], shapes: tuple[Shape, ...], attributes: Attributes) -> T:
    """Build x (1 + erf(x / sqrt 2)) / 2, or x (1 + tanh u) / 2 = x / (1 + e^-2u), u = sqrt(2/pi) (x + 0.044715 x^3)."""
    (x,) = operands
    one = b("constant", value=1)
    if text(attributes, "approximate") == "none":
        return b("mul", b("scale", x, factor=HALF), b("add", one, b("erf", b("scale", x, factor=ROOT_HALF))))
    cubic = b("add", x, b("scale", b("mul", b("mul", x, x), x), factor=CUBIC))
    return b("div", x, b("add", one, b("exp", b("scale", cubic, factor=-2 * ROOT_TWO_OVER_PI))))


def _gelu_abstract(b: TermAlgebra[T], terms: tuple[T, ...], shapes: tuple[Shape, ...], attributes: Attributes) -> T:
    return b.apply("gelu" if text(attributes, "approximate") == "none" else "gelu_tanh", terms[0])


def _gelu_c(attributes: Attributes) -> str:
    if text(attributes, "approximate") == "none":
        return f"(0.5f * {{0}} * erfcf({-float(ROOT_HALF):.9g}f * {{0}}))"
    inner = f"{float(-2 * ROOT_TWO_OVER_PI):.9g}f * ({{0}} + {float(CUBIC):.9g}f * {{0}} * {{0}} * {{0}})"
    return f"({{0}} / (1.0f + expf({inner})))"


GELU = register(
    elementwise(
        name="gelu",
        arity=1,
        attributes=(Attribute("approximate", _as_approximation, "none", 'give "none" or "tanh"'),),
        on_float=_gelu_float,
        field=Expanded(),
        abstract=_gelu_abstract,
        work=expanded_work(_expand_gelu),
        scalar_c=_gelu_c,
        expand=_expand_gelu,
        laws=(
            Law("odd_part", "gelu(x) - gelu(-x) = x", 1,
                lambda b, x: b("sub", b("gelu", x), b("gelu", b("neg", x))), lambda b, x: x),
            Law("odd_part_tanh", 'gelu(x, "tanh") - gelu(-x, "tanh") = x', 1,
                lambda b, x: b("sub", b("gelu", x, approximate="tanh"), b("gelu", b("neg", x), approximate="tanh")),
                lambda b, x: x),
            Law("forms_agree", 'gelu(x, "none") = gelu(x, "tanh")', 1,
                lambda b, x: b("gelu", x), lambda b, x: b("gelu", x, approximate="tanh"), false_law=True),
        ),
        commutative=False,
        homogeneous=never_homogeneous,
        source='Hendrycks and Gimpel, arXiv 1606.08415; torch.nn.functional.gelu(approximate="none"|"tanh")',
    )
)  # fmt: skip
