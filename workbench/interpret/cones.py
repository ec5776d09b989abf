"""Which part of each input an element depends on: its cone, as an interval of indices per input and axis.

Invariant: an interval holds every index in the element's cone (it may hold more). The sampler uses it to draw again
exactly the rows whose root or quotient has no meaning; applications are numbered as in `field.FieldDomain`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

import numpy as np

from workbench.core.shapes import Shape
from workbench.interpret.arrays import ArrayDomain
from workbench.interpret.walk import walk
from workbench.ops.spec import (
    Array,
    Attributes,
    Branch,
    Dim,
    Exact,
    Expanded,
    Movement,
    Opaque,
    OpSpec,
    OutsideLax,
)
from workbench.ugraph.kernel_graph import KernelGraph

_NONE = (np.int32(2**31 - 1), np.int32(-1))  # the empty interval: the element does not depend on the input


@dataclass(frozen=True, slots=True, eq=False)
class Cones:
    """The cones of a tensor's elements.

    Attributes: bounds: for every (input, axis) pair in order, the least and then the greatest index, as int32 arrays of
    the tensor's shape (views with stride 0 where nothing changes).
    """

    bounds: tuple[Array, ...]


Site = tuple[str, Cones]
Box = tuple[slice, ...]


@dataclass(frozen=True, slots=True)
class ConeAxes:
    """Which (input, axis) pair each pair of bounds stands for."""

    pairs: tuple[tuple[int, int], ...]

    @staticmethod
    def of(graph: KernelGraph) -> ConeAxes:
        """Return the pairs of a program's inputs."""
        return ConeAxes(tuple((k, axis) for k, tensor in enumerate(graph.inputs) for axis in range(len(tensor.shape))))

    def inputs(self, graph: KernelGraph) -> list[Cones]:
        """Return the cones of the inputs themselves: each element depends on itself alone."""
        result = []
        for k, tensor in enumerate(graph.inputs):
            bounds = []
            for other, axis in self.pairs:
                if other == k:
                    shape = [-1 if dim == axis else 1 for dim in range(len(tensor.shape))]
                    index = np.broadcast_to(np.arange(tensor.shape[axis], dtype=np.int32).reshape(shape), tensor.shape)
                    bounds += [index, index]
                else:
                    bounds += [np.broadcast_to(bound, tensor.shape) for bound in _NONE]
            result.append(Cones(tuple(bounds)))
        return result


class ConeDomain(ArrayDomain[Cones]):
    """Values are cones; every operator joins its operands' cones along what it folds.

    sites: per application of an exact rule, in order, the operator's name and the cones of its last operand
    (denominator or radicand).
    """

    def __init__(self, axes: ConeAxes, chunk_elements: int = 1 << 22) -> None:
        super().__init__(chunk_elements)
        self.axes = axes
        self.sites: list[Site] = []

    def map(self, function: Callable[..., Array], *values: Cones) -> Cones:
        """Return the movement of every bound."""
        return Cones(tuple(function(*arrays) for arrays in zip(*(value.bounds for value in values), strict=True)))

    def shape_of(self, value: Cones) -> Shape:
        """Return the tensor's shape."""
        return tuple(value.bounds[0].shape) if value.bounds else ()

    def fill(self, value: Cones, valid: Array, identity: str) -> Cones:
        """Return the value as it is: slots that do not exist only widen the cones."""
        return value

    def integers(self, values: Array) -> Cones:
        """Return cones of numbers: empty."""
        return self._empty(values.shape)

    def _empty(self, shape: Shape) -> Cones:
        return Cones(tuple(np.broadcast_to(bound, shape) for _ in self.axes.pairs for bound in _NONE))

    def rule(self, spec: OpSpec, operands: tuple[Cones, ...], attributes: Attributes, prefix: int) -> tuple[Cones, ...]:
        """Return the cones of the results."""
        meaning = spec.field
        match meaning:
            case Movement():
                return self._moved(spec, operands, attributes, prefix)
            case Expanded():
                return self._expanded(spec, operands, attributes, prefix)
            case Exact():
                self.sites.append((spec.name, operands[-1] if operands else self._empty(())))
            case Opaque() | Branch() | OutsideLax():
                pass
            case _:
                assert_never(meaning)
        return (self._join(spec, operands, attributes, prefix),)

    def _join(self, spec: OpSpec, operands: tuple[Cones, ...], attributes: Attributes, prefix: int) -> Cones:
        if not operands:
            return self._empty(())
        full = [self.shape_of(value) for value in operands]
        trailing = tuple(shape[prefix:] for shape in full)
        folded: list[set[int]] = [set() for _ in operands]
        for group in spec.axes(trailing, attributes).reduced:
            for dim in group:
                whole = dim if isinstance(dim, Dim) else dim.dim
                folded[whole.operand].add(whole.axis)
        (shape,) = spec.infer_shapes(trailing, attributes)
        leading = np.broadcast_shapes(*(extents[:prefix] for extents in full))
        bounds = []
        for number in range(2 * len(self.axes.pairs)):
            function = np.minimum if number % 2 == 0 else np.maximum
            parts = [_fold(value.bounds[number], axes, function) for value, axes in zip(operands, folded, strict=True)]
            joined = parts[0]
            for part in parts[1:]:
                joined = function(joined, part)
            bounds.append(np.broadcast_to(joined, (*leading, *shape)))
        return Cones(tuple(bounds))


def _fold(array: Array, axes: set[int], function: np.ufunc) -> Array:
    """Return the array folded along some axes (kept, extent 1)."""
    result = _compact(array)
    for axis in axes:
        if result.shape[axis] > 1:
            result = function.reduce(result, axis=axis, keepdims=True)
    return result


def cone_sites(graph: KernelGraph, axes: ConeAxes, *, chunk_elements: int = 1 << 22) -> list[Site]:
    """Return, per application of an exact rule in a program, its operator and the cones of its last operand.

    chunk_elements must be that of the `FieldDomain` whose faults are looked up.
    """
    domain = ConeDomain(axes, chunk_elements)
    walk(graph, axes.inputs(graph), domain)
    return domain.sites


def cone_boxes(axes: ConeAxes, cones: Cones, mask: Array | None, inputs: int) -> list[dict[int, Box]]:
    """Return the different cones of some elements, each as the boxes of the inputs that it touches.

    mask: which elements (all if None), in the cones' shape. inputs: how many inputs the program has.
    """
    pairs = range(len(axes.pairs))
    if not axes.pairs:
        return []
    if mask is None:
        columns = [_compact(bound) for bound in cones.bounds]
        columns = [column.ravel() for column in np.broadcast_arrays(*columns)]
    else:
        where = np.nonzero(mask)
        columns = [np.broadcast_to(bound, mask.shape)[where] for bound in cones.bounds]
    rows = np.stack(columns, axis=-1)
    if len(rows) > 1:
        rows = np.unique(rows, axis=0)
    result: list[dict[int, Box]] = []
    for row in rows.tolist():
        touched: dict[int, Box] = {}
        for k in range(inputs):
            numbers = [n for n in pairs if axes.pairs[n][0] == k]
            if numbers and all(row[2 * n] <= row[2 * n + 1] for n in numbers):
                touched[k] = tuple(slice(row[2 * n], row[2 * n + 1] + 1) for n in numbers)
        result.append(touched)
    return result


def _compact(array: Array) -> Array:
    """Return the array with axes along which nothing changes shortened to one element."""
    index = tuple(
        slice(0, 1) if extent > 1 and stride == 0 else slice(None)
        for extent, stride in zip(array.shape, array.strides, strict=True)
    )
    return array[index]
