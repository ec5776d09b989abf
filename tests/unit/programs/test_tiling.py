"""Tile sizes: no tile is empty, and what does not fit shrinks until it does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.errors import MemoryLimitError
from workbench.programs.tiling import (
    MULTIPROCESSORS,
    SHARED_MEMORY_LIMIT,
    Tiles,
    even_parts,
    fits,
    fitted,
    shared_bytes_at_most,
    weight_layout,
)
from workbench.ugraph.builder import KernelBuilder
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.rule_blocks import parts


@given(st.integers(1, 3000), st.integers(1, 200))
def test_parts_are_short_enough_and_none_is_empty(extent: int, tile: int) -> None:
    count = parts(extent, tile)
    length = -(-extent // count)
    assert length <= tile
    assert (count - 1) * length < extent


@given(st.integers(1, 3000), st.integers(1, 200))
def test_even_parts_divide(extent: int, tile: int) -> None:
    count = even_parts(extent, tile)
    assert extent % count == 0
    assert extent // count <= tile
    assert not any(extent % fewer == 0 and extent // fewer <= tile for fewer in range(1, count))


@pytest.mark.parametrize(("extent", "tile", "count"), [(4096, 64, 64), (100, 64, 2), (9, 3, 3), (10, 3, 4), (5, 8, 1)])
def test_parts_by_hand(extent: int, tile: int, count: int) -> None:
    assert parts(extent, tile) == count


def product(tiles: Tiles, *, rows: int = 16, inner: int = 4096) -> KernelGraph:
    kernel = KernelBuilder("product")
    x, w = kernel.input("X", (rows, inner)), kernel.input("W", (inner, 1024))
    block = kernel.block(x, w, grid=(parts(1024, tiles.columns),), loop=parts(inner, tiles.depth))
    a, b = block.load(x, fmap=1), block.load(w, imap=(1,), fmap=0)
    block.save(block.accumulate(a @ b), omap=(1,))
    kernel.output(*block.finish())
    return kernel.build()


def test_shared_bytes_by_hand() -> None:
    (node,) = product(Tiles(columns=64, depth=128)).graph_defined
    loads = 2 * (16 * 128 * 2 + 128 * 64 * 2)  # twice: double buffered
    results = 16 * 64 * 2 + 16 * 64 * 4  # the product in float16, its accumulator in float32
    assert shared_bytes_at_most(node.block) == loads + results
    (whole,) = product(Tiles(columns=64, depth=4096)).graph_defined
    assert shared_bytes_at_most(whole.block) == 16 * 4096 * 2 + 4096 * 64 * 2 + results  # no loop: loaded once


def test_tiles_shrink_until_they_fit() -> None:
    graph = fitted(product, Tiles(columns=1024, depth=4096))
    assert fits(graph)
    assert not fits(product(Tiles(columns=1024, depth=4096)))
    (node,) = graph.graph_defined
    assert node.block.forloop_range > 1


def test_what_cannot_fit_is_refused() -> None:
    with pytest.raises(MemoryLimitError, match=f"{SHARED_MEMORY_LIMIT:,} B shared memory"):
        fitted(lambda tiles: product(tiles, rows=100_000), Tiles())


def test_shrinking_ends_at_one_element() -> None:
    tiles: Tiles | None = Tiles(3, 2, 5)
    seen = []
    while tiles is not None:
        seen.append(tiles)
        tiles = tiles.smaller()
    assert seen[-1] == Tiles(1, 1, 1)
    assert len(set(seen)) == len(seen)


@pytest.mark.parametrize(
    ("out", "hidden", "weights", "blocks", "columns", "cluster"),
    [
        (4096, 4096, 1, 128, 32, 1),  # 64 columns would leave half of the multiprocessors idle
        (6144, 4096, 1, 96, 64, 1),
        (16384, 7168, 1, 256, 64, 1),
        (5120, 5120, 2, 160, 32, 1),
        (1024, 4096, 1, 32, 32, 4),  # few columns: blocks share the reduced axis
        (33, 100, 1, 2, 32, 1),
    ],
)
def test_layouts_of_weights_by_hand(
    out: int, hidden: int, weights: int, blocks: int, columns: int, cluster: int
) -> None:
    layout = weight_layout(16, hidden, out, weights)
    assert (parts(out, layout.tiles.columns), layout.tiles.columns, layout.cluster) == (blocks, columns, cluster)


@given(st.integers(1, 20_000), st.integers(1, 20_000), st.integers(1, 3))
def test_a_cluster_never_needs_more_multiprocessors_than_there_are(out: int, hidden: int, weights: int) -> None:
    layout = weight_layout(16, hidden, out, weights)
    blocks, loop = parts(out, layout.tiles.columns), parts(hidden, layout.tiles.depth)
    assert layout.cluster == 1 or blocks * layout.cluster <= MULTIPROCESSORS
    assert layout.cluster <= loop
    assert layout.threads in (128, 256)
    assert layout.tiles.columns * 2 % 64 == 0  # whole sectors of 64 bytes


def test_many_rows_make_tiles_shallower() -> None:
    assert weight_layout(8, 4096, 4096, 2).tiles.depth == 256
    assert weight_layout(64, 4096, 4096, 2).tiles.depth == 128
