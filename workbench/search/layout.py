"""How values lie in memory when a sketch is built: which dimension is which axis, and what brings operands together.

The search knows axes only. Here reshapes (to add or drop dimensions of extent 1) and transposes (of the last two
dimensions) are put in where an operator needs them. Invariant: a value's dimensions and its shape agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from workbench.core.dtypes import DType
from workbench.core.tensors import DeviceTensor
from workbench.errors import NotApplicableError
from workbench.search.axis_runs import DimNames
from workbench.ugraph.builder import BlockBuilder, KernelBuilder
from workbench.ugraph.value import Value

Builder = KernelBuilder | BlockBuilder
UNIT: DimNames = ()
IMPOSSIBLE = 9
"""Transposes that an arrangement would take which transposes of the last two dimensions do not give."""

_Factors = tuple["Laid", "Laid", str]


@dataclass(frozen=True, slots=True)
class Laid:
    """A value of a builder with the axes of each of its dimensions; no axis for a dimension of extent 1."""

    value: Value
    dims: tuple[DimNames, ...]
    axes: tuple[DimNames, ...] = field(init=False)
    """The dimensions that are axes, in order."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "axes", tuple([dim for dim in self.dims if dim]))

    def position(self, axis: str) -> int:
        """Return which dimension an axis is. Raises: NotApplicableError when it is part of another or missing."""
        for place, dim in enumerate(self.dims):
            if dim == (axis,):
                return place
        raise NotApplicableError(f"axis {axis} is no dimension of its own in {self.value.name}")


class Layouts:
    """Arranges values of one builder; order: the axes, outermost first, where nothing else decides."""

    def __init__(self, builder: Builder, order: Mapping[str, int]) -> None:
        """Keep the builder."""
        self.builder, self.order = builder, order

    # ------------------------------------------------------------------------------------------------------ arranging
    def arranged(self, laid: Laid, target: Sequence[DimNames], *, exactly: bool = False) -> Value:
        """Return the value so that it broadcasts to the target's dimensions, or, `exactly`, has these dimensions.

        Raises: NotApplicableError when its axes lie in an order that a transpose of the last two does not mend.
        """
        present = set(laid.axes)
        wanted = [dim if dim in present else UNIT for dim in target]
        if len(present) > sum(1 for dim in wanted if dim):
            raise NotApplicableError(f"{laid.value.name} has axes that its place has not")
        if not exactly:
            while wanted and not wanted[0]:
                del wanted[0]
        laid = self._ordered(laid, [dim for dim in wanted if dim])
        if self._fits(laid.dims, wanted, exactly=exactly):
            return laid.value
        extents = dict(zip(laid.dims, laid.value.shape, strict=True))
        shape = tuple(extents[dim] if dim else 1 for dim in wanted)
        return self.builder.apply("reshape", laid.value, shape=shape)

    def _fits(self, dims: Sequence[DimNames], wanted: Sequence[DimNames], *, exactly: bool) -> bool:
        if exactly:
            return list(dims) == list(wanted)
        kept = list(dims)
        while len(kept) > len(wanted) and not kept[0]:
            return False  # leading dimensions of extent 1 would make the result longer
        return len(kept) <= len(wanted) and kept == list(wanted[len(wanted) - len(kept) :])

    def _ordered(self, laid: Laid, order: Sequence[DimNames]) -> Laid:
        """Return the value with its axes in an order, by at most one transpose."""
        if list(laid.axes) == list(order):
            return laid
        swapped = (*laid.axes[:-2], *laid.axes[-2:][::-1])
        if list(swapped) != list(order):
            raise NotApplicableError(f"{laid.value.name} would have to be transposed beyond its last two axes")
        if laid.dims[-2:] != laid.axes[-2:]:
            laid = self._without_units(laid)
        return Laid(self.builder.apply("transpose", laid.value), (*laid.dims[:-2], *laid.dims[-2:][::-1]))

    def _without_units(self, laid: Laid) -> Laid:
        extents = dict(zip(laid.dims, laid.value.shape, strict=True))
        shape = tuple(extents[dim] for dim in laid.axes)
        return Laid(self.builder.apply("reshape", laid.value, shape=shape), laid.axes)

    def transposes(self, laid: Laid, target: Sequence[DimNames]) -> int:
        """Return how many transposes an arrangement takes, IMPOSSIBLE for one that is not possible."""
        order = [dim for dim in target if dim in set(laid.axes)]
        if list(laid.axes) == order:
            return 0
        return 1 if [*laid.axes[:-2], *laid.axes[-2:][::-1]] == order else IMPOSSIBLE

    # ------------------------------------------------------------------------------------------------------ operators
    def together(self, left: Laid, right: Laid) -> tuple[Value, Value, tuple[DimNames, ...]]:
        """Return two operands of an elementwise operator so that they broadcast, and the result's dimensions."""
        target = self._common(left, right)
        values = self.arranged(left, target), self.arranged(right, target)
        rank = max(len(value.shape) for value in values)
        return *values, target[len(target) - rank :] if rank <= len(target) else target

    def _common(self, left: Laid, right: Laid) -> tuple[DimNames, ...]:
        one, two = set(left.axes), set(right.axes)
        if one >= two and (one > two or len(left.dims) >= len(right.dims)):
            return left.dims
        if two >= one:
            return right.dims
        return tuple(sorted(one | two, key=self._rank))

    def _rank(self, dim: DimNames) -> tuple[int, ...]:
        return tuple(self.order.get(name, len(self.order)) for name in dim)

    def product(self, one: Laid, two: Laid, axis: str, dtype: DType | None = None) -> Laid:
        """Return the matrix product over a shared axis; the operand that needs fewer transposes stands left.

        dtype: of a predefined kernel's result, where it is not the widest of the operands'.
        """
        plans = [self._product_plan(one, two, axis), self._product_plan(two, one, axis)]
        best = min(plans, key=lambda plan: plan.cost)
        if best.cost[0] >= IMPOSSIBLE:
            return self._flattened_product(one, two, axis, dtype)
        left, right = self._matrix(best.left, best.left_target), self._matrix(best.right, best.right_target)
        result = self.builder.apply("matmul", left, right)
        if dtype is not None and isinstance(self.builder, KernelBuilder):
            (made,) = self.builder.nodes[-1].results
            assert isinstance(made, DeviceTensor)
            (result,) = self.builder.restate(replace(made, dtype=dtype))
        dims = (*best.leads, best.row, best.column)
        return Laid(result, dims[len(dims) - len(result.shape) :])

    def _flattened_product(self, one: Laid, two: Laid, axis: str, dtype: DType | None) -> Laid:
        """Return a product of operands that share no other axis, each taken as a matrix: (b, heads, width) as (b, columns)."""
        if {*one.axes} & {*two.axes} != {(axis,)}:
            raise NotApplicableError(
                f"{one.value.name} and {two.value.name} would have to be transposed beyond the last two axes"
            )
        extents = {dim: n for laid in (one, two) for dim, n in zip(laid.dims, laid.value.shape, strict=True)}
        flat = self.product(self._matrix_of(one, axis), self._matrix_of(two, axis), axis, dtype)
        parts = {tuple(name for dim in own for name in dim): own for own in (_beside(one, axis), _beside(two, axis))}
        dims = tuple(part for dim in flat.dims for part in parts.get(dim, (dim,)))
        shape = tuple(extents.get(dim, 1) for dim in dims)
        return Laid(self.builder.apply("reshape", flat.value, shape=shape), dims)

    def _matrix_of(self, laid: Laid, axis: str) -> Laid:
        """Return an operand with all its axes but one as one dimension. Raises: NotApplicableError when it lies among them."""
        inner, own = (axis,), _beside(laid, axis)
        if len(own) < 2:
            return laid
        if inner not in (laid.axes[0], laid.axes[-1]):
            raise NotApplicableError(
                f"{laid.value.name} has {axis} between its other axes and cannot be taken as a matrix"
            )
        extents = dict(zip(laid.dims, laid.value.shape, strict=True))
        columns = tuple(name for dim in own for name in dim)
        sides = [(inner, extents[inner]), (columns, prod(extents[dim] for dim in own))]
        sides = sides if laid.axes[0] == inner else sides[::-1]
        value = self.builder.apply("reshape", laid.value, shape=tuple(extent for _, extent in sides))
        return Laid(value, tuple(dim for dim, _ in sides))

    def joined_product(self, one: _Factors, two: _Factors) -> Laid:
        """Return [x | y] [w ; z] of the factors (x, w, their axis) and (y, z, their axis).

        Raises: NotApplicableError when the halves do not lie alike, or one lies in part beyond the end of its axis.
        """
        plans = [
            (self._product_plan(*one), self._product_plan(*two)),
            (self._product_plan(one[1], one[0], one[2]), self._product_plan(two[1], two[0], two[2])),
        ]
        fitting = [pair for pair in plans if pair[0].frame == pair[1].frame]
        if not fitting:
            raise NotApplicableError(f"the products over {one[2]} and {two[2]} have different dimensions")
        first, second = min(fitting, key=lambda pair: pair[0].cost[0] + pair[1].cost[0])
        halves = []
        for axis, sides in ((-1, ("left", "left_target")), (-2, ("right", "right_target"))):
            parts = [self._matrix(getattr(plan, sides[0]), getattr(plan, sides[1])) for plan in (first, second)]
            halves.append(self.builder.apply("concat", *parts, axis=axis))
        result = self.builder.apply("matmul", *halves)
        dims = (*first.leads, first.row, first.column)
        return Laid(result, dims[len(dims) - len(result.shape) :])

    def _matrix(self, laid: Laid, target: Sequence[DimNames]) -> Value:
        """Return an operand of a matrix product: its last two dimensions are the target's."""
        present = set(laid.axes)
        start = next((k for k, dim in enumerate(target[:-2]) if dim in present), len(target) - 2)
        return self.arranged(laid, target[start:], exactly=True)

    def _product_plan(self, left: Laid, right: Laid, axis: str) -> _ProductPlan:
        inner: DimNames = (axis,)
        shared = set(left.axes) & set(right.axes)
        own_left = [dim for dim in left.axes if dim not in shared]
        own_right = [dim for dim in right.axes if dim not in shared]
        row = own_left[-1] if own_left else UNIT
        column = own_right[-1] if own_right else UNIT
        leads = sorted({*own_left[:-1], *own_right[:-1], *shared} - {inner}, key=self._rank)
        left_target, right_target = (*leads, row, inner), (*leads, inner, column)
        cost = (
            self.transposes(left, left_target) + self.transposes(right, right_target),
            self._rank(row) > self._rank(column),
        )
        return _ProductPlan(left, right, tuple(leads), row, column, left_target, right_target, cost)


def _beside(laid: Laid, axis: str) -> list[DimNames]:
    """Return the axes of a value but one."""
    return [dim for dim in laid.axes if dim != (axis,)]


@dataclass(frozen=True, slots=True)
class _ProductPlan:
    """One way to lay out a matrix product: (leads, row, axis) times (leads, axis, column)."""

    left: Laid
    right: Laid
    leads: tuple[DimNames, ...]
    row: DimNames
    column: DimNames
    left_target: tuple[DimNames, ...]
    right_target: tuple[DimNames, ...]
    cost: tuple[int, bool]

    @property
    def frame(self) -> tuple[DimNames, ...]:
        """The dimensions of the product."""
        return (*self.leads, self.row, self.column)
