"""Operators that move or copy elements and compute nothing: transpose, reshape, concat, split, broadcast.

Invariant: they work on arrays of any element type, so a field value moves as its coordinates do.
"""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from itertools import accumulate
from typing import TypeVar

from workbench.core.namespaces import array_namespace
from workbench.core.shapes import Shape, broadcast_shapes, num_elements
from workbench.domains.work import Work
from workbench.errors import ShapeError
from workbench.ops.attributes import AXIS, EXTENTS, as_parts, extents, integer
from workbench.ops.broadcasting import KERNEL_AND_BLOCK, one_result, shared_axis
from workbench.ops.registry import register
from workbench.ops.spec import (
    Array,
    Attribute,
    Attributes,
    AxisMap,
    Concatenated,
    Dim,
    DimSource,
    Factor,
    Homogeneity,
    Law,
    Movement,
    OpKind,
    OpSpec,
    Piece,
    Product,
    Regrouped,
    Same,
    TermAlgebra,
)

T = TypeVar("T")


def _linear(attributes: Attributes) -> tuple[Homogeneity, ...]:
    return (Homogeneity((), Fraction(1)),)


def _same_term(b: TermAlgebra[T], terms: tuple[T, ...], shapes: tuple[Shape, ...], attributes: Attributes) -> T:
    """Return the operand's term: each result element is an operand element (paper: Repeat, Reshape)."""
    return terms[0]


_movement = partial(
    OpSpec,
    kind=OpKind.MOVEMENT,
    field=Movement(),
    scalar_c=None,
    expand=None,
    commutative=False,
    homogeneous=_linear,
    levels=KERNEL_AND_BLOCK,
)


# -------------------------------------------------------------------------------------------------------- transpose
def _transpose_shape(shapes: tuple[Shape, ...], attributes: Attributes) -> tuple[Shape, ...]:
    (shape,) = shapes
    if len(shape) < 2:
        raise ShapeError(f"needs at least two axes to exchange, got shape {shape}; reshape it to a matrix first")
    return ((*shape[:-2], shape[-1], shape[-2]),)


def _transpose_axes(shapes: tuple[Shape, ...], attributes: Attributes) -> AxisMap:
    axes = [*range(-len(shapes[0]), -2), -1, -2]
    return AxisMap((tuple(Same((Dim(0, axis),)) for axis in axes),))


def _copy_once(shapes: tuple[Shape, ...], attributes: Attributes) -> Work:
    count = sum(num_elements(shape) for shape in shapes)
    return Work(0, count, count)


TRANSPOSE = register(
    _movement(
        name="transpose",
        arity=1,
        attributes=(),
        shape=_transpose_shape,
        axes=_transpose_axes,
        on_float=lambda arrays, attributes, prefix: (array_namespace(arrays[0]).swapaxes(arrays[0], -1, -2),),
        abstract=_same_term,
        work=_copy_once,
        laws=(
            Law("involution", "(x^T)^T = x", 1, lambda b, x: b("transpose", b("transpose", x)), lambda b, x: x),
            Law("of_product", "(x y^T)^T = y x^T", 2,
                lambda b, x, y: b("transpose", b("matmul", x, b("transpose", y))),
                lambda b, x, y: b("matmul", y, b("transpose", x))),
        ),
        num_results=one_result,
        source="numpy.swapaxes(x, -1, -2)",
    )
)  # fmt: skip


# ---------------------------------------------------------------------------------------------------------- reshape
def _reshape_shape(shapes: tuple[Shape, ...], attributes: Attributes) -> tuple[Shape, ...]:
    (shape,), new = shapes, extents(attributes, "shape")
    if -1 in new or num_elements(new) != num_elements(shape):
        raise ShapeError(f"{num_elements(shape)} elements of shape {shape} do not fill shape {new}")
    return (new,)


def reshape_sources(shape: Shape, new: Shape) -> tuple[DimSource, ...]:
    """Return, for each dimension of `new`, how it comes from the dimensions of `shape`, in row-major order.

    Both shapes are cut into the shortest runs with equal products: one to one is the same axis, many to one a product,
    one to many factors. (2, 3, 4) -> (6, 4): product, same. (6, 4) -> (8, 3): regrouped.
    """
    sources: list[DimSource] = []
    i, j = 0, 0
    while i < len(shape) or j < len(new):
        if i < len(shape) and j < len(new) and shape[i] == new[j]:
            sources.append(Same((Dim(0, i - len(shape)),)))
            i, j = i + 1, j + 1
        elif j < len(new) and new[j] == 1:
            sources.append(Same())
            j += 1
        elif shape[i] == 1:
            i += 1
        else:
            start_i, start_j, left, right = i, j, shape[i], new[j]
            i, j = i + 1, j + 1
            while left != right:
                if left < right:
                    left, i = left * shape[i], i + 1
                else:
                    right, j = right * new[j], j + 1
            dims = tuple(Dim(0, axis - len(shape)) for axis in range(start_i, i) if shape[axis] > 1)
            sources.extend(_run_sources(dims, new[start_j:j]))
    return tuple(sources)


def _run_sources(dims: tuple[Dim, ...], new: Shape) -> list[DimSource]:
    if len(dims) == 1:
        return [Factor(dims[0], position, new) for position in range(len(new))]
    if len(new) == 1:
        return [Product(dims)]
    return [Regrouped(dims, position, new) for position in range(len(new))]


def _reshape_float(arrays: tuple[Array, ...], attributes: Attributes, prefix: int) -> tuple[Array, ...]:
    (array,) = arrays
    return (array.reshape(array.shape[:prefix] + extents(attributes, "shape")),)


RESHAPE = register(
    _movement(
        name="reshape",
        arity=1,
        attributes=(EXTENTS,),
        shape=_reshape_shape,
        axes=lambda shapes, attributes: AxisMap((reshape_sources(shapes[0], extents(attributes, "shape")),)),
        on_float=_reshape_float,
        abstract=_same_term,
        work=_copy_once,
        laws=(
            Law("elementwise", "exp(reshape(x)) = reshape(exp(x))", 1,
                lambda b, x: b("exp", b("reshape", x, shape=(-1,))),
                lambda b, x: b("reshape", b("exp", x), shape=(-1,))),
            Law("transposed", "reshape(x^T) = reshape(x)", 1,
                lambda b, x: b("reshape", b("transpose", x), shape=(-1,)),
                lambda b, x: b("reshape", x, shape=(-1,)), false_law=True),
        ),
        num_results=one_result,
        source="numpy.reshape, row-major",
    )
)  # fmt: skip


# ------------------------------------------------------------------------------------------------- concat and split
def _concat_shape(shapes: tuple[Shape, ...], attributes: Attributes) -> tuple[Shape, ...]:
    axis = integer(attributes, "axis")
    first = shapes[0]
    total = 0
    for shape in shapes:
        if len(shape) != len(first) or not -len(first) <= axis < len(first):
            listed = ", ".join(map(str, shapes))
            raise ShapeError(f"operands of one rank that have axis {axis} are needed, got shapes {listed}")
        if any(shape[k] != first[k] for k in range(-len(first), 0) if k not in (axis, axis - len(first))):
            raise ShapeError(f"shapes {first} and {shape} differ in an axis other than {axis}")
        total += shape[axis]
    result = list(first)
    result[axis] = total
    return (tuple(result),)


def _concat_axes(shapes: tuple[Shape, ...], attributes: Attributes) -> AxisMap:
    axis, rank = integer(attributes, "axis"), len(shapes[0])
    return AxisMap(
        (
            tuple(
                Concatenated(tuple(Dim(number, axis) for number in range(len(shapes))))
                if k == axis
                else shared_axis(shapes, k, shapes[0][k])
                for k in range(-rank, 0)
            ),
        )
    )


def _concat_float(arrays: tuple[Array, ...], attributes: Attributes, prefix: int) -> tuple[Array, ...]:
    """Lay the operands along the axis; leading axes of extent 1 (the same in every block) are stretched first."""
    xp = array_namespace(*arrays)
    leading = broadcast_shapes([array.shape[:prefix] for array in arrays])
    stretched = [xp.broadcast_to(array, leading + array.shape[prefix:]) for array in arrays]
    return (xp.concatenate(stretched, axis=integer(attributes, "axis")),)


def _concat_abstract(b: TermAlgebra[T], terms: tuple[T, ...], shapes: tuple[Shape, ...], attributes: Attributes) -> T:
    axis = integer(attributes, "axis")
    return b.concat(axis, tuple(shape[axis] for shape in shapes), terms)


CONCAT = register(
    _movement(
        name="concat",
        arity=None,
        attributes=(AXIS,),
        shape=_concat_shape,
        axes=_concat_axes,
        on_float=_concat_float,
        abstract=_concat_abstract,
        work=_copy_once,
        laws=(
            Law("of_matmul", "[x | y] [x | y]^T = x x^T + y y^T", 2,
                lambda b, x, y: b("matmul", b("concat", x, y), b("transpose", b("concat", x, y))),
                lambda b, x, y: b("add", b("matmul", x, b("transpose", x)), b("matmul", y, b("transpose", y)))),
            Law("commutative", "[x | y] = [y | x]", 2,
                lambda b, x, y: b("concat", x, y), lambda b, x, y: b("concat", y, x), false_law=True),
        ),
        num_results=one_result,
        source="numpy.concatenate; Mirage's CONCAT_0 to CONCAT_2",
    )
)  # fmt: skip


def _part_extents(shape: Shape, attributes: Attributes) -> tuple[int, ...]:
    axis, parts = integer(attributes, "axis"), attributes["parts"]
    if not -len(shape) <= axis < len(shape):
        raise ShapeError(f"axis {axis} does not exist in a tensor of shape {shape}")
    if isinstance(parts, tuple):
        if sum(parts) != shape[axis]:
            raise ShapeError(f"parts {parts} add up to {sum(parts)}, axis {axis} of {shape} has {shape[axis]}")
        return parts
    assert isinstance(parts, int)
    if shape[axis] % parts:
        raise ShapeError(
            f"{parts} equal parts do not divide axis {axis} of {shape}; give a divisor of {shape[axis]} or the extents"
        )
    return (shape[axis] // parts,) * parts


def _split_shape(shapes: tuple[Shape, ...], attributes: Attributes) -> tuple[Shape, ...]:
    results = []
    for extent in _part_extents(shapes[0], attributes):
        part = list(shapes[0])
        part[integer(attributes, "axis")] = extent
        results.append(tuple(part))
    return tuple(results)


def _split_axes(shapes: tuple[Shape, ...], attributes: Attributes) -> AxisMap:
    axis, rank, parts = integer(attributes, "axis"), len(shapes[0]), _part_extents(shapes[0], attributes)
    pieces = [Piece(Dim(0, axis), sum(parts[:number]), extent) for number, extent in enumerate(parts)]
    return AxisMap(
        tuple(tuple(piece if k == axis else Same((Dim(0, k),)) for k in range(-rank, 0)) for piece in pieces)
    )


def _split_float(arrays: tuple[Array, ...], attributes: Attributes, prefix: int) -> tuple[Array, ...]:
    (array,), parts = arrays, _part_extents(arrays[0].shape[prefix:], attributes)
    boundaries = list(accumulate(parts[:-1]))
    return tuple(array_namespace(array).split(array, boundaries, axis=integer(attributes, "axis")))


def _num_parts(attributes: Attributes) -> int:
    parts = attributes["parts"]
    assert isinstance(parts, (int, tuple))
    return parts if isinstance(parts, int) else len(parts)


SPLIT = register(
    _movement(
        name="split",
        arity=1,
        attributes=(Attribute("parts", as_parts, None, "give the number of equal parts, or their extents"), AXIS),
        shape=_split_shape,
        axes=_split_axes,
        on_float=_split_float,
        abstract=_same_term,
        work=_copy_once,
        laws=(),
        num_results=_num_parts,
        source="numpy.split; Mirage's SPLIT_0 to SPLIT_2",
    )
)


# -------------------------------------------------------------------------------------------------------- broadcast
def _broadcast_shape(shapes: tuple[Shape, ...], attributes: Attributes) -> tuple[Shape, ...]:
    (shape,), new = shapes, extents(attributes, "shape")
    if -1 in new:
        raise ShapeError(f"-1 in {new} means nothing here; name every extent")
    if broadcast_shapes((shape, new)) != new:
        raise ShapeError(f"shape {shape} does not stretch to {new}; only extents of 1 and missing axes do")
    return (new,)


def _broadcast_axes(shapes: tuple[Shape, ...], attributes: Attributes) -> AxisMap:
    new = extents(attributes, "shape")
    return AxisMap((tuple(shared_axis(shapes, axis, new[axis]) for axis in range(-len(new), 0)),))


def _broadcast_float(arrays: tuple[Array, ...], attributes: Attributes, prefix: int) -> tuple[Array, ...]:
    (array,), new = arrays, extents(attributes, "shape")
    rank = array.ndim - prefix
    aligned = array.reshape(array.shape[:prefix] + (1,) * (len(new) - rank) + array.shape[prefix:])
    return (array_namespace(array).broadcast_to(aligned, array.shape[:prefix] + new),)


BROADCAST = register(
    _movement(
        name="broadcast",
        arity=1,
        attributes=(Attribute("shape", EXTENTS.convert, None, "give the new extents"),),
        shape=_broadcast_shape,
        axes=_broadcast_axes,
        on_float=_broadcast_float,
        abstract=_same_term,
        work=lambda shapes, attributes: Work(0, num_elements(shapes[0]), num_elements(extents(attributes, "shape"))),
        laws=(
            Law("implicit", "broadcast(sum(x), 2 x 6) y = sum(x) y", 2,
                lambda b, x, y: b("mul", b("broadcast", b("sum", x), shape=(2, 6)), y),
                lambda b, x, y: b("mul", b("sum", x), y)),
        ),
        num_results=one_result,
        source="numpy.broadcast_to; Mirage OSDI'25, table 1 (Repeat)",
    )
)  # fmt: skip
