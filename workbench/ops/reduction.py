"""Operators that fold an axis: sum, mean, max, and the strided sum to D columns.

Invariant: a folded axis stays with extent 1; a fold of n elements counts n operations (it starts from the neutral
element), so that a matmul costs 2 m n k and partial folds add up to the whole.
"""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from workbench.core.namespaces import array_namespace
from workbench.core.shapes import Shape, negative_axis, num_elements
from workbench.domains.work import Work
from workbench.errors import ShapeError
from workbench.ops.attributes import AXIS, as_positive_integer, integer
from workbench.ops.broadcasting import KERNEL_AND_BLOCK, WorkRule, one_result
from workbench.ops.registry import register
from workbench.ops.spec import (
    Apply,
    Array,
    Attribute,
    Attributes,
    AxisMap,
    Branch,
    Dim,
    Exact,
    Factor,
    Homogeneity,
    Law,
    OpKind,
    OpSpec,
    Same,
    TermAlgebra,
)

if TYPE_CHECKING:
    from workbench.domains.finite_field import FieldArithmetic, FieldValue

T = TypeVar("T")


def folded_shape(shapes: tuple[Shape, ...], attributes: Attributes) -> tuple[Shape, ...]:
    """Return the operand's shape with extent 1 at the axis. Raises: ShapeError when there is no such axis."""
    axis = negative_axis(integer(attributes, "axis"), len(shapes[0]))
    result = list(shapes[0])
    result[axis] = 1
    return (tuple(result),)


def folded_axes(shapes: tuple[Shape, ...], attributes: Attributes) -> AxisMap:
    """Return the map that keeps every dimension but the axis, which is folded and leaves a fresh one."""
    folded, rank = integer(attributes, "axis"), len(shapes[0])
    results = tuple(Same() if axis == folded else Same((Dim(0, axis),)) for axis in range(-rank, 0))
    return AxisMap((results,), reduced=((Dim(0, folded),),))


def _fold_work(flops_per_result: int) -> WorkRule:
    """Return the work of one operation per folded element and `flops_per_result` more per result element."""

    def work(shapes: tuple[Shape, ...], attributes: Attributes) -> Work:
        count, results = num_elements(shapes[0]), num_elements(folded_shape(shapes, attributes)[0])
        return Work(count + flops_per_result * results, count, results)

    return work


def _once(positive: bool = False) -> tuple[Homogeneity, ...]:
    return (Homogeneity((0,), Fraction(1), positive),)


_reduction = partial(
    OpSpec,
    arity=1,
    kind=OpKind.REDUCTION,
    scalar_c=None,
    commutative=False,
    levels=KERNEL_AND_BLOCK,
    num_results=one_result,
)


# ------------------------------------------------------------------------------------------------------ sum and mean
def _sum_float(arrays: tuple[Array, ...], attributes: Attributes, prefix: int) -> tuple[Array, ...]:
    (x,) = arrays
    return (array_namespace(x).sum(x, axis=integer(attributes, "axis"), keepdims=True),)


def _sum_abstract(b: TermAlgebra[T], terms: tuple[T, ...], shapes: tuple[Shape, ...], attributes: Attributes) -> T:
    return b.sum(0, shapes[0][integer(attributes, "axis")], terms[0])


SUM = register(
    _reduction(
        name="sum",
        attributes=(AXIS,),
        shape=folded_shape,
        axes=folded_axes,
        on_float=_sum_float,
        field=Exact(lambda f, x, a: f.sum(x[0], integer(a, "axis"))),
        abstract=_sum_abstract,
        work=_fold_work(0),
        expand=None,
        laws=(
            Law("additive", "sum(x + y) = sum(x) + sum(y)", 2,
                lambda b, x, y: b("sum", b("add", x, y)), lambda b, x, y: b("add", b("sum", x), b("sum", y))),
            Law("order_of_axes", "sum over columns of sum over rows = sum over rows of sum over columns", 1,
                lambda b, x: b("sum", b("sum", x, axis=-2), axis=-1),
                lambda b, x: b("sum", b("sum", x, axis=-1), axis=-2)),
            Law("constant_factor", "sum(x s) = sum(x) s, s constant along the axis", 2,
                lambda b, x, y: b("sum", b("mul", x, b("sum", y))), lambda b, x, y: b("mul", b("sum", x), b("sum", y))),
            Law("of_product", "sum(x y) = sum(x) sum(y)", 2,
                lambda b, x, y: b("sum", b("mul", x, y)), lambda b, x, y: b("mul", b("sum", x), b("sum", y)),
                false_law=True),
        ),
        homogeneous=lambda attributes: _once(),
        source="Mirage OSDI'25, table 1 (Sum) with groups of the whole axis",
    )
)  # fmt: skip


def _mean_float(arrays: tuple[Array, ...], attributes: Attributes, prefix: int) -> tuple[Array, ...]:
    (x,) = arrays
    return (array_namespace(x).mean(x, axis=integer(attributes, "axis"), keepdims=True),)


def _mean_field(f: FieldArithmetic, x: tuple[FieldValue, ...], attributes: Attributes) -> FieldValue:
    axis = integer(attributes, "axis")
    return f.mul(f.sum(x[0], axis), f.const(Fraction(1, x[0].shape[axis])))


def _mean_abstract(b: TermAlgebra[T], terms: tuple[T, ...], shapes: tuple[Shape, ...], attributes: Attributes) -> T:
    extent = shapes[0][integer(attributes, "axis")]
    return b.mul(b.constant(Fraction(1, extent)), b.sum(0, extent, terms[0]))


def _expand_mean(b: Apply[T], operands: tuple[T, ...], shapes: tuple[Shape, ...], attributes: Attributes) -> T:
    axis = integer(attributes, "axis")
    return b("scale", b("sum", operands[0], axis=axis), factor=Fraction(1, shapes[0][axis]))


MEAN = register(
    _reduction(
        name="mean",
        attributes=(AXIS,),
        shape=folded_shape,
        axes=folded_axes,
        on_float=_mean_float,
        field=Exact(_mean_field),
        abstract=_mean_abstract,
        work=_fold_work(1),
        expand=_expand_mean,
        laws=(
            Law("additive", "mean(x + y) = mean(x) + mean(y)", 2,
                lambda b, x, y: b("mean", b("add", x, y)), lambda b, x, y: b("add", b("mean", x), b("mean", y))),
            Law("of_constant", "mean(x + c) = mean(x) + c", 1,
                lambda b, x: b("mean", b("add", x, b("constant", value=3))),
                lambda b, x: b("add", b("mean", x), b("constant", value=3))),
            Law("sum", "mean(x) = sum(x)", 1, lambda b, x: b("mean", x), lambda b, x: b("sum", x), false_law=True),
        ),
        homogeneous=lambda attributes: _once(),
        source="numpy.mean",
    )
)  # fmt: skip


# --------------------------------------------------------------------------------------------------------------- max
def _max_float(arrays: tuple[Array, ...], attributes: Attributes, prefix: int) -> tuple[Array, ...]:
    (x,) = arrays
    return (array_namespace(x).max(x, axis=integer(attributes, "axis"), keepdims=True),)


def _max_select(arrays: tuple[Array, ...], attributes: Attributes) -> Array:
    (x,), axis = arrays, integer(attributes, "axis")
    xp = array_namespace(x)
    result: Array = xp.expand_dims(xp.argmax(x, axis=axis), axis)
    return result


def _max_rule(f: FieldArithmetic, x: tuple[FieldValue, ...], attributes: Attributes, choice: Array) -> FieldValue:
    axis, xp = integer(attributes, "axis"), array_namespace(choice)
    return x[0].map(lambda coordinate: xp.take_along_axis(coordinate, choice, axis=axis))


def _max_guards(
    b: Apply[T], operands: tuple[T, ...], shapes: tuple[Shape, ...], attributes: Attributes, branch: int
) -> tuple[T, ...]:
    chosen = operands[branch]
    return tuple(b("sub", chosen, other) for number, other in enumerate(operands) if number != branch)


def _max_abstract(b: TermAlgebra[T], terms: tuple[T, ...], shapes: tuple[Shape, ...], attributes: Attributes) -> T:
    return b.max(0, shapes[0][integer(attributes, "axis")], terms[0])


MAX = register(
    _reduction(
        name="max",
        attributes=(AXIS,),
        shape=folded_shape,
        axes=folded_axes,
        on_float=_max_float,
        field=Branch(
            count=lambda shapes, attributes: shapes[0][integer(attributes, "axis")],
            select=_max_select,
            rule=_max_rule,
            guards=_max_guards,
        ),
        abstract=_max_abstract,
        work=_fold_work(0),
        expand=None,
        laws=(
            Law("shift", "max(x + s) = max(x) + s, s constant along the axis", 2,
                lambda b, x, y: b("max", b("add", x, b("sum", y))), lambda b, x, y: b("add", b("max", x), b("sum", y))),
            Law("of_two", "max(maximum(x, y)) = maximum(max(x), max(y))", 2,
                lambda b, x, y: b("max", b("maximum", x, y)), lambda b, x, y: b("maximum", b("max", x), b("max", y))),
            Law("additive", "max(x + y) = max(x) + max(y)", 2,
                lambda b, x, y: b("max", b("add", x, y)), lambda b, x, y: b("add", b("max", x), b("max", y)),
                false_law=True),
        ),
        homogeneous=lambda attributes: _once(positive=True),
        source="numpy.max",
    )
)  # fmt: skip


# ----------------------------------------------------------------------------------------------------- sum to columns
def _columns_of(shape: Shape, attributes: Attributes) -> tuple[int, int]:
    """Return (groups, columns): how many elements make one, and how many remain."""
    columns = integer(attributes, "columns")
    if not shape or shape[-1] % columns:
        last = f"the last axis of extent {shape[-1]}" if shape else "a scalar"
        raise ShapeError(f"{columns} columns do not divide {last}; choose a divisor")
    return shape[-1] // columns, columns


def _columns_shape(shapes: tuple[Shape, ...], attributes: Attributes) -> tuple[Shape, ...]:
    return ((*shapes[0][:-1], _columns_of(shapes[0], attributes)[1]),)


def _columns_axes(shapes: tuple[Shape, ...], attributes: Attributes) -> AxisMap:
    factors = _columns_of(shapes[0], attributes)
    kept = tuple(Same((Dim(0, axis),)) for axis in range(-len(shapes[0]), -1))
    return AxisMap(((*kept, Factor(Dim(0, -1), 1, factors)),), reduced=((Factor(Dim(0, -1), 0, factors),),))


def _columns_float(arrays: tuple[Array, ...], attributes: Attributes, prefix: int) -> tuple[Array, ...]:
    (x,) = arrays
    return (array_namespace(x).sum(x.reshape(x.shape[:-1] + _columns_of(x.shape, attributes)), axis=-2),)


def _columns_field(f: FieldArithmetic, x: tuple[FieldValue, ...], attributes: Attributes) -> FieldValue:
    shape = x[0].shape[:-1] + _columns_of(x[0].shape, attributes)
    return f.sum(x[0].map(lambda coordinate: coordinate.reshape(shape)), -2, keepdims=False)


def _columns_abstract(b: TermAlgebra[T], terms: tuple[T, ...], shapes: tuple[Shape, ...], attributes: Attributes) -> T:
    return b.sum(0, _columns_of(shapes[0], attributes)[0], terms[0])


def _columns_work(shapes: tuple[Shape, ...], attributes: Attributes) -> Work:
    count = num_elements(shapes[0])
    return Work(count, count, num_elements(_columns_shape(shapes, attributes)[0]))


SUM_TO_COLUMNS = register(
    _reduction(
        name="sum_to_columns",
        attributes=(Attribute("columns", as_positive_integer, None, "give the number of columns that remain"),),
        shape=_columns_shape,
        axes=_columns_axes,
        on_float=_columns_float,
        field=Exact(_columns_field),
        abstract=_columns_abstract,
        work=_columns_work,
        expand=None,
        laws=(
            Law("then_sum", "sum(sum_to_columns(x, 3)) = sum(x)", 1,
                lambda b, x: b("sum", b("sum_to_columns", x, columns=3)), lambda b, x: b("sum", x)),
            Law("of_joined", "sum_to_columns([x | y], 6) = x + y", 2,
                lambda b, x, y: b("sum_to_columns", b("concat", x, y), columns=6), lambda b, x, y: b("add", x, y)),
        ),
        homogeneous=lambda attributes: _once(),
        source="Mirage's REDTOX in its verifier's, strided meaning: out[..., j] = sum_k x[..., k*D + j]",
    )
)  # fmt: skip
