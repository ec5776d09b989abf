"""Maps enumerated from lists lead to the structures of one choice of axes, at the grids and loops of the lists."""

from __future__ import annotations

import pytest

import workbench as wb
from tests.unit.search.prefix.programs import distributed, studied
from workbench.errors import UsageError
from workbench.search.events import Pruned, Started, Verified
from workbench.search.prefix.engine import search
from workbench.search.prefix.maps import Maps, maps_of, read
from workbench.search.problem import problem_of
from workbench.search.space import Space
from workbench.search.summary import collect
from workbench.ugraph.nodes import GraphDefinedNode


def space(operators: int, mapping: str = "enumerate", **more: object) -> Space:
    limits = {"max_block_ops": operators, "max_block_graphs": 1, "kernel_palette": (), "max_kernel_ops": 1}
    return Space(**{**limits, "concatenation": False, "mapping": mapping, **more})  # type: ignore[arg-type]


def test_lists_are_taken_independently() -> None:
    problem = problem_of(distributed())  # X, Y (3, 5) and W (5, 7)
    listed = list(maps_of(problem, space(2, grids=((2,), (2, 2)), loops=(1, 5))))
    one, two = 3**3, 9**3  # imap of one grid axis, of two
    assert len(listed) == len(set(listed)) == (one + two) * (1 + (3**3 - 1))
    assert {maps.forloop_range for maps in listed} == {1, 5}


def test_inputs_cut_differently_are_told_apart() -> None:
    problem = problem_of(distributed())
    fitting = read(problem, Maps((1,), 5, ((None,), (None,), (None,)), (1, 1, 0)))
    assert fitting.plan.loops == (problem.reduced[0],)
    assert not fitting.apart
    crossed = read(problem, Maps((1,), 5, ((None,), (None,), (None,)), (1, 1, 1)))
    assert [text.split()[0] for text in crossed.apart] == ["W"]
    gridded = read(problem, Maps((2,), 1, ((1,), (1,), (0,)), (None, None, None)))
    assert gridded.plan.split == problem.reduced[0]  # a block has a part of the sum, which no kernel completes


@pytest.mark.parametrize(("name", "operators", "loops"), [("softmax", 3, (1, 8)), ("gated_mlp", 6, (16,))])
def test_structures_are_those_of_axes(name: str, operators: int, loops: tuple[int, ...]) -> None:
    program, listed = studied(name), space(operators, grids=((16,),), loops=loops)
    events = list(search(program, space=listed, quiet=True))
    axes = space(operators, "axes")
    found = {one.structure_hash for one in collect(events, listed).structures}
    expected = collect(wb.search(program, space=axes, engine="prefix"), axes).structures
    looped = {one.structure_hash for one in expected if 1 in loops or "accumulate" in one.graph.describe()}
    assert found == looped
    assert looped
    for event in events:
        if isinstance(event, Verified):
            (node,) = [n for n in event.graph.nodes if isinstance(n, GraphDefinedNode)]
            assert node.block.grid_dims[0] == 16
            assert node.block.forloop_range in loops
    assert any(isinstance(event, Pruned) and "no omap" in event.evidence() for event in events)
    assert sum(isinstance(event, Started) for event in events) == len(list(maps_of(problem_of(program), listed)))


def test_space_refuses_lists_that_make_no_sense() -> None:
    with pytest.raises(UsageError, match="at least 1"):
        space(3, loops=(0,))
    with pytest.raises(UsageError, match="at least 1"):
        space(3, grids=((1, 2, 3, 4),))
