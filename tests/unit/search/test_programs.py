"""Programs that are in no list: the fused µGraph is found, whatever the program's names and order, and nothing aborts."""

from __future__ import annotations

from functools import cache

import pytest

from tests.unit.search.fused_graphs import CASES, Fused
from tests.unit.search.searched import Formula, graph_of
from workbench.codegen.cuda.kernel_level import emit_program
from workbench.search.engine import search
from workbench.search.events import Verified
from workbench.search.space import Space
from workbench.search.summary import Found, collect
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.value import (
    Value,
    broadcast,
    concat,
    exp,
    minimum,
    relu,
    reshape,
    sigmoid,
    softmax,
    split,
    transpose,
)
from workbench.ugraph.value import abs as abs_of
from workbench.ugraph.value import max as max_of
from workbench.ugraph.value import sum as sum_of
from workbench.verify.compare import verify

NARROW = Space(max_block_graphs=1, max_kernel_ops=1)
"""One block graph and nothing beside it."""


def found_for(program: KernelGraph, space: Space | None = None) -> Found:
    space = space or Space()
    return collect(search(program, space=space), space)


@cache
def found_in(name: str) -> Found:
    """Return what the search finds for the case of a name; several tests look at it."""
    case = next(case for case in CASES if case.name == name)
    return found_for(case.program(), NARROW if case.is_wide else None)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_the_fused_graph_is_found(case: Fused) -> None:
    program, fused = case.program(), case.graph()
    assert verify(program, fused, shapes="reduced").kind == "equal"  # what a person wrote is right
    found = found_in(case.name)
    assert not found.refused
    assert fused.structure_hash in {one.structure_hash for one in found.structures}


@pytest.mark.parametrize("case", [case for case in CASES if case.is_wide], ids=lambda case: case.name)
def test_wide_programs_are_found_in_the_default_space_too(case: Fused) -> None:
    wanted = case.graph().structure_hash
    verified = (event.graph for event in search(case.program()) if isinstance(event, Verified))
    assert any(graph.structure_hash == wanted for graph in verified)  # the rest of the space is not waited for


@pytest.mark.parametrize("case", [case for case in CASES if not case.is_wide], ids=lambda case: case.name)
def test_what_is_found_is_verified_and_emitted(case: Fused) -> None:
    program = case.program()
    graphs = [one.graph for one in found_in(case.name).structures]
    for graph in graphs[:: max(1, len(graphs) // 3)]:
        assert verify(program, graph, shapes="reduced").kind == "equal"
    for graph in graphs:
        assert emit_program(graph).steps


def rotated(q: Value, c: Value, s: Value) -> Value:
    """Return the two halves of the columns rotated by an angle, as rotary embeddings are."""
    a, b = split(q, 2)
    return concat(a * c - b * s, b * c + a * s, axis=-1)


ODD: dict[str, tuple[Formula, dict[str, tuple[int, ...]]]] = {
    "one function": (lambda x: exp(x), {"X": (8, 16)}),
    "a function of columns": (lambda x: softmax(x, axis=0), {"X": (8, 16)}),
    "column sums": (lambda x: sum_of(x, axis=0), {"X": (8, 16)}),
    "everything": (lambda x: sum_of(sum_of(x, axis=0)), {"X": (8, 16)}),
    "absolute values": (lambda x: sum_of(abs_of(x)), {"X": (8, 16)}),
    "relu": (lambda x: relu(x), {"X": (8, 16)}),
    "smallest of": (lambda x, w, r: minimum(r, x @ w), {"X": (8, 16), "W": (16, 12), "R": (8, 12)}),
    "largest of largest": (lambda x, w: max_of(max_of(x @ w, axis=0)), {"X": (8, 16), "W": (16, 12)}),
    "constants": (lambda x: x * 3 + 0.5, {"X": (8, 16)}),
    "nothing but a constant": (lambda x: x * 0, {"X": (8, 16)}),
    "a difference": (lambda x, w, r: r - x @ w, {"X": (8, 16), "W": (16, 12), "R": (8, 12)}),
    "an outer product": (lambda x, y: x * y, {"X": (8, 1), "Y": (1, 16)}),
    "a single element": (lambda x, w: x @ w, {"X": (1, 1), "W": (1, 1)}),
    "a batch": (lambda x, w: x @ w, {"X": (3, 8, 16), "W": (16, 12)}),
    "a square": (lambda x: x @ transpose(x), {"X": (8, 16)}),
    "a tensor twice": (lambda x, w: relu(x @ w) * sigmoid(x), {"X": (8, 16), "W": (16, 16)}),
    "the same output twice": (lambda x, w: (x @ w, x @ w), {"X": (8, 16), "W": (16, 12)}),
    "an input as output": (lambda x, w: (x, x @ w), {"X": (8, 16), "W": (16, 12)}),
    "a transposed output": (lambda x, w: transpose(x @ w), {"X": (8, 16), "W": (16, 12)}),
    "a scaled mask": (lambda q, k, m: softmax(q @ k * 0.125 + m), {"Q": (8, 16), "K": (16, 12), "M": (8, 12)}),
    "rows regrouped": (lambda x, w: reshape(x @ w, (2, 4, 12)), {"X": (8, 16), "W": (16, 12)}),
    "columns regrouped": (lambda x, w: reshape(x @ w, (8, 3, 4)), {"X": (8, 16), "W": (16, 12)}),
    "an axis of two": (lambda x, w: reshape(x, (8, 16)) @ w, {"X": (8, 4, 4), "W": (16, 12)}),
    "rotary halves": (rotated, {"Q": (8, 16), "c": (8,), "s": (8,)}),
    "an axis that is new": (lambda b: broadcast(b, (8, 16)), {"b": (16,)}),
    "nothing": (lambda x: x, {"X": (8, 16)}),
}  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_every_program_is_searched_or_it_is_said_why_not(name: str) -> None:
    formula, sizes = ODD[name]
    found = found_for(graph_of(formula, **sizes))
    assert not found.refused
    assert bool(found.structures) != bool(found.outside)
