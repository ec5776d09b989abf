"""How a graph-defined operator is cut, and what of it may be cut: counts by axis, and the axes.

Invariant: plain data in the words of axes; `retile` finds and applies it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Counts:
    """How one graph-defined operator is cut.

    Attributes: grid: axis -> blocks that share it, axes not named are whole; loop: iterations; split: blocks that share
    the reduced axis whose partial results a later kernel folds; cluster: blocks that share the iterations.
    """

    grid: Mapping[str, int] = field(default_factory=dict)
    loop: int = 1
    split: int = 1
    cluster: int = 1


@dataclass(frozen=True, slots=True)
class Tiling:
    """What may be cut in one graph-defined operator.

    Attributes: kernel: its number; label: its first result; extents: of axes; free: axes that the grid may split; loop:
    the axis that the loop goes over, None where its count cannot change; split: the reduced axis that the grid splits,
    None where it does not; can_cluster: blocks of a cluster may share the iterations; room: grid axes left for `free`;
    counts: as the graph has them; tiles: per tile, the axes of each dimension, of kernel tensors in `tensors`; pieces:
    what the cut leaves of an axis, by the name that stands in `tiles`.
    """

    kernel: int
    label: str
    extents: Mapping[str, int]
    free: tuple[str, ...]
    loop: str | None
    split: str | None
    can_cluster: bool
    room: int
    counts: Counts
    tiles: Mapping[str, tuple[tuple[str, ...], ...]]
    tensors: Mapping[str, tuple[tuple[str, ...], ...]]
    pieces: Mapping[str, str]

    def describe(self) -> str:
        """Return in words what may be cut."""
        words = [f"kernel {self.kernel} ({self.label}): the grid may split {', '.join(self.free) or 'nothing'}"]
        words += [f"the loop goes over {self.loop} = {self.extents[self.loop]}"] if self.loop else ["no loop"]
        words += [f"the reduced axis {self.split} is split over blocks"] if self.split else []
        words += ["a cluster may share the iterations"] if self.can_cluster else []
        return "; ".join(words)
