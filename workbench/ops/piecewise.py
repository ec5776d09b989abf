"""Operators that choose among pieces: relu, abs, clamp, maximum, minimum.

Invariant: on the closed cell that a piece's guards describe, the operator equals that piece; the cells cover everything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from workbench.core.namespaces import array_namespace
from workbench.core.shapes import Shape
from workbench.errors import AttributeValueError
from workbench.ops.attributes import fraction
from workbench.ops.broadcasting import binary, elementwise_shape, elementwise_work, unary
from workbench.ops.elementwise import ONE, elementwise, never_homogeneous
from workbench.ops.registry import register
from workbench.ops.spec import (
    Apply,
    Array,
    Attribute,
    Attributes,
    Branch,
    Homogeneity,
    Law,
    TermAlgebra,
    as_fraction,
)

if TYPE_CHECKING:
    from workbench.domains.finite_field import FieldArithmetic, FieldValue

T = TypeVar("T")


def _pieces(count: int) -> Callable[[tuple[Shape, ...], Attributes], int]:
    return lambda shapes, attributes: count


def _degree_one(*operands: int) -> Callable[[Attributes], tuple[Homogeneity, ...]]:
    return lambda attributes: (Homogeneity(operands, ONE, positive=True),)


def _is(array: Array) -> Array:
    """Return a mask as the number of the piece: 1 where it holds."""
    result: Array = array.astype("int64")
    return result


# ---------------------------------------------------------------------------------------------------- relu and abs
def _sign_guards(
    b: Apply[T], operands: tuple[T, ...], shapes: tuple[Shape, ...], attributes: Attributes, branch: int
) -> tuple[T, ...]:
    """Piece 0 holds where x <= 0, piece 1 where x >= 0."""
    return (operands[0] if branch == 1 else b("neg", operands[0]),)


RELU = register(
    elementwise(
        name="relu",
        arity=1,
        attributes=(),
        on_float=unary(lambda x: array_namespace(x).maximum(x, 0.0)),
        field=Branch(
            count=_pieces(2),
            select=lambda arrays, attributes: _is(arrays[0] > 0),
            rule=lambda f, x, attributes, choice: f.where(choice == 1, x[0], f.const(0)),
            guards=_sign_guards,
        ),
        abstract=lambda b, terms, shapes, attributes: b.apply("relu", terms[0]),
        work=elementwise_work(1),
        scalar_c="({0} < 0.0f ? 0.0f : {0})",
        expand=None,
        laws=(
            Law("odd_part", "relu(x) - relu(-x) = x", 1,
                lambda b, x: b("sub", b("relu", x), b("relu", b("neg", x))), lambda b, x: x),
            Law("scale", "relu(2 x) = 2 relu(x)", 1,
                lambda b, x: b("relu", b("scale", x, factor=2)), lambda b, x: b("scale", b("relu", x), factor=2)),
            Law("idempotent", "relu(relu(x)) = relu(x)", 1,
                lambda b, x: b("relu", b("relu", x)), lambda b, x: b("relu", x)),
            Law("additive", "relu(x + y) = relu(x) + relu(y)", 2,
                lambda b, x, y: b("relu", b("add", x, y)), lambda b, x, y: b("add", b("relu", x), b("relu", y)),
                false_law=True),
        ),
        commutative=False,
        homogeneous=_degree_one(0),
        source="torch.relu",
    )
)  # fmt: skip

ABS = register(
    elementwise(
        name="abs",
        arity=1,
        attributes=(),
        on_float=unary(abs),
        field=Branch(
            count=_pieces(2),
            select=lambda arrays, attributes: _is(arrays[0] > 0),
            rule=lambda f, x, attributes, choice: f.where(choice == 1, x[0], f.neg(x[0])),
            guards=_sign_guards,
        ),
        abstract=lambda b, terms, shapes, attributes: b.apply("abs", terms[0]),
        work=elementwise_work(1),
        scalar_c="fabsf({0})",
        expand=None,
        laws=(
            Law("of_product", "|x y| = |x| |y|", 2,
                lambda b, x, y: b("abs", b("mul", x, y)), lambda b, x, y: b("mul", b("abs", x), b("abs", y))),
            Law("square", "|x|^2 = x^2", 1,
                lambda b, x: b("square", b("abs", x)), lambda b, x: b("square", x)),
            Law("by_relu", "|x| = relu(x) + relu(-x)", 1,
                lambda b, x: b("abs", x), lambda b, x: b("add", b("relu", x), b("relu", b("neg", x)))),
            Law("additive", "|x + y| = |x| + |y|", 2,
                lambda b, x, y: b("abs", b("add", x, y)), lambda b, x, y: b("add", b("abs", x), b("abs", y)),
                false_law=True),
        ),
        commutative=False,
        homogeneous=_degree_one(0),
        source="numpy.abs",
    )
)  # fmt: skip


# ------------------------------------------------------------------------------------------------------------ clamp
def _clamp_shape(shapes: tuple[Shape, ...], attributes: Attributes) -> tuple[Shape, ...]:
    low, high = fraction(attributes, "lo"), fraction(attributes, "hi")
    if low > high:
        raise AttributeValueError(f"lo = {low} is above hi = {high}; exchange them")
    return elementwise_shape(shapes, attributes)


def _clamp_float(arrays: tuple[Array, ...], attributes: Attributes, prefix: int) -> tuple[Array, ...]:
    (x,) = arrays
    xp = array_namespace(x)
    return (xp.minimum(xp.maximum(x, float(fraction(attributes, "lo"))), float(fraction(attributes, "hi"))),)


def _clamp_select(arrays: tuple[Array, ...], attributes: Attributes) -> Array:
    (x,) = arrays
    return _is(x > float(fraction(attributes, "lo"))) + _is(x > float(fraction(attributes, "hi")))


def _clamp_rule(f: FieldArithmetic, x: tuple[FieldValue, ...], attributes: Attributes, choice: Array) -> FieldValue:
    low, high = f.const(fraction(attributes, "lo")), f.const(fraction(attributes, "hi"))
    return f.where(choice == 1, x[0], f.where(choice == 0, low, high))


def _clamp_guards(
    b: Apply[T], operands: tuple[T, ...], shapes: tuple[Shape, ...], attributes: Attributes, branch: int
) -> tuple[T, ...]:
    (x,) = operands
    low, high = b("constant", value=fraction(attributes, "lo")), b("constant", value=fraction(attributes, "hi"))
    if branch == 0:
        return (b("sub", low, x),)
    return (b("sub", x, high),) if branch == 2 else (b("sub", x, low), b("sub", high, x))


def _clamp_abstract(b: TermAlgebra[T], terms: tuple[T, ...], shapes: tuple[Shape, ...], attributes: Attributes) -> T:
    low, high = b.constant(fraction(attributes, "lo")), b.constant(fraction(attributes, "hi"))
    return b.apply("clamp", terms[0], low, high)


def _between(b: Callable[..., T], x: T, low: int, high: int) -> T:
    return b("clamp", x, lo=low, hi=high)


CLAMP = register(
    elementwise(
        name="clamp",
        arity=1,
        attributes=(
            Attribute("lo", as_fraction, None, "give the lower bound"),
            Attribute("hi", as_fraction, None, "give the upper bound"),
        ),
        shape=_clamp_shape,
        on_float=_clamp_float,
        field=Branch(count=_pieces(3), select=_clamp_select, rule=_clamp_rule, guards=_clamp_guards),
        abstract=_clamp_abstract,
        work=elementwise_work(2),
        scalar_c="({0} < {lo} ? {lo} : ({0} > {hi} ? {hi} : {0}))",
        expand=None,
        laws=(
            Law("idempotent", "clamp(clamp(x)) = clamp(x)", 1,
                lambda b, x: _between(b, _between(b, x, -1, 2), -1, 2), lambda b, x: _between(b, x, -1, 2)),
            Law("mirror", "clamp(-x, -2, 1) = -clamp(x, -1, 2)", 1,
                lambda b, x: _between(b, b("neg", x), -2, 1), lambda b, x: b("neg", _between(b, x, -1, 2))),
            Law("other_bound", "clamp(x, -1, 1) = clamp(x, -1, 2)", 1,
                lambda b, x: _between(b, x, -1, 1), lambda b, x: _between(b, x, -1, 2), false_law=True),
        ),
        commutative=False,
        homogeneous=never_homogeneous,
        source="torch.clamp; unlike Mirage's, the bounds belong to the node",
    )
)  # fmt: skip


# ---------------------------------------------------------------------------------------------- maximum and minimum
def _first_or_second(
    f: FieldArithmetic, x: tuple[FieldValue, ...], attributes: Attributes, choice: Array
) -> FieldValue:
    return f.where(choice == 0, x[0], x[1])


def _maximum_guards(
    b: Apply[T], operands: tuple[T, ...], shapes: tuple[Shape, ...], attributes: Attributes, branch: int
) -> tuple[T, ...]:
    return (b("sub", operands[branch], operands[1 - branch]),)


def _minimum_guards(
    b: Apply[T], operands: tuple[T, ...], shapes: tuple[Shape, ...], attributes: Attributes, branch: int
) -> tuple[T, ...]:
    return (b("sub", operands[1 - branch], operands[branch]),)


MAXIMUM = register(
    elementwise(
        name="maximum",
        arity=2,
        attributes=(),
        on_float=binary(lambda x, y: array_namespace(x, y).maximum(x, y)),
        field=Branch(
            count=_pieces(2),
            select=lambda arrays, attributes: _is(arrays[1] > arrays[0]),
            rule=_first_or_second,
            guards=_maximum_guards,
        ),
        abstract=lambda b, terms, shapes, attributes: b.apply("maximum", terms[0], terms[1]),
        work=elementwise_work(1),
        scalar_c="({0} > {1} || {0} != {0} ? {0} : {1})",
        expand=None,
        laws=(
            Law("sum_with_minimum", "max(x, y) + min(x, y) = x + y", 2,
                lambda b, x, y: b("add", b("maximum", x, y), b("minimum", x, y)), lambda b, x, y: b("add", x, y)),
            Law("shift", "max(x + z, y + z) = max(x, y) + z", 3,
                lambda b, x, y, z: b("maximum", b("add", x, z), b("add", y, z)),
                lambda b, x, y, z: b("add", b("maximum", x, y), z)),
            Law("minimum", "max(x, y) = min(x, y)", 2,
                lambda b, x, y: b("maximum", x, y), lambda b, x, y: b("minimum", x, y), false_law=True),
        ),
        commutative=True,
        homogeneous=_degree_one(0, 1),
        source="numpy.maximum",
    )
)  # fmt: skip

MINIMUM = register(
    elementwise(
        name="minimum",
        arity=2,
        attributes=(),
        on_float=binary(lambda x, y: array_namespace(x, y).minimum(x, y)),
        field=Branch(
            count=_pieces(2),
            select=lambda arrays, attributes: _is(arrays[1] < arrays[0]),
            rule=_first_or_second,
            guards=_minimum_guards,
        ),
        abstract=lambda b, terms, shapes, attributes: b.apply("minimum", terms[0], terms[1]),
        work=elementwise_work(1),
        scalar_c="({0} < {1} || {0} != {0} ? {0} : {1})",
        expand=None,
        laws=(
            Law("by_maximum", "min(x, y) = -max(-x, -y)", 2,
                lambda b, x, y: b("minimum", x, y),
                lambda b, x, y: b("neg", b("maximum", b("neg", x), b("neg", y)))),
            Law("product", "max(x, y) min(x, y) = x y", 2,
                lambda b, x, y: b("mul", b("maximum", x, y), b("minimum", x, y)), lambda b, x, y: b("mul", x, y)),
        ),
        commutative=True,
        homogeneous=_degree_one(0, 1),
        source="numpy.minimum",
    )
)  # fmt: skip
