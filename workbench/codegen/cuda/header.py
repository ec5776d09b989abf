"""The device header: which text stands before the kernel in every self-contained CUDA source.

Invariant: the text handed to NVRTC, nvcc, the host shim and the export is the same, byte for byte.
"""

from __future__ import annotations

from functools import cache
from importlib import resources

HEADER_FILES = ("intrinsics.cuh", "tiles.cuh", "kernels.cuh")


@cache
def device_header() -> str:
    """Return the header's text: scalar types and intrinsics, then tiles and reductions; it includes nothing."""
    folder = resources.files(__package__)
    texts = [(folder / name).read_text(encoding="utf-8") for name in HEADER_FILES]
    return "\n".join(text.replace("#pragma once\n", "") for text in texts)


def kernel_source(body: str) -> str:
    """Return a self-contained source: the header, then `body`, which sees its names without the namespace."""
    return f"{device_header()}\nusing namespace wb;\n\n{body.rstrip()}\n"
