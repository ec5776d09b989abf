"""What a block graph computes, in the few kinds of value that the emitter knows how to write.

Every operator is lowered to these by `emitters.py`: loaded tiles, constants, one-element expressions, views, folds of an
axis, products, and what accumulates over the loop. Invariant: values form a graph without cycles by reference (identity,
not names, tells two values apart), and a value's raggedness is the graph's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

from workbench.core.dtypes import DType
from workbench.core.shapes import Shape
from workbench.core.tensors import DeviceTensor, RaggedSplit
from workbench.ops.spec import AttributeValue
from workbench.ugraph.inference import Place
from workbench.ugraph.nodes import DimMap

Ragged = tuple[RaggedSplit | None, ...]


class Folding(Enum):
    """How elements are folded into one."""

    SUM = "sum"
    MAX = "max"

    @property
    def neutral(self) -> str:
        """C text of what leaves the fold as it is."""
        return "0.0f" if self is Folding.SUM else "-infinity()"

    def combine(self, left: str, right: str) -> str:
        """Return C text that folds two elements."""
        return f"{left} + {right}" if self is Folding.SUM else f"maximum({left}, {right})"


class View(Enum):
    """How a view finds an element of its operand."""

    TRANSPOSE = "transpose"
    RESHAPE = "reshape"
    BROADCAST = "broadcast"
    PIECE = "piece"


class Keeping(Enum):
    """How an accumulator treats what it holds: add, take the larger, or add after rescaling."""

    SUM = "sum"
    MAX = "max"
    RESCALE = "rescale"


@dataclass(frozen=True, eq=False, kw_only=True)
class TileValue:
    """A tile; `name` is a C identifier, `label` what comments say of it."""

    name: str
    label: str
    shape: Shape
    ragged: Ragged
    dtype: DType
    place: Place

    @property
    def reads(self) -> tuple[TileValue, ...]:
        """The values it is computed from."""
        return ()

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)


@dataclass(frozen=True, eq=False, kw_only=True)
class Loaded(TileValue):
    """A tile of a kernel tensor; `parameter`: its number among the operands."""

    parameter: int
    tensor: DeviceTensor
    imap: DimMap
    fmap: int | None


@dataclass(frozen=True, eq=False, kw_only=True)
class Constant(TileValue):
    """An exact number."""

    value: Fraction


@dataclass(frozen=True, eq=False, kw_only=True)
class Counted(TileValue):
    """The number of elements along a ragged axis, at least 1; all iterations together unless the loop is a part."""

    split: RaggedSplit


@dataclass(frozen=True, eq=False, kw_only=True)
class Mapped(TileValue):
    """An operator on each element; operands broadcast over trailing axes."""

    op: str
    attributes: tuple[tuple[str, AttributeValue], ...]
    operands: tuple[TileValue, ...]

    @property
    def reads(self) -> tuple[TileValue, ...]:
        """The operands."""
        return self.operands


@dataclass(frozen=True, eq=False, kw_only=True)
class Stored(TileValue):
    """A tile that is made in shared memory although its readers could evaluate it: an operator that is not fused."""

    operand: TileValue

    @property
    def reads(self) -> tuple[TileValue, ...]:
        """The operand."""
        return (self.operand,)


@dataclass(frozen=True, eq=False, kw_only=True)
class Viewed(TileValue):
    """Elements of another tile, found elsewhere; `axis` (from the end) and `start` are a piece's."""

    operand: TileValue
    view: View
    axis: int = -1
    start: int = 0

    @property
    def reads(self) -> tuple[TileValue, ...]:
        """The operand."""
        return (self.operand,)


@dataclass(frozen=True, eq=False, kw_only=True)
class Joined(TileValue):
    """Tiles one after the other along an axis (from the end)."""

    operands: tuple[TileValue, ...]
    axis: int

    @property
    def reads(self) -> tuple[TileValue, ...]:
        """The operands."""
        return self.operands


@dataclass(frozen=True, eq=False, kw_only=True)
class Folded(TileValue):
    """A tile folded along an axis (from the end), which stays with extent 1."""

    operand: TileValue
    axis: int
    folding: Folding

    @property
    def reads(self) -> tuple[TileValue, ...]:
        """The operand."""
        return (self.operand,)


@dataclass(frozen=True, eq=False, kw_only=True)
class Contracted(TileValue):
    """The sum of matrix products of pairs; leading axes broadcast."""

    pairs: tuple[tuple[TileValue, TileValue], ...]

    @property
    def reads(self) -> tuple[TileValue, ...]:
        """All factors."""
        return tuple(value for pair in self.pairs for value in pair)


@dataclass(frozen=True, eq=False, kw_only=True)
class Accumulated(TileValue):
    """What folds a value over the iterations; `rescale`: what the old content is multiplied by first."""

    operand: TileValue
    kind: Keeping
    rescale: TileValue | None = None

    @property
    def reads(self) -> tuple[TileValue, ...]:
        """The operand, then the factor."""
        return (self.operand,) if self.rescale is None else (self.operand, self.rescale)


@dataclass(frozen=True, eq=False, kw_only=True)
class RunningMaximum(TileValue):
    """The largest value of `operand` (a tile's maximum along its last axis) in this and all earlier iterations."""

    operand: Folded

    @property
    def reads(self) -> tuple[TileValue, ...]:
        """The operand."""
        return (self.operand,)


@dataclass(frozen=True, eq=False, kw_only=True)
class MaximumShift(TileValue):
    """The running maximum before this iteration less that after it; 0 in the first, and where no element was seen yet.

    Tiles that end early do so in the last iterations, so a tile without elements follows others or no element at all.
    """

    maximum: RunningMaximum

    @property
    def reads(self) -> tuple[TileValue, ...]:
        """The running maximum."""
        return (self.maximum,)


@dataclass(frozen=True, eq=False)
class Saved:
    """A tile to be stored; `omap` lays grid axes along its dimensions."""

    operand: TileValue
    omap: DimMap
    tensor: DeviceTensor


def walk_values(roots: Iterator[TileValue] | tuple[TileValue, ...]) -> list[TileValue]:
    """Return every value below the roots, each after what it reads."""
    order: list[TileValue] = []
    seen: set[TileValue] = set()
    stack: list[tuple[TileValue, bool]] = [(root, False) for root in reversed(tuple(roots))]
    while stack:
        value, is_done = stack.pop()
        if is_done:
            order.append(value)
        elif value not in seen:
            seen.add(value)
            stack.append((value, True))
            stack += [(read, False) for read in reversed(value.reads) if read not in seen]
    return order
