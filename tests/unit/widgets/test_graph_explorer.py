"""The explorer of graphs by its traits: levels, tiles against the interpreter's cuts, code, and the difference of two graphs."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import numpy as np
import pytest

import workbench as wb
from workbench.device.nvrtc import load_nvrtc
from workbench.errors import KernelCompileError, UsageError
from workbench.interpret.tiling import cut_tiles
from workbench.ugraph.nodes import InputIterator
from workbench.views.tile_maps import tile_views
from workbench.widgets import graph_explorer
from workbench.widgets.graph_explorer import GraphExplorer

GRAPH = wb.programs.known_good("gqa")[0]


@pytest.fixture
def explorer() -> Iterator[GraphExplorer]:
    """An explorer of a graph with two block graphs."""
    made = GraphExplorer(GRAPH)
    yield made
    made.close()


def test_levels_open_in_place(explorer: GraphExplorer) -> None:
    assert explorer.opened == []
    closed = len(explorer.view().nodes)
    explorer.do_toggle_open("n0")
    assert explorer.opened == ["n0"]
    assert len(explorer.view().nodes) > closed
    explorer.do_open_all()
    assert explorer.view().hidden == 0
    explorer.do_close_all()
    assert len(explorer.view().nodes) == closed
    assert f"{closed} nodes drawn" in explorer.status
    with pytest.raises(UsageError, match="no graph 'n9'"):
        explorer.unfold("n9")


def test_every_node_of_the_picture_can_be_chosen(explorer: GraphExplorer) -> None:
    explorer.do_open_all()
    names = {node.id for node in explorer.view().nodes}
    assert set(re.findall(r'data-link="([^" ]+)" tabindex', explorer.panels["picture"])) == names
    explorer.selected = "n1.2"
    assert explorer.kernel == "n1"
    assert "sum_to_columns" in explorer.panels["node"]


@pytest.mark.parametrize("program", ["rms_norm_linear", "gqa", "lora"])
def test_tiles_are_those_that_the_interpreter_cuts(program: str) -> None:
    graph = wb.programs.known_good(program)[0]
    rng = np.random.default_rng(3)
    for launch in graph.graph_defined:
        block = launch.block
        for _ in range(4):
            cell = tuple(int(rng.integers(count)) for count in block.grid_dims)
            step = int(rng.integers(block.forloop_range))
            for tile in tile_views(launch, cell, step):
                node = block.nodes[tile.node]
                if not isinstance(node, InputIterator):
                    continue
                numbers = np.arange(np.prod(tile.shape)).reshape(tile.shape)
                cut = cut_tiles(numbers, node.imap, node.fmap, block.grid_dims, block.forloop_range)
                at = tuple(place if cut.shape[axis] > 1 else 0 for axis, place in enumerate((*cell, step)))
                expected = cut[at]
                found = numbers[tuple(slice(*ends) for ends in tile.ranges)]
                np.testing.assert_array_equal(found, expected)


def test_written_tiles_cover_the_output_once() -> None:
    launch = wb.programs.known_good("rms_norm_linear")[0].graph_defined[0]
    seen = np.zeros(launch.results[0].shape, int)
    for x in range(launch.block.grid_dims[0]):
        for tile in tile_views(launch, (x, 0, 0), 0):
            if tile.role == "written":
                seen[tuple(slice(*ends) for ends in tile.ranges)] += 1
    assert (seen == 1).all()


def test_sliders_move_the_tiles(explorer: GraphExplorer) -> None:
    before = list(explorer.tiles)
    explorer.iteration = 2
    assert explorer.tiles != before
    assert "read: K[0:1, 0:64, 128:192]" in explorer.tiles
    explorer.block_y = 10**6  # beyond the grid: the last block
    assert explorer.block_y == GRAPH.graph_defined[0].block.grid_dims[1] - 1
    explorer.kernel = "n1"
    assert (explorer.iteration, explorer.block_x) == (0, 0)
    assert any(line.startswith("read: split_products") for line in explorer.tiles)
    explorer.block_y = 0
    for _ in range(3):
        explorer.do_next_block()
    assert (explorer.block_x, explorer.block_y) == (1, 1)  # the grid is 2 x 256, x first


def test_code_belongs_to_nodes(explorer: GraphExplorer) -> None:
    lines = re.findall(
        r'<div data-link="([^"]*)"><span class="wb-line-number">\d+</span>(.*?)</div>', explorer.panels["code"]
    )
    of_exp = [text for links, text in lines if "n0.4" in links.split()]
    assert of_exp
    assert all("t1" in text for text in of_exp)


def test_instructions_of_the_node_that_is_chosen(explorer: GraphExplorer) -> None:
    try:
        load_nvrtc()
    except KernelCompileError as error:
        pytest.skip(str(error).partition("(")[0])
    start = time.thread_time()
    explorer.do_toggle_ptx()
    assert time.thread_time() - start < 0.5  # compiling is left to a thread
    assert explorer.wait(60)
    everything = explorer.instructions
    assert everything > 100
    assert f"{everything:,} of {everything:,} instructions" in explorer.panels["ptx"]
    assert "showing 400 of" in explorer.panels["ptx"]
    explorer.selected = "n0.4"  # exp
    assert 0 < explorer.instructions < everything
    assert "ex2.approx" in explorer.panels["ptx"]
    assert explorer.panels["ptx"].count('data-link="') == explorer.instructions
    number = int(re.findall(r'title="line of CUDA">(\d+)<', explorer.panels["ptx"])[0])
    explorer.selected = f"line:{number}"
    assert set(re.findall(r'title="line of CUDA">(\d+)<', explorer.panels["ptx"])) == {str(number)}
    assert f'line:{number}"' in explorer.panels["code"]
    explorer.kernel = "n1"
    assert explorer.wait(60)
    assert 0 < explorer.instructions != everything
    explorer.ptx = False
    assert explorer.panels["ptx"] == ""
    assert "line:" not in explorer.panels["code"]


def test_without_a_compiler_one_line_says_so(explorer: GraphExplorer, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*given: object, **more: object) -> str:
        raise KernelCompileError("no NVRTC here; install the extra: pip install 'mugraph-workbench[cuda]'\nmore")

    monkeypatch.setattr(graph_explorer, "compile_ptx", refuses)
    explorer.ptx = True
    assert explorer.wait(10)
    assert explorer.panels["ptx"] == (
        "<p>no PTX: no NVRTC here; install the extra: pip install &#x27;mugraph-workbench[cuda]&#x27;</p>"
    )
    assert explorer.instructions == 0


def test_graphs_to_compare_with() -> None:
    explorer = GraphExplorer(GRAPH)
    assert list(explorer.graphs_to_compare) == ["the program as written", "known good 1"]
    assert explorer.panels["diff"] == ""
    explorer.set_state({"compare": "known good 1"})
    assert "different structures" in explorer.panels["diff"]
    explorer.compare = "nonsense"
    assert "no graph &#x27;nonsense&#x27;" in explorer.panels["diff"]
    small = GraphExplorer(wb.programs.known_good("gqa", context=1024)[0])
    assert not small.graphs_to_compare  # those that are known have other sizes


def test_the_other_graph() -> None:
    first, second = wb.programs.known_good("rms_norm_linear")[:1][0], wb.programs.get("rms_norm_linear")
    explorer = GraphExplorer(first, other=second)
    assert "different structures" in explorer.panels["diff"]
    same = GraphExplorer(first, other=first)
    assert "the same graph; 0 of" in same.panels["diff"]
    assert GraphExplorer(second).panels["tiles"].count("no block") == 1
    with pytest.raises(UsageError, match="what is explored is int"):
        GraphExplorer(3)
