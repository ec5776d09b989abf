from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pytest

import workbench as wb
from workbench.ops.registry import operators
from workbench.ugraph.atoms import Atoms
from workbench.ugraph.builder import KernelBuilder
from workbench.ugraph.counts import CountPower, recognize_counts
from workbench.ugraph.dataflow import flatten
from workbench.ugraph.dimensions import SIZE_ATTRIBUTES, Dimensions
from workbench.ugraph.kernel_graph import KernelGraph

H = 24


def recognised(graph: KernelGraph, *, roots: bool = False) -> list[list[tuple[int, int | Fraction]]]:
    """Per constant that is a count: the extents it counts and their exponents."""
    dimensions = Dimensions(flatten(graph), Atoms())
    dimensions.derive()

    def factors(power: CountPower) -> list[tuple[int, int | Fraction]]:
        return [*sorted((dimensions.atoms.extent(span.run), span.exponent) for span in power.spans)]

    return [factors(power) for power in recognize_counts(dimensions, roots=roots).values()]


def traced(fn: Callable[..., object]) -> KernelGraph:
    return wb.trace(fn, X=(4, H), Y=(4, H), W=(H, 6))


FOUND: list[tuple[str, Callable[..., object], list[list[tuple[int, int | Fraction]]]]] = [
    ("behind the sum", lambda X, Y, W: wb.sum(X) * (1 / H), [[(H, -1)]]),
    ("before the sum", lambda X, Y, W: wb.sum(X / H), [[(H, -1)]]),
    ("before the product", lambda X, Y, W: (X / H) @ W, [[(H, -1)]]),
    ("on the other factor", lambda X, Y, W: X @ (W / H), [[(H, -1)]]),
    ("a multiplied constant", lambda X, Y, W: wb.sum(X) * (X * 0 + 1) + wb.mul(wb.sum(X), Fraction(1, H)), [[(H, -1)]]),
    ("in two dimensions", lambda X, Y, W: wb.sum(wb.sum(X), axis=0) / (4 * H), [[(4, -1), (H, -1)]]),
    ("of the outer sum", lambda X, Y, W: wb.sum(wb.sum(X), axis=0) / 4, [[(4, -1)]]),
    ("under a root", lambda X, Y, W: wb.sqrt(wb.sum(X * X) / H), [[(H, -1)]]),
    ("in a denominator", lambda X, Y, W: X / (wb.sum(Y) / H), [[(H, -1)]]),
    ("of both sums", lambda X, Y, W: (wb.sum(X) + wb.sum(Y)) / H, [[(H, -1)]]),
    ("twice", lambda X, Y, W: wb.square(wb.sum(X) / H), [[(H, -1)]]),
    ("negative", lambda X, Y, W: wb.sum(X) * (-1 / H), [[(H, -1)]]),
    ("none: another number", lambda X, Y, W: wb.sum(X) / (H + 1), []),
    ("none: no sum", lambda X, Y, W: wb.exp(X) / H, []),
    ("none: behind exp", lambda X, Y, W: wb.exp(wb.sum(X)) / H, []),
    ("none: beside a sum", lambda X, Y, W: wb.sum(X) + Y / H, []),
    ("none: only one of two is summed", lambda X, Y, W: (wb.sum(X) + Y) / H, []),
    ("none: a mean has its own", lambda X, Y, W: wb.mean(X) / H, []),
]  # fmt: skip


@pytest.mark.parametrize(("what", "fn", "expected"), FOUND, ids=[what for what, _, _ in FOUND])
def test_what_is_a_count(
    what: str, fn: Callable[..., object], expected: list[list[tuple[int, int | Fraction]]]
) -> None:
    assert recognised(traced(fn)) == expected


def test_behind_a_root() -> None:
    graph = wb.trace(lambda X: wb.sqrt(wb.sum(X * X)) / 8, X=(4, 64))
    assert recognised(graph) == [[(64, Fraction(-1, 2))]]


def test_roots_only_if_asked_for() -> None:
    for depth in (64, 96):
        graph = wb.trace(lambda Q, K, d=depth: wb.exp(Q @ K * d**-0.5), Q=(4, depth), K=(depth, 6))
        assert recognised(graph) == []
        assert recognised(graph, roots=True) == [[(depth, Fraction(-1, 2))]]


@pytest.mark.parametrize(("columns", "loop", "splits"), [(24, 4, 1), (23, 4, 1), (24, 3, 2)])
def test_loops_and_splits_count_the_whole_axis(columns: int, loop: int, splits: int) -> None:
    """23 columns in 4 iterations of 6: the count is 23, not 24; two blocks of 12 added by a second kernel count 24."""
    kernel = KernelBuilder()
    x_in = kernel.input("X", (4, columns))
    block = kernel.block(x_in, grid=(splits,), loop=loop)
    x = block.load(x_in, imap=(1,) if splits > 1 else (), fmap=1)
    block.save(block.accumulate(x, "sum_dim"), omap=(1,) if splits > 1 else ())
    (partial,) = block.finish()
    kernel.output((wb.sum(partial) if splits > 1 else partial) * Fraction(1, columns))
    assert recognised(kernel.build()) == [[(columns, -1)]]


def test_iterations_that_add_the_same_count_too() -> None:
    kernel = KernelBuilder()
    x_in = kernel.input("X", (4, 6))
    block = kernel.block(x_in, loop=5)
    block.save(block.accumulate(block.load(x_in)) / 5)
    kernel.output(*block.finish())
    assert recognised(kernel.build()) == [[(5, -1)]]


@pytest.mark.parametrize(("eps", "expected"), [(0, [[(4, -1)]]), (1, [])])
def test_eps_keeps_constants_inside(eps: int, expected: list[list[tuple[int, int]]]) -> None:
    """1/4 of X inside the root, 4 rows summed outside: the root of mean squares is homogeneous only without eps."""
    kernel = KernelBuilder()
    x_in = kernel.input("X", (4, 6))
    block = kernel.block(x_in, loop=2)
    block.save(wb.sum(block.accumulate(block.load(x_in, fmap=1) / 4, "rms", eps=eps), axis=0))
    kernel.output(*block.finish())
    assert recognised(kernel.build()) == expected


def test_every_attribute_is_an_extent_or_says_what_is_computed() -> None:
    """A new attribute must be put on one side or the other."""
    says_what = {"axis", "eps", "factor", "value", "exponent", "approximate", "lo", "hi"}
    for spec in operators():
        for attribute in spec.attributes:
            assert ((spec.name, attribute.name) in SIZE_ATTRIBUTES) != (attribute.name in says_what), spec.name
