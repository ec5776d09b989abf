"""How large the tiles of a hand-written µGraph are: simple rules from sizes, never a search (that is the optimizer's).

Invariant: a graph that leaves here fits the shared memory of a block whatever plan is made for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import prod

from workbench.errors import MemoryLimitError
from workbench.ugraph.block_graph import BlockGraph
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import InputIterator, OpNode
from workbench.ugraph.rule_blocks import parts
from workbench.units import Bytes

SHARED_MEMORY_LIMIT = Bytes(227 * 1024)
"""Shared memory one block may use on H100 and H200 (CUDA C++ Programming Guide, compute capability 9.0)."""

FRAGMENT = 16
"""Rows and columns that the tensor cores take at a time; smaller tiles are padded to it."""

MULTIPROCESSORS = 132
"""Streaming multiprocessors of an H100 or H200 SXM; a grid of fewer blocks leaves some idle."""


@dataclass(frozen=True, slots=True)
class Tiles:
    """The largest tile extents a block may have.

    Attributes: rows and columns of the output, depth: elements of the looped axis per iteration.
    """

    rows: int = 64
    columns: int = 64
    depth: int = 128

    def smaller(self) -> Tiles | None:
        """Return these with the largest extent halved (the depth first when tied), None when all are 1."""
        for name in ("depth", "columns", "rows"):
            extent = getattr(self, name)
            if extent > 1 and extent == max(self.rows, self.columns, self.depth):
                return replace(self, **{name: -(-extent // 2)})
        return None


@dataclass(frozen=True, slots=True)
class Layout:
    """How a product with a weight matrix is laid out. tiles; cluster: blocks that share the reduced axis; threads a block."""

    tiles: Tiles
    cluster: int
    threads: int


def weight_layout(batch: int, hidden: int, out: int, weights: int = 1) -> Layout:
    """Return a layout for (batch x hidden) by `weights` matrices (hidden x out), which are read once and bound the time.

    Columns are whole sectors of 64 bytes, as wide as still gives most multiprocessors a block; where even narrow ones do
    not, a cluster shares the reduced axis. Depth: at most 48 KB a tile (measured on an H200, docs/kernels.md).
    """
    enough = MULTIPROCESSORS * 7 // 10
    columns = next((width for width in (64, 32) if -(-out // width) >= enough), 32)
    rows = Tiles().rows
    depth = 256 if columns * weights + min(batch, rows) <= 96 or hidden <= 256 else 128
    blocks, loop = parts(out, columns), parts(hidden, depth)
    cluster = 1
    while blocks * cluster * 2 <= MULTIPROCESSORS and loop >= 8 * cluster and cluster < 4:
        cluster *= 2
    return Layout(Tiles(rows, columns, depth), cluster, 256 if depth == 256 and loop > 1 else 128)


def even_parts(extent: int, tile: int) -> int:
    """Return the smallest number of equal parts of at most `tile` elements each."""
    return next(extent // length for length in range(min(tile, extent), 0, -1) if extent % length == 0)


def shared_bytes_at_most(block: BlockGraph) -> Bytes:
    """Return an upper bound of the shared memory that any plan of a block needs, in bytes.

    Every tile counts, none shares its place with another; tiles loaded in a loop count twice (double buffering).
    """
    total = 0
    for node in block.nodes:
        twice = isinstance(node, InputIterator) and node.fmap is not None and block.forloop_range > 1
        total += sum(tensor.nbytes for tensor in node.results) * (2 if twice else 1)
    return Bytes(total)


def factor_tile_bytes(block: BlockGraph) -> Bytes:
    """Return the shared memory of loaded tiles that a product reads as they are, in bytes: every kernel of a block needs it.

    Tensor cores read whole fragments, so rows and columns count in sixteens; a loop loads the next tile while it works on
    one (a looped axis that is no longer than a fragment need not be looped). What is computed may stay in registers, and
    what only other operators read may come straight from device memory.
    """
    read = {name for node in block.nodes if isinstance(node, OpNode) and node.op == "matmul" for name in node.operands}
    total = 0
    for node in block.iterators:
        if node.result.name in read:
            *outer, rows, columns = node.result.shape
            whole = block.operands[node.operand].shape[node.fmap] if node.fmap is not None else 0
            stages = 2 if block.forloop_range > 1 and whole > FRAGMENT else 1
            padded = -(-rows // FRAGMENT) * -(-columns // FRAGMENT) * FRAGMENT**2
            total += prod(outer) * padded * node.result.dtype.nbytes * stages
    return Bytes(total)


def fits(graph: KernelGraph) -> bool:
    """Return True when every block of the graph fits shared memory."""
    return all(shared_bytes_at_most(node.block) <= SHARED_MEMORY_LIMIT for node in graph.graph_defined)


def fitted(build: Callable[[Tiles], KernelGraph], start: Tiles) -> KernelGraph:
    """Return the first graph that fits, its tiles shrinking from `start`. Raises: MemoryLimitError when none does."""
    for tiles in _shrinking(start):
        graph = build(tiles)
        if fits(graph):
            return graph
    least = max(shared_bytes_at_most(node.block) for node in graph.graph_defined)
    raise MemoryLimitError(
        f"even with tiles of one element a block needs {least:,} B of {SHARED_MEMORY_LIMIT:,} B shared memory",
        graph.name,
        "choose smaller sizes; an axis that no tile may split (rank, head_dim) is too long",
    )


def _shrinking(start: Tiles) -> Iterator[Tiles]:
    tiles: Tiles | None = start
    while tiles is not None:
        yield tiles
        tiles = tiles.smaller()
