"""Shared memory of plans: tiles that live together do not overlap, stages give way, refusals name the tiles."""

from __future__ import annotations

from itertools import combinations

import pytest

from tests.unit.codegen.cuda.planned import attention, block_graph, looped_product, planned
from workbench.codegen.cuda.plan import KernelPlan
from workbench.codegen.cuda.schedule import Schedule
from workbench.codegen.cuda.shared_memory import timeline
from workbench.codegen.cuda.tile_storage import SharedTile
from workbench.core.dtypes import DType
from workbench.errors import EmitError
from workbench.ugraph.builder import BlockBuilder
from workbench.ugraph.kernel_graph import KernelGraph


def two_products(block: BlockBuilder) -> None:
    """silu(X Y) Z with no loop: the operand of the second product is made in shared memory or handed over."""
    block.save(block.apply("silu", block.load(0) @ block.load(1)) @ block.load(2))


GRAPHS: dict[str, KernelGraph] = {
    "looped": block_graph(looped_product, (16, 256), (256, 64), loop=4),
    "attention": block_graph(attention, (32, 64), (64, 128), (128, 64), loop=2),
    "two products": block_graph(two_products, (16, 64), (64, 80), (80, 24)),
    "float32": block_graph(attention, (20, 24), (24, 70), (70, 24), dtype=DType.FLOAT32, loop=3),
}


def lifetimes(plan: KernelPlan) -> dict[SharedTile, range]:
    """Positions at which each tile is touched, staged inputs from the start on."""
    found: dict[SharedTile, list[int]] = {}
    for position, access in timeline(plan):
        for tile in (*access.reads, *access.writes):
            found.setdefault(tile, []).append(position)
    starts = {tile: 0 if tile in plan.staged.values() or tile.needs_zero else min(found[tile]) for tile in found}
    return {tile: range(starts[tile], max(places) + 1) for tile, places in found.items()}


@pytest.mark.parametrize("name", GRAPHS)
def test_tiles_that_live_together_do_not_overlap(name: str) -> None:
    plan = planned(GRAPHS[name])
    lives = lifetimes(plan)
    assert lives
    for one, other in combinations(lives, 2):
        assert one.offset is not None
        assert other.offset is not None
        meets = lives[one].start < lives[other].stop and lives[other].start < lives[one].stop
        overlaps = one.offset < other.offset + other.nbytes and other.offset < one.offset + one.nbytes
        assert not (meets and overlaps), (one.variable, other.variable)
    assert plan.shared_bytes == max(tile.offset + tile.nbytes for tile in lives if tile.offset is not None)
    assert all(tile.offset is not None and tile.offset % 128 == 0 for tile in lives)


def test_memory_is_used_again_where_lives_do_not_meet() -> None:
    plan = planned(GRAPHS["looped"])
    assert plan.shared_bytes < sum(tile.nbytes for tile in lifetimes(plan))


def test_stages_give_way_to_the_limit() -> None:
    graph = block_graph(looped_product, (16, 4096), (4096, 256), loop=32)
    usual = planned(graph)
    less = planned(graph, schedule=Schedule(shared_limit=usual.shared_bytes - 1))
    assert less.stages < usual.stages
    assert less.shared_bytes < usual.shared_bytes


def test_a_ring_is_no_longer_than_the_loop() -> None:
    assert planned(block_graph(looped_product, (16, 64), (64, 32), loop=2)).stages == 2
    assert planned(block_graph(looped_product, (16, 64), (64, 32))).stages == 1


def test_too_much_names_the_tiles_and_the_cure() -> None:
    with pytest.raises(EmitError, match="x_tile") as caught:
        planned(GRAPHS["looped"], schedule=Schedule(shared_limit=4096))
    assert "smaller tiles" in caught.value.cure
    with pytest.raises(EmitError, match="4,096 B are allowed"):
        planned(GRAPHS["looped"], schedule=Schedule(shared_limit=4096, stages=4))


def rows_by_columns(block: BlockBuilder) -> None:
    """X Y, the columns of Y over the grid."""
    x, y = block.load(0, fmap=1), block.load(1, imap=(1,), fmap=0)
    block.save(block.accumulate(x @ y), omap=(1,))


@pytest.mark.parametrize(
    ("blocks", "stages"),
    [
        (132, 5),  # 16 KB of Y a tile: 62 KB on their way are four tiles, and one is in use
        (264, 3),  # two blocks share a multiprocessor
        (33, 9),  # the few there are take more each
    ],
)
def test_stages_keep_enough_bytes_on_their_way(blocks: int, stages: int) -> None:
    graph = block_graph(rows_by_columns, (16, 8192), (8192, 32 * blocks), grid=(blocks,), loop=32)
    assert planned(graph).stages == stages


def test_tiles_that_all_blocks_read_do_not_count() -> None:
    narrow = block_graph(rows_by_columns, (16, 8192), (8192, 32 * 132), grid=(132,), loop=32)
    tall = block_graph(rows_by_columns, (48, 8192), (8192, 32 * 132), grid=(132,), loop=32)
    assert planned(narrow).stages == planned(tall).stages
