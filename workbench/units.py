"""Units of the numbers the workbench prints. Invariant: a quantity carries its unit in its type or in its name."""

from __future__ import annotations

from typing import NewType

Bytes = NewType("Bytes", int)
Flops = NewType("Flops", int)
Seconds = NewType("Seconds", float)


def format_bytes(count: float) -> str:
    """Return a count of bytes in decimal units, as data sheets use them (1 MB is 10^6 B)."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if abs(value) < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} TB"


def format_seconds(time_s: float) -> str:
    """Return a time with the unit that keeps it readable (ns, µs, ms, s)."""
    for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if abs(time_s) >= factor:
            return f"{time_s / factor:.3g} {unit}"
    return f"{time_s / 1e-9:.3g} ns"


def counted(count: int, noun: str) -> str:
    """Return a count with what it counts, which takes an s where it is not one: "1 kernel", "2,048 kernels"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
