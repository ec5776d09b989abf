"""Times, progress and refusals of a launchpad: bars in proportion, speedups as quotients, nothing cut."""

from __future__ import annotations

import re

import pytest

from workbench.pipeline.candidate import Refusal
from workbench.pipeline.progress import Stage
from workbench.views.launch_view import Timed, progress_html, refused_html, times_svg


def test_bars_are_in_proportion_and_speedups_are_quotients() -> None:
    times = [
        Timed("ours", 4.0, "measured", True),
        Timed("eager", 16.0, "replayed", False),
        Timed("floor", 2.0, "bound", False),
    ]
    svg = times_svg(times, 8.0)
    widths = [float(width) for width in re.findall(r'<rect class="[\w-]+"[^>]*? width="([\d.]+)"', svg)]
    assert widths == pytest.approx([widths[2] / 8, widths[2] / 4, widths[2]], rel=0.01)  # the shortest first
    told = re.findall(r">([\d.]+ us [^<]+)<", svg)
    assert told == ["2.00 us bound, 4.00×", "4.00 us measured, 2.00×", "16.00 us replayed, 0.50×"]
    # what was only modelled or bounded is paler than what somebody measured
    assert [("fill-opacity" in rect) for rect in re.findall(r"<rect[^>]*>", svg)] == [True, False, False]
    assert "×" not in times_svg(times, None)
    assert times_svg([], 8.0) == ""


def test_progress_tells_the_share_and_the_stages_before() -> None:
    html = progress_html(Stage("certify", 3, 12, "4.20 us"), ["search", "schedule", "certify"], "")
    assert "certify: 3 of 12, 4.20 us" in html
    assert 'aria-valuenow="25"' in html
    assert "width:25.0%" in html
    assert re.findall(r'wb-tag">(\w+)', html) == ["search", "schedule"]
    assert 'aria-valuenow="0"' in progress_html(Stage("time", 0, 0), [], "")
    assert progress_html(None, [], "") == ""


def test_every_refusal_stands_there_whole() -> None:
    long = "because " + "of the " * 100 + "end"
    refused = [
        Refusal(stage="check", what="µGraph " + "x" * 200, reason=long, structure_hash="h"),
        Refusal(stage="search", what="<b>", reason="r", structure_hash="", count=7),
    ]
    html = refused_html(refused, {"check": 1, "search": 7}, limit=10)
    assert long in html
    assert "x" * 200 in html
    assert "&lt;b&gt;" in html
    assert "each of the 8 with its reason" in html
    assert html.index("search") < html.index("check")  # the most frequent first
    assert "showing 1 of 2 entries" in refused_html(refused, {"check": 1, "search": 7}, limit=1)
