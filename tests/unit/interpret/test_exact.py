from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import workbench as wb
from workbench.domains.exact_expression import ABSENT, ExactTerms
from workbench.domains.exact_numbers import float_values
from workbench.errors import BudgetError
from workbench.interpret.exact import exact_inputs, exact_outputs, opaque_value
from workbench.ops.registry import operators
from workbench.ugraph.builder import KernelBuilder
from workbench.ugraph.kernel_graph import KernelGraph


def assert_expressions_have_the_programs_values(graph: KernelGraph, *, positive: bool = False) -> None:
    """Every output element as an expression, evaluated at random inputs, against the program run on them."""
    terms = ExactTerms()
    outputs = exact_outputs(terms, graph)
    rng = np.random.default_rng(5)
    inputs = [rng.standard_normal(tensor.shape) for tensor in graph.inputs]
    if positive:
        inputs = [np.abs(array) + 0.25 for array in inputs]
    variables = {
        (number, element): np.array([value])
        for number, array in enumerate(inputs)
        for element, value in enumerate(array.ravel())
    }
    for output, expected in zip(outputs, wb.evaluate(graph, inputs), strict=True):
        assert output.shape == expected.shape
        parts = [int(part) for part in output.numbers.ravel()]
        assert ABSENT not in parts
        values = float_values(terms, parts, variables, opaque_value)
        np.testing.assert_allclose([values[part][0] for part in parts], expected.ravel(), rtol=1e-9, atol=1e-12)


ATTRIBUTES: dict[str, dict[str, Any]] = {
    "scale": {"factor": "3/7"},
    "clamp": {"lo": -0.5, "hi": 0.75},
    "power": {"exponent": -3},
    "constant": {"value": "2/3"},
    "reshape": {"shape": (4, 2)},
    "broadcast": {"shape": (3, 2, 4)},
    "split": {"parts": 2},
    "sum_to_columns": {"columns": 2},
}


@pytest.mark.parametrize("name", [op.name for op in operators()])
def test_every_operator_means_in_expressions_what_it_means_in_floats(name: str) -> None:
    spec = next(op for op in operators() if op.name == name)
    kernel = KernelBuilder(name)
    count = 2 if spec.arity is None else spec.arity
    shapes = [(2, 4), (4, 3)] if name == "matmul" else [(2, 4)] * count
    operands = [kernel.input("xyz"[number], shape) for number, shape in enumerate(shapes)]
    if name == "constant":
        kernel.input("unused", (2,))
    for result in kernel.apply_all(name, *operands, **ATTRIBUTES.get(name, {})):
        kernel.output(result)
    assert_expressions_have_the_programs_values(kernel.build(), positive=name in ("sqrt", "rsqrt", "log", "pow"))


@pytest.mark.parametrize("context", [6, 5], ids=["even", "ragged"])
@pytest.mark.parametrize("splits", [1, 2])
def test_block_graphs_with_loops_accumulators_and_ragged_tiles(context: int, splits: int) -> None:
    kernel = KernelBuilder("blocks")
    x, w = kernel.input("X", (3, context)), kernel.input("W", (context, 4))
    block = kernel.block(x, w, grid=(splits,), loop=2)
    a, b = block.load(x, fmap=1), block.load(w, imap=(1,), fmap=0)
    largest = block.accumulate(a, "max_dim")
    scale = block.accumulate(a, "rms", eps=1e-3)
    mean = block.accumulate(a, "mean")
    total = block.accumulate(a @ b)
    block.save(total / scale + largest * mean, omap=(1,))
    kernel.output(*block.finish())
    assert_expressions_have_the_programs_values(kernel.build())


def test_a_running_maximum_and_rescaled_accumulators() -> None:
    kernel = KernelBuilder("online")
    s, v = kernel.input("S", (2, 5)), kernel.input("V", (5, 2))
    block = kernel.block(s, v, grid=(1,), loop=3)
    tile, values = block.load(s, fmap=1), block.load(v, fmap=0)
    largest, shift = block.running_max(tile)
    weights, rescale = wb.exp(tile - largest), wb.exp(shift)
    product = block.accumulate(weights @ values, "rescale", rescale=rescale)
    block.save(product / block.accumulate(weights, "rescale_sum", rescale=rescale))
    kernel.output(*block.finish())
    assert_expressions_have_the_programs_values(kernel.build())


def test_equal_elements_are_one_expression_across_programs() -> None:
    terms = ExactTerms()
    left = wb.trace(lambda x, y: (x + y) @ wb.transpose(x), x=(2, 3), y=(2, 3))
    right = wb.trace(lambda x, y: (y + x) @ wb.transpose(x), x=(2, 3), y=(2, 3))
    inputs = exact_inputs(terms, left)
    a, b = (exact_outputs(terms, graph, inputs)[0] for graph in (left, right))
    assert (a.numbers == b.numbers).all()
    transposed = wb.trace(lambda x, y: x @ wb.transpose(x + y), x=(2, 3), y=(2, 3))
    assert (exact_outputs(terms, transposed, inputs)[0].numbers != a.numbers).any()


def test_too_large_a_program_is_refused_before_it_is_walked() -> None:
    with pytest.raises(BudgetError, match="use smaller shapes"):
        exact_outputs(ExactTerms(limit=1000), wb.programs.get("softmax"))
