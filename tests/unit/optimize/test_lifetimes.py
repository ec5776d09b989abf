from __future__ import annotations

import pytest

from workbench import programs
from workbench.core.dtypes import DType
from workbench.optimize.lifetimes import block_lifetimes, device_lifetimes
from workbench.optimize.memory import Role, plan_memory
from workbench.optimize.order import order_operators
from workbench.ugraph import value as op
from workbench.ugraph.block_graph import BlockGraph
from workbench.ugraph.builder import KernelBuilder


def exercise_5() -> BlockGraph:
    """(X * G) @ W over rms(X) as the lecture counts it: batch 16, H = D = 4096, 64 blocks, 16 iterations, bf16."""
    k = KernelBuilder()
    X, G, W = (k.input(n, s, "bfloat16") for n, s in (("X", (16, 4096)), ("G", (4096,)), ("W", (4096, 4096))))
    b = k.block(X, G, W, grid=(64,), loop=16)
    x, g, w = b.load(X, fmap=1), b.load(G, fmap=0), b.load(W, imap=(1,), fmap=0)
    product = b.accumulate((x * g) @ w)
    squares = b.accumulate(op.sum(op.square(x)))
    b.save(product / op.sqrt(squares * (1 / 4096)), omap=(1,))
    k.output(*b.finish())
    (node,) = k.build().graph_defined
    return node.block


def test_exercise_5_of_the_lecture() -> None:
    """82,944 B of inputs, 36,928 B of intermediate results of an iteration, 4,160 B of accumulators, no reuse."""
    block = exercise_5()
    tiles = block_lifetimes(block, computed=DType.FLOAT32)
    plan = plan_memory(tiles, alignment=4)
    in_loop = {"x", "g", "w"} | {t.name for t in tiles if block.places[t.name].name == "LOOP"}
    assert plan.bytes_of(Role.INPUT) == 82_944
    assert sum(t.nbytes for t in tiles if t.role is Role.INTERMEDIATE and t.name in in_loop) == 36_928
    assert plan.bytes_of(Role.ACCUMULATOR) == 4_160
    assert (
        plan.total == 82_944 + 36_928 + 4_160
    )  # all of an iteration's tiles meet; only what comes after uses a place again
    assert plan.total < plan.without_reuse


def test_times_in_and_after_a_loop() -> None:
    block = exercise_5()
    order = order_operators(block)
    found = {tile.name: tile for tile in block_lifetimes(block, order=order)}
    loop = (order.before, order.before + order.loop)
    assert (found["x"].first, found["x"].last) == (0, loop[1])  # a ring of buffers, filled ahead
    products = next(t for t in found.values() if t.role is Role.ACCUMULATOR and t.nbytes == 16 * 64 * 4)
    assert products.first <= loop[0]
    assert products.last > loop[1]
    inner = [t for t in found.values() if t.role is Role.INTERMEDIATE and block.places[t.name].name == "LOOP"]
    assert all(loop[0] < tile.first <= tile.last <= loop[1] for tile in inner)
    after = [t for t in found.values() if block.places[t.name].name == "AFTER" and t.role is Role.INTERMEDIATE]
    assert all(tile.first > loop[1] for tile in after)


def test_tiles_in_registers_take_no_shared_memory_and_stages_count() -> None:
    block = exercise_5()
    kept = set(block.tiles) - {"x", "g", "w"}
    plan = plan_memory(block_lifetimes(block, registers=kept, stages=4))
    assert [tile.name for tile in plan.lifetimes] == ["x", "g", "w"]
    assert plan.total == 2 * 82_944
    assert plan.lower_bound == plan.total


def test_what_the_first_level_of_the_loop_makes_stays_until_its_end() -> None:
    """No barrier stands between the end of an iteration and what the next one makes first."""
    k = KernelBuilder()
    X = k.input("X", (4, 8))
    b = k.block(X, loop=2)
    one = op.exp(b.load(X, fmap=1))  # its operand is in registers, so it runs at once
    b.save(b.accumulate(op.sqrt(op.square(one))))
    k.output(*b.finish())
    (node,) = k.build().graph_defined
    order = order_operators(node.block, {"x"})
    found = {tile.name: tile for tile in block_lifetimes(node.block, order=order, registers={"x"})}
    assert order.levels[1] == order.before
    assert (found[one.name].first, found[one.name].last) == (order.before, order.before + order.loop)


def test_what_is_made_before_the_loop_and_read_in_it_stays_until_its_end() -> None:
    k = KernelBuilder()
    X, G = k.input("X", (4, 8)), k.input("G", (4, 1))
    b = k.block(X, G, loop=2)
    early = op.exp(b.load(G))
    b.save(b.accumulate(op.sqrt(op.exp(b.load(X, fmap=1) * early))))
    k.output(*b.finish())
    (node,) = k.build().graph_defined
    order = order_operators(node.block)
    found = {tile.name: tile for tile in block_lifetimes(node.block, order=order)}
    assert found[early.name].last == order.before + order.loop
    assert found["g"].last < found[early.name].last  # read once, before the loop


def test_a_loop_of_one_iteration_has_no_ring() -> None:
    k = KernelBuilder()
    X = k.input("X", (4, 8))
    b = k.block(X)
    b.save(op.exp(b.load(X)))
    k.output(*b.finish())
    (node,) = k.build().graph_defined
    assert [tile.nbytes for tile in block_lifetimes(node.block)] == [64, 64]


@pytest.mark.parametrize("name", ["gqa", "gqa_decode"])
def test_device_memory_of_intermediates(name: str) -> None:
    graph = next(g for g in programs.known_good(name) if len(g.nodes) == 2)
    found = device_lifetimes(graph)
    assert [(tile.name, tile.first, tile.last) for tile in found] == [("split_products", 0, 1), ("split_sums", 0, 1)]
    assert found[0].nbytes == graph.tensors["split_products"].nbytes
    plan = plan_memory(found, alignment=256)
    assert plan.total == plan.without_reuse


def test_a_chain_of_kernels_uses_two_places() -> None:
    k = KernelBuilder()
    value = k.input("X", (64, 64), "float32")
    for _ in range(6):
        value = op.exp(value)
    k.output(value)
    plan = plan_memory(device_lifetimes(k.build()), alignment=256)
    assert len(plan.lifetimes) == 5
    assert plan.total == 2 * 64 * 64 * 4
