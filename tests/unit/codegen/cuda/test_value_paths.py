"""How values are reached: what is lazy, what is a leaf, which views keep the index, what exp cannot exceed."""

from __future__ import annotations

from tests.unit.codegen.cuda.planned import block_graph, lowered
from workbench.codegen.cuda.steps import is_stored_kind, leaves
from workbench.codegen.cuda.tile_values import Folded, Loaded, Mapped, TileValue, View, Viewed, walk_values
from workbench.codegen.cuda.value_paths import (
    has_plain_views,
    is_aligned,
    is_below_maximum,
    is_plain,
    lazy_values,
    peeled,
)
from workbench.ugraph.builder import BlockBuilder


def root_of(fill: object, *shapes: tuple[int, ...]) -> TileValue:
    return lowered(block_graph(fill, *shapes)).saved[0].operand  # type: ignore[arg-type]  # a function that fills a block


def test_leaves_are_what_steps_make_or_memory_holds() -> None:
    def fill(block: BlockBuilder) -> None:
        x = block.load(0)
        block.save(block.apply("exp", x) / block.apply("sum", x, axis=-1))

    root = root_of(fill, (4, 8))
    found = leaves((root,))
    assert {type(leaf) for leaf in found} == {Loaded, Folded}
    assert all(is_stored_kind(leaf) for leaf in found)
    assert all(isinstance(value, Mapped) for value in lazy_values((root,)))
    order = walk_values((root,))
    assert order[-1] is root


def test_transposes_move_the_index_and_unit_axes_do_not() -> None:
    def transposed(block: BlockBuilder) -> None:
        block.save(block.apply("transpose", block.load(0)))

    def unit(block: BlockBuilder) -> None:
        block.save(block.apply("reshape", block.load(0), shape=(4, 1, 8)))

    def folded(block: BlockBuilder) -> None:
        block.save(block.apply("reshape", block.load(0), shape=(8, 4)))

    views = [root_of(fill, (4, 8)) for fill in (transposed, unit, folded)]
    assert all(isinstance(view, Viewed) for view in views)
    assert [is_plain(view) for view in views if isinstance(view, Viewed)] == [False, True, False]
    assert [has_plain_views((view,)) for view in views] == [False, True, False]
    assert not is_aligned(views[0], leaves((views[0],))[0])


def test_peeled_counts_transposes() -> None:
    def fill(block: BlockBuilder) -> None:
        once = block.apply("transpose", block.load(0))
        block.save(block.apply("transpose", block.apply("transpose", once)))

    base, is_transposed = peeled(root_of(fill, (4, 8)))
    assert isinstance(base, Loaded)
    assert is_transposed


def test_exponentials_below_a_maximum() -> None:
    def below(block: BlockBuilder) -> None:
        x = block.load(0)
        block.save(block.apply("exp", x - block.apply("max", x, axis=-1)))

    def above(block: BlockBuilder) -> None:
        block.save(block.apply("exp", block.load(0) - 1))

    for fill, expected in ((below, True), (above, False)):
        root = root_of(fill, (4, 8))
        assert isinstance(root, Mapped)
        assert is_below_maximum(root) is expected


def test_views_by_name() -> None:
    assert {view.value for view in View} == {"transpose", "reshape", "broadcast", "piece"}
