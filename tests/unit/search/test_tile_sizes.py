"""Sizes of tiles under other counts, against graphs that are built with them."""

from __future__ import annotations

import pytest

from tests.unit.search.searched import ADAPTER, ATTENTION, PROGRAMS, graph_of, sketches_of
from workbench.errors import NotApplicableError
from workbench.programs.tiling import factor_tile_bytes, shared_bytes_at_most
from workbench.search.enumeration import Sketch
from workbench.search.instantiate import Counts, Instantiation
from workbench.search.plans import Plan, plans_of
from workbench.search.problem import problem_of
from workbench.search.schedules import grid_axes
from workbench.search.space import Space
from workbench.search.tile_sizes import TileSizes
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.value import mean, transpose

SPLITS = 4


def counts_of(sketch: Sketch, parts: int, loop: int) -> tuple[Counts, ...]:
    """Return counts that cut every axis that may be cut into so many parts, a split one into four."""
    made = []
    for kernel, looped in enumerate(sketch.hypergraph.plan.loops):
        axes = grid_axes(sketch, kernel)
        grid = [(axes.split, SPLITS)] if axes.split else []
        grid += [(name, parts) for name in axes.free[: 3 - len(grid)]]
        made.append(Counts(tuple(grid), loop if looped else 1))
    return tuple(made)


def sizes_agree(sketch: Sketch) -> int:
    """Return in how many pairs of counts the sizes told from one graph are those of the other."""
    extents = sketch.hypergraph.expressions.problem.extents
    built = []
    for parts, loop in ((1, 2), (2, 1), (4, 4), (3, 2)):
        counts = counts_of(sketch, parts, loop)
        instantiation = Instantiation(sketch, extents, counts)
        try:
            built.append((counts, instantiation, instantiation.build()))
        except NotApplicableError:
            continue
    agreed = 0
    for _, instantiation, graph in built:
        sizes = TileSizes.of(instantiation, graph)
        assert sizes is not None
        for counts, _, other in built:
            blocks = [node.block for node in other.graph_defined]
            assert [sizes.bytes_at_most(k, counts) for k in range(len(blocks))] == [*map(shared_bytes_at_most, blocks)]
            assert [sizes.factor_tile_bytes(k, counts) for k in range(len(blocks))] == [*map(factor_tile_bytes, blocks)]
            agreed += 1
    return agreed


@pytest.mark.parametrize("name", PROGRAMS)
def test_sizes_are_those_of_what_is_built(name: str) -> None:
    program = PROGRAMS[name]
    plans = plans_of(problem_of(program), Space())
    assert sum(sizes_agree(sketch) for plan in plans for sketch in sketches_of(program, plan, limit=6)[:4])


@pytest.mark.parametrize(
    "program",
    [
        graph_of(lambda x, y: x + transpose(y), X=(8, 32), Y=(32, 8)),
        graph_of(lambda x, w: mean(x, axis=-2) @ w, X=(8, 32), W=(32, 16)),
        graph_of(lambda x, w: x @ w, X=(7, 100), W=(100, 33)),
    ],
)
def test_transposed_reshaped_and_ragged_tiles_have_their_sizes(program: KernelGraph) -> None:
    plans = plans_of(problem_of(program), Space())
    assert sum(sizes_agree(sketch) for plan in plans for sketch in sketches_of(program, plan, limit=6)[:4])


@pytest.mark.parametrize("program", [ADAPTER, ATTENTION], ids=["adapter", "attention"])
def test_blocks_side_by_side_and_concatenations_have_their_sizes(program: KernelGraph) -> None:
    axes = problem_of(program).reduced
    assert sum(
        sizes_agree(sketch) for axis in axes for sketch in sketches_of(program, Plan((axis, None), axis), limit=7)[:6]
    )
