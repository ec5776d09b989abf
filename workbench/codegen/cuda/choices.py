"""What the optimizer chose for a kernel beyond its schedule, as plain data: memory, barriers, layouts, order, fusion.

Invariant: no choice changes what a kernel computes. The defaults are what the emitter does by itself; the others exist so
that each pass of the optimizer can be switched off and its worth be measured.
"""

from __future__ import annotations

from dataclasses import dataclass

from workbench.codegen.cuda.tile_storage import C_BYTES, SharedTile
from workbench.codegen.cuda.tile_values import TileValue
from workbench.core.layouts import SharedLayout, Spread

CHUNK = 16
"""Bytes that a swizzle moves as one, and by which padding makes rows odd."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """Choices of the optimizer's passes.

    Attributes:
        reuses_memory: tiles that are not needed at the same time share their place; False: each has its own.
        fewest_barriers: a barrier stands only where one is needed; False: before every step.
        order: names of tiles in the order in which they are made, as far as their operands allow; (): the plan's own.
        layouts: of shared tiles by name, whether inputs or computed factors of products; others are the plan's own.
        fuses: elementwise operators are evaluated in the registers of their readers; False: each one that stands in the
            block graph by itself, and not in a thread graph, makes a tile in shared memory.
    """

    reuses_memory: bool = True
    fewest_barriers: bool = True
    order: tuple[str, ...] = ()
    layouts: tuple[tuple[str, SharedLayout], ...] = ()
    fuses: bool = True

    def layout(self, name: str) -> SharedLayout | None:
        """Return the layout that was chosen for a tile, None where none was."""
        return dict(self.layouts).get(name)


DEFAULT_CHOICES = Choices()


def ordered(values: list[TileValue], order: tuple[str, ...]) -> list[TileValue]:
    """Return values in an order of tile names, each after what it reads; one without a place comes with its operands."""
    if not order:
        return values
    places = {name: place for place, name in enumerate(order)}
    found: dict[TileValue, int] = {}
    for value in values:  # operands come first
        earliest = max((found[read] for read in value.reads), default=0)
        found[value] = max(places.get(value.label, 0), earliest)
    return sorted(values, key=lambda value: found[value])  # stable, so operands stay first


def spread(tile: SharedTile, layout: SharedLayout) -> None:
    """Spread the rows of a tile over the banks as chosen; its contiguous axis is decided where it is made."""
    tile.swizzle = layout.spread is Spread.SWIZZLED
    if layout.spread is Spread.PADDED:
        size = C_BYTES[tile.c_type]
        chunks = -(-tile.columns * size // CHUNK)
        tile.stride = (chunks + (chunks % 2 == 0)) * CHUNK // size
