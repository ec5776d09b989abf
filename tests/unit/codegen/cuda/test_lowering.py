"""Block graphs as tile values: what is kept over the loop, what is only a view, what is not there at all."""

from __future__ import annotations

from fractions import Fraction

import pytest

from tests.unit.codegen.cuda.planned import attention, block_graph, looped_product, lowered
from workbench.codegen.cuda.lowering import LoweredBlock
from workbench.codegen.cuda.tile_values import (
    Accumulated,
    Constant,
    Contracted,
    Counted,
    Folded,
    Folding,
    Keeping,
    Loaded,
    Mapped,
    Stored,
    TileValue,
    View,
    Viewed,
    walk_values,
)
from workbench.core.dtypes import DType
from workbench.errors import EmitError
from workbench.ugraph.builder import BlockBuilder
from workbench.ugraph.inference import Place


def values_of(block: LoweredBlock) -> list[TileValue]:
    return walk_values(tuple(saved.operand for saved in block.saved))


def kinds(block: LoweredBlock, kind: type[TileValue]) -> list[TileValue]:
    return [value for value in values_of(block) if isinstance(value, kind)]


def test_a_loop_leaves_accumulators() -> None:
    block = lowered(block_graph(looped_product, (4, 32), (32, 8), loop=2))
    assert block.iterations == 2
    kept = kinds(block, Accumulated)
    assert [value.kind for value in kept if isinstance(value, Accumulated)] == [Keeping.SUM, Keeping.SUM]
    assert all(value.place is Place.AFTER for value in kept)
    assert all(value.place is Place.LOOP for value in kinds(block, Contracted))


def test_a_loop_of_one_leaves_none() -> None:
    block = lowered(block_graph(looped_product, (4, 32), (32, 8)))
    assert kinds(block, Accumulated) == []
    assert all(isinstance(value, Loaded) and value.fmap is None for value in kinds(block, Loaded))


def test_a_mean_is_a_sum_divided_by_the_elements_of_all_iterations() -> None:
    def fill(block: BlockBuilder) -> None:
        block.save(block.accumulate(block.load(0, fmap=1), "mean"))

    (scaled,) = kinds(lowered(block_graph(fill, (4, 32), loop=2)), Mapped)
    assert isinstance(scaled, Mapped)
    assert (scaled.op, dict(scaled.attributes)) == ("scale", {"factor": Fraction(1, 32)})


def test_a_ragged_mean_counts_its_elements() -> None:
    def fill(block: BlockBuilder) -> None:
        block.save(block.accumulate(block.load(0, imap=(1,), fmap=1), "mean"), omap=(1,))

    (counted,) = kinds(lowered(block_graph(fill, (4, 33), grid=(2,), loop=3)), Counted)
    assert isinstance(counted, Counted)
    assert counted.split.extent == 33


def test_an_invariant_sum_over_the_loop_is_a_multiple() -> None:
    def fill(block: BlockBuilder) -> None:
        x = block.load(1)
        block.save(
            block.accumulate(block.load(0, fmap=1), "sum_dim") + block.apply("sum", block.accumulate(x), axis=-1)
        )

    block = lowered(block_graph(fill, (4, 32), (4, 8), loop=4))
    scaled = [dict(v.attributes) for v in kinds(block, Mapped) if isinstance(v, Mapped) and v.op == "scale"]
    assert scaled == [{"factor": Fraction(4)}]


def test_what_nobody_saves_is_not_there() -> None:
    def fill(block: BlockBuilder) -> None:
        x = block.load(0)
        block.apply("exp", x)
        block.save(block.apply("relu", x))

    assert [v.op for v in kinds(lowered(block_graph(fill, (4, 8))), Mapped) if isinstance(v, Mapped)] == ["relu"]


def test_movement_is_views() -> None:
    def fill(block: BlockBuilder) -> None:
        tile = block.apply("transpose", block.load(0))
        block.save(block.apply("reshape", tile, shape=(32,)))

    views = [v.view for v in kinds(lowered(block_graph(fill, (4, 8))), Viewed) if isinstance(v, Viewed)]
    assert views == [View.TRANSPOSE, View.RESHAPE]


def test_constants_are_exact() -> None:
    def fill(block: BlockBuilder) -> None:
        block.save(block.load(0) * Fraction(1, 3))

    block = lowered(block_graph(fill, (4, 8)))
    exact = [v.value for v in kinds(block, Constant) if isinstance(v, Constant)]
    exact += [dict(v.attributes).get("factor") for v in kinds(block, Mapped) if isinstance(v, Mapped)]  # type: ignore[misc]
    assert Fraction(1, 3) in exact


def test_softmax_subtracts_the_largest() -> None:
    def fill(block: BlockBuilder) -> None:
        block.save(block.apply("softmax", block.load(0), axis=-1))

    folds = [v.folding for v in kinds(lowered(block_graph(fill, (4, 8))), Folded) if isinstance(v, Folded)]
    assert folds == [Folding.MAX, Folding.SUM]


def test_names_are_identifiers_and_single() -> None:
    names = [value.name for value in values_of(lowered(block_graph(attention, (8, 16), (16, 32), (32, 16), loop=2)))]
    assert len(names) == len(set(names))
    assert all(name.isidentifier() for name in names)


def test_values_come_after_what_they_read() -> None:
    order = values_of(lowered(block_graph(attention, (8, 16), (16, 32), (32, 16), loop=2)))
    place = {value: number for number, value in enumerate(order)}
    assert all(place[read] < place[value] for value in order for read in value.reads)


def test_float64_is_refused() -> None:
    with pytest.raises(EmitError, match="float64"):
        lowered(block_graph(lambda b: b.save(b.load(0)), (4, 8), dtype=DType.FLOAT64))


def scaled_columns(block: BlockBuilder) -> None:
    """(X Y) / sqrt of the sums of the columns of Y squared."""
    x, y = block.load(0), block.load(1, fmap=1)
    norms = block.apply("sqrt", block.apply("sum", block.apply("square", y), axis=-2))
    block.save(block.accumulate((x @ y) / norms, "sum_dim"))


def test_costly_numbers_of_columns_are_stored_once_an_iteration() -> None:
    (stored,) = kinds(lowered(block_graph(scaled_columns, (16, 8), (8, 64), loop=4)), Stored)
    assert isinstance(stored, Stored)
    assert isinstance(stored.operand, Mapped)
    assert (stored.operand.op, stored.shape) == ("sqrt", (1, 16))


def test_without_a_loop_they_are_computed_where_they_are_read() -> None:
    assert not kinds(lowered(block_graph(scaled_columns, (16, 8), (8, 64))), Stored)
