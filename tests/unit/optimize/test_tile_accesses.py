from __future__ import annotations

from workbench import programs
from workbench.core.layouts import SharedLayout, Spread, TileAccess
from workbench.optimize.layouts import choose_layouts
from workbench.optimize.thread_graphs import build_thread_graphs
from workbench.optimize.tile_accesses import tile_accesses
from workbench.ugraph import value as op
from workbench.ugraph.block_graph import BlockGraph
from workbench.ugraph.builder import KernelBuilder

PLAIN = SharedLayout()


def product(depth: int = 64, *, turned: bool = False, scaled: bool = False) -> BlockGraph:
    """X (16, depth) @ W (depth, 64); W lies column by column where turned."""
    k = KernelBuilder()
    strides = (1, depth) if turned else None
    X, W = k.input("X", (16, depth), "float16"), k.input("W", (depth, 64), "float16", strides=strides)
    b = k.block(X, W)
    x = b.load(X)
    b.save(op.exp(x) @ b.load(W) if scaled else x @ b.load(W))
    k.output(*b.finish())
    return k.build().graph_defined[0].block


def test_plain_rows_of_128_bytes_take_eight_passes_and_narrow_ones_fewer() -> None:
    """Eight rows 128 B apart start in one bank; 64 B apart, in two; 16 B apart they fill all of them."""
    names = [tile for tile in product().tiles]
    plain = dict.fromkeys(names, PLAIN)
    assert tile_accesses(product(), plain) == {"x": TileAccess(8), "w": TileAccess(8)}
    assert tile_accesses(product(32), plain) == {"x": TileAccess(4), "w": TileAccess(8)}
    assert tile_accesses(product(8), plain) == {"w": TileAccess(8)}


def test_swizzled_and_padded_rows_take_one() -> None:
    for spread in (Spread.SWIZZLED, Spread.PADDED):
        assert tile_accesses(product(), dict.fromkeys(("x", "w"), SharedLayout(-1, spread))) == {}
    assert tile_accesses(product(), {}) == {}


def test_rows_across_device_memory_are_told() -> None:
    found = tile_accesses(product(turned=True), {"w": SharedLayout(-1, Spread.SWIZZLED)})
    assert found == {"w": TileAccess(1, is_across=True)}
    assert tile_accesses(product(turned=True), {"w": SharedLayout(-2, Spread.SWIZZLED)}) == {}


def test_a_left_factor_worked_out_on_fragments_is_read_as_its_input_lies() -> None:
    block = product(scaled=True)
    (factor,) = (node.results[0].name for node in block.nodes if getattr(node, "op", "") == "exp")
    swizzled = SharedLayout(-1, Spread.SWIZZLED)
    assert tile_accesses(block, {"x": PLAIN, factor: swizzled, "w": swizzled}) == {factor: TileAccess(8)}
    assert tile_accesses(block, {"x": swizzled, factor: PLAIN, "w": swizzled}) == {}


def test_weights_handed_over_in_fragments_are_never_read_from_memory() -> None:
    graph = next(g for g in programs.known_good("gqa") if len(g.nodes) == 1)
    for made in (graph, build_thread_graphs(graph).graph):
        block = made.graph_defined[0].block
        assert tile_accesses(block, dict.fromkeys(block.tiles, PLAIN)) == {
            name: TileAccess(8) for name in ("q", "k", "v")
        }


def test_what_the_optimizer_chooses_is_free_of_conflicts() -> None:
    """Of every known good graph, but what is read across memory anyhow."""
    for name in programs.names():
        for graph in programs.known_good(name):
            choice = choose_layouts(graph)
            for launch in graph.graph_defined:
                found = tile_accesses(launch.block, choice.of_block(launch.results[0].name))
                assert not found, (name, found)
