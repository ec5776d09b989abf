"""Small programs and the stages of their search, for the tests of its modules."""

from __future__ import annotations

from collections.abc import Callable

from workbench.search.chains import is_proper
from workbench.search.enumeration import Enumeration, Sketch
from workbench.search.expressions import Expressions
from workbench.search.hypergraph import Hypergraph
from workbench.search.palette import palette_of
from workbench.search.plans import Plan, axis_parts, folds_of
from workbench.search.problem import Problem, problem_of
from workbench.search.space import Space
from workbench.ugraph.builder import KernelBuilder
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.value import Value, exp, rms_norm, silu, softmax

Formula = Callable[..., Value | tuple[Value, ...]]


def graph_of(formula: Formula, **sizes: tuple[int, ...]) -> KernelGraph:
    """Return a program: the formula over inputs of these shapes."""
    kernel = KernelBuilder()
    results = formula(*(kernel.input(name, shape) for name, shape in sizes.items()))
    kernel.output(*(results if isinstance(results, tuple) else (results,)))
    return kernel.build()


PRODUCT = graph_of(lambda x, w: x @ w, X=(8, 32), W=(32, 16))
NORM = graph_of(lambda x, w: rms_norm(x) @ w, X=(8, 32), W=(32, 16))
ATTENTION = graph_of(lambda q, k, v: softmax(q @ k) @ v, Q=(2, 8, 16), K=(2, 16, 32), V=(2, 32, 16))
GATED = graph_of(lambda x, a, b: silu(x @ a) * (x @ b), X=(8, 32), A=(32, 16), B=(32, 16))
ADAPTER = graph_of(lambda x, w, a, b: x @ w + (x @ a) @ b, X=(8, 32), W=(32, 16), A=(32, 4), B=(4, 16))
TWO = graph_of(lambda x, w: (x @ w, exp(x)), X=(8, 32), W=(32, 16))
PROGRAMS = {
    "product": PRODUCT, "norm": NORM, "attention": ATTENTION, "gated": GATED, "adapter": ADAPTER, "two outputs": TWO
}  # fmt: skip


def expressions_of(program: KernelGraph, plan: Plan, *, limit: int = 12, space: Space | None = None) -> Expressions:
    """Return the expressions of a plan."""
    problem: Problem = problem_of(program)
    parts = axis_parts(plan)
    palette = palette_of(problem, space or Space())
    return Expressions(problem, palette, parts, folds_of(problem, [plan]), limit=limit).close()


def hypergraph_of(
    program: KernelGraph, plan: Plan, *, kernels: int = 0, limit: int = 11, needed_only: bool = True
) -> Hypergraph:
    """Return the hypergraph of a plan."""
    expressions = expressions_of(program, plan, limit=limit + kernels)
    return Hypergraph(expressions, plan, block_limit=limit, kernel_limit=kernels, needed_only=needed_only)


def sketches_of(program: KernelGraph, plan: Plan, *, kernels: int = 0, limit: int = 11) -> list[Sketch]:
    """Return the proper graphs of a plan."""
    graph = hypergraph_of(program, plan, kernels=kernels, limit=limit)
    return [sketch for sketch in Enumeration(graph).sketches() if is_proper(sketch)]
