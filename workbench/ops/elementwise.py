"""Arithmetic on each element: sums, products, quotients, roots, powers, exp and log.

Invariant: operands broadcast as in NumPy over trailing axes, and one result element costs a fixed number of flops.
"""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import TypeVar

from workbench.core.shapes import Shape
from workbench.ops.attributes import as_integer, fraction, integer
from workbench.ops.broadcasting import (
    ALL_LEVELS,
    array_namespace,
    binary,
    elementwise_axes,
    elementwise_shape,
    elementwise_work,
    one_result,
    unary,
)
from workbench.ops.expansion import expanded_abstract, expanded_work
from workbench.ops.registry import register
from workbench.ops.spec import (
    Apply,
    Array,
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
LARGEST_EXPONENT = 64

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
            Law("inverse", "x + (-x) = x - x", 1,
                lambda b, x: b("add", x, b("neg", x)), lambda b, x: b("sub", x, x)),
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


# ------------------------------------------------------------------------------------------------ powers and roots
def _expand_square(b: Apply[T], operands: tuple[T, ...], shapes: tuple[Shape, ...], attributes: Attributes) -> T:
    return b("mul", operands[0], operands[0])


SQUARE = register(
    elementwise(
        name="square",
        arity=1,
        attributes=(),
        on_float=unary(lambda x: x * x),
        field=Exact(lambda f, x, a: f.mul(x[0], x[0])),
        abstract=expanded_abstract(_expand_square),
        work=elementwise_work(1),
        scalar_c="({0} * {0})",
        expand=_expand_square,
        laws=(
            Law("binomial", "(x + y)^2 = x^2 + 2 x y + y^2", 2,
                lambda b, x, y: b("square", b("add", x, y)),
                lambda b, x, y: b("add", b("add", b("square", x), b("scale", b("mul", x, y), factor=2)),
                                  b("square", y))),
            Law("additive", "(x + y)^2 = x^2 + y^2", 2,
                lambda b, x, y: b("square", b("add", x, y)),
                lambda b, x, y: b("add", b("square", x), b("square", y)), false_law=True),
        ),
        commutative=False,
        homogeneous=lambda attributes: (Homogeneity((0,), Fraction(2)),),
        source="Mirage OSDI'25, table 1 (Sqr)",
    )
)  # fmt: skip

SQRT = register(
    elementwise(
        name="sqrt",
        arity=1,
        attributes=(),
        on_float=unary(lambda x: array_namespace(x).sqrt(x)),
        # Lemma: x^((p+1)/4) is multiplicative, and on squares it is the root that is itself a square.
        field=Exact(lambda f, x, a: f.sqrt(x[0])),
        abstract=lambda b, terms, shapes, attributes: b.sqrt(terms[0]),
        work=elementwise_work(1),
        scalar_c="sqrtf({0})",
        expand=None,
        laws=(
            Law("of_product", "sqrt(x) sqrt(y) = sqrt(x y)", 2,
                lambda b, x, y: b("mul", b("sqrt", x), b("sqrt", y)), lambda b, x, y: b("sqrt", b("mul", x, y)),
                positive=True),
            Law("of_square", "sqrt(x^2) = x where x > 0", 1,
                lambda b, x: b("sqrt", b("square", x)), lambda b, x: x, positive=True),
            Law("undone_by_square", "sqrt(x)^2 = x", 1,
                lambda b, x: b("square", b("sqrt", x)), lambda b, x: x, positive=True),
            Law("of_square_of_any_sign", "sqrt(x^2) = x", 1,
                lambda b, x: b("sqrt", b("square", x)), lambda b, x: x, false_law=True),
            Law("of_sum", "sqrt(x + y) = sqrt(x) + sqrt(y)", 2,
                lambda b, x, y: b("sqrt", b("add", x, y)), lambda b, x, y: b("add", b("sqrt", x), b("sqrt", y)),
                positive=True, false_law=True),
        ),
        commutative=False,
        homogeneous=lambda attributes: (Homogeneity((0,), HALF, positive=True),),
        source="Mirage OSDI'25, tables 1 to 3 (Sqrt); Euler's criterion for primes that are 3 mod 4",
    )
)  # fmt: skip


def _expand_rsqrt(b: Apply[T], operands: tuple[T, ...], shapes: tuple[Shape, ...], attributes: Attributes) -> T:
    return b("div", b("constant", value=1), b("sqrt", operands[0]))


RSQRT = register(
    elementwise(
        name="rsqrt",
        arity=1,
        attributes=(),
        on_float=unary(lambda x: 1.0 / array_namespace(x).sqrt(x)),
        field=Exact(lambda f, x, a: f.inverse(f.sqrt(x[0]))),
        abstract=expanded_abstract(_expand_rsqrt),
        work=expanded_work(_expand_rsqrt),
        scalar_c="(1.0f / sqrtf({0}))",
        expand=_expand_rsqrt,
        laws=(
            Law("inverse_root", "rsqrt(x) sqrt(x) = x / x", 1,
                lambda b, x: b("mul", b("rsqrt", x), b("sqrt", x)), lambda b, x: b("div", x, x), positive=True),
            Law("times_x", "x rsqrt(x) = sqrt(x)", 1,
                lambda b, x: b("mul", x, b("rsqrt", x)), lambda b, x: b("sqrt", x), positive=True),
        ),
        commutative=False,
        homogeneous=lambda attributes: (Homogeneity((0,), -HALF, positive=True),),
        source="torch.rsqrt",
    )
)  # fmt: skip


def _as_exponent(value: object) -> int:
    exponent = as_integer(value)
    if exponent == 0:
        raise ValueError("exponent 0 makes the constant 1; write that constant")
    if abs(exponent) > LARGEST_EXPONENT:
        raise ValueError(f"it must be between -{LARGEST_EXPONENT} and {LARGEST_EXPONENT}; use pow for larger ones")
    return exponent


def _expand_power(b: Apply[T], operands: tuple[T, ...], shapes: tuple[Shape, ...], attributes: Attributes) -> T:
    """Multiply by repeated squaring; a negative exponent divides 1 by the positive power."""
    exponent = integer(attributes, "exponent")
    result: T | None = None
    factor, left = operands[0], abs(exponent)
    while True:
        if left % 2:
            result = factor if result is None else b("mul", result, factor)
        left //= 2
        if not left:
            break
        factor = b("mul", factor, factor)
    assert result is not None
    return result if exponent > 0 else b("div", b("constant", value=1), result)


def _power_c(attributes: Attributes) -> str:
    exponent = integer(attributes, "exponent")
    if abs(exponent) > 4:
        return "powf({0}, {exponent})"
    product = f"({' * '.join(['{0}'] * abs(exponent))})"
    return product if exponent > 0 else f"(1.0f / {product})"


def _power_float(arrays: tuple[Array, ...], attributes: Attributes, prefix: int) -> tuple[Array, ...]:
    return (arrays[0] ** float(integer(attributes, "exponent")),)


POWER = register(
    elementwise(
        name="power",
        arity=1,
        attributes=(Attribute("exponent", _as_exponent, None, "give an integer exponent, not 0"),),
        on_float=_power_float,
        field=Exact(lambda f, x, a: f.power(x[0], integer(a, "exponent"))),
        abstract=expanded_abstract(_expand_power),
        work=expanded_work(_expand_power),
        scalar_c=_power_c,
        expand=_expand_power,
        laws=(
            Law("of_product", "(x y)^3 = x^3 y^3", 2,
                lambda b, x, y: b("power", b("mul", x, y), exponent=3),
                lambda b, x, y: b("mul", b("power", x, exponent=3), b("power", y, exponent=3))),
            Law("sum_of_exponents", "x^5 x^-2 = x x x", 1,
                lambda b, x: b("mul", b("power", x, exponent=5), b("power", x, exponent=-2)),
                lambda b, x: b("mul", b("mul", x, x), x)),
            Law("product_of_exponents", "(x^3)^2 = x^6", 1,
                lambda b, x: b("power", b("power", x, exponent=3), exponent=2),
                lambda b, x: b("power", x, exponent=6)),
        ),
        commutative=False,
        homogeneous=lambda attributes: (Homogeneity((0,), Fraction(integer(attributes, "exponent"))),),
        source="numpy.power with an integer exponent",
    )
)  # fmt: skip

POW = register(
    elementwise(
        name="pow",
        arity=2,
        attributes=(),
        on_float=binary(lambda x, y: x**y),
        field=Opaque("a power with a varying exponent is exp(y log x), and log has no meaning in a finite field"),
        abstract=lambda b, terms, shapes, attributes: b.apply("pow", terms[0], terms[1]),
        work=elementwise_work(1),
        scalar_c="powf({0}, {1})",
        expand=None,
        laws=(
            Law("of_product", "(x y)^z = x^z y^z", 3,
                lambda b, x, y, z: b("pow", b("mul", x, y), z),
                lambda b, x, y, z: b("mul", b("pow", x, z), b("pow", y, z)), positive=True),
            Law("of_sum", "x^(y + z) = x^y x^z", 3,
                lambda b, x, y, z: b("pow", x, b("add", y, z)),
                lambda b, x, y, z: b("mul", b("pow", x, y), b("pow", x, z)), positive=True),
            Law("by_log", "x^y = exp(y log x)", 2,
                lambda b, x, y: b("pow", x, y), lambda b, x, y: b("exp", b("mul", y, b("log", x))), positive=True),
        ),
        commutative=False,
        homogeneous=never_homogeneous,
        source="numpy.power; Mirage's POW",
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
