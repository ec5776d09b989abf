"""Which architecture a device name stands for, and what its blocks may use. Invariant: an unknown name is never guessed."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

from workbench.errors import UnknownNameError

KIB = 1024


@dataclass(frozen=True, slots=True)
class Architecture:
    """A compile target.

    Attributes: name: as NVRTC and nvcc take it; shared_limit: bytes of shared memory a block may use; has_clusters:
    whether blocks form clusters. Source: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
    """

    name: str
    shared_limit: int
    has_clusters: bool


DEVICES = {
    "a100": "sm_80", "a100-40": "sm_80", "a100-80": "sm_80", "a10": "sm_86", "rtx3090": "sm_86",
    "l4": "sm_89", "l40s": "sm_89", "rtx4090": "sm_89",
    "h100": "sm_90a", "h200": "sm_90a", "gh200": "sm_90a", "b200": "sm_100a", "gb200": "sm_100a",
}  # fmt: skip
"""Device names and their architectures."""

SHARED_LIMITS = {80: 163, 86: 99, 87: 163, 89: 99, 90: 227, 100: 227, 103: 227, 120: 99}  # KiB by compute capability


def architecture(device: str) -> Architecture:
    """Return the architecture of a device ("h200") or of a compiler's name for one ("sm_90a").

    Raises: UnknownNameError.
    """
    name = DEVICES.get(device.lower().replace(" ", ""), device)
    match = re.fullmatch(r"sm_(\d+)[af]?", name)
    number = int(match.group(1)) if match else 0
    if number not in SHARED_LIMITS:
        near = difflib.get_close_matches(device.lower(), [*DEVICES, "sm_80", "sm_90a"], n=2)
        known = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(DEVICES)}, or sm_80 and later"
        raise UnknownNameError(f"unknown device {device!r}; {known}")
    return Architecture(name, SHARED_LIMITS[number] * KIB, number >= 90)


def architecture_name(compute_capability: str) -> str:
    """Return the compiler's name for a compute capability as CuPy prints it ("90" -> "sm_90a")."""
    return f"sm_{compute_capability}" + ("a" if int(compute_capability) >= 90 else "")
