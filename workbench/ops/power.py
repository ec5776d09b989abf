"""Powers and roots of each element: square, sqrt, rsqrt, power (integer exponent), pow (exponent a tensor).

Invariant: with an integer or half-integer exponent the meaning in the field is exact; with any other it is opaque.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TypeVar

from workbench.core.namespaces import array_namespace
from workbench.core.shapes import Shape
from workbench.ops.attributes import as_integer, integer
from workbench.ops.broadcasting import binary, elementwise_work, unary
from workbench.ops.elementwise import HALF, elementwise, never_homogeneous
from workbench.ops.expansion import expanded_abstract, expanded_work
from workbench.ops.registry import register
from workbench.ops.spec import Apply, Array, Attribute, Attributes, Exact, Homogeneity, Law, Opaque

T = TypeVar("T")
LARGEST_EXPONENT = 64


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
