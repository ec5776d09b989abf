from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.strategies import Options, kernel_graphs
from workbench import programs
from workbench.interpret import evaluate
from workbench.optimize.order import (
    Dependence,
    OrderProblem,
    Section,
    as_written,
    fewest_barriers,
    order_operators,
    order_problem,
    reordered,
    section_of,
)
from workbench.ugraph import value as op
from workbench.ugraph.block_graph import BlockGraph
from workbench.ugraph.builder import KernelBuilder
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import GraphDefinedNode


@st.composite
def problems(draw: st.DrawFn, most: int, looped: bool) -> OrderProblem:
    count = draw(st.integers(1, most))
    sections = sorted(draw(st.lists(st.sampled_from(Section), min_size=count, max_size=count)))
    pairs = [(a, b) for b in range(count) for a in range(b)]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=count + 2)) if pairs else []
    edges = tuple(Dependence(a, b, draw(st.booleans())) for a, b in chosen)
    inner = [
        (e.writer, e.reader) for e in edges if e.is_shared and sections[e.writer] is sections[e.reader] is Section.LOOP
    ]
    single = tuple(pair for pair in inner if draw(st.booleans()))
    return OrderProblem(tuple(sections), edges, single, draw(st.integers(2, 4)) if looped else 1)


def topological_orders(problem: OrderProblem) -> Iterator[tuple[int, ...]]:
    """All orders that keep the dependences, and sections apart where there is a loop."""
    count = len(problem.sections)
    has_loop = problem.iterations > 1 and Section.LOOP in problem.sections
    before = {n: {e.writer for e in problem.dependences if e.reader == n} for n in range(count)}

    def extend(done: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(done) == count:
            yield done
        for number in range(count):
            late = has_loop and done and problem.sections[number] < problem.sections[done[-1]]
            if number not in done and before[number] <= set(done) and not late:
                yield from extend((*done, number))

    return extend(())


TOP, END = -2, -1
"""Places for barriers that every iteration passes: before its first and after its last operator."""


def right(problem: OrderProblem, order: tuple[int, ...], barriers: set[int]) -> bool:
    """True when barriers before these positions, or at the top or the end of the loop, separate what must be apart."""
    place = {number: position for position, number in enumerate(order)}
    loop = sorted(place[n] for n, section in enumerate(problem.sections) if section is Section.LOOP)
    # in the first iteration the top is passed before the loop's first operator, the end before what comes after it
    passed = [loop[0] if b == TOP else loop[-1] + 1 if b == END else b for b in sorted(barriers)] if loop else barriers
    crossed = [sum(1 for barrier in passed if barrier <= position) for position in range(len(order))]
    if any(e.is_shared and crossed[place[e.writer]] == crossed[place[e.reader]] for e in problem.dependences):
        return False
    if problem.iterations == 1:
        return True
    inner = [b for b in barriers if b in (TOP, END) or min(loop, default=0) < b <= max(loop, default=0)]
    return all(
        any(b in (TOP, END) or b > place[reader] or b <= place[writer] for b in inner)
        for writer, reader in problem.overwritten
    )


def exhaustive(problem: OrderProblem) -> int:
    """The least barriers of all topological orders and all subsets of places."""
    best = None
    has_loop = problem.iterations > 1 and Section.LOOP in problem.sections
    for order in topological_orders(problem):
        loop = [p for p, n in enumerate(order) if problem.sections[n] is Section.LOOP] if has_loop else []
        places = [*range(1, len(order)), *([TOP, END] if has_loop else [])]
        for count in range(len(places) + 1):
            for chosen in combinations(places, count):
                cost = sum(
                    problem.iterations if b in (TOP, END) or (loop and loop[0] < b <= loop[-1]) else 1 for b in chosen
                )
                if (best is None or cost < best) and right(problem, order, set(chosen)):
                    best = cost
    assert best is not None
    return best


@settings(max_examples=120, deadline=None)
@given(problems(6, looped=False))
def test_without_a_loop_barriers_equal_brute_force_over_orders(problem: OrderProblem) -> None:
    assert fewest_barriers(problem).barriers == exhaustive(problem)


@settings(max_examples=60, deadline=None)
@given(problems(6, looped=True))
def test_with_a_loop_barriers_equal_brute_force_over_orders(problem: OrderProblem) -> None:
    order = fewest_barriers(problem)
    assert order.barriers == exhaustive(problem)
    place = {number: position for position, number in enumerate(order.positions)}
    assert all(place[e.writer] < place[e.reader] for e in problem.dependences)
    assert all(order.levels[e.reader] - order.levels[e.writer] >= e.is_shared for e in problem.dependences)


def linear_barriers(problem: OrderProblem, order: tuple[int, ...]) -> int:
    """The least barriers for one order: one as late as possible, before the first reader that needs it."""
    place = {number: position for position, number in enumerate(order)}
    last, count = -1, 0
    for position, number in enumerate(order):
        if any(e.is_shared and e.reader == number and place[e.writer] >= last for e in problem.dependences):
            last, count = position, count + 1
    return count


@settings(max_examples=12, deadline=None)
@given(problems(9, looped=False))
def test_up_to_9_operators_barriers_equal_brute_force_over_topological_orders(problem: OrderProblem) -> None:
    best, tried = None, 0
    for order in topological_orders(problem):
        found = linear_barriers(problem, order)
        best = found if best is None else min(best, found)
        tried += 1
        if tried > 60_000:  # without dependences there are 9! orders, all alike
            assert len(problem.dependences) < 9
            break
    least = fewest_barriers(problem).barriers
    assert best is not None
    assert least <= best
    if tried <= 60_000:
        assert least == best


def block_of(graph: KernelGraph) -> BlockGraph:
    (node,) = graph.graph_defined
    return node.block


def two_chains() -> KernelGraph:
    """Written chain by chain: x -> a -> b, y -> c -> d; by depth the chains share their barriers."""
    k = KernelBuilder()
    X, Y = k.input("X", (4, 8)), k.input("Y", (4, 8))
    b = k.block(X, Y, loop=2)
    one = op.sqrt(op.exp(b.load(X, fmap=1)))
    two = op.sqrt(op.exp(b.load(Y, fmap=1)))
    b.save(b.accumulate(one + two))
    k.output(*b.finish())
    return k.build()


def test_by_depth_two_chains_share_their_barriers() -> None:
    block = block_of(two_chains())
    order, written = order_operators(block), as_written(block)
    assert (order.loop, order.after) == (4, 1)  # exp, sqrt, add, accumulator
    assert written.loop == 6
    names = [node.results[0].name for node in reordered(block, order).nodes if node.results]
    assert names.index("y") < names.index("t0")  # both loads, then both exps
    assert order_operators(reordered(block, order)).barriers == order.barriers


def test_values_in_registers_need_no_barrier() -> None:
    block = block_of(two_chains())
    assert order_operators(block, set(block.tiles) - {"x", "y"}).loop == 1
    assert order_operators(block, block.tiles).barriers == 0


def test_a_tile_that_the_next_iteration_overwrites_costs_a_second_barrier() -> None:
    sections = (Section.LOOP, Section.LOOP)
    edge = (Dependence(0, 1, True),)
    assert fewest_barriers(OrderProblem(sections, edge, (), 8)).loop == 1
    assert fewest_barriers(OrderProblem(sections, edge, ((0, 1),), 8)).loop == 2


def test_what_no_iteration_changes_runs_once() -> None:
    k = KernelBuilder()
    X, G = k.input("X", (4, 8)), k.input("G", (4, 1))
    b = k.block(X, G, loop=2)
    g = b.load(G)
    early, late = op.exp(g), op.square(g)
    b.save(b.accumulate(b.load(X, fmap=1) * early, "sum_dim") * late)
    k.output(*b.finish())
    block = block_of(k.build())
    found = dict(
        zip((node.results[0].name if node.results else "save" for node in block.nodes), section_of(block), strict=True)
    )
    assert found[early.name] is Section.BEFORE
    assert found[late.name] is Section.AFTER
    assert order_problem(block).iterations == 2


@pytest.mark.parametrize("name", ["gqa", "lora", "gated_mlp", "rms_norm_linear", "attention_safe", "ntrans"])
def test_known_good_graphs_keep_meaning_and_results(name: str) -> None:
    sizes = {parameter.name: min(parameter.default, 24) for parameter in programs.parameters(name)}
    for graph in programs.known_good(name, "standard", "float16", **sizes):
        check_reordered(graph)


@settings(max_examples=40, deadline=None)
@given(kernel_graphs(Options()))
def test_random_graphs_keep_meaning_and_results(graph: KernelGraph) -> None:
    check_reordered(graph)


def check_reordered(graph: KernelGraph) -> None:
    nodes = []
    for node in graph.nodes:
        if isinstance(node, GraphDefinedNode):
            order, written = order_operators(node.block), as_written(node.block)
            assert order.barriers <= written.barriers
            node = GraphDefinedNode(reordered(node.block, order), node.operands, node.results, node.name)
        nodes.append(node)
    moved = KernelGraph(graph.inputs, tuple(nodes), graph.output_names, graph.name)
    rng = np.random.default_rng(0)
    inputs = [rng.uniform(0.3, 1.2, tensor.shape) for tensor in graph.inputs]
    for a, b in zip(evaluate(graph, inputs), evaluate(moved, inputs), strict=True):
        np.testing.assert_array_equal(a, b)
