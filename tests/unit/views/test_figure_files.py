"""Figures as files: both themes, well-formed, the same bytes each time, no address to fetch from."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from tests.unit.records.measured_rows import made_rows
from workbench.views.figure_files import draw_figures


def test_figures_are_written_alike_each_time(tmp_path: Path) -> None:
    first = draw_figures(made_rows(), tmp_path / "a", "h200")
    assert [path.name for path in first] == [
        f"{name}_{theme}.svg" for theme in ("light", "dark") for name in ("speedups", "floor", "roofline")
    ]
    second = draw_figures(made_rows(), tmp_path / "b", "h200")
    for one, other in zip(first, second, strict=True):
        text = one.read_text(encoding="utf-8")
        assert text == other.read_text(encoding="utf-8")
        ElementTree.fromstring(text)
        fetched = re.findall(r'(?:href|src)="(?!#)', text)
        assert not fetched
        assert "rms_norm_linear" in text


def test_rows_without_a_time_leave_out_the_roofline(tmp_path: Path) -> None:
    rows = made_rows(broken=0)[:1]
    assert {path.name for path in draw_figures(rows, tmp_path, "h200")} == {
        f"{name}_{theme}.svg" for theme in ("light", "dark") for name in ("speedups", "floor")
    }
