"""The steps of a kernel plan: products, stages (one walk over a space with several sinks), and what ends the loop.

Invariant: a step names every value that it reads from and writes to shared memory, so that barriers can be derived.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from workbench.codegen.cuda.tile_storage import SharedTile
from workbench.codegen.cuda.tile_values import (
    Accumulated,
    Contracted,
    Folded,
    Joined,
    Mapped,
    Ragged,
    RunningMaximum,
    Saved,
    TileValue,
    Viewed,
)
from workbench.codegen.cuda.walks import ProductLayout, Walk
from workbench.core.shapes import Shape


class Section(Enum):
    """When a step runs."""

    BEFORE = "before the loop"
    LOOP = "in the loop"
    AFTER = "after the loop"


@dataclass(eq=False)
class StoreSink:
    """Write a value into a shared tile, rounded to the tile's type, zero where the tile ends early."""

    value: TileValue
    tile: SharedTile


@dataclass(eq=False)
class HandOverSink:
    """Leave a value in the registers of a product's fragments, as the left operand of the next product."""

    value: TileValue
    variable: str


@dataclass(eq=False)
class FoldSink:
    """Fold a value along the walk's inner axis; with `kept`, over the iterations too, in registers until the loop ends."""

    value: Folded
    kept: Accumulated | None


@dataclass(eq=False)
class KeepSink:
    """Accumulate a value element by element over the iterations, in registers or, with `tile`, in shared memory."""

    value: Accumulated
    tile: SharedTile | None = None


@dataclass(eq=False)
class RescaleSink:
    """Multiply the fragments of an accumulated product by its factor, before this iteration's product is added."""

    value: Accumulated


@dataclass(eq=False)
class RunningSink:
    """Update a running maximum and its shift; with `tile` the maximum so far is kept in shared memory."""

    value: RunningMaximum
    tile: SharedTile | None = None


@dataclass(eq=False)
class SaveSink:
    """Write a value to device memory; `number`: which output."""

    saved: Saved
    number: int


Sink = StoreSink | HandOverSink | FoldSink | KeepSink | RescaleSink | RunningSink | SaveSink


def sink_roots(sink: Sink) -> tuple[TileValue, ...]:
    """Return the values that a sink evaluates for each element or row."""
    match sink:
        case StoreSink() | HandOverSink():
            return (sink.value,)
        case FoldSink():
            extra = (sink.kept.rescale,) if sink.kept is not None and sink.kept.rescale is not None else ()
            return (sink.value.operand, *extra)
        case KeepSink():
            return sink.value.reads
        case RescaleSink():
            assert sink.value.rescale is not None
            return (sink.value.rescale,)
        case RunningSink():
            return (sink.value.operand,)
        case SaveSink():
            return (sink.saved.operand,)


@dataclass(eq=False, kw_only=True)
class Stage:
    """One walk over a space, in which sinks evaluate their values.

    Attributes: inner: axis (from the end) that must be the walk's inner one, None for any.
    """

    section: Section
    space: Shape
    ragged: Ragged
    inner: int | None
    sinks: list[Sink] = field(default_factory=list)
    walk: Walk | None = None

    @property
    def roots(self) -> tuple[TileValue, ...]:
        """Everything evaluated in the stage."""
        return tuple(root for sink in self.sinks for root in sink_roots(sink))


@dataclass(frozen=True, eq=False, kw_only=True)
class Operand:
    """Where a product finds a factor: a shared tile (perhaps as its transpose), or registers of the product before.

    Attributes: value: the tile's value below transposing views; is_transposed: the factor is the tile's transpose;
    tile: its place; registers: C name of the fragments that hold it instead; prologue: what is done with its fragments
    before they are multiplied.
    """

    value: TileValue
    is_transposed: bool
    tile: SharedTile | None
    registers: str = ""
    prologue: Stage | None = None


@dataclass(eq=False, kw_only=True)
class ProductStep:
    """A sum of matrix products on tensor cores.

    Attributes: kept: the accumulator whose fragments it adds to, over the iterations; c_type: f16, bf16, or float for
    split tf32; variable: C name of the fragments; scale: C name of the powers of two, one a row, by which the left
    operand is multiplied so that it fits float16, "" if it is not; shift: C name of the binary logarithms of such numbers
    where the left operand is an exponential that takes them in its exponent; joined: products that are written with this
    one, is_joined: written with one before; held_left: C name of the left operand's fragments where they are kept over the loop;
    is_warpgroup: done by groups of four warps together.
    """

    section: Section
    value: Contracted
    kept: Accumulated | None
    layout: ProductLayout
    c_type: str
    operands: list[tuple[Operand, Operand]]
    variable: str
    scale: str = ""
    shift: str = ""
    joined: list[ProductStep] = field(default_factory=list)
    is_joined: bool = False
    held_left: str = ""
    is_warpgroup: bool = False

    @property
    def prologues(self) -> list[Stage]:
        """What is done with fragments of left operands."""
        return [left.prologue for left, _ in self.operands if left.prologue is not None]


@dataclass(eq=False, kw_only=True)
class FinishStep:
    """After the loop: bring an accumulator, or the maxima that each warp has for itself, to where readers find it."""

    value: Accumulated | RunningMaximum


Step = Stage | ProductStep


def is_stored_kind(value: TileValue) -> bool:
    """Return True for values that a step makes, False for those that are evaluated where they are read."""
    return not isinstance(value, Mapped | Viewed | Joined)


def leaves(roots: Iterator[TileValue] | tuple[TileValue, ...]) -> list[TileValue]:
    """Return the values that evaluating the roots reads from memory or registers, each once."""
    found: dict[TileValue, None] = {}
    seen: set[TileValue] = set()
    stack = list(roots)
    while stack:
        value = stack.pop()
        if value in seen:
            continue
        seen.add(value)
        if is_stored_kind(value):
            found[value] = None
        else:
            stack.extend(value.reads)
    return list(found)
