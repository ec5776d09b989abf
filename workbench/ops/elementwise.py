"""Arithmetic on each element: sums, differences, products, quotients, exp and log.

Invariant: operands broadcast as in NumPy over trailing axes, and one result element costs a fixed number of flops.
"""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import TypeVar

from workbench.core.namespaces import array_namespace
from workbench.ops.attributes import fraction
from workbench.ops.broadcasting import (
    ALL_LEVELS,
    binary,
    elementwise_axes,
    elementwise_shape,
    elementwise_work,
    one_result,
    unary,
)
from workbench.ops.registry import register
from workbench.ops.spec import (
    Attribute,
    Attributes,
    Exact,
    Homogeneity,
    Law,
    Opaque,
    OpKind,
    OpSpec,
    as_fraction,
)

T = TypeVar("T")
HALF = Fraction(1, 2)
ONE = Fraction(1)

elementwise = partial(
    OpSpec,
    kind=OpKind.ELEMENTWISE,
    shape=elementwise_shape,
    axes=elementwise_axes,
    levels=ALL_LEVELS,
    num_results=one_result,
)


def never_homogeneous(attributes: Attributes) -> tuple[Homogeneity, ...]:
    """Return nothing: constant factors do not pass through."""
    return ()


# --------------------------------------------------------------------------------------------- sums and products
ADD = register(
    elementwise(
        name="add",
        arity=2,
        attributes=(),
        on_float=binary(lambda x, y: x + y),
        field=Exact(lambda f, x, a: f.add(x[0], x[1])),
        abstract=lambda b, terms, shapes, attributes: b.add(terms[0], terms[1]),
        work=elementwise_work(1),
        scalar_c="({0} + {1})",
        expand=None,
        laws=(
            Law("associative", "(x + y) + z = x + (y + z)", 3,
                lambda b, x, y, z: b("add", b("add", x, y), z), lambda b, x, y, z: b("add", x, b("add", y, z))),
            Law("undone_by_sub", "(x + y) - y = x", 2,
                lambda b, x, y: b("sub", b("add", x, y), y), lambda b, x, y: x),
        ),
        commutative=True,
        homogeneous=lambda attributes: (Homogeneity((0, 1), ONE),),
        source="Mirage OSDI'25, table 1 (EwAdd)",
    )
)  # fmt: skip

SUB = register(
    elementwise(
        name="sub",
        arity=2,
        attributes=(),
        on_float=binary(lambda x, y: x - y),
        field=Exact(lambda f, x, a: f.sub(x[0], x[1])),
        abstract=lambda b, terms, shapes, attributes: b.add(terms[0], b.mul(b.constant(Fraction(-1)), terms[1])),
        work=elementwise_work(1),
        scalar_c="({0} - {1})",
        expand=None,
        laws=(
            Law("of_neg", "x - y = x + (-y)", 2,
                lambda b, x, y: b("sub", x, y), lambda b, x, y: b("add", x, b("neg", y))),
            Law("commutative", "x - y = y - x", 2,
                lambda b, x, y: b("sub", x, y), lambda b, x, y: b("sub", y, x), false_law=True),
        ),
        commutative=False,
        homogeneous=lambda attributes: (Homogeneity((0, 1), ONE),),
        source="arithmetic; Mirage leaves it out of table 1",
    )
)  # fmt: skip

MUL = register(
    elementwise(
        name="mul",
        arity=2,
        attributes=(),
        on_float=binary(lambda x, y: x * y),
        field=Exact(lambda f, x, a: f.mul(x[0], x[1])),
        abstract=lambda b, terms, shapes, attributes: b.mul(terms[0], terms[1]),
        work=elementwise_work(1),
        scalar_c="({0} * {1})",
        expand=None,
        laws=(
            Law("associative", "(x y) z = x (y z)", 3,
                lambda b, x, y, z: b("mul", b("mul", x, y), z), lambda b, x, y, z: b("mul", x, b("mul", y, z))),
            Law("distributive", "x (y + z) = x y + x z", 3,
                lambda b, x, y, z: b("mul", x, b("add", y, z)),
                lambda b, x, y, z: b("add", b("mul", x, y), b("mul", x, z))),
            Law("undone_by_div", "(x y) / y = x", 2,
                lambda b, x, y: b("div", b("mul", x, y), y), lambda b, x, y: x),
        ),
        commutative=True,
        homogeneous=lambda attributes: (Homogeneity((0,), ONE), Homogeneity((1,), ONE)),
        source="Mirage OSDI'25, table 1 (EwMul)",
    )
)  # fmt: skip

DIV = register(
    elementwise(
        name="div",
        arity=2,
        attributes=(),
        on_float=binary(lambda x, y: x / y),
        field=Exact(lambda f, x, a: f.div(x[0], x[1])),
        abstract=lambda b, terms, shapes, attributes: b.div(terms[0], terms[1]),
        work=elementwise_work(1),
        scalar_c="({0} / {1})",
        expand=None,
        laws=(
            Law("undone_by_mul", "(x / y) y = x", 2,
                lambda b, x, y: b("mul", b("div", x, y), y), lambda b, x, y: x),
            Law("of_quotient", "(x / y) / z = x / (y z)", 3,
                lambda b, x, y, z: b("div", b("div", x, y), z), lambda b, x, y, z: b("div", x, b("mul", y, z))),
            Law("common_denominator", "x / z + y / z = (x + y) / z", 3,
                lambda b, x, y, z: b("add", b("div", x, z), b("div", y, z)),
                lambda b, x, y, z: b("div", b("add", x, y), z)),
            Law("commutative", "x / y = y / x", 2,
                lambda b, x, y: b("div", x, y), lambda b, x, y: b("div", y, x), false_law=True),
        ),
        commutative=False,
        homogeneous=lambda attributes: (Homogeneity((0,), ONE), Homogeneity((1,), -ONE)),
        source="Mirage OSDI'25, table 1 (EwDiv), laws of table 2",
    )
)  # fmt: skip

NEG = register(
    elementwise(
        name="neg",
        arity=1,
        attributes=(),
        on_float=unary(lambda x: -x),
        field=Exact(lambda f, x, a: f.neg(x[0])),
        abstract=lambda b, terms, shapes, attributes: b.mul(b.constant(Fraction(-1)), terms[0]),
        work=elementwise_work(1),
        scalar_c="(-{0})",
        expand=None,
        laws=(
            Law("of_difference", "-(x - y) = y - x", 2,
                lambda b, x, y: b("neg", b("sub", x, y)), lambda b, x, y: b("sub", y, x)),
            Law("identity", "-x = x", 1, lambda b, x: b("neg", x), lambda b, x: x, false_law=True),
        ),
        commutative=False,
        homogeneous=lambda attributes: (Homogeneity((0,), ONE),),
        source="arithmetic",
    )
)  # fmt: skip

SCALE = register(
    elementwise(
        name="scale",
        arity=1,
        attributes=(Attribute("factor", as_fraction, None, "give the constant factor"),),
        on_float=lambda arrays, attributes, prefix: (arrays[0] * float(fraction(attributes, "factor")),),
        field=Exact(lambda f, x, a: f.mul(x[0], f.const(fraction(a, "factor")))),
        abstract=lambda b, terms, shapes, attributes: b.mul(b.constant(fraction(attributes, "factor")), terms[0]),
        work=elementwise_work(1),
        scalar_c="({0} * {factor})",
        expand=None,
        laws=(
            Law("three_times", "3 x = x + x + x", 1,
                lambda b, x: b("scale", x, factor=3), lambda b, x: b("add", b("add", x, x), x)),
            Law("one_sixth", "6 (x / 6) = x", 1,
                lambda b, x: b("scale", b("scale", x, factor=Fraction(1, 6)), factor=6), lambda b, x: x),
        ),
        commutative=False,
        homogeneous=lambda attributes: (Homogeneity((0,), ONE),),
        source="Mirage's MUL_SCALAR; a constant kept exactly",
    )
)  # fmt: skip


# ------------------------------------------------------------------------------------------------------ exp and log
EXP = register(
    elementwise(
        name="exp",
        arity=1,
        attributes=(),
        on_float=unary(lambda x: array_namespace(x).exp(x)),
        field=Exact(lambda f, x, a: f.exp(x[0])),
        abstract=lambda b, terms, shapes, attributes: b.exp(terms[0]),
        work=elementwise_work(1),
        scalar_c="expf({0})",
        expand=None,
        laws=(
            Law("of_sum", "e^x e^y = e^(x + y)", 2,
                lambda b, x, y: b("mul", b("exp", x), b("exp", y)), lambda b, x, y: b("exp", b("add", x, y))),
            Law("of_neg", "e^-x e^(x + y) = e^y", 2,
                lambda b, x, y: b("mul", b("exp", b("neg", x)), b("exp", b("add", x, y))), lambda b, x, y: b("exp", y)),
            Law("of_product", "e^(x y) = e^x e^y", 2,
                lambda b, x, y: b("exp", b("mul", x, y)), lambda b, x, y: b("mul", b("exp", x), b("exp", y)),
                false_law=True),
        ),
        commutative=False,
        homogeneous=never_homogeneous,
        source="Mirage OSDI'25, tables 1 to 3 (EwExp): (omega^(x_q) mod p, no q part)",
    )
)  # fmt: skip

LOG = register(
    elementwise(
        name="log",
        arity=1,
        attributes=(),
        on_float=unary(lambda x: array_namespace(x).log(x)),
        field=Opaque("a logarithm is no polynomial, quotient or exponential, so it has no meaning in a finite field"),
        abstract=lambda b, terms, shapes, attributes: b.apply("log", terms[0]),
        work=elementwise_work(1),
        scalar_c="logf({0})",
        expand=None,
        laws=(
            Law("of_product", "log(x y) = log x + log y", 2,
                lambda b, x, y: b("log", b("mul", x, y)), lambda b, x, y: b("add", b("log", x), b("log", y)),
                positive=True),
            Law("of_exp", "log(e^x) = x", 1, lambda b, x: b("log", b("exp", x)), lambda b, x: x),
        ),
        commutative=False,
        homogeneous=never_homogeneous,
        source="numpy.log, natural",
    )
)  # fmt: skip
