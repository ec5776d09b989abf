"""The walk of a random test as view data, and the chart of its bound."""

from __future__ import annotations

import re

import numpy as np
import pytest

import workbench as wb
from workbench.verify.walkthrough import walk_through
from workbench.views.walk_view import aligned, bound_svg, residues_html, step_views


def test_inputs_stand_beside_inputs_and_outputs_beside_outputs() -> None:
    assert [aligned(position, 3, 7) for position in range(7)] == [0, 0, 1, 1, 1, 2, 2]
    assert [aligned(position, 5, 5) for position in range(5)] == [0, 1, 2, 3, 4]
    assert aligned(0, 1, 1) == 0


def test_equal_residues_are_found_and_residues_are_products_of_residues() -> None:
    first = wb.trace(lambda X, Y: (X @ Y) * 2, X=(2, 3), Y=(3, 2), dtype="float32")
    second = wb.trace(lambda X, Y: X @ (Y * 2), X=(2, 3), Y=(3, 2), dtype="float32")
    walk = walk_through(first, second, pair="w31", seed=3)
    views = step_views(walk)
    ours, theirs = views["program"], views["candidate"]
    assert [(view.name, view.where, view.twins) for view in ours[:2]] == [
        ("X", "input", ("X",)),
        ("Y", "input", ("Y",)),
    ]
    assert ours[-1].twins == (theirs[-1].name,)
    assert ours[2].twins == ()  # X @ Y has no like in the candidate
    x, y, product = (np.asarray(view.step.p, dtype=object) for view in ours[:3])
    np.testing.assert_array_equal(x @ y % walk.pair.p, product)
    html = residues_html(ours[2], None, (walk.pair.p, walk.pair.q))
    assert f"<td>{int(product[0, 0])}</td>" in html
    marked = residues_html(ours[2], theirs[-1], (walk.pair.p, walk.pair.q))
    assert marked.count("wb-differs") == sum(
        int(value != other) for value, other in zip(product.ravel(), np.ravel(theirs[-1].step.p), strict=True)
    ) + int(np.sum(np.asarray(ours[2].step.q) != np.asarray(theirs[-1].step.q)))


def test_the_bound_meets_what_was_wanted_after_as_many_tests_as_it_takes() -> None:
    svg = bound_svg({"schwartz-zippel": 1e-3}, 1e-9, 3)
    left, top, wide, high = map(
        float, re.findall(r'wb-off" x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)"', svg)[0]
    )
    (x0, y0, x1, y1) = map(float, re.findall(r'd="M([\d.]+) ([\d.]+) L([\d.]+) ([\d.]+)"', svg)[0])
    wanted = float(re.findall(r'wb-cut" d="M[\d.]+ ([\d.]+)', svg)[0])
    assert (x0, y0) == (left, top)
    assert top < wanted < top + high
    tests_needed = (wanted - y0) / (y1 - y0) * (x1 - x0) / (wide / 4)  # four tests along the axis
    assert tests_needed == pytest.approx(3.0, abs=0.02)  # 1e-3 ** 3 = 1e-9
    assert "1e-09" in svg
    assert "3 tests were run" in svg
