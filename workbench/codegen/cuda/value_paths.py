"""How a value is reached from another: which values are evaluated on the way, and whether the index stays the walk's own.

Invariant: a value is evaluated where it is read unless a step makes it (`steps.is_stored_kind`).
"""

from __future__ import annotations

from workbench.codegen.cuda.steps import leaves
from workbench.codegen.cuda.tile_values import (
    Constant,
    Folded,
    Folding,
    Joined,
    Mapped,
    RunningMaximum,
    Stored,
    TileValue,
    View,
    Viewed,
)

UNBOUNDED = frozenset({"exp", "pow", "power"})
"""Operators whose result may be far larger than their operands."""


def lazy_values(roots: tuple[TileValue, ...]) -> list[TileValue]:
    """Return the values evaluated on the way from the roots to what is stored."""
    found: dict[TileValue, None] = {}
    stored = set(leaves(roots))
    stack = list(roots)
    while stack:
        value = stack.pop()
        if value not in found and value not in stored:
            found[value] = None
            stack.extend(value.reads)
    return list(found)


def is_plain(view: Viewed) -> bool:
    """Return True for a view that only stretches, or adds and removes axes of extent 1."""
    if view.view is View.BROADCAST:
        return True
    shapes = [tuple(extent for extent in value.shape if extent > 1) for value in (view, view.operand)]
    return view.view is View.RESHAPE and shapes[0] == shapes[1]


def has_plain_views(roots: tuple[TileValue, ...]) -> bool:
    """Return True when the roots read everything at the walk's own index, stretched or with unit axes at most."""
    return all(
        not isinstance(value, Joined) and (not isinstance(value, Viewed) or is_plain(value))
        for value in lazy_values(roots)
    )


def is_aligned(root: TileValue, leaf: TileValue) -> bool:
    """Return True when every way from the root to the leaf keeps the index, but for broadcasting."""
    stored = set(leaves((root,)))
    stack, seen = [root], set[TileValue]()
    while stack:
        value = stack.pop()
        if value in seen or value in stored:
            continue
        seen.add(value)
        moves = isinstance(value, Joined) or (isinstance(value, Viewed) and value.view is not View.BROADCAST)
        if moves and leaf in leaves((value,)):
            return False
        stack.extend(value.reads)
    return True


def peeled(value: TileValue) -> tuple[TileValue, bool]:
    """Return the value below transposing and renaming views, and whether it is its transpose."""
    is_transposed = False
    while isinstance(value, Viewed):
        if value.view is View.TRANSPOSE:
            is_transposed = not is_transposed
        elif not (value.view is View.BROADCAST and value.shape == value.operand.shape):
            break
        value = value.operand
    return value, is_transposed


def is_below_maximum(value: Mapped) -> bool:
    """Return True for exp(x - m) with m a maximum, which does not exceed 1 where m is that of x."""
    exponent = value.operands[0]
    if isinstance(exponent, Stored):
        exponent = exponent.operand
    if value.op != "exp" or not isinstance(exponent, Mapped) or exponent.op != "sub":
        return False
    largest = peeled(exponent.operands[1])[0]
    if isinstance(largest, Mapped) and largest.op == "maximum" and isinstance(largest.operands[1], Constant):
        largest = peeled(largest.operands[0])[0]  # a maximum that is no less than the lowest number
    return isinstance(largest, RunningMaximum) or (isinstance(largest, Folded) and largest.folding is Folding.MAX)
