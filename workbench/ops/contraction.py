"""Matrix products. Invariant: one multiply-add per (row, column, inner) triple, the inner axis folded from zero."""

from __future__ import annotations

from fractions import Fraction
from typing import TypeVar

from workbench.core.namespaces import array_namespace
from workbench.core.shapes import Shape, broadcast_shapes, num_elements
from workbench.domains.work import Work
from workbench.errors import ShapeError
from workbench.ops.broadcasting import KERNEL_AND_BLOCK, align_ranks, one_result, shared_axis
from workbench.ops.registry import register
from workbench.ops.spec import (
    Array,
    Attributes,
    AxisMap,
    Dim,
    Exact,
    Homogeneity,
    Law,
    OpKind,
    OpSpec,
    Same,
    TermAlgebra,
)

T = TypeVar("T")


def _matmul_shape(shapes: tuple[Shape, ...], attributes: Attributes) -> tuple[Shape, ...]:
    left, right = shapes
    if len(left) < 2 or len(right) < 2:
        raise ShapeError(f"operands need at least two axes, got {left} and {right}; reshape a vector to a matrix")
    if left[-1] != right[-2]:
        raise ShapeError(
            f"inner extents differ: {left} has {left[-1]} columns, {right} has {right[-2]} rows; transpose one operand?"
        )
    leading = broadcast_shapes((left[:-2], right[:-2]), where="leading axes")
    return ((*leading, left[-2], right[-1]),)


def _matmul_axes(shapes: tuple[Shape, ...], attributes: Attributes) -> AxisMap:
    (result,) = _matmul_shape(shapes, attributes)
    leading = tuple(shared_axis(shapes, axis, result[axis]) for axis in range(-len(result), -2))
    return AxisMap(
        ((*leading, Same((Dim(0, -2),)), Same((Dim(1, -1),))),),
        reduced=((Dim(0, -1), Dim(1, -2)),),
    )


def _matmul_float(arrays: tuple[Array, ...], attributes: Attributes, prefix: int) -> tuple[Array, ...]:
    left, right = align_ranks(arrays, prefix)
    return (array_namespace(left, right).matmul(left, right),)


def _matmul_abstract(b: TermAlgebra[T], terms: tuple[T, ...], shapes: tuple[Shape, ...], attributes: Attributes) -> T:
    return b.sum(0, shapes[0][-1], b.mul(terms[0], terms[1]))


def _matmul_work(shapes: tuple[Shape, ...], attributes: Attributes) -> Work:
    count = num_elements(_matmul_shape(shapes, attributes)[0])
    return Work(2 * count * shapes[0][-1], num_elements(shapes[0]) + num_elements(shapes[1]), count)


MATMUL = register(
    OpSpec(
        name="matmul",
        arity=2,
        kind=OpKind.CONTRACTION,
        attributes=(),
        shape=_matmul_shape,
        axes=_matmul_axes,
        on_float=_matmul_float,
        field=Exact(lambda f, x, a: f.matmul(x[0], x[1])),
        abstract=_matmul_abstract,
        work=_matmul_work,
        scalar_c=None,
        expand=None,
        laws=(
            Law("associative", "(x y^T) z = x (y^T z)", 3,
                lambda b, x, y, z: b("matmul", b("matmul", x, b("transpose", y)), z),
                lambda b, x, y, z: b("matmul", x, b("matmul", b("transpose", y), z))),
            Law("distributive", "x (y + z)^T = x y^T + x z^T", 3,
                lambda b, x, y, z: b("matmul", x, b("transpose", b("add", y, z))),
                lambda b, x, y, z: b("add", b("matmul", x, b("transpose", y)), b("matmul", x, b("transpose", z)))),
            Law("division_of_rows", "(x / s) y^T = (x y^T) / s, s a column", 3,
                lambda b, x, y, z: b("matmul", b("div", x, b("sum", z)), b("transpose", y)),
                lambda b, x, y, z: b("div", b("matmul", x, b("transpose", y)), b("sum", z))),
            Law("symmetric", "x y^T = y x^T", 2,
                lambda b, x, y: b("matmul", x, b("transpose", y)), lambda b, x, y: b("matmul", y, b("transpose", x)),
                false_law=True),
        ),
        commutative=False,
        homogeneous=lambda attributes: (Homogeneity((0,), Fraction(1)), Homogeneity((1,), Fraction(1))),
        levels=KERNEL_AND_BLOCK,
        num_results=one_result,
        source="Mirage OSDI'25, table 1 (Matmul); numpy.matmul without its rule for vectors",
    )
)  # fmt: skip
