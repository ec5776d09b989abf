"""Colours are readable: contrasts by WCAG 2.1, whose own examples check the formula."""

from __future__ import annotations

import pytest

from workbench.core.levels import Level
from workbench.views.palette import DARK, LIGHT, Paint, Role, contrast, level_role


@pytest.mark.parametrize(
    ("first", "second", "ratio"),
    [("#000000", "#ffffff", 21.0), ("#777777", "#ffffff", 4.48), ("#ff0000", "#ffffff", 4.0)],
)
def test_contrast_formula(first: str, second: str, ratio: float) -> None:
    assert contrast(first, second) == pytest.approx(ratio, abs=0.005)
    assert contrast(first, second) == contrast(second, first)


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_texts_are_readable_and_lines_visible(palette: dict[Role, Paint]) -> None:
    assert set(palette) == set(Role)
    canvas = palette[Role.CANVAS]
    for role, paint in palette.items():
        assert contrast(paint.ink, paint.ground) >= 4.5, role
        if role is not Role.CANVAS:
            assert contrast(paint.line, paint.ground) >= 3, role
            assert contrast(paint.line, canvas.ground) >= 3, role
        # tensors' labels stand on the grounds of all clusters
        assert contrast(palette[Role.EDGE].ink, paint.ground) >= 4.5, role


def test_every_level_has_colours() -> None:
    assert len({level_role(level) for level in Level}) == 3
