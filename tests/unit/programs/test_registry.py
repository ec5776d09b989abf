"""Programs by name: what is listed, what a request settles, and what a wrong request is told."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tests.unit.programs.closed_forms import closed_form, hard_inputs, relative_error
from workbench import programs
from workbench.errors import DTypeError, ShapeError, UnknownNameError, UsageError
from workbench.interpret import evaluate
from workbench.programs import Style

ALL = [
    "attention_safe",
    "gated_mlp",
    "gated_mlp_down",
    "gqa",
    "gqa_decode",
    "lora",
    "mha",
    "moe_expert",
    "mqa",
    "ntrans",
    "qk_norm_attention",
    "rms_norm_linear",
    "softmax",
]
SMALL = {
    "batch": 3, "hidden": 10, "out": 7, "inner": 9, "rank": 2, "heads": 2, "rows": 5, "head_dim": 4, "context": 11,
    "experts": 2,
}  # fmt: skip

# TARGETS: program, sizes -> shapes of the inputs
ROWS = [
    ("rms_norm_linear", {"batch": 2}, [(2, 4096), (4096,), (4096, 4096)]),
    ("rms_norm_linear", {}, [(16, 4096), (4096,), (4096, 4096)]),
    ("rms_norm_linear", {"out": 6144}, [(16, 4096), (4096,), (4096, 6144)]),
    ("gated_mlp", {}, [(8, 4096), (4096, 4096), (4096, 4096)]),
    ("gated_mlp", {"batch": 64}, [(64, 4096), (4096, 4096), (4096, 4096)]),
    ("lora", {}, [(16, 256), (256, 4096), (256, 16), (16, 4096)]),
    ("lora", {"hidden": 4096}, [(16, 4096), (4096, 4096), (4096, 16), (16, 4096)]),
    ("gqa", {}, [(2, 256, 64), (2, 64, 4096), (2, 4096, 64)]),
    ("gqa", {"batch": 8}, [(16, 256, 64), (16, 64, 4096), (16, 4096, 64)]),
    ("qk_norm_attention", {}, [(2, 256, 64), (2, 64, 4096), (2, 4096, 64)]),
    ("qk_norm_attention", {"batch": 8}, [(16, 256, 64), (16, 64, 4096), (16, 4096, 64)]),
    ("gqa_decode", {}, [(2, 8, 128), (2, 128, 8192), (2, 8192, 128)]),
    ("gqa_decode", {"batch": 16}, [(32, 8, 128), (32, 128, 8192), (32, 8192, 128)]),
    ("ntrans", {}, [(8, 4096)] * 3),
    ("ntrans", {"batch": 64}, [(64, 4096)] * 3),
    ("mha", {}, [(32, 16, 64), (32, 64, 4096), (32, 4096, 64)]),
    ("mqa", {}, [(1, 1024, 64), (1, 64, 4096), (1, 4096, 64)]),
    ("moe_expert", {}, [(8, 8, 4096), (8, 4096, 4096), (8, 4096, 4096)]),
]


def sizes(name: str) -> dict[str, Any]:
    return {parameter.name: SMALL[parameter.name] for parameter in programs.parameters(name)}


def test_names_are_sorted_and_complete() -> None:
    assert programs.names() == ALL


@pytest.mark.parametrize(("name", "given", "shapes"), ROWS)
def test_rows_of_the_benchmarks(name: str, given: dict[str, Any], shapes: list[tuple[int, ...]]) -> None:
    graph = programs.get(name, **given)
    assert [tensor.shape for tensor in graph.inputs] == shapes
    assert [tensor.name for tensor in graph.outputs] == ["O"]
    assert {str(tensor.dtype) for tensor in (*graph.inputs, *graph.outputs)} == {"float16"}


@pytest.mark.parametrize(
    ("name", "style", "inputs"),
    [
        ("rms_norm_linear", "standard", "X G W"),
        ("rms_norm_linear", "mirage", "X W"),
        ("gated_mlp", "standard", "X W1 W2"),
        ("gated_mlp_down", "standard", "X W1 W2 W3"),
        ("lora", "mirage", "X W A B"),
        ("ntrans", "mirage", "H X alpha"),
        ("qk_norm_attention", "mirage", "Q K V"),
        ("moe_expert", "standard", "X A B"),
    ],
)
def test_inputs_in_order(name: str, style: str, inputs: str) -> None:
    assert [tensor.name for tensor in programs.get(name, style=style).inputs] == inputs.split()


@pytest.mark.parametrize("style", ["standard", "mirage"])
@pytest.mark.parametrize("name", ALL)
def test_programs_equal_their_closed_forms(name: str, style: str, rng: np.random.Generator) -> None:
    graph = programs.get(name, style=style, **sizes(name))
    inputs = hard_inputs(graph, rng)
    (found,) = evaluate(graph, inputs)
    assert relative_error(found, closed_form(name, style, inputs)) < 1e-12


@pytest.mark.parametrize("name", ["rms_norm_linear", "ntrans", "qk_norm_attention"])
def test_styles_that_differ_do_differ(name: str, rng: np.random.Generator) -> None:
    graph = programs.get(name, style="mirage", **sizes(name))
    inputs = hard_inputs(graph, rng)
    others = inputs if name != "rms_norm_linear" else [inputs[0], rng.standard_normal(sizes(name)["hidden"]), inputs[1]]
    (found,) = evaluate(graph, inputs)
    assert relative_error(found, closed_form(name, "standard", others)) > 1e-2


def test_eps_is_part_of_the_standard_style() -> None:
    x, gain, w = np.full((1, 4), 1e-3), np.ones(4), np.eye(4)
    (found,) = evaluate(programs.get("rms_norm_linear", batch=1, hidden=4, out=4), [x, gain, w])
    np.testing.assert_allclose(found, np.full((1, 4), np.sqrt(0.5)), rtol=1e-12)


def test_logits_are_not_scaled() -> None:
    q, k, v = np.ones((1, 1, 4)), np.zeros((1, 4, 2)), np.array([[[1.0] * 4, [0.0] * 4]])
    k[0, :, 0] = 0.25  # logits 1 and 0
    (found,) = evaluate(programs.get("gqa", heads=1, rows=1, head_dim=4, context=2), [q, k, v])
    np.testing.assert_allclose(found[0, 0, 0], np.e / (np.e + 1), rtol=1e-12)


def test_data_type_reaches_inputs_and_outputs() -> None:
    graph = programs.get("gqa", dtype="bfloat16", rows=4)
    assert {str(tensor.dtype) for tensor in (*graph.inputs, *graph.outputs)} == {"bfloat16"}


@pytest.mark.parametrize("name", ALL)
def test_sizes_are_read_off_the_shapes(name: str) -> None:
    for style in Style:
        graph = programs.get(name, style=style, **sizes(name))
        found, inferred = programs.infer_sizes(name, [tensor.shape for tensor in graph.inputs])
        assert programs.get(name, found, "float16", **inferred).inputs == graph.inputs
        if [tensor.name for tensor in programs.get(name).inputs] != [tensor.name for tensor in graph.inputs]:
            assert found is style


def test_batch_and_heads_are_told_apart_by_the_default() -> None:
    shapes = [(16, 256, 64), (16, 64, 4096), (16, 4096, 64)]
    assert programs.infer_sizes("gqa", shapes)[1]["batch"] == 8
    odd = [(3, 4, 8), (3, 8, 16), (3, 16, 8)]
    assert programs.infer_sizes("gqa", odd)[1] == {"batch": 1, "heads": 3, "rows": 4, "head_dim": 8, "context": 16}


@pytest.mark.parametrize(
    "shapes",
    [[(4, 8), (8, 3)], [(4, 8), (9, 3), (8, 3)], [(4, 8), (8, 3), (8, 2)], [(4, 8, 1), (8, 3), (8, 3)]],
)
def test_shapes_that_do_not_fit(shapes: list[tuple[int, ...]]) -> None:
    with pytest.raises(ShapeError, match=re.escape("X[batch, hidden], W1[hidden, out]")):
        programs.infer_sizes("gated_mlp", shapes)


@pytest.mark.parametrize(
    ("name", "given", "error", "message"),
    [
        ("rms_linear", {}, UnknownNameError, "did you mean rms_norm_linear"),
        ("zzz", {}, UnknownNameError, "known: attention_safe, "),
        ("gqa", {"head": 2}, UnknownNameError, "did you mean heads"),
        ("lora", {"zzz": 2}, UnknownNameError, "known: batch, hidden, out, rank"),
        ("lora", {"rank": 0}, ShapeError, "rank = 0 must be at least 1"),
        ("lora", {"rank": 2.5}, ShapeError, "rank = 2.5 is not an integer"),
        ("lora", {"rank": "4"}, ShapeError, "rank = '4' is not an integer"),
        ("lora", {"rank": True}, ShapeError, "truth value"),
        ("lora", {"style": "miragee"}, UsageError, "unknown style 'miragee'; use 'standard' or 'mirage'"),
        ("lora", {"dtype": "float8"}, DTypeError, "float8"),
    ],
)
def test_wrong_requests_get_one_line(name: str, given: dict[str, Any], error: type[Exception], message: str) -> None:
    for ask in (programs.get, programs.known_good):
        with pytest.raises(error, match=re.escape(message)) as raised:
            ask(name, **given)
        assert "\n" not in str(raised.value)


def test_numpy_integers_are_integers() -> None:
    assert programs.get("lora", rank=np.int64(3)).inputs[2].shape == (256, 3)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ALL)
def test_description_names_inputs_sizes_and_source(name: str) -> None:
    text = programs.describe(name)
    assert all(tensor.name in text for tensor in programs.get(name).inputs)
    assert all(f"{size.name} = {size.default}" in text for size in programs.parameters(name))
    assert "source" in text
