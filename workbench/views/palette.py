"""The words and colours of levels and nodes. Invariant: every view takes them from here, so a level looks the same everywhere.

Hues are Okabe and Ito's (Color Universal Design, 2008), told apart in all common forms of colour blindness; no meaning
rests on colour alone, since shapes and words repeat it. Every text has a contrast of at least 4.5 on its ground.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from workbench.core.levels import Level


@dataclass(frozen=True, slots=True)
class Paint:
    """Colours of one thing: ground (its fill), line (its border) and ink (its text), as #rrggbb."""

    ground: str
    line: str
    ink: str


class Role(Enum):
    """What is painted; the value is the CSS class."""

    CANVAS = "canvas"
    TENSOR = "tensor"  # inputs and outputs of the program
    HIDDEN = "hidden"  # stands for nodes that are not shown
    LOOP = "loop"  # the part of a block graph that every iteration runs
    EDGE = "edge"
    KERNEL = "kernel"
    BLOCK = "block"
    THREAD = "thread"


LEVEL_WORDS = {
    Level.KERNEL: "kernel graph",
    Level.BLOCK: "block graph",
    Level.THREAD: "thread graph",
}

# per level and memory scope, the ground of the cluster; nodes of the level lie on the canvas' ground
LIGHT = {
    Role.CANVAS: Paint("#ffffff", "#c8ccd1", "#1b1f24"),
    Role.TENSOR: Paint("#d6e9f8", "#0072b2", "#1b1f24"),
    Role.HIDDEN: Paint("#eceef0", "#6b7280", "#1b1f24"),
    Role.LOOP: Paint("#fbe3bd", "#b45309", "#1b1f24"),
    Role.EDGE: Paint("#ffffff", "#57606a", "#3d444d"),
    Role.KERNEL: Paint("#f1f7fc", "#0072b2", "#1b1f24"),
    Role.BLOCK: Paint("#fef5e4", "#b45309", "#1b1f24"),
    Role.THREAD: Paint("#dff3ea", "#00795a", "#1b1f24"),
}
DARK = {
    Role.CANVAS: Paint("#161b22", "#444c56", "#e6edf3"),
    Role.TENSOR: Paint("#12395a", "#56b4e9", "#e6edf3"),
    Role.HIDDEN: Paint("#2d333b", "#9aa4b2", "#e6edf3"),
    Role.LOOP: Paint("#4a3410", "#e69f00", "#e6edf3"),
    Role.EDGE: Paint("#161b22", "#adb7c2", "#c9d1d9"),
    Role.KERNEL: Paint("#15222e", "#56b4e9", "#e6edf3"),
    Role.BLOCK: Paint("#2e2413", "#e69f00", "#e6edf3"),
    Role.THREAD: Paint("#10342a", "#2fc79a", "#e6edf3"),
}


PART_COLOURS = (
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#8c8c8c", "#5b4b9a", "#a0522d",
    "#7fb800", "#c2185b", "#c3b091",
)  # fmt: skip
"""For parts of a whole side by side: Okabe and Ito's hues, then grey, violet, brown, lime, crimson, khaki; each part also
has its name."""


def level_role(level: Level) -> Role:
    """Return what a level's clusters and nodes are painted as."""
    return Role(level.value)


def contrast(first: str, second: str) -> float:
    """Return the contrast ratio of two colours #rrggbb, 1 to 21. Source: WCAG 2.1, "contrast ratio"."""
    lighter, darker = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    channels = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


VERDICT_COLOURS = {"equal": "#009e73", "different": "#d55e00", "unknown": "#7a7a7a"}
"""Border of a verdict's badge; of the colour-blind safe set of Okabe and Ito."""
