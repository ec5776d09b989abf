"""A memory plan as a chart: addresses upwards, time to the right, a box for each tensor.

Invariant: boxes lie where the plan puts them, so two that overlap would show a wrong plan; names and words repeat the colours.
"""

from __future__ import annotations

from workbench.optimize.memory import MemoryPlan, Role
from workbench.units import format_bytes
from workbench.views.markup import words

_FILLS = {Role.INPUT: "wb-tensor", Role.INTERMEDIATE: "wb-box", Role.ACCUMULATOR: "wb-block"}
_WIDE, _HIGH, _LEFT, _TOP = 330.0, 190.0, 66.0, 10.0


def memory_svg(plan: MemoryPlan, limit: int | None = None) -> str:
    """Return the plan as SVG that takes its colours from the panel around it. limit: bytes that there are, told below."""
    times = sorted({tensor.first for tensor in plan.lifetimes} | {tensor.last for tensor in plan.lifetimes})
    first, last = (times[0], times[-1]) if times else (0, 0)
    top = max(plan.total, 1)
    step = _WIDE / (last - first + 1)
    parts = [f'<rect class="wb-off" x="{_LEFT}" y="{_TOP}" width="{_WIDE}" height="{_HIGH}"/>']
    for tensor, offset in zip(plan.lifetimes, plan.offsets, strict=True):
        x, wide = _LEFT + (tensor.first - first) * step, (tensor.last - tensor.first + 1) * step
        y, high = _TOP + _HIGH * (1 - (offset + tensor.nbytes) / top), _HIGH * tensor.nbytes / top
        tip = f"{tensor.name}, {tensor.role.value}: {tensor.nbytes:,} B at {offset:,}, times {tensor.first} to {tensor.last}"
        label = words(tensor.name) if high > 11 else ""
        parts.append(
            f'<g><title>{words(tip)}</title><rect class="{_FILLS[tensor.role]}" x="{x:.1f}" y="{y:.1f}" '
            f'width="{wide:.1f}" height="{max(high, 1.5):.1f}"/><text x="{x + wide / 2:.1f}" y="{y + high / 2 + 4:.1f}" '
            f'font-size="11" text-anchor="middle">{label}</text></g>'
        )
    for share in (0.0, 0.5, 1.0):
        y = _TOP + _HIGH * (1 - share)
        text = format_bytes(round(top * share))
        parts.append(
            f'<text class="wb-quiet" x="{_LEFT - 6}" y="{y + 4:.1f}" font-size="10.5" text-anchor="end">{text}</text>'
        )
    parts += [
        f'<text class="wb-quiet" x="{_LEFT + (time - first + 0.5) * step:.1f}" y="{_TOP + _HIGH + 14}" font-size="10.5" '
        f'text-anchor="middle">{time}</text>'
        for time in range(first, last + 1)
        if last - first < 24 or time % 4 == 0
    ]
    note = f"time {first} to {last}; {plan.total:,} B, {plan.without_reuse:,} B without reuse"
    parts.append(f'<text class="wb-quiet" x="{_LEFT}" y="{_TOP + _HIGH + 30}" font-size="10.5">{note}</text>')
    keys = "blue: inputs · orange: accumulators · grey: intermediates"
    parts.append(f'<text class="wb-quiet" x="{_LEFT}" y="{_TOP + _HIGH + 44}" font-size="10.5">{keys}</text>')
    if limit:
        told = f"a block may have {limit:,} B"
        parts.append(f'<text class="wb-quiet" x="{_LEFT}" y="{_TOP + _HIGH + 58}" font-size="10.5">{told}</text>')
    width, height = _LEFT + _WIDE + 10, _TOP + _HIGH + (66 if limit else 52)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="memory plan, {plan.total:,} bytes" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}">{"".join(parts)}</svg>'
    )
