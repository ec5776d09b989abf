"""Grids, loops and small extents of a sketch."""

from __future__ import annotations

import pytest

from tests.unit.search.searched import ATTENTION, NORM, PRODUCT, PROGRAMS, graph_of, sketches_of
from workbench.errors import MemoryLimitError, NotApplicableError
from workbench.programs.tiling import fits
from workbench.search.plans import Plan, plans_of
from workbench.search.problem import problem_of
from workbench.search.schedules import first_instance, follow_ties, grid_axes, small_extents, small_instance
from workbench.search.space import Space
from workbench.ugraph.value import exp, softmax, transpose


def test_the_grid_splits_what_every_result_has_and_nothing_folds() -> None:
    problem = problem_of(PRODUCT)
    (axis,) = problem.reduced
    (sketch,) = sketches_of(PRODUCT, Plan((axis,)))
    free = {name for dim in problem.goals[0].dims for name in dim}
    assert set(grid_axes(sketch, 0).free) == free
    assert grid_axes(sketch, 0).split is None
    split = sketches_of(PRODUCT, Plan((axis, None), axis))
    assert split
    assert all(grid_axes(sketch, 0).split == axis and grid_axes(sketch, 1).split is None for sketch in split)


@pytest.mark.parametrize("name", PROGRAMS)
def test_first_instances_have_the_program_s_inputs_and_outputs_and_fit(name: str) -> None:
    program = PROGRAMS[name]
    for plan in plans_of(problem_of(program), Space()):
        for sketch in sketches_of(program, plan, limit=6):
            try:
                graph = first_instance(sketch)
            except NotApplicableError:
                continue
            assert [t.shape for t in graph.inputs] == [t.shape for t in program.inputs]
            assert [t.name for t in graph.inputs] == [t.name for t in program.inputs]
            assert [(t.shape, t.dtype) for t in graph.outputs] == [(t.shape, t.dtype) for t in program.outputs]
            assert fits(graph)


def test_a_row_that_fits_no_block_is_refused_with_the_reason() -> None:
    program = graph_of(lambda x, w: exp(x) @ w, X=(8, 1_000_003), W=(1_000_003, 16))
    (sketch, *_) = sketches_of(program, Plan((None,)))
    with pytest.raises(MemoryLimitError, match="shared memory"):
        first_instance(sketch)


def test_a_reduced_axis_is_split_evenly_where_it_can_be() -> None:
    for extent, blocks in ((100, 10), (4096, 16), (97, 14)):  # 97 is prime: 14 blocks of 7 elements, the last of 6
        program = graph_of(lambda x, w: x @ w, X=(8, extent), W=(extent, 16))
        (axis,) = problem_of(program).reduced
        for sketch in sketches_of(program, Plan((axis, None), axis)):
            assert first_instance(sketch).graph_defined[0].block.grid_dims[0] == blocks


def test_small_extents_keep_ties_and_ones() -> None:
    program = graph_of(lambda x: x @ transpose(x), X=(8, 16))
    problem = problem_of(program)
    small = small_extents(problem)
    ((copy, (origin,)),) = problem.ties.items()
    assert small[copy] == small[origin]
    assert small[problem.reduced[0]] % 6 == 0
    assert follow_ties(problem, {origin: 5, problem.reduced[0]: 3})[copy] == 5
    single = problem_of(graph_of(lambda x, w: x @ w, X=(1, 32), W=(32, 16)))
    assert small_extents(single)[single.goals[0].dims[0][0]] == 1


def test_small_instances_keep_counts_above_one() -> None:
    for program in (NORM, ATTENTION):
        problem = problem_of(program)
        for axis in problem.reduced:
            for sketch in sketches_of(program, Plan((axis,)), limit=7):
                block = small_instance(sketch, small_extents(problem)).graph_defined[0].block
                assert block.forloop_range == 2
                assert block.grid_dims[0] == 2


def test_more_threads_where_sums_of_products_would_not_fit_in_registers() -> None:
    for columns, threads in ((64, 128), (2048, 256)):  # the softmax keeps a row whole: 16 x 2048 sums, 128 a thread
        program = graph_of(lambda x, w: softmax(x @ w), X=(4, 64), W=(64, columns))
        axis = problem_of(program).reduced[0]
        (sketch, *_) = sketches_of(program, Plan((axis,)))
        block = first_instance(sketch).graph_defined[0].block
        assert block.block_dims[0] == threads
