"""The difference of two graphs: none of equal ones, words that fit, lines that are the graphs' own."""

from __future__ import annotations

import workbench as wb
from workbench.views.graph_diff import changed_words, diff_html, diff_lines, difference_in_words

FUSED = wb.programs.known_good("rms_norm_linear", batch=16, hidden=256, out=256)[0]
OTHER = wb.programs.known_good("rms_norm_linear", batch=16, hidden=512, out=256)[0]
PLAIN = wb.programs.get("rms_norm_linear", batch=16, hidden=256, out=256)


def test_words() -> None:
    assert difference_in_words(FUSED, FUSED) == "the same graph"
    assert difference_in_words(FUSED, OTHER) == "the same structure with other sizes, maps or launch counts"
    assert difference_in_words(FUSED, PLAIN) == "different structures"


def test_lines_are_the_graphs_own() -> None:
    rows = diff_lines(FUSED, PLAIN)
    assert [one for mark, one, _ in rows if mark != "+"] == FUSED.describe().split("\n")
    assert [two for mark, _, two in rows if mark != "-"] == PLAIN.describe().split("\n")
    assert {mark for mark, _, _ in diff_lines(FUSED, FUSED)} == {""}
    assert "lines differ" in diff_html(FUSED, PLAIN)


def test_words_that_differ_are_marked() -> None:
    one, two = "  t1: float16[2, 64] = rms(x)", "  t1: float16[4, 64] = exp(x)"
    left, right = changed_words(one, two)
    assert ["".join(text for text, _ in side) for side in (left, right)] == [one, two]
    assert [text for text, differs in left if differs] == ["2", "rms"]
    assert [text for text, differs in right if differs] == ["4", "exp"]
    assert changed_words("same", "same") == ([("same", False)], [("same", False)])
