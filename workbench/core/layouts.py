"""How a tensor is laid out: strides in linear memory, and the layouts that the optimizer chooses among.

Invariant: strides are counted in elements, one per axis; a layout is plain data and says nothing about a tensor's size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from operator import index

from workbench.core.shapes import Shape
from workbench.errors import ShapeError

Strides = tuple[int, ...]


def row_major_strides(shape: Shape) -> Strides:
    """Return the strides, in elements, of a dense tensor whose last axis is innermost."""
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


def column_major_strides(shape: Shape) -> Strides:
    """Return the strides of a dense tensor whose last two axes are exchanged in memory; batch axes stay outermost."""
    if len(shape) < 2:
        return row_major_strides(shape)
    *batch, rows, columns = shape
    outer = row_major_strides((*batch, rows * columns))[:-1]
    return (*outer, 1, rows)


def check_strides(shape: Shape, strides: Sequence[int], *, where: str) -> Strides:
    """Return the strides as a tuple. Raises: ShapeError unless there is one per axis, none negative, no two elements meet."""
    try:
        result = tuple(index(stride) for stride in strides)
    except TypeError as error:
        raise ShapeError(f"{where}: strides must be integers, got {strides!r}") from error
    if len(result) != len(shape):
        raise ShapeError(f"{where}: {len(result)} strides for {len(shape)} axes; give one stride per axis of {shape}")
    if any(stride < 0 for stride in result):
        raise ShapeError(f"{where}: negative stride in {result}; strides are counted forward in elements")
    reach = 0
    for stride, extent in sorted(zip(result, shape, strict=True)):
        if extent == 1:
            continue
        if stride <= reach:
            raise ShapeError(f"{where}: strides {result} make elements of a tensor of shape {shape} overlap")
        reach += stride * (extent - 1)
    return result


def innermost_axis(shape: Shape, strides: Strides) -> int | None:
    """Return the axis (from the end) with stride 1 and extent above 1, or None when there is no such axis."""
    for axis in range(-1, -len(shape) - 1, -1):
        if strides[axis] == 1 and shape[axis] > 1:
            return axis
    return -1 if shape and all(extent == 1 for extent in shape) else None


# --------------------------------------------------------------------------------------------------- layouts by choice
class Spread(Enum):
    """How the rows of a tile in shared memory are spread over the banks."""

    PLAIN = "plain"  # row after row
    PADDED = "padded"  # rows an odd number of 16-byte chunks apart
    SWIZZLED = "swizzled"  # the 16-byte chunks of a row exchanged, differently from row to row


class Holding(Enum):
    """Which threads hold which elements of a tile in registers."""

    FRAGMENT = "fragment"  # as tensor cores leave a product and take its left operand
    ROWS = "rows"  # one element a row, with the threads that hold the row's fragment
    ELEMENTS = "elements"  # neighbouring threads hold neighbouring elements


@dataclass(frozen=True, slots=True)
class DeviceLayout:
    """A tensor in device memory; `innermost`: -1 row-major, -2 the last two axes exchanged."""

    innermost: int = -1

    def __str__(self) -> str:
        return "row-major" if self.innermost == -1 else "column-major"

    def strides(self, shape: Shape) -> Strides:
        """Return the strides of a dense tensor of this layout."""
        return row_major_strides(shape) if self.innermost == -1 else column_major_strides(shape)


@dataclass(frozen=True, slots=True)
class SharedLayout:
    """A tile in shared memory: its contiguous axis (-1 or -2) and how its rows are spread over the banks."""

    innermost: int = -1
    spread: Spread = Spread.PLAIN

    def __str__(self) -> str:
        return f"shared, {self.spread.value}" + ("" if self.innermost == -1 else ", transposed")


@dataclass(frozen=True, slots=True)
class RegisterLayout:
    """A tile in registers; `innermost`: for elements the axis along which neighbouring threads lie."""

    holding: Holding
    innermost: int = -1

    def __str__(self) -> str:
        along = " along the rows' axis" if self.innermost == -2 else ""
        return f"registers, {self.holding.value}{along}"


Layout = DeviceLayout | SharedLayout | RegisterLayout


@dataclass(frozen=True, slots=True)
class TileAccess:
    """What a layout makes of the accesses to a tile in shared memory.

    Attributes: passes: over the banks in which a product reads one 8 x 8 part, 1 without conflicts; is_across: its rows run
    across the contiguous axis of the tensor it is a part of, so it is copied element by element, each from a sector of
    its own.
    """

    passes: int = 1
    is_across: bool = False
