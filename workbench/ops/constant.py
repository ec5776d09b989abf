"""Exact constants as tensors of shape (). Invariant: a constant is a fraction and is never rounded before it is used."""

from __future__ import annotations

import numpy as np

from workbench.core.shapes import Shape
from workbench.domains.work import Work
from workbench.ops.attributes import fraction
from workbench.ops.broadcasting import ALL_LEVELS, one_result
from workbench.ops.elementwise import never_homogeneous
from workbench.ops.registry import register
from workbench.ops.spec import Array, Attribute, Attributes, AxisMap, Exact, Law, OpKind, OpSpec, as_fraction


def _scalar_shape(shapes: tuple[Shape, ...], attributes: Attributes) -> tuple[Shape, ...]:
    return ((),)


def _constant_float(arrays: tuple[Array, ...], attributes: Attributes, prefix: int) -> tuple[Array, ...]:
    return (np.full((1,) * prefix, float(fraction(attributes, "value"))),)


CONSTANT = register(
    OpSpec(
        name="constant",
        arity=0,
        kind=OpKind.CONSTANT,
        attributes=(Attribute("value", as_fraction, None, "give the number"),),
        shape=_scalar_shape,
        axes=lambda shapes, attributes: AxisMap(((),)),
        on_float=_constant_float,
        field=Exact(lambda f, x, a: f.const(fraction(a, "value"))),
        abstract=lambda b, terms, shapes, attributes: b.constant(fraction(attributes, "value")),
        work=lambda shapes, attributes: Work(),
        scalar_c="{value}",
        expand=None,
        laws=(
            Law("halves", "x 1/2 + x 1/2 = x", 1,
                lambda b, x: b("add", b("mul", x, b("constant", value="1/2")), b("mul", x, b("constant", value="1/2"))),
                lambda b, x: x),
            Law("decimal", "10 (0.1 x) = x", 1,
                lambda b, x: b("mul", b("constant", value=10), b("mul", b("constant", value=0.1), x)),
                lambda b, x: x),
        ),
        commutative=False,
        homogeneous=never_homogeneous,
        levels=ALL_LEVELS,
        num_results=one_result,
        source="a literal of the program; a float is the decimal that repr prints",
    )
)  # fmt: skip
