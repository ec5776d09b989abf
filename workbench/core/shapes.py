"""Shapes and axes of tensors. Invariant: an extent is a positive integer; axes are normalised from the end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from operator import index
from typing import TypeGuard

from workbench.errors import ShapeError

Shape = tuple[int, ...]

MOST_ELEMENTS = 2**53
"""Elements that a tensor may have: beyond them strides leave what every JSON reader keeps exactly."""


def as_shape(extents: Iterable[int], *, where: str = "shape") -> Shape:
    """Return a shape of positive integers. Raises: ShapeError naming `where` and the bad extent."""
    if is_plain_shape(extents):
        return extents
    try:
        shape = tuple(index(extent) for extent in extents)
    except TypeError as error:
        raise ShapeError(f"{where}: extents must be integers, got {extents!r}") from error
    for axis, extent in enumerate(shape):
        if extent < 1:
            raise ShapeError(f"{where}: extent of axis {axis} is {extent}; every extent must be at least 1")
    if prod(shape) > MOST_ELEMENTS:
        raise ShapeError(f"{where}: {prod(shape)} elements in shape {shape}; at most 2^53 can be addressed")
    return shape


def is_plain_shape(extents: object) -> TypeGuard[Shape]:
    """Return whether this is a shape that needs no further look: most are, and there are many."""
    if type(extents) is not tuple:
        return False
    elements = 1
    for extent in extents:
        if type(extent) is not int or extent < 1:
            return False
        elements *= extent
    return elements <= MOST_ELEMENTS


def negative_axis(axis: int, rank: int, *, where: str = "axis") -> int:
    """Return `axis` counted from the end (-1 is the last). Raises: ShapeError when it is out of range."""
    if not -rank <= axis < rank:
        cure = f"use {-rank} to {rank - 1}" if rank else "a scalar has no axis"
        raise ShapeError(f"{where}: axis {axis} does not exist in a tensor of rank {rank}; {cure}")
    return axis - rank if axis >= 0 else axis


def broadcast_shapes(shapes: Sequence[Shape], *, where: str = "broadcast") -> Shape:
    """Return the NumPy broadcast of shapes over trailing axes. Raises: ShapeError with both extents."""
    rank = max((len(shape) for shape in shapes), default=0)
    result = []
    for axis in range(-rank, 0):
        extents = {shape[axis] for shape in shapes if len(shape) >= -axis} - {1}
        if len(extents) > 1:
            listed = " and ".join(str(shape) for shape in shapes)
            raise ShapeError(
                f"{where}: shapes {listed} do not broadcast: extents {sorted(extents)} meet at axis {axis}"
            )
        result.append(extents.pop() if extents else 1)
    return tuple(result)


def num_elements(shape: Shape) -> int:
    """Return the number of elements of a tensor of this shape."""
    return prod(shape)
