"""The colours of interactive panels and of their static twins, as CSS. Invariant: one set of names, two themes.

Every text has a contrast of at least 4.5 on its ground; good and bad are blue and orange, told apart in all common forms
of colour blindness, and a word or a shape stands beside them.
"""

from __future__ import annotations

from workbench.views.palette import DARK, LIGHT, Paint, Role

_LIGHT = {
    "ground": "#ffffff", "raised": "#f8fafc", "line": "#d5d9de", "edge": "#9aa4b0", "ink": "#1b1f24", "quiet": "#57606a",
    "accent": "#0072b2", "on-accent": "#ffffff", "focus": "#0072b2", "hot": "#e8eef4", "chosen": "#d6e9f8",
    "good": "#00608f", "bad": "#a8430a", "good-fill": "#0072b2", "bad-fill": "#e69f00", "match": "#fbe3bd",
    "match-line": "#b45309", "differs": "#f9cdb5", "fits": "#d6e9f8",
}  # fmt: skip
_DARK = {
    "ground": "#161b22", "raised": "#1c232c", "line": "#3a424c", "edge": "#6b7683", "ink": "#e6edf3", "quiet": "#a6b0bb",
    "accent": "#56b4e9", "on-accent": "#0b1a26", "focus": "#56b4e9", "hot": "#2a333e", "chosen": "#12395a",
    "good": "#79c4f0", "bad": "#f0a356", "good-fill": "#56b4e9", "bad-fill": "#e69f00", "match": "#4a3410",
    "match-line": "#e69f00", "differs": "#6a3414", "fits": "#12395a",
}  # fmt: skip


def panel_colours(theme: str) -> dict[str, str]:
    """Return the colours of a theme ("light" or "dark") by name, as #rrggbb."""
    own, paints = (_DARK, DARK) if theme == "dark" else (_LIGHT, LIGHT)
    return {**own, **_painted("tensor", paints[Role.TENSOR]), **_painted("block", paints[Role.BLOCK])}


def _painted(name: str, paint: Paint) -> dict[str, str]:
    return {name: paint.ground, f"{name}-line": paint.line}


def colour_rules() -> str:
    """Return the CSS that gives panels their colours: as the panel says, else as JupyterLab, else as the reader's system."""
    light, dark = (_declarations(panel_colours(theme)) for theme in ("light", "dark"))
    own = '.wb-root[data-theme="dark"]'
    lab = '[data-jp-theme-light="false"] .wb-root:not([data-theme="light"])'
    system = ':root:not(:has([data-jp-theme-light])) .wb-root:not([data-theme="light"])'
    return (
        f".wb-root {{ {light} }}\n{own}, {lab} {{ {dark} }}\n"
        f"@media (prefers-color-scheme: dark) {{ {system} {{ {dark} }} }}\n"
    )


def _declarations(colours: dict[str, str]) -> str:
    return " ".join(f"--wb-{name}: {value};" for name, value in colours.items())
