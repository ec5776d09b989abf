from __future__ import annotations

from workbench.optimize.lifetimes import block_lifetimes
from workbench.optimize.order import order_operators
from workbench.optimize.tile_views import lies_in
from workbench.ugraph import value as op
from workbench.ugraph.block_graph import BlockGraph
from workbench.ugraph.builder import KernelBuilder


def viewed() -> BlockGraph:
    k = KernelBuilder()
    X = k.input("X", (4, 8))
    b = k.block(X)
    e = op.exp(b.load(X))
    turned = op.transpose(e)
    flat = op.reshape(turned, (4, 8))
    b.save(op.concat(op.sqrt(flat), flat))
    k.output(*b.finish())
    return k.build().graph_defined[0].block


def test_views_lie_where_their_operand_lies_and_copies_do_not() -> None:
    block = viewed()
    bases = lies_in(block)
    e, turned, flat, root, joined = (node.results[0].name for node in block.nodes[1:6])
    assert bases[e] == bases[turned] == bases[flat] == e
    assert bases[root] == root
    assert bases[joined] == joined


def test_views_take_no_memory_and_no_barrier() -> None:
    block = viewed()
    assert order_operators(block).barriers == 4  # load | exp | sqrt | concat | save
    found = {tile.name: tile for tile in block_lifetimes(block)}
    e, root = block.nodes[1].results[0].name, block.nodes[4].results[0].name
    assert len(found) == 4
    assert found[e].last == found[root].last  # concat reads the view until then
