"""What limits the size of inputs: exponentials without a maximum, and the largest number of each type."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.codegen.cuda.planned import attention, block_graph
from workbench.codegen.cuda.numeric_limits import evaluate_within_types, exponents_of, survey
from workbench.core.dtypes import DType
from workbench.interpret.floats import evaluate
from workbench.ugraph.builder import KernelBuilder


def test_the_largest_logit_is_that_of_the_scores() -> None:
    graph = block_graph(attention, (8, 16), (16, 32), (32, 16), loop=2)
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(tensor.shape) for tensor in graph.inputs]
    found = survey(graph, inputs)
    assert found.logit == pytest.approx(np.abs(inputs[0] @ inputs[1]).max())


def test_exponentials_below_a_maximum_do_not_count() -> None:
    k = KernelBuilder("safe")
    x = k.input("X", (4, 8))
    k.output(k.apply("exp", x - k.apply("max", x, axis=-1)))
    assert survey(k.build(), [1000 * np.random.default_rng(0).standard_normal((4, 8))]).logit == 0


def test_values_are_measured_against_their_type() -> None:
    k = KernelBuilder("large")
    k.output(k.input("X", (4,), DType.FLOAT16) * 1000)
    graph = k.build()
    outputs, ratio = evaluate_within_types(graph, [np.full(4, 60.0)])
    np.testing.assert_array_equal(outputs[0], evaluate(graph, [np.full(4, 60.0)])[0])
    assert ratio == pytest.approx(60000 / 65504)
    with np.errstate(over="ignore"):
        assert evaluate_within_types(graph, [np.full(4, np.inf)])[1] == np.inf


def test_only_inputs_that_reach_an_exponential_are_scaled() -> None:
    graph = block_graph(attention, (8, 16), (16, 32), (32, 16), loop=2)
    assert exponents_of(graph) == {0, 1}
    k = KernelBuilder("plain")
    k.output(k.apply("relu", k.input("X", (4,))))
    assert exponents_of(k.build()) == frozenset()
