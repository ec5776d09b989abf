"""What is known where fewer axes are cut bounds what more cuts may make, and loses nothing."""

from __future__ import annotations

import pytest

from tests.unit.search.searched import ATTENTION, NORM, graph_of
from workbench.domains.abstract_expr import Axis, Part
from workbench.domains.abstract_readback import Readback
from workbench.programs.registry import get
from workbench.search.expressions import Expressions
from workbench.search.plans import AxisParts, axis_parts, folds_of, folds_of_parts, plans_of
from workbench.search.shared import Shared
from workbench.search.space import NEVER, Space
from workbench.search.uncut import fewer_parts
from workbench.ugraph.value import sum as sum_of

CUTS = {
    "norm": NORM,
    "attention": ATTENTION,
    # One operand keeps a part of a loop's axis and nothing else of its own: where that is not cut, no axis is left to it.
    "a product of sums": graph_of(lambda x, w: sum_of(sum_of(x @ w), axis=0), X=(8, 16), W=(16, 12)),
}


def alone(shared: Shared, parts: dict[str, AxisParts], limit: int) -> Expressions:
    """Return expressions that no image bounds."""
    plans = [plan for plan in shared.plans if str(axis_parts(plan)) == str(parts)]
    folds = folds_of(shared.problem, plans)
    return Expressions(shared.problem, shared.palette, parts, folds, limit=limit).close().trim()


@pytest.mark.parametrize("name", CUTS)
def test_images_lose_no_expression_and_no_operator(name: str) -> None:
    space = Space(max_block_ops=6, max_kernel_ops=1, kernel_palette=(), max_block_graphs=2)
    shared = Shared(CUTS[name], space, 0)
    compared = 0
    for plan in plans_of(shared.problem, space):
        parts = axis_parts(plan)
        if not parts:
            continue
        bounded, free = shared.expressions(parts), alone(shared, parts, 6)
        terms = [{str(Readback(one.algebra).term(value)) for value in one.makings} for one in (free, bounded)]
        assert terms[0] <= terms[1]
        makings = [sum(map(len, one.makings.values())) for one in (free, bounded)]
        assert makings[1] >= makings[0]
        compared += 1
    assert compared


def test_what_is_of_no_use_where_fewer_axes_are_cut_is_left_out_and_nothing_that_is_kept() -> None:
    shared = Shared(get("attention_safe"), Space(), 0)
    left_out = 0
    for plan in shared.plans:
        parts = axis_parts(plan)
        images = [(shared.expressions(fewer), names) for fewer, names in fewer_parts(parts)]
        folds = folds_of_parts(shared.problem, parts)
        cut = Expressions(shared.problem, shared.palette, parts, folds, limit=14, images=images).close()
        if cut._uncut is not None:
            assert all(sum(cut._uncut.bounds(value)) <= 14 for value in cut.above)
            assert not cut.left_out.keys() & cut.above.keys()
            left_out += len(cut.left_out)
    assert left_out


def test_one_part_less_at_a_time() -> None:
    grid, loop, tile = Axis("h").split()
    both = {"h": AxisParts(grid, loop, tile)}
    found = list(fewer_parts(both))
    assert [names for _, names in found] == [{grid: None, loop: loop}, {loop: None, grid: loop}]
    for parts, _ in found:  # split over blocks is cut like looped over
        assert parts == {"h": AxisParts(None, loop, tile)}
    ((parts, names),) = fewer_parts({"h": AxisParts(None, loop, tile)})
    assert parts == {}
    assert names == {loop: None, tile: Axis("h")}
    assert loop.part is Part.LOOP


def test_what_nothing_makes_without_a_loop_is_ruled_out_with_one() -> None:
    shared = Shared(NORM, Space(), 0)
    (axis, *_) = shared.problem.reduced
    _, loop, tile = Axis(axis).split()
    cut = shared.expressions({axis: AxisParts(None, loop, tile)})
    assert cut._uncut is not None
    x = cut.starts[0]
    assert cut._uncut.bounds(x)[0] == 0
    exponential = cut.algebra.exp(x)  # the program has none
    assert NEVER in cut._uncut.bounds(exponential)
    goal = cut.goals[0]
    assert cut._uncut.bounds(goal) == (shared.expressions({}).operators[shared.expressions({}).goals[0]], 0)
