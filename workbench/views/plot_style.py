"""How figures look: light and dark, colours told apart in all common colour blindness, a shape beside every colour.

Invariant: a figure changes no global setting of matplotlib, and draws on the axes it is given if it is given some.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from workbench.errors import UsageError
from workbench.views.palette import DARK, LIGHT, Role

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

Theme = Literal["light", "dark"]


@dataclass(frozen=True, slots=True)
class Style:
    """Colours of one theme, as #rrggbb: ground, ink (text, axes), faint (grid), and a series of hues in fixed order."""

    ground: str
    ink: str
    faint: str
    win: str
    loss: str
    hues: tuple[str, ...]


MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*")
"""A shape per series, in the order of the hues."""

# Okabe and Ito's hues (Color Universal Design, 2008), darkened or lightened where the ground asks for it
STYLES: Mapping[str, Style] = {
    "light": Style(
        LIGHT[Role.CANVAS].ground, LIGHT[Role.CANVAS].ink, "#d5d9de", "#0072b2", "#c2410c",
        ("#0072b2", "#d55e00", "#00795a", "#a8508a", "#b07a00", "#3a9bd6", "#57606a", "#1b1f24"),
    ),
    "dark": Style(
        DARK[Role.CANVAS].ground, DARK[Role.CANVAS].ink, "#3a424c", "#56b4e9", "#f0883e",
        ("#56b4e9", "#f0883e", "#2fc79a", "#e39ac8", "#f0e442", "#79a8ff", "#9aa4b2", "#e6edf3"),
    ),
}  # fmt: skip


def style_of(theme: str) -> Style:
    """Return a theme's colours. Raises: UsageError."""
    if theme not in STYLES:
        raise UsageError(f"unknown theme {theme!r}; there are {' and '.join(STYLES)}")
    return STYLES[theme]


def start_axes(ax: Axes | None, theme: str, size: tuple[float, float]) -> tuple[Axes, Style]:
    """Return axes painted in a theme: those given, or those of a new figure of this size in inches."""
    style = style_of(theme)
    if ax is None:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        figure = Figure(figsize=size, layout="constrained", facecolor=style.ground)
        FigureCanvasAgg(figure)  # no window system, and nothing that pyplot would keep
        ax = figure.add_subplot()
    ax.set_facecolor(style.ground)
    for side, spine in ax.spines.items():
        spine.set_color(style.ink)
        spine.set_visible(side in ("left", "bottom"))
    ax.tick_params(which="both", colors=style.ink, labelsize=9)
    for text in (ax.xaxis.label, ax.yaxis.label, ax.title):
        text.set_color(style.ink)
    ax.grid(visible=True, color=style.faint, linewidth=0.6)
    ax.set_axisbelow(True)
    return ax, style


def add_legend(ax: Axes, style: Style, *, title: str = "") -> None:
    """Add a legend beside the axes, in the theme's colours."""
    legend = ax.legend(
        loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, fontsize=8.5, title=title or None,
        labelcolor=style.ink, handletextpad=0.5,
    )  # fmt: skip
    legend.get_title().set_color(style.ink)
    legend.get_title().set_fontsize(9)


def plain_numbers(axis: Axis) -> None:
    """Label a logarithmic axis at 1, 2 and 5 times the powers of ten, in plain numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axis.set_major_locator(LogLocator(10, subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())
