"""Where a tile's elements are kept inside a block: shared memory (rows of 2-D tiles, ring buffers, slices) or registers.

Invariant: a shared tile is addressed by the µGraph's own index; padding of its rows and columns up to what tensor cores
read is zero for operands of products and undefined otherwise.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from math import prod

from workbench.codegen.cuda.indices import ZERO, Index, flattened
from workbench.core.shapes import Shape

C_BYTES = {"f16": 2, "bf16": 2, "float": 4}
ALIGNMENT = 128


def rounded_up(extent: int, multiple: int) -> int:
    """Return the least multiple that is not smaller."""
    return -(-extent // multiple) * multiple


@dataclass(eq=False, kw_only=True)
class SharedTile:
    """A tile in shared memory: leading axes flattened, then rows x columns, kept row by row.

    Attributes:
        variable: C name of the SharedTile object.
        c_type: element type. shape: of the µGraph's tile.
        transposed: rows are the tile's last axis, columns the one before it.
        rows, columns: padded extents of one matrix; stride: elements from row to row.
        swizzle: 16-byte chunks are moved (see tiles.cuh).
        copies: ring buffers of a looped input, each of `bytes_each`; slices: partial results side by side in one tile.
        is_looped: the object is made anew in every iteration (its ring buffer changes).
        cluster: blocks whose partial results are added (or maximised) when it is read, 1: only this block's.
        is_combined: slices are added into the first before anybody reads.
        factors: of the slices of a sum of exponentials, the maxima below which each slice's were taken (`own_maxima.py`).
        needs_zero: its padding is cleared before anything is written.
        offset: bytes from the start of the dynamic shared memory, None until `shared_memory.allocate`.
    """

    variable: str
    c_type: str
    shape: Shape
    transposed: bool = False
    rows: int
    columns: int
    stride: int
    swizzle: bool
    copies: int = 1
    slices: int = 1
    is_looped: bool = False
    cluster: int = 1
    folding: str = "sum"
    is_combined: bool = False
    factors: SharedTile | None = None
    needs_zero: bool = False
    offset: int | None = None

    @property
    def matrices(self) -> int:
        """Number of matrices in one slice: the product of the leading axes."""
        return prod(self.shape[:-2])

    @property
    def read_slices(self) -> int:
        """Slices that a reader adds up."""
        return 1 if self.is_combined else self.slices

    @property
    def slice_rows(self) -> int:
        """Rows of one slice."""
        return self.matrices * self.rows

    @property
    def bytes_each(self) -> int:
        """Bytes of one copy."""
        return rounded_up(self.slices * self.slice_rows * self.stride * C_BYTES[self.c_type], ALIGNMENT)

    @property
    def nbytes(self) -> int:
        """Bytes of all copies."""
        return self.copies * self.bytes_each

    @property
    def c_tile(self) -> str:
        """The C++ type of the object."""
        rows = self.slices * self.slice_rows
        swizzle = "true" if self.swizzle else "false"
        plain = self.swizzle and self.stride == self.columns
        return f"SharedTile<{self.c_type}, {rows}, {self.columns}{'' if plain else f', {swizzle}, {self.stride}'}>"

    def declaration(self, place: str) -> str:
        """Return the C statement that makes the object at an address."""
        return f"const {self.c_tile} {self.variable}({place});"

    def row_and_column(self, index: Sequence[Index]) -> tuple[Index, Index]:
        """Return the place of an element of the tile (in the first slice)."""
        lead, rest = index[:-2], index[-2:]
        row, column = (ZERO, ZERO) if not rest else (ZERO, rest[0]) if len(rest) == 1 else (rest[0], rest[1])
        if self.transposed:
            row, column = column, row
        return flattened([*lead, row], [*self.shape[:-2], self.rows]), column

    def readable(self, index: Sequence[Index]) -> list[Index]:
        """Return an index that stays inside the tile; fragments may reach beyond its padding."""
        padded = (self.columns, self.rows) if self.transposed else (self.rows, self.columns)
        reach = (*self.shape[:-2], *padded[len(padded) - len(self.shape[-2:]) :])
        return [
            part if part.bound <= extent else Index(f"lesser({part.text}, {kept - 1})", part.level, kept)
            for part, extent, kept in zip(index, reach, self.shape, strict=True)
        ]

    @property
    def kept_rows(self) -> int:
        """Rows of one matrix that hold elements."""
        return matrix_extents(self.shape)[1 if self.transposed else 0]

    @property
    def contiguous_axis(self) -> int:
        """The axis of the tile (from the end) along which elements are consecutive."""
        return -2 if self.transposed else -1


def operand_tile(variable: str, c_type: str, shape: Shape, *, transposed: bool) -> SharedTile:
    """Return the tile of a product's operand: 16-bit or float rows, padded to 16 both ways and swizzled."""
    rows, columns = matrix_extents(shape)
    if transposed:
        rows, columns = columns, rows
    padded_rows, padded_columns = rounded_up(rows, 16), rounded_up(columns, 16)
    return SharedTile(
        variable=variable, c_type=c_type, shape=shape, transposed=transposed, rows=padded_rows, columns=padded_columns,
        stride=padded_columns, swizzle=True, needs_zero=(padded_rows, padded_columns) != (rows, columns),
    )  # fmt: skip


def input_tile(variable: str, c_type: str, shape: Shape, *, transposed: bool) -> SharedTile:
    """Return the tile of an input that no product reads; its padding is read only where the result is not used."""
    rows, columns = matrix_extents(shape)
    if transposed:
        rows, columns = columns, rows
    padded_rows, padded_columns = rows if rows == 1 else rounded_up(rows, 16), rounded_up(columns, 16)
    return SharedTile(
        variable=variable, c_type=c_type, shape=shape, transposed=transposed, rows=padded_rows, columns=padded_columns,
        stride=padded_columns, swizzle=False,
    )  # fmt: skip


def plain_tile(variable: str, shape: Shape, *, slices: int = 1, is_product: bool = False) -> SharedTile:
    """Return a float tile for anything but operands: rows 8 floats apart in banks, so that fragments store well.

    Rows are padded to 16 and columns too where there are several, so that fragments, which cover whole tensor-core tiles,
    read inside; a product's result is padded in any case, because fragments are written to it.
    """
    rows, columns = matrix_extents(shape)
    rows = rounded_up(rows, 16) if is_product or rows > 1 else rows
    columns = rounded_up(columns, 16) if is_product or columns > 1 else columns
    stride = columns if columns == 1 or rows == 1 else columns + 8
    return SharedTile(
        variable=variable, c_type="float", shape=shape, rows=rows, columns=columns, stride=stride, swizzle=False,
        slices=slices,
    )  # fmt: skip


def matrix_extents(shape: Shape) -> tuple[int, int]:
    """Return the extents of the last two axes, 1 where there is none."""
    padded = (1, 1, *shape)
    return padded[-2], padded[-1]


EVERYWHERE: Hashable = ("everywhere",)
"""The key of a number that every thread of the block has."""


@dataclass(frozen=True, slots=True)
class Registers:
    """Elements in registers of the threads that own them, or of all threads: a number that each has (`EVERYWHERE`).

    Attributes: variable: C name of the array; key: which thread owns which element (`walks.py`); a stage with an equal
    key reads them without shared memory. by_row: one element per row of the walk instead of one per element.
    """

    variable: str
    key: Hashable
    by_row: bool
