"""Tensors of the three levels: frozen descriptions, without elements. Invariant: a name is unique within its graph."""

from __future__ import annotations

from dataclasses import dataclass

from workbench.core.dtypes import DType, as_dtype
from workbench.core.layouts import Strides, check_strides, row_major_strides
from workbench.core.levels import MemoryScope
from workbench.core.shapes import Shape, as_shape, is_plain_shape, num_elements


@dataclass(frozen=True, slots=True)
class DeviceTensor:
    """A tensor in device memory, an edge of a kernel graph (Mirage's DTensor).

    Attributes: name; shape; dtype; strides in elements (row-major when not given).
    Raises: ShapeError, DTypeError.
    """

    name: str
    shape: Shape
    dtype: DType = DType.FLOAT16
    strides: Strides = ()

    def __post_init__(self) -> None:
        if not is_plain_shape(self.shape):
            object.__setattr__(self, "shape", as_shape(self.shape, where=f"tensor {self.name}"))
        object.__setattr__(self, "dtype", as_dtype(self.dtype))
        strides = row_major_strides(self.shape)
        if self.strides:
            strides = check_strides(self.shape, self.strides, where=f"tensor {self.name}")
        object.__setattr__(self, "strides", strides)

    @property
    def scope(self) -> MemoryScope:
        """Device memory."""
        return MemoryScope.DEVICE

    @property
    def nbytes(self) -> int:
        """Bytes of all elements, padding between strides left out."""
        return num_elements(self.shape) * self.dtype.nbytes

    @property
    def is_row_major(self) -> bool:
        """True when the strides are those of a dense row-major tensor."""
        return self.strides == row_major_strides(self.shape)


@dataclass(frozen=True, slots=True)
class RaggedSplit:
    """How a tile's axis was cut from an axis whose extent the parts do not divide.

    Attributes: extent (of the whole axis); parts: (axis of the cut, count) from the outermost cut inwards, where the
    axis of the cut is 0, 1, 2 for grid x, y, z and 3 for the for-loop. Each cut gives tiles of ceil(extent / count);
    the last tiles are shorter or empty.
    """

    extent: int
    parts: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class SharedTensor:
    """A tile in shared memory, an edge of a block graph (Mirage's STensor).

    Attributes: shape (of a full tile); ragged: per axis, how the tile may be shorter, None where every tile is full.
    """

    name: str
    shape: Shape
    dtype: DType = DType.FLOAT16
    ragged: tuple[RaggedSplit | None, ...] = ()

    def __post_init__(self) -> None:
        if not is_plain_shape(self.shape):
            object.__setattr__(self, "shape", as_shape(self.shape, where=f"tile {self.name}"))
        if not self.ragged:
            object.__setattr__(self, "ragged", (None,) * len(self.shape))

    @property
    def scope(self) -> MemoryScope:
        """Shared memory."""
        return MemoryScope.SHARED

    @property
    def nbytes(self) -> int:
        """Bytes of a full tile without padding."""
        return num_elements(self.shape) * self.dtype.nbytes

    @property
    def is_ragged(self) -> bool:
        """True when some tile is shorter than `shape`."""
        return any(split is not None for split in self.ragged)


@dataclass(frozen=True, slots=True)
class RegisterTensor:
    """A value held in registers, an edge of a thread graph; `shape` is the tile the block's threads share out."""

    name: str
    shape: Shape
    dtype: DType = DType.FLOAT32

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", as_shape(self.shape, where=f"register tensor {self.name}"))

    @property
    def scope(self) -> MemoryScope:
        """Registers."""
        return MemoryScope.REGISTER

    @property
    def nbytes(self) -> int:
        """Bytes of the whole tile over all threads."""
        return num_elements(self.shape) * self.dtype.nbytes
