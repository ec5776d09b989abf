"""What a program costs and why: a total, parts that add up to it, and the same for each kernel.

Invariant: `total_us` is the sum of `parts` in their order, so a breakdown never leaves anything out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from workbench.units import counted, format_bytes


@dataclass(frozen=True)
class KernelCost:
    """One kernel's cost.

    Attributes: name; parts: microseconds by name; facts: what was counted (blocks, waves, occupancy, bytes, flops, ...).
    """

    name: str
    parts: Mapping[str, float]
    facts: Mapping[str, float]

    @cached_property
    def total_us(self) -> float:
        """Microseconds: the sum of the parts."""
        return sum(self.parts.values())


@dataclass(frozen=True)
class Cost:
    """A program's cost on one GPU. Attributes: kernels, in order; hardware, preset: names; cold: the L2 cache was cold."""

    kernels: tuple[KernelCost, ...]
    hardware: str
    preset: str
    cold: bool = True

    @cached_property
    def parts(self) -> dict[str, float]:
        """Microseconds by part, over all kernels."""
        names = dict.fromkeys(name for kernel in self.kernels for name in kernel.parts)
        return {name: sum(kernel.parts.get(name, 0.0) for kernel in self.kernels) for name in names}

    @cached_property
    def total_us(self) -> float:
        """Microseconds: the sum of the parts."""
        return sum(self.parts.values())

    def describe(self) -> str:
        """Return the breakdown as text: per kernel its parts, the largest first, and what limits it."""
        where = f"{self.hardware}, preset {self.preset}, {'cold' if self.cold else 'warm'} L2"
        lines = [f"{self.total_us:.2f} us ({where})"]
        for kernel in self.kernels:
            facts = kernel.facts
            words = [f"{kernel.name}: {kernel.total_us:.2f} us"]
            if "occupancy" in facts:
                words.append(
                    f"{counted(round(facts['blocks']), 'block')} in {counted(round(facts['waves']), 'wave')}, "
                    f"{facts['occupancy']:.0f} a multiprocessor, "
                    f"{format_bytes(facts['shared_bytes'])} shared, {counted(round(facts['registers']), 'register')}"
                )
            lines.append("  " + "; ".join(words))
            shown = sorted(((us, name) for name, us in kernel.parts.items() if us > 0), reverse=True)
            lines += [f"    {name:<18} {us:8.2f} us" for us, name in shown]
        return "\n".join(lines)

    def to_json(self) -> dict[str, object]:
        """Return the cost as plain JSON data."""
        return {
            "total_us": self.total_us,
            "hardware": self.hardware,
            "preset": self.preset,
            "cold": self.cold,
            "parts": dict(self.parts),
            "kernels": [
                {"name": k.name, "total_us": k.total_us, "parts": dict(k.parts), "facts": dict(k.facts)}
                for k in self.kernels
            ],
        }
