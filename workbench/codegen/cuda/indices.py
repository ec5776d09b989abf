"""Index arithmetic as C text, with what is known before the kernel runs: bounds, constants, and where it is computed.

Invariant: an index is at least 0 and below its bound wherever the text is evaluated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from math import prod

from workbench.core.shapes import Shape


class Level(IntEnum):
    """Where in a loop nest a text may stand: before it, per row, per group of neighbours, per element."""

    OUTSIDE = 0
    ROW = 1
    GROUP = 2
    ELEMENT = 3


@dataclass(frozen=True, slots=True)
class Index:
    """An index into one axis.

    Attributes: text: C expression, in parentheses where it is not a single name or number; level: the innermost loop it
    depends on; bound: exclusive upper bound; group: text of the first index of the group of neighbours it belongs to,
    where it runs through them one by one.
    """

    text: str
    level: Level
    bound: int
    group: str | None = None

    @property
    def number(self) -> int | None:
        """The value where it is known."""
        return int(self.text) if self.text.isdigit() else None


ZERO = Index("0", Level.OUTSIDE, 1)


def constant_index(value: int) -> Index:
    """Return a known index."""
    return Index(str(value), Level.OUTSIDE, value + 1)


def shifted(index: Index, by: int) -> Index:
    """Return index + by."""
    if by == 0:
        return index
    if index.number is not None:
        return constant_index(index.number + by)
    sign = "+" if by > 0 else "-"
    group = f"({index.group} {sign} {abs(by)})" if index.group is not None else None
    return Index(f"({index.text} {sign} {abs(by)})", index.level, index.bound + by, group)


def flattened(index: Sequence[Index], shape: Sequence[int]) -> Index:
    """Return the row-major number of an element of a tile of this shape; the last axis keeps its group of neighbours."""
    text, level, bound, group, known = "", Level.OUTSIDE, 0, None, 0
    for axis, (part, extent) in enumerate(zip(index, shape, strict=True)):
        step = prod(shape[axis + 1 :])
        bound += (part.bound - 1) * step
        _ = extent
        if part.number is not None:
            known += part.number * step
            continue
        term = part.text if step == 1 else f"{part.text} * {step}"
        group = None if part.group is None or step != 1 else (f"{text} + {part.group}" if text else part.group)
        text = f"{text} + {term}" if text else term
        level = max(level, part.level)
    if not text:
        return constant_index(known)
    single = " " not in text
    if known:
        text, single = f"{text} + {known}", False
        group = f"{group} + {known}" if group is not None else None
    wrapped = f"({group})" if group is not None and " " in group else group
    return Index(text if single else f"({text})", level, bound + 1, wrapped)


def quotient(index: Index, by: int) -> Index:
    """Return index / by."""
    if by == 1:
        return index
    if index.bound <= by:
        return ZERO
    if index.number is not None:
        return constant_index(index.number // by)
    return Index(f"({index.text} / {by})", index.level, (index.bound - 1) // by + 1)


def remainder(index: Index, by: int) -> Index:
    """Return index % by."""
    if by == 1:
        return ZERO
    if index.bound <= by:
        return index
    if index.number is not None:
        return constant_index(index.number % by)
    return Index(f"({index.text} % {by})", index.level, by)


def reshaped(index: Sequence[Index], new: Shape, old: Shape) -> list[Index]:
    """Return the index into shape `old` of the element that has `index` in shape `new`, in row-major order.

    Both shapes are cut into the shortest runs of equal products, so that axes that stay need no arithmetic.
    """
    result: list[Index] = []
    i, j = 0, 0
    while i < len(old) or j < len(new):
        if i < len(old) and old[i] == 1:
            result.append(ZERO)
            i += 1
        elif j < len(new) and new[j] == 1:
            j += 1
        else:
            start_i, start_j, left, right = i, j, old[i], new[j]
            i, j = i + 1, j + 1
            while left != right:
                if left < right:
                    left, i = left * old[i], i + 1
                else:
                    right, j = right * new[j], j + 1
            flat = flattened(index[start_j:j], new[start_j:j])
            for axis in range(start_i, i):
                inner = prod(old[axis + 1 : i])
                part = quotient(flat, inner)
                result.append(part if axis == start_i else remainder(part, old[axis]))
    return result
