"""Shapes, types, launch counts and maps as short texts. Invariant: one spelling in every picture and table."""

from __future__ import annotations

from workbench.core.shapes import Shape
from workbench.core.tensors import SharedTensor
from workbench.ugraph.block_graph import BlockGraph
from workbench.ugraph.inference import GRID_AXES
from workbench.ugraph.nodes import DimMap, InputIterator, Tensor

REPLICA = "φ"
RAGGED = "≤"


def read_maps_text(node: InputIterator, block: BlockGraph) -> tuple[str, ...]:
    """Return an input iterator's maps in words, imap first; fmap only where there is a loop or a map."""
    parts = [map_text("imap", node.imap, block)]
    if node.fmap is not None or block.forloop_range > 1:
        parts.append(f"fmap i→{REPLICA if node.fmap is None else node.fmap}")
    return tuple(part for part in parts if part)


def map_text(word: str, entries: DimMap, block: BlockGraph) -> str:
    """Return a map in the paper's spelling: `imap x→1 y→φ`; axes of the grid that count 1 and map nothing are left out."""
    shown = [
        f"{GRID_AXES[axis]}→{REPLICA if dim is None else dim}"
        for axis, dim in enumerate(entries)
        if dim is not None or block.grid_dims[axis] > 1
    ]
    return f"{word} {' '.join(shown)}" if shown else ""


def launch_text(block: BlockGraph) -> str:
    """Return grid, loop, threads and cluster of a block graph in one line."""
    parts = [
        f"grid {dims_text(block.grid_dims)}",
        f"loop {block.forloop_range}",
        f"threads {dims_text(block.block_dims)}",
    ]
    if block.cluster_dims != (1, 1, 1):
        parts.append(f"cluster {dims_text(block.cluster_dims)}")
    return " · ".join(parts)


def dims_text(dims: Shape) -> str:
    """Return launch dimensions without trailing ones: `16×8`."""
    last = max((axis for axis, count in enumerate(dims) if count > 1), default=0)
    return "×".join(str(count) for count in dims[: last + 1])


def shape_text(tensor: Tensor) -> str:
    """Return a shape as `16×64`, `≤22×64` where tiles may be shorter, `scalar` for rank 0."""
    ragged = tensor.ragged if isinstance(tensor, SharedTensor) else (None,) * len(tensor.shape)
    extents = [f"{RAGGED if split else ''}{extent}" for extent, split in zip(tensor.shape, ragged, strict=True)]
    return "×".join(extents) or "scalar"


def type_text(tensor: Tensor) -> str:
    """Return data type and shape: `float16 16×64`."""
    return f"{tensor.dtype} {shape_text(tensor)}"


def printable(text: str) -> str:
    """Return a text without control characters, each shown as U+FFFD: XML cannot hold them, and a label is one line."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)
