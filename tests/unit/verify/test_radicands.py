"""Roots of perfect squares become absolute values, others stay."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from workbench.core.shapes import Shape
from workbench.interpret import evaluate
from workbench.ugraph import value as op
from workbench.ugraph.builder import KernelBuilder
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import GraphDefinedNode, OpNode
from workbench.ugraph.tracing import trace
from workbench.ugraph.value import Value
from workbench.verify.radicands import rewrite_square_radicands

Program = Callable[..., Value]
XY: dict[str, Shape] = {"x": (2, 3), "y": (2, 3)}


def operators(graph: KernelGraph) -> list[str]:
    found = []
    for node in graph.nodes:
        if isinstance(node, OpNode):
            found.append(node.op)
        elif isinstance(node, GraphDefinedNode):
            found += [inner.op for inner in node.block.nodes if isinstance(inner, OpNode)]
    return found


def agree(left: KernelGraph, right: KernelGraph) -> None:
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(tensor.shape) for tensor in left.inputs]
    for a, b in zip(evaluate(left, inputs), evaluate(right, inputs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


# name -> program, and whether an absolute value is needed
SQUARES: dict[str, tuple[Program, bool]] = {
    "square": (lambda x, y: op.sqrt(op.square(x)) + y, True),
    "product with itself": (lambda x, y: op.sqrt(x * x) * y, True),
    "product of squares": (lambda x, y: op.sqrt(op.square(x) * op.square(y)), True),
    "quotient of squares": (lambda x, y: op.sqrt(op.square(x) / op.square(y)), True),
    "even power": (lambda x, y: op.sqrt(op.pow(x, 6)) + y, True),
    "power divisible by four": (lambda x, y: op.sqrt(op.pow(x, 4)) + y, False),
    "square of a sum of squares": (lambda x, y: op.sqrt(op.square(op.square(x) + op.square(y))), False),
    "constant square": (lambda x, y: op.sqrt(4 * op.square(x)) + y, True),
    "inverse root": (lambda x, y: op.rsqrt(op.square(x)) * y, True),
    "through a transpose": (lambda x, y: op.transpose(op.sqrt(op.transpose(op.square(x)))) + y, True),
    "through a reshape": (lambda x, y: op.reshape(op.sqrt(op.reshape(op.square(x), (6,))), (2, 3)) + y, True),
    "square of an exponential": (lambda x, y: op.sqrt(op.square(op.exp(x))) + y, False),
}

OTHERS: dict[str, Program] = {
    "sum of squares": lambda x, y: op.sqrt(op.square(x) + op.square(y)),
    "odd power": lambda x, y: op.sqrt(op.pow(op.square(x) + 1, 3)) + y,
    "square times another": lambda x, y: op.sqrt(op.square(x) * op.exp(y)),
    "twice a square": lambda x, y: op.sqrt(2 * op.square(x)) + y,
    "row norm": lambda x, y: op.rms_norm(x) + y,
    "no root at all": lambda x, y: op.square(x) + y,
}


@pytest.mark.parametrize("name", SQUARES)
def test_roots_of_squares_are_rewritten(name: str) -> None:
    program, absolute = SQUARES[name]
    graph = trace(program, dtype="float64", **XY)
    rewritten = rewrite_square_radicands(graph)
    assert not {"sqrt", "rsqrt"} & set(operators(rewritten))
    assert ("abs" in operators(rewritten)) == absolute
    assert [t.name for t in rewritten.outputs] == [t.name for t in graph.outputs]
    agree(graph, rewritten)


@pytest.mark.parametrize("name", OTHERS)
def test_other_programs_are_returned_as_they_are(name: str) -> None:
    graph = trace(OTHERS[name], dtype="float64", **XY)
    assert rewrite_square_radicands(graph) is graph


@pytest.mark.parametrize("norm", [lambda x: op.rms_norm(x, eps=0), lambda x: op.l2_norm(x), lambda x: op.rms(x)])
def test_a_norm_over_one_element_is_an_absolute_value(norm: Program) -> None:
    graph = trace(norm, x=(3, 1), dtype="float64")
    rewritten = rewrite_square_radicands(graph)
    assert "abs" in operators(rewritten)
    assert "sqrt" not in operators(rewritten)
    agree(graph, rewritten)


def test_squares_inside_blocks_and_thread_graphs_are_seen() -> None:
    kernel = KernelBuilder("root of a square")
    x = kernel.input("X", (4, 6), "float64")
    block = kernel.block(x, grid=(2,))
    block.save(op.sqrt(op.square(block.load(x, imap=(0,)))), omap=(0,))
    kernel.output(*block.finish())
    graph = kernel.build()
    rewritten = rewrite_square_radicands(graph)
    assert "abs" in operators(rewritten)
    assert "sqrt" not in operators(rewritten)
    agree(graph, rewritten)
