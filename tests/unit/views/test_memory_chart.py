"""The chart of a memory plan: every box where the plan puts its tensor, none over another."""

from __future__ import annotations

import re

import pytest

import workbench as wb
from workbench.optimize.lifetimes import block_lifetimes
from workbench.optimize.memory import Lifetime, MemoryPlan, Role, plan_memory
from workbench.views.memory_chart import memory_svg

Box = tuple[str, float, float, float, float]


def boxes(svg: str) -> list[Box]:
    """Return name, left, top, width and height of every tensor's box."""
    found = re.findall(
        r'<title>(\w+), \w+: .*?</title><rect class="[\w-]+" x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)"',
        svg,
    )
    return [(name, float(x), float(y), float(wide), float(high)) for name, x, y, wide, high in found]


def test_boxes_lie_at_their_addresses_and_times() -> None:
    lives = (
        Lifetime("a", 400, 0, 1, Role.INPUT),
        Lifetime("b", 600, 1, 3, Role.ACCUMULATOR),
        Lifetime("c", 300, 2, 3),
    )
    plan = MemoryPlan(lifetimes=lives, offsets=(0, 400, 0), alignment=1, total=1000, lower_bound=1000, how="exact")
    svg = memory_svg(plan, 2000)
    a, b, c = boxes(svg)
    step, high = a[3] / 2, b[4] / 0.6  # a is there for 2 of 4 times; b takes 600 of 1000 bytes
    assert [box[1] for box in (b, c)] == pytest.approx([a[1] + step, a[1] + 2 * step], abs=0.11)
    assert [box[3] for box in (b, c)] == pytest.approx([3 * step, 2 * step], abs=0.11)
    floor = a[2] + a[4]
    assert b[2] + b[4] == pytest.approx(floor - 0.4 * high, abs=0.11)  # begins at address 400
    assert c[2] + c[4] == pytest.approx(floor, abs=0.11)
    assert [a[4], c[4]] == pytest.approx([0.4 * high, 0.3 * high], abs=0.11)
    assert "1,000 B, 1,300 B without reuse" in svg
    assert "a block may have 2,000 B" in svg
    assert "b, accumulator: 600 B at 400, times 1 to 3" in svg


@pytest.mark.parametrize("program", ["rms_norm_linear", "gqa", "qk_norm_attention", "ntrans"])
def test_no_two_tensors_share_a_byte_at_a_time(program: str) -> None:
    for launch in wb.programs.known_good(program)[0].graph_defined:
        plan = plan_memory(block_lifetimes(launch.block))
        drawn = boxes(memory_svg(plan))
        assert [box[0] for box in drawn] == [life.name for life in plan.lifetimes]
        solid = [box for box in drawn if box[4] > 1.5]  # thinner ones are drawn thicker than they are, to be seen
        for place, (_, left, top, wide, high) in enumerate(solid):
            for _, x, y, w, h in solid[:place]:
                apart = x + w <= left + 0.2 or left + wide <= x + 0.2 or y + h <= top + 0.2 or top + high <= y + 0.2
                assert apart
