from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import workbench as wb
from workbench.core.dtypes import DType
from workbench.errors import ShapeError, UsageError
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.verify.hard_inputs import hard_inputs
from workbench.verify.stability import StabilityReport, stability


def softmax_by_hand(safe: bool, dtype: str, shape: tuple[int, int] = (4, 64)) -> KernelGraph:
    def function(x: Any) -> Any:
        weights = wb.exp(x - wb.max(x)) if safe else wb.exp(x)
        return weights / wb.sum(weights)

    return wb.trace(function, x=(shape, dtype))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_an_unsafe_softmax_overflows_and_a_safe_one_does_not(dtype: str) -> None:
    unsafe, safe = (wb.stability(softmax_by_hand(safe, dtype)) for safe in (False, True))
    case = unsafe["exponents near 100"]
    assert case.overflow  # e^100 is above 3.4e38, and float64 holds it
    assert case.error == np.inf
    assert case in unsafe.overflows
    # the inputs that are kept show it
    (x,) = case.inputs
    assert 90 < np.abs(x).max() < 110
    again = stability(softmax_by_hand(False, dtype), inputs=case.inputs)
    assert again["given"].error == np.inf
    assert not safe.overflows
    assert safe.error < 20 * DType(dtype).machine_epsilon


def test_the_first_tensor_that_overflows_is_named() -> None:
    graph = wb.trace(lambda x: wb.sqrt(wb.square(x) + 1) - 1, x=((2, 3), "float16"))
    report = stability(graph, inputs={"three hundred": [np.full((2, 3), 300.0)]})
    case = report["three hundred"]
    square = next(node for node in graph.nodes if getattr(node, "op", "") == "square")
    assert case.overflow == square.results[0].name  # 300^2 = 90000 is above 65504; the output 299 is not
    assert case.elements == 6
    assert "overflow in" in case.describe()


def test_an_output_beyond_its_type_is_no_fault_of_the_program() -> None:
    graph = wb.trace(lambda x: x * 1000, x=((2, 3), "float16"))
    case = stability(graph, inputs=[np.full((2, 3), 300.0)])["given"]
    assert case.unrepresentable == 6
    assert not case.overflow
    assert case.error == 0.0


def test_what_float64_cannot_compute_is_left_out() -> None:
    graph = wb.trace(lambda x: wb.log(x), x=((2, 2), "float32"))
    case = stability(graph, inputs=[np.array([[1.0, 2.0], [-1.0, 4.0]])])["given"]
    assert case.undefined == 1
    assert case.error < 1e-6
    assert not case.overflow


def test_errors_are_relative_to_the_largest_value_of_the_row() -> None:
    """One float16 rounding of 1 + 2^-11 + 2^-20 beside a 4 in its row: about 2^-11 / 4."""
    graph = wb.trace(lambda x: x + 0.0, x=((2, 2), "float32"), dtype="float32")
    exact = np.array([[1 + 2.0**-11 + 2.0**-20, 4.0], [0.0, 0.0]])
    assert stability(graph, inputs=[exact])["given"].error == 0.0
    half = wb.trace(lambda x, y: x + y, x=((2, 2), "float16"), y=((2, 2), "float16"))
    small = np.array([[2.0**-11 + 2.0**-20, 0.0], [0.0, 0.0]])
    case = stability(half, inputs=[np.array([[1.0, 4.0], [4000.0, 0.0]]), small])["given"]
    np.testing.assert_allclose(case.error, (2.0**-11 - 2.0**-20) / 4, rtol=1e-9)
    np.testing.assert_allclose(case.rms_error, case.error / 2, rtol=1e-9)  # one of four elements


def test_cancellation_shows_in_layer_norm_of_offset_rows() -> None:
    """E[x^2] - E[x]^2 cancels where rows are far off zero; subtracting the mean first does not."""

    def by_moments(x: Any) -> Any:
        return (x - wb.mean(x)) / wb.sqrt(wb.mean(wb.square(x)) - wb.square(wb.mean(x)) + 1e-3)

    def centred(x: Any) -> Any:
        y = x - wb.mean(x)
        return y / wb.sqrt(wb.mean(wb.square(y)) + 1e-3)

    offset = {"far off zero": [200 + np.random.default_rng(3).standard_normal((4, 64))]}
    bad, good = (
        stability(wb.trace(lambda x, f=function: f(x), x=((4, 64), "float32")), inputs=offset)["far off zero"].error
        for function in (by_moments, centred)
    )
    assert good < 1e-4
    assert bad > 20 * good


def test_finer_types_have_smaller_errors() -> None:
    def error(dtype: str) -> float:
        program = wb.programs.get("rms_norm_linear", "standard", dtype, batch=4, hidden=64, out=32)
        return stability(program)["N(0, 1)"].error

    bfloat16, half, single = error("bfloat16"), error("float16"), error("float32")
    assert single < 1e-6 < half < 5e-3
    assert half < bfloat16 < 5e-2


def test_block_graphs_are_measured_with_their_own_types() -> None:
    """Attention that keeps exponentials without a maximum in float16 overflows; with a running maximum it does not."""
    sizes = {"batch": 1, "heads": 1, "rows": 4, "head_dim": 8, "context": 32}
    online = wb.programs.known_good("attention_safe", "standard", "float16", **sizes)
    reports = [stability(graph) for graph in online]
    for report in reports:
        assert not report["exponents near 100"].overflow
        assert report["exponents near 100"].error < 0.2


@pytest.mark.parametrize("name", ["gated_mlp", "gqa", "lora"])
def test_the_built_in_cases(name: str) -> None:
    small = {"batch": 2, "hidden": 16, "out": 8, "rank": 4, "heads": 2, "rows": 4, "head_dim": 8, "context": 16}
    sizes = {parameter.name: small[parameter.name] for parameter in wb.programs.parameters(name)}
    graph = wb.programs.get(name, "standard", "float16", **sizes)
    names = [case for case, _ in hard_inputs(graph, 0)]
    assert names[0] == "N(0, 1)"
    assert ("exponents near 100" in names) == (name != "lora")  # no exp in LoRA
    assert sum(case.startswith("large rows of") for case in names) == len(graph.inputs)
    assert [case.name for case in stability(graph).cases] == names
    first, again = (list(hard_inputs(graph, 7)) for _ in range(2))
    for (_, left), (_, right) in zip(first, again, strict=True):
        for a, b in zip(left, right, strict=True):
            np.testing.assert_array_equal(a, b)
    assert any((a != b).any() for a, b in zip(first[0][1], next(iter(hard_inputs(graph, 8)))[1], strict=True))


def test_exponents_are_brought_near_a_hundred_through_matmuls() -> None:
    graph = wb.programs.get("gqa", "standard", "float32", batch=1, heads=1, rows=4, head_dim=8, context=16)
    q, k, _ = dict(hard_inputs(graph, 0))["exponents near 100"]
    assert abs(np.abs(q @ k).max() / 100 - 1) < 0.1
    normalised = wb.trace(lambda x: wb.softmax(wb.l2_norm(x)), x=(4, 8))
    (x,) = dict(hard_inputs(normalised, 0))["exponents near 100"]
    assert np.isfinite(x).all()  # no scale helps: the search ends


def test_the_report_as_text_and_json() -> None:
    report = stability(softmax_by_hand(False, "float16"), seed=3)
    assert isinstance(report, StabilityReport)
    text = report.describe()
    assert "float16" in text
    assert all(case.name in text for case in report.cases)
    assert report.worst.name in text.splitlines()[-1]
    plain = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert plain["worst"] == report.worst.name
    assert plain["error"] is None  # infinite
    assert len(plain["cases"]) == len(report.cases)
    assert report.error == max(case.error for case in report.cases)


def test_inputs_are_checked() -> None:
    graph = softmax_by_hand(True, "float16")
    with pytest.raises(ShapeError, match="takes 1 inputs"):
        stability(graph, inputs=[np.zeros((4, 64)), np.zeros(3)])
    with pytest.raises(ShapeError, match="input x"):
        stability(graph, inputs={"wrong": [np.zeros((64, 4))]})
    with pytest.raises(UsageError, match="one array per program input"):
        stability(graph, inputs=7)  # type: ignore[arg-type]
