"""What elementwise operators share: shape, axes and work under NumPy broadcasting, and the alignment of ranks.

Invariant: result element i depends on operand elements i only, the leading `prefix` axes of the interpreter included.
"""

from __future__ import annotations

from collections.abc import Callable

from workbench.core.namespaces import array_namespace
from workbench.core.shapes import Shape, broadcast_shapes, num_elements
from workbench.domains.work import Work
from workbench.ops.spec import Array, Attributes, AxisMap, Dim, Same

ALL_LEVELS = frozenset({"kernel", "block", "thread"})
KERNEL_AND_BLOCK = frozenset({"kernel", "block"})
FloatRule = Callable[[tuple[Array, ...], Attributes, int], tuple[Array, ...]]
WorkRule = Callable[[tuple[Shape, ...], Attributes], Work]


# ------------------------------------------------------------------------------------------------------------ arrays
def align_ranks(arrays: tuple[Array, ...], prefix: int) -> tuple[Array, ...]:
    """Return the arrays with as many trailing axes each, new axes of extent 1 put behind the `prefix` leading ones.

    NumPy would align a leading axis of (p, n) with an axis of (p, m, n). Constants made without leading axes, and NumPy
    constants among arrays of another module, are brought along.
    """
    xp = array_namespace(*arrays)
    arrays = tuple(array if array_namespace(array) is xp else xp.asarray(array) for array in arrays)
    rank = max(max(array.ndim - prefix, 0) for array in arrays)
    return tuple(
        array
        if array.ndim == prefix + rank
        else array.reshape(array.shape[:prefix] + (1,) * (prefix + rank - array.ndim) + array.shape[prefix:])
        for array in arrays
    )


def unary(function: Callable[[Array], Array]) -> FloatRule:
    """Return the float rule of an elementwise operator of one operand and no attributes."""
    return lambda arrays, attributes, prefix: (function(arrays[0]),)


def binary(function: Callable[[Array, Array], Array]) -> FloatRule:
    """Return the float rule of an elementwise operator of two operands, ranks aligned."""
    return lambda arrays, attributes, prefix: (function(*align_ranks(arrays, prefix)),)


# ------------------------------------------------------------------------------------------------------------- shapes
def one_result(attributes: Attributes) -> int:
    """Return 1: the number of results of most operators."""
    return 1


def elementwise_shape(shapes: tuple[Shape, ...], attributes: Attributes) -> tuple[Shape, ...]:
    """Return the broadcast shape. Raises: ShapeError when the shapes do not broadcast."""
    return (broadcast_shapes(shapes, where="elementwise"),)


def shared_axis(shapes: tuple[Shape, ...], axis: int, extent: int) -> Same:
    """Return as one axis every operand dimension at `axis` that is not stretched to `extent`."""
    return Same(
        tuple(Dim(number, axis) for number, shape in enumerate(shapes) if len(shape) >= -axis and shape[axis] == extent)
    )


def elementwise_axes(shapes: tuple[Shape, ...], attributes: Attributes) -> AxisMap:
    """Return the map that joins the operands' dimensions at equal distance from the end."""
    (result,) = elementwise_shape(shapes, attributes)
    return AxisMap((tuple(shared_axis(shapes, axis, result[axis]) for axis in range(-len(result), 0)),))


def elementwise_work(flops: int) -> WorkRule:
    """Return the work of `flops` operations per result element; every operand is read and the result written once."""

    def work(shapes: tuple[Shape, ...], attributes: Attributes) -> Work:
        count = num_elements(elementwise_shape(shapes, attributes)[0])
        return Work(flops * count, sum(num_elements(shape) for shape in shapes), count)

    return work
