"""A small roofline that a panel redraws at every step. Invariant: a filled point was measured, a hollow one is modelled."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from workbench.core.dtypes import DType
from workbench.cost.breakdown import Cost
from workbench.cost.hardware import Hardware
from workbench.views.markup import words

_LEFT, _TOP, _WIDE, _HIGH = 52.0, 12.0, 300.0, 170.0


@dataclass(frozen=True, slots=True)
class Point:
    """A program's run. Attributes: label; flops; nbytes: of device memory; time_us; is_measured: its time."""

    label: str
    flops: float
    nbytes: float
    time_us: float
    is_measured: bool = False

    @property
    def intensity(self) -> float:
        """Operations a byte."""
        return self.flops / max(self.nbytes, 1.0)

    @property
    def tflops(self) -> float:
        """Operations a second, 10^12."""
        return self.flops / self.time_us * 1e-6


def modelled_point(label: str, cost: Cost, time_us: float | None = None) -> Point | None:
    """Return a cost as a point: operations and bytes as the model counts them; time: modelled, unless one was measured.

    None where nothing was counted, as for library kernels alone.
    """
    flops = nbytes = 0.0
    for kernel in cost.kernels:
        facts = kernel.facts
        blocks, iterations = facts.get("blocks", 0.0), facts.get("iterations", 1.0)
        for what in ("tensor_flops", "lanes"):
            flops += blocks * (iterations * facts.get(what, 0.0) + facts.get(f"last_{what}", 0.0))
        nbytes += facts.get("unique_bytes", 0.0) + facts.get("stored_bytes", 0.0)
    if flops <= 0:
        return None
    return Point(label, flops, nbytes, cost.total_us if time_us is None else time_us, time_us is not None)


def small_roofline_svg(points: Sequence[Point], hardware: Hardware) -> str:
    """Return ceilings and points as SVG that takes its colours from the panel around it; "" without points."""
    if not points:
        return ""
    peak = hardware.tensor_rate(DType.FLOAT16)
    low_x, high_x = min(0.5, *(p.intensity for p in points)) / 1.6, max(1500.0, *(p.intensity for p in points)) * 1.6
    low_y, high_y = min(1.0, *(p.tflops for p in points)) / 2, peak * 2

    def at(intensity: float, tflops: float) -> tuple[float, float]:
        x = math.log(intensity / low_x) / math.log(high_x / low_x)
        y = math.log(tflops / low_y) / math.log(high_y / low_y)
        return _LEFT + _WIDE * x, _TOP + _HIGH * (1 - y)

    parts = [f'<rect class="wb-off" x="{_LEFT}" y="{_TOP}" width="{_WIDE}" height="{_HIGH}"/>']
    for name, rate, dash in (
        ("device memory", hardware.bandwidth_tb_s, ""),
        ("L2", hardware.l2_tb_s, ' stroke-dasharray="5 3"'),
    ):
        start = max(low_x, low_y / rate)
        (x1, y1), (x2, y2) = at(start, start * rate), at(peak / rate, peak)
        x3, _ = at(high_x, peak)
        parts.append(
            f'<path d="M{x1:.1f} {y1:.1f} L{x2:.1f} {y2:.1f} H{x3:.1f}" fill="none" stroke="currentColor" '
            f'stroke-width="1.4"{dash}/>'
        )
        middle = at(start * (peak / rate / start) ** 0.4, rate * start * (peak / rate / start) ** 0.4)
        shift, anchor = (7, "start") if not dash else (-7, "end")
        parts.append(
            f'<text class="wb-quiet" x="{middle[0] + shift:.1f}" y="{middle[1] + (10 if not dash else 0):.1f}" font-size="10" '
            f'text-anchor="{anchor}">{name} {rate:.3g} TB/s</text>'
        )
    x, y = at(high_x, peak)
    parts.append(f'<text class="wb-quiet" x="{x - 3:.1f}" y="{y - 4:.1f}" font-size="10" text-anchor="end">'
                 f"tensor cores {peak:.0f} TFLOP/s</text>")  # fmt: skip
    for point in points:
        x, y = at(point.intensity, point.tflops)
        fill = "var(--wb-match-line)" if point.is_measured else "var(--wb-ground)"
        how = "measured" if point.is_measured else "modelled"
        tip = f"{point.label}: {point.tflops:.3g} TFLOP/s at {point.intensity:.3g} operations a byte, {point.time_us:.2f} us {how}"
        parts.append(
            f'<g><title>{words(tip)}</title><circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{fill}" '
            f'stroke="var(--wb-match-line)" stroke-width="2"/></g>'
        )
    if len(points) == 1:
        parts.append(
            f'<text x="{x + 9:.1f}" y="{y + 14:.1f}" font-size="10.5" font-weight="600">{words(points[0].label)}</text>'
        )
    foot = _TOP + _HIGH
    parts += [
        f'<text class="wb-quiet" x="{_LEFT}" y="{foot + 14}" font-size="10.5">{low_x:.2g}</text>',
        f'<text class="wb-quiet" x="{_LEFT + _WIDE / 2}" y="{foot + 14}" font-size="10.5" text-anchor="middle">operations a byte '
        f"of device memory</text>",
        f'<text class="wb-quiet" x="{_LEFT + _WIDE}" y="{foot + 14}" font-size="10.5" text-anchor="end">{high_x:.2g}</text>',
        f'<text class="wb-quiet" x="{_LEFT - 5}" y="{foot}" font-size="10.5" text-anchor="end">{low_y:.2g}</text>',
        f'<text class="wb-quiet" x="{_LEFT - 5}" y="{_TOP + 8}" font-size="10.5" text-anchor="end">{high_y:.0f}</text>',
        f'<text class="wb-quiet" x="{_LEFT}" y="{foot + 28}" font-size="10.5">TFLOP/s upwards, {words(hardware.title)}</text>',
        f'<text class="wb-quiet" x="{_LEFT}" y="{foot + 41}" font-size="10.5">filled: time measured; hollow: modelled</text>',
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="roofline" viewBox="0 0 {_LEFT + _WIDE + 12} {foot + 46}" '
        f'width="{_LEFT + _WIDE + 12}" height="{foot + 46}">{"".join(parts)}</svg>'
    )
