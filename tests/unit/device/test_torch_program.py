"""Torch functions made from graphs: an expression for every operator, right numbers where torch is installed."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import numpy as np
import pytest

import workbench as wb
from tests.conformance.operator_checks.cases import CASES, Case
from workbench.core.tensors import DeviceTensor
from workbench.device.attention_pattern import find_attention, key_layouts
from workbench.device.torch_operators import TORCH_RULES, is_literal, literal, torch_rule
from workbench.device.torch_program import torch_program
from workbench.errors import EmitError, MissingRuleError
from workbench.ops.registry import operators
from workbench.ugraph.kernel_graph import KernelGraph

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")


def run(graph: KernelGraph, arrays: list[Any], *, fused: bool = False) -> list[Any]:
    """Evaluate the torch function on the CPU in float32 or float64."""
    torch = importlib.import_module("torch")
    source = torch_program(graph, find_attention(graph) if fused else ()).source.replace("'cuda'", "'cpu'")
    names: dict[str, Any] = {"torch": torch, "F": torch.nn.functional}
    exec(source, names)
    found = names["program"](*(torch.from_numpy(array) for array in arrays))
    return [tensor.numpy() for tensor in (found if isinstance(found, tuple) else (found,))]


def close(graph: KernelGraph, rng: np.random.Generator, *, fused: bool = False, positive: bool = False) -> bool:
    """Return whether the torch function agrees with the float64 meaning."""
    drawn = [rng.standard_normal(tensor.shape) * 0.5 for tensor in graph.inputs]
    drawn = [np.abs(array) + 0.25 if positive else array for array in drawn]
    arrays = [np.asarray(array, tensor.dtype.value) for array, tensor in zip(drawn, graph.inputs, strict=True)]
    found, expected = run(graph, list(arrays), fused=fused), wb.evaluate(graph, arrays)
    return all(
        one.shape == other.shape and np.linalg.norm(one - other) <= 1e-5 * np.linalg.norm(other)
        for one, other in zip(found, expected, strict=True)
    )


def test_every_operator_has_an_expression() -> None:
    levels = {spec.name for spec in operators() if "kernel" in spec.levels}
    assert levels <= set(TORCH_RULES)
    assert set(TORCH_RULES) <= {spec.name for spec in operators()}
    with pytest.raises(MissingRuleError, match="add it to TORCH_RULES"):
        torch_rule("fft")


def test_literals() -> None:
    assert [literal(2), literal(-1)] == ["2.0", "(-1.0)"]
    assert [is_literal(text) for text in ("2.0", "(-1.0)", "1e-06", "x1", "v12")] == [True, True, True, False, False]


def single(op: str, case: Case) -> KernelGraph:
    """Return a program of one operator."""
    kernel = wb.KernelBuilder("single")
    inputs = [kernel.input(f"x{i}", shape, "float32") for i, shape in enumerate(case.shapes)]
    kernel.output(*kernel.apply_all(op, *inputs, **case.attributes))  # type: ignore[arg-type]  # names of attributes
    return kernel.build()


@needs_torch
@pytest.mark.parametrize("op", CASES)
def test_operators_are_right(op: str, rng: np.random.Generator) -> None:
    for case in CASES[op]:
        assert close(single(op, case), rng, positive=True), case


@needs_torch
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("style", ["standard", "mirage"])
@pytest.mark.parametrize("name", wb.programs.names())
def test_programs_are_right(name: str, style: str, fused: bool, rng: np.random.Generator) -> None:
    sizes = {"batch": 3, "hidden": 48, "out": 40, "rank": 4, "inner": 24, "rows": 6, "head_dim": 16, "context": 40}
    sizes |= {"heads": 2, "experts": 2}
    taken = {one.name: sizes[one.name] for one in wb.programs.parameters(name)}
    graph = wb.programs.get(name, style, "float32", **taken)
    assert close(graph, rng, fused=fused)


@needs_torch
def test_constants_views_and_several_outputs_are_right(rng: np.random.Generator) -> None:
    graph = wb.trace(
        lambda X, Y: (
            wb.maximum(X, 0.25) * 2 - 1,
            wb.transpose(X),
            wb.split(Y, 2)[1],
            wb.rms_norm(X) * Y,
            X / wb.rms(X, axis=-2, eps=1e-3),
            2 / (1 + wb.exp(-X)),
        ),
        X=(4, 6),
        Y=(6,),
        dtype="float32",
    )
    assert close(graph, rng)
    given = [np.ones((4, 6), np.float32), np.ones(6, np.float32)]
    for array in run(graph, list(given)):
        assert not any(np.shares_memory(array, one) for one in given)


def test_norms_are_taken_as_one_function() -> None:
    source = torch_program(wb.programs.get("rms_norm_linear")).source
    assert "F.rms_norm(x0, (4096,), weight=x1, eps=1e-06)" in source
    assert source.count("\n") == 4
    source = torch_program(wb.programs.get("qk_norm_attention")).source
    assert "F.rms_norm(x1.transpose(-1, -2), (64,), eps=1e-06).transpose(-1, -2)" in source
    shared = wb.trace(lambda X, G: (wb.rms_norm(X) * G, wb.rms_norm(X)), X=(4, 8), G=(8,))
    assert torch_program(shared).source.count("F.rms_norm") == 2
    both = wb.trace(lambda X, G: (lambda n: (n * G, n))(wb.rms_norm(X)), X=(4, 8), G=(8,))
    assert "weight=" not in torch_program(both).source  # the norm itself is an output too


def test_nothing_is_computed_twice_and_biases_go_with_their_products(rng: np.random.Generator) -> None:
    graph = wb.trace(
        lambda X, W1, W2, B: (wb.rms_norm(X) @ W1 + B, B + wb.rms_norm(X) @ W2, X @ W1 + X @ W2),
        X=(4, 8), W1=(8, 8), W2=(8, 8), B=(8,), dtype="float32",
    )  # fmt: skip
    source = torch_program(graph).source
    assert source.count("F.rms_norm") == 1
    assert source.count("torch.addmm(x3, ") == 2
    assert source.count(" @ ") == 2  # the third sum is of two products
    shared = wb.trace(lambda X, W, B: (lambda p: (p + B, p))(X @ W), X=(4, 8), W=(8, 8), B=(8,), dtype="float32")
    assert "addmm" not in torch_program(shared).source  # the product is an output too
    row = wb.trace(lambda X, W, B: X @ W + B, X=(4, 8), W=(8, 8), B=(1, 8), dtype="float32")
    assert "addmm" not in torch_program(row).source
    twice = wb.trace(lambda X: (wb.exp(X), wb.exp(X)), X=(4, 8), dtype="float32")
    assert torch_program(twice).source.count("torch.exp") == 1
    if importlib.util.find_spec("torch") is not None:
        assert all(close(one, rng) for one in (graph, shared, row, twice))


def test_graph_defined_kernels_are_refused_with_the_cure() -> None:
    with pytest.raises(EmitError, match="time the program it was made from"):
        torch_program(wb.programs.known_good("lora")[0])


# ---------------------------------------------------------------------------------------------------------- attention
def attention(form: str) -> KernelGraph:
    """Return softmax(Q K) V in one of its written forms."""

    def function(Q: Any, K: Any, V: Any) -> Any:
        logits = Q @ K
        match form:
            case "softmax":
                return wb.softmax(logits) @ V
            case "divided before":
                weights = wb.exp(logits)
                return (weights / wb.sum(weights)) @ V
            case "divided after":
                weights = wb.exp(logits)
                return (weights @ V) / wb.sum(weights)
            case "safe":
                weights = wb.exp(logits - wb.max(logits))
                return (weights @ V) / wb.sum(weights)
            case "other axis":
                return wb.softmax(logits, axis=-2) @ V
            case "logits are read twice":
                return wb.softmax(logits) @ V + wb.sum(logits)
            case "other sum":
                return (wb.exp(logits) @ V) / wb.sum(wb.exp(logits + 1))
            case "other maximum":
                return (wb.exp(logits - wb.max(Q)) @ V) / wb.sum(wb.exp(logits - wb.max(Q)))
        raise AssertionError(form)

    return wb.trace(function, Q=(2, 6, 8), K=(2, 8, 12), V=(2, 12, 8), dtype="float32")


@pytest.mark.parametrize("form", ["softmax", "divided before", "divided after", "safe"])
def test_attention_is_found_in_every_form(form: str, rng: np.random.Generator) -> None:
    graph = attention(form)
    (found,) = find_attention(graph)
    assert (found.query, found.keys, found.values, found.result) == ("Q", "K", "V", graph.output_names[0])
    assert len(found.covered) == len(graph.nodes) - 1
    assert "scaled_dot_product_attention(x0[None, ...]" in torch_program(graph, [found]).source
    if importlib.util.find_spec("torch") is not None:
        assert close(graph, rng, fused=True)


@pytest.mark.parametrize("form", ["other axis", "logits are read twice", "other sum", "other maximum"])
def test_what_is_no_attention_is_not_taken_for_one(form: str) -> None:
    assert find_attention(attention(form)) == []


def test_heads_that_share_keys_are_not_taken_for_equal_ones() -> None:
    graph = wb.trace(lambda Q, K, V: wb.softmax(Q @ K) @ V, Q=(4, 6, 8), K=(8, 12), V=(12, 8))
    assert find_attention(graph) == []


def test_keys_are_laid_out_row_by_row_also_behind_a_norm() -> None:
    for name in ("gqa", "qk_norm_attention"):
        graph = wb.programs.get(name)
        layouts = key_layouts(graph, find_attention(graph))
        assert layouts == {1: (64 * 4096, 1, 64)}
        keys = graph.inputs[1]
        assert DeviceTensor("K", keys.shape, keys.dtype, layouts[1]).strides == (64 * 4096, 1, 64)
