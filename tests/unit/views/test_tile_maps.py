"""Tiles against slices worked out by hand, and against what the interpreter computes from them."""

from __future__ import annotations

import re
from itertools import product

import numpy as np
import pytest

import workbench as wb
from tests.unit.views.example_graphs import ragged
from workbench.errors import UsageError
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.views.tile_maps import tile_views, tiles_html


def cut_twice() -> KernelGraph:
    """exp of 5 x 22, columns cut over 2 blocks and then over 3 iterations, rows over 2 blocks; summed over columns."""
    kernel = wb.KernelBuilder("cut_twice")
    x = kernel.input("X", (5, 22))
    block = kernel.block(x, grid=(2, 2), loop=3)
    tile = block.load(x, imap=(1, 0), fmap=1)
    block.save(block.accumulate(wb.exp(tile), "sum_dim"), omap=(1, 0))
    kernel.output(*block.finish())
    return kernel.build()


def test_ragged_tiles_end_where_the_tensor_ends() -> None:
    launch = ragged().graph_defined[0]  # 22 columns over 4 blocks: tiles of 6
    found = [tile_views(launch, (x, 0, 0), 0)[0] for x in range(4)]
    assert [tile.describe() for tile in found] == ["X[0:3, 0:6]", "X[0:3, 6:12]", "X[0:3, 12:18]", "X[0:3, 18:22]"]
    assert {tile.counts for tile in found} == {(1, 4)}
    assert not any(tile.is_empty for tile in found)


def test_a_dimension_cut_by_the_grid_and_by_the_loop() -> None:
    launch = cut_twice().graph_defined[0]  # columns: halves of 11, then parts of 4, the last of 3
    for (x, y, step), expected in {
        (0, 0, 0): "X[0:3, 0:4]",
        (0, 1, 2): "X[3:5, 8:11]",
        (1, 0, 0): "X[0:3, 11:15]",
        (1, 1, 2): "X[3:5, 19:22]",
    }.items():
        read, written = tile_views(launch, (x, y, 0), step)
        assert read.describe() == expected
        assert written.ranges[0] == ((0, 3), (3, 5))[y]
        assert written.ranges[1] == (x, x + 1)
        assert (read.role, written.role) == ("read", "written")


@pytest.mark.parametrize("graph", [ragged(), cut_twice()], ids=lambda graph: graph.name)
def test_what_blocks_do_with_their_tiles_is_what_the_interpreter_computes(graph: KernelGraph) -> None:
    launch = graph.graph_defined[0]
    block = launch.block
    x = np.random.default_rng(1).standard_normal(graph.inputs[0].shape)
    out = np.full(launch.results[0].shape, np.nan)
    for cell in product(*map(range, block.grid_dims)):
        total = None
        for step in range(block.forloop_range):
            read, written = tile_views(launch, cell, step)
            part = np.exp(x[tuple(slice(*ends) for ends in read.ranges)])
            part = part.sum(axis=-1, keepdims=True) if graph.name == "cut_twice" else part
            total = part if total is None else total + part
        place = tuple(slice(*ends) for ends in written.ranges)
        assert np.isnan(out[place]).all(), "two blocks write the same element"
        out[place] = total
    np.testing.assert_allclose(out, wb.evaluate(graph, [x])[0], rtol=1e-12)


def test_the_picture_has_the_proportions_of_the_tensor() -> None:
    tiles = tile_views(ragged().graph_defined[0], (3, 0, 0), 0)
    html = tiles_html(tiles, "n0")
    whole, part = re.findall(
        r'<rect class="([^"]*)" x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)"', html
    )[:2]
    assert whole[0] == "wb-box"
    assert part[0] == "wb-bar-good"
    left, width = float(whole[1]), float(whole[3])
    assert float(part[1]) == pytest.approx(left + width * 18 / 22, abs=0.06)
    assert float(part[3]) == pytest.approx(width * 4 / 22, abs=0.06)
    assert html.count("<svg") == len(tiles)
    assert 'data-link="n0.0"' in html


def test_long_slices_are_written_out() -> None:
    launch = wb.programs.known_good("qk_norm_attention")[0].graph_defined[0]
    html = tiles_html(tile_views(launch, (1, 3, 15), 3), "n0")
    assert "…" not in html
    for size in map(float, re.findall(r'<svg[^>]* width="([\d.]+)"', html)):
        assert size < 300
    assert "split_products[1:2, 192:256, 960:1024]" in "".join(re.sub(r",</text><text[^>]*>", ", ", html))


@pytest.mark.parametrize(
    ("cell", "step", "told"), [((4, 0, 0), 0, "block 4 along x: there are 4"), ((0, 0, 0), 1, "iteration 1")]
)
def test_there_is_no_such_tile(cell: tuple[int, int, int], step: int, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        tile_views(ragged().graph_defined[0], cell, step)
