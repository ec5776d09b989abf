"""Norms and softmax: composites over one axis. Invariant: the expansion is the definition; gains are separate factors."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import TypeVar

from workbench.core.namespaces import array_namespace
from workbench.core.shapes import Shape, negative_axis
from workbench.errors import ShapeError
from workbench.ops.attributes import AXIS, as_not_negative, fraction, integer
from workbench.ops.broadcasting import KERNEL_AND_BLOCK, one_result
from workbench.ops.elementwise import never_homogeneous
from workbench.ops.expansion import expanded_abstract, expanded_work
from workbench.ops.reduction import folded_axes, folded_shape
from workbench.ops.registry import register
from workbench.ops.spec import (
    Apply,
    Array,
    Attribute,
    Attributes,
    AxisMap,
    Dim,
    Expanded,
    Homogeneity,
    Law,
    OpKind,
    OpSpec,
    Same,
)

T = TypeVar("T")


def _eps(default: Fraction) -> Attribute:
    return Attribute("eps", as_not_negative, default, "give a number of at least 0; 0 adds nothing")


def _homogeneous_without_eps(degree: int) -> Callable[[Attributes], tuple[Homogeneity, ...]]:
    """Return the rule: degree `degree` for positive factors, as long as eps is 0."""

    def homogeneous(attributes: Attributes) -> tuple[Homogeneity, ...]:
        return (Homogeneity((0,), Fraction(degree), positive=True),) if fraction(attributes, "eps") == 0 else ()

    return homogeneous


def _axis(attributes: Attributes) -> int:
    """Return the axis that is normalised over: the last one where the operator lets nothing else be chosen."""
    return integer(attributes, "axis") if "axis" in attributes else -1


def _kept_shape(shapes: tuple[Shape, ...], attributes: Attributes) -> tuple[Shape, ...]:
    if not shapes[0]:
        raise ShapeError("needs at least one axis to normalise over, got a scalar")
    negative_axis(_axis(attributes), len(shapes[0]))
    return (shapes[0],)


def _kept_axes(shapes: tuple[Shape, ...], attributes: Attributes) -> AxisMap:
    """Return the map that keeps every dimension, with the axis in `reduced` too: each element depends on all of it."""
    results = tuple(Same((Dim(0, k),)) for k in range(-len(shapes[0]), 0))
    return AxisMap((results,), reduced=((Dim(0, _axis(attributes)),),))


_norm = partial(
    OpSpec,
    arity=1,
    kind=OpKind.REDUCTION,
    field=Expanded(),
    scalar_c=None,
    commutative=False,
    levels=KERNEL_AND_BLOCK,
    num_results=one_result,
)


# --------------------------------------------------------------------------------------------------- rms and rms_norm
def _plus_eps(b: Apply[T], value: T, attributes: Attributes) -> T:
    eps = fraction(attributes, "eps")
    return b("add", value, b("constant", value=eps)) if eps else value


def _expand_rms(b: Apply[T], operands: tuple[T, ...], shapes: tuple[Shape, ...], attributes: Attributes) -> T:
    mean = b("mean", b("square", operands[0]), axis=integer(attributes, "axis"))
    return b("sqrt", _plus_eps(b, mean, attributes))


def _rms(x: Array, axis: int, eps: Fraction) -> Array:
    xp = array_namespace(x)
    result: Array = xp.sqrt(xp.mean(x * x, axis=axis, keepdims=True) + float(eps))
    return result


def _rms_float(arrays: tuple[Array, ...], attributes: Attributes, prefix: int) -> tuple[Array, ...]:
    return (_rms(arrays[0], integer(attributes, "axis"), fraction(attributes, "eps")),)


RMS = register(
    _norm(
        name="rms",
        attributes=(AXIS, _eps(Fraction(0))),
        shape=folded_shape,
        axes=folded_axes,
        on_float=_rms_float,
        abstract=expanded_abstract(_expand_rms),
        work=expanded_work(_expand_rms),
        expand=_expand_rms,
        laws=(
            Law("square", "rms(x)^2 = mean(x^2)", 1,
                lambda b, x: b("square", b("rms", x)), lambda b, x: b("mean", b("square", x))),
            Law("mean", "rms(x) = mean(x)", 1, lambda b, x: b("rms", x), lambda b, x: b("mean", x),
                positive=True, false_law=True),
        ),
        homogeneous=_homogeneous_without_eps(1),
        source="Zhang and Sennrich, arXiv 1910.07467, equation 4; Mirage's accumulator RED_LD_RMS",
    )
)  # fmt: skip


def _expand_rms_norm(b: Apply[T], operands: tuple[T, ...], shapes: tuple[Shape, ...], attributes: Attributes) -> T:
    return b("div", operands[0], b("rms", operands[0], axis=-1, eps=fraction(attributes, "eps")))


RMS_NORM = register(
    _norm(
        name="rms_norm",
        attributes=(_eps(Fraction(1, 10**6)),),
        shape=_kept_shape,
        axes=_kept_axes,
        on_float=lambda arrays, attributes, prefix: (arrays[0] / _rms(arrays[0], -1, fraction(attributes, "eps")),),
        abstract=expanded_abstract(_expand_rms_norm),
        work=expanded_work(_expand_rms_norm),
        expand=_expand_rms_norm,
        laws=(
            Law("scale", "rms_norm(2 x) = rms_norm(x) without eps", 1,
                lambda b, x: b("rms_norm", b("scale", x, factor=2), eps=0), lambda b, x: b("rms_norm", x, eps=0)),
            Law("product", "rms_norm(x) rms(x) = x", 1,
                lambda b, x: b("mul", b("rms_norm", x), b("rms", x, eps=Fraction(1, 10**6))), lambda b, x: x),
            Law("scale_with_eps", "rms_norm(2 x, eps=1) = rms_norm(x, eps=1)", 1,
                lambda b, x: b("rms_norm", b("scale", x, factor=2), eps=1), lambda b, x: b("rms_norm", x, eps=1),
                false_law=True),
        ),
        homogeneous=_homogeneous_without_eps(0),
        source="Zhang and Sennrich, arXiv 1910.07467, equation 4, without the gain; torch.nn.functional.rms_norm",
    )
)  # fmt: skip


# ------------------------------------------------------------------------------------------------------------ l2_norm
def _expand_l2_norm(b: Apply[T], operands: tuple[T, ...], shapes: tuple[Shape, ...], attributes: Attributes) -> T:
    total = b("sum", b("square", operands[0]), axis=-1)
    return b("div", operands[0], b("sqrt", _plus_eps(b, total, attributes)))


def _l2_norm_float(arrays: tuple[Array, ...], attributes: Attributes, prefix: int) -> tuple[Array, ...]:
    (x,) = arrays
    xp = array_namespace(x)
    return (x / xp.sqrt(xp.sum(x * x, axis=-1, keepdims=True) + float(fraction(attributes, "eps"))),)


L2_NORM = register(
    _norm(
        name="l2_norm",
        attributes=(_eps(Fraction(0)),),
        shape=_kept_shape,
        axes=_kept_axes,
        on_float=_l2_norm_float,
        abstract=expanded_abstract(_expand_l2_norm),
        work=expanded_work(_expand_l2_norm),
        expand=_expand_l2_norm,
        laws=(
            Law("unit_length", "sum(l2_norm(x)^2) = s / s, s = sum(x^2)", 1,
                lambda b, x: b("sum", b("square", b("l2_norm", x))),
                lambda b, x: b("div", b("sum", b("square", x)), b("sum", b("square", x)))),
            Law("rms_norm", "l2_norm(x) = rms_norm(x)", 1,
                lambda b, x: b("l2_norm", x), lambda b, x: b("rms_norm", x, eps=0), false_law=True),
        ),
        homogeneous=_homogeneous_without_eps(0),
        source="nGPT, arXiv 2410.01131 (Norm): x / sqrt(sum x^2 + eps)",
    )
)  # fmt: skip


# --------------------------------------------------------------------------------------------------------- layer_norm
def _expand_layer_norm(b: Apply[T], operands: tuple[T, ...], shapes: tuple[Shape, ...], attributes: Attributes) -> T:
    centred = b("sub", operands[0], b("mean", operands[0], axis=-1))
    return b("div", centred, b("rms", centred, axis=-1, eps=fraction(attributes, "eps")))


def _layer_norm_float(arrays: tuple[Array, ...], attributes: Attributes, prefix: int) -> tuple[Array, ...]:
    (x,) = arrays
    centred = x - array_namespace(x).mean(x, axis=-1, keepdims=True)
    return (centred / _rms(centred, -1, fraction(attributes, "eps")),)


LAYER_NORM = register(
    _norm(
        name="layer_norm",
        attributes=(_eps(Fraction(1, 10**5)),),
        shape=_kept_shape,
        axes=_kept_axes,
        on_float=_layer_norm_float,
        abstract=expanded_abstract(_expand_layer_norm),
        work=expanded_work(_expand_layer_norm),
        expand=_expand_layer_norm,
        laws=(
            Law("shift", "layer_norm(x + s) = layer_norm(x), s constant along the axis", 2,
                lambda b, x, y: b("layer_norm", b("add", x, b("sum", y))), lambda b, x, y: b("layer_norm", x)),
            Law("product", "layer_norm(x) rms(x - mean(x)) = x - mean(x)", 1,
                lambda b, x: b("mul", b("layer_norm", x, eps=0), b("rms", b("sub", x, b("mean", x)))),
                lambda b, x: b("sub", x, b("mean", x))),
            Law("rms_norm", "layer_norm(x) = rms_norm(x)", 1,
                lambda b, x: b("layer_norm", x, eps=0), lambda b, x: b("rms_norm", x, eps=0), false_law=True),
        ),
        homogeneous=_homogeneous_without_eps(0),
        source="Ba, Kiros and Hinton, arXiv 1607.06450, without gain and bias; torch.nn.functional.layer_norm",
    )
)  # fmt: skip


# ------------------------------------------------------------------------------------------------------------ softmax
def _expand_softmax(b: Apply[T], operands: tuple[T, ...], shapes: tuple[Shape, ...], attributes: Attributes) -> T:
    """Build e^x / sum(e^x): equal over the reals to the form that subtracts the maximum, and of one exp."""
    weights = b("exp", operands[0])
    return b("div", weights, b("sum", weights, axis=integer(attributes, "axis")))


def _softmax_float(arrays: tuple[Array, ...], attributes: Attributes, prefix: int) -> tuple[Array, ...]:
    (x,), axis = arrays, integer(attributes, "axis")
    xp = array_namespace(x)
    weights = xp.exp(x - xp.max(x, axis=axis, keepdims=True))
    return (weights / xp.sum(weights, axis=axis, keepdims=True),)


SOFTMAX = register(
    _norm(
        name="softmax",
        attributes=(AXIS,),
        shape=_kept_shape,
        axes=_kept_axes,
        on_float=_softmax_float,
        abstract=expanded_abstract(_expand_softmax),
        work=expanded_work(_expand_softmax),
        expand=_expand_softmax,
        laws=(
            Law("shift", "softmax(x + s) = softmax(x), s constant along the axis", 2,
                lambda b, x, y: b("softmax", b("add", x, b("sum", y))), lambda b, x, y: b("softmax", x)),
            Law("partition", "sum(softmax(x)) = s / s, s = sum(e^x)", 1,
                lambda b, x: b("sum", b("softmax", x)),
                lambda b, x: b("div", b("sum", b("exp", x)), b("sum", b("exp", x)))),
            Law("scale", "softmax(2 x) = softmax(x)", 1,
                lambda b, x: b("softmax", b("scale", x, factor=2)), lambda b, x: b("softmax", x), false_law=True),
        ),
        homogeneous=never_homogeneous,
        source="torch.softmax; lecture identity: invariant under a shift of the row",
    )
)  # fmt: skip
