from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import workbench as wb
from workbench.core.dtypes import DType
from workbench.core.tensors import DeviceTensor
from workbench.errors import DTypeError, ShapeError, UnknownTensorError, UsageError, WorkbenchError
from workbench.interpret import evaluate
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import OpNode
from workbench.ugraph.text import parse_graph, print_graph
from workbench.ugraph.tracing import TracedProgram, program, trace
from workbench.ugraph.value import Value


def ops(graph: KernelGraph) -> list[str]:
    return [node.op for node in graph.nodes if isinstance(node, OpNode)]


def test_the_example_of_the_documentation(rng: np.random.Generator) -> None:
    graph = trace(lambda X, Y: wb.exp(X) @ Y, X=(4, 8), Y=(8, 16), dtype="float32")
    assert [(t.name, t.shape, t.dtype) for t in graph.inputs] == [
        ("X", (4, 8), DType.FLOAT32),
        ("Y", (8, 16), DType.FLOAT32),
    ]
    assert ops(graph) == ["exp", "matmul"]
    assert graph.outputs[0].shape == (4, 16)
    x, y = rng.standard_normal((4, 8)), rng.standard_normal((8, 16))
    np.testing.assert_allclose(evaluate(graph, [x, y])[0], np.exp(x) @ y, rtol=1e-12)


def test_inputs_stand_in_the_order_of_the_parameters() -> None:
    graph = trace(lambda b, a: a - b, a=(2,), b=(2,))
    assert [tensor.name for tensor in graph.inputs] == ["b", "a"]
    np.testing.assert_array_equal(evaluate(graph, [np.array([1.0, 2]), np.array([10.0, 30])])[0], [9, 28])


def test_arguments_by_type_strides_or_tensor() -> None:
    graph = trace(
        lambda A, B, C, D: (A + B, C @ D),
        A=((2, 3), "bf16"),
        B=DeviceTensor("other", (2, 3), DType.BFLOAT16, (1, 2)),
        C=((4, 5), DType.FLOAT64),
        D=((5, 6), "float64", (1, 5)),
    )
    assert [tensor.name for tensor in graph.inputs] == ["A", "B", "C", "D"]
    assert [tensor.strides for tensor in graph.inputs] == [(3, 1), (1, 2), (5, 1), (1, 5)]
    assert [tensor.dtype for tensor in graph.outputs] == [DType.BFLOAT16, DType.FLOAT64]


def test_tuples_unused_inputs_and_defaults() -> None:
    def fn(X: Value, unused: Value, eps: float = 0.5) -> tuple[Value, Value]:
        return X + eps, X * 0.1

    graph = trace(fn, X=(3,), unused=(7, 7))
    assert graph.name == "fn"
    assert [tensor.name for tensor in graph.inputs] == ["X", "unused"]
    assert len(graph.outputs) == 2
    np.testing.assert_allclose(evaluate(graph, [np.ones(3), np.ones((7, 7))])[0], [1.5] * 3)
    constants = [dict(node.attributes) for node in graph.nodes if isinstance(node, OpNode) and node.attributes]
    assert constants == [{"value": Fraction(1, 2)}, {"factor": Fraction(1, 10)}]  # exactly what repr prints
    assert len(trace(fn, X=(3,), unused=(7, 7), eps=(1,)).inputs) == 3  # a default may become an input


def test_a_constant_an_input_and_a_value_twice_are_outputs() -> None:
    graph = trace(lambda X: (X, 2.5, X), X=(2,))
    found = evaluate(graph, [np.array([3.0, 4.0])])
    np.testing.assert_array_equal(found[0], [3, 4])
    assert found[1] == 2.5
    assert graph.output_names[0] == graph.output_names[2] == "X"
    assert trace(lambda X: [X], X=()).outputs[0].shape == ()
    assert parse_graph(print_graph(graph)) == graph


def test_python_operators_on_both_sides(rng: np.random.Generator) -> None:
    graph = trace(lambda X: (1 - X) / (2 + X) * 3 - X / 4 + 1 / X - (-X) ** 2 + X**0.5 + 2 * X, X=(5,))
    x = rng.uniform(0.5, 2, 5)
    expected = (1 - x) / (2 + x) * 3 - x / 4 + 1 / x - x**2 + x**0.5 + 2 * x
    np.testing.assert_allclose(evaluate(graph, [x])[0], expected, rtol=1e-12)


def test_a_name_like_a_temporary_is_left_to_the_input() -> None:
    graph = trace(lambda t0, t1: wb.exp(t0) * t1, t0=(2,), t1=(2,))
    assert [node.results[0].name for node in graph.nodes] == ["t2", "t3"]


def other_value() -> Value:
    found: list[Value] = []

    def keep(Z: Value) -> Value:
        found.append(Z)
        return Z

    trace(keep, Z=(2,))
    return found[0]


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: trace(lambda X, Y: X, X=(2,)), UsageError, r"no shape for Y; give one per argument, Y=\(16, 64\)"),
        (lambda: trace(lambda X: X, x=(2,)), UsageError, "has no argument 'x'; it has: X"),
        (lambda: trace(lambda alpha: alpha, alphas=(2,)), UsageError, "no argument 'alphas'; did you mean alpha"),
        (lambda: trace(lambda X: X, X=2), UsageError, "argument X: 2 is no shape; give a tuple"),  # type: ignore[arg-type]
        (lambda: trace(lambda X: X, X="b h"), UsageError, "argument X: 'b h' is no shape"),  # type: ignore[arg-type]
        (lambda: trace(lambda X: X, X=(2, 0)), ShapeError, "argument X: extent of axis 1 is 0"),
        (lambda: trace(lambda X: X, X=(2.0,)), ShapeError, "argument X: extent 2.0 of .* is no integer"),  # type: ignore[arg-type]
        (lambda: trace(lambda X: X, X=(True,)), ShapeError, "extent True"),
        (lambda: trace(lambda X: X, X=((2,), 3)), UsageError, r"argument X: give \(shape, dtype\)"),  # type: ignore[arg-type]
        (lambda: trace(lambda X: X, X=((2, 2), "fp16", (1,))), ShapeError, "1 strides for 2 axes"),
        (lambda: trace(lambda X: X, X=(2,), dtype="float8"), DTypeError, "float8"),
        (lambda: trace(lambda X: None, X=(2,)), UsageError, "the result of the traced function is None"),
        (lambda: trace(lambda X: (X, "a"), X=(2,)), UsageError, "result 1 is a str; return a traced tensor"),
        (lambda: trace(lambda X: (), X=(2,)), UsageError, "returned an empty tuple"),
        (lambda: trace(lambda X: True, X=(2,)), UsageError, "is a bool"),
        (lambda: trace(lambda X: np.ones(2), X=(2,)), UsageError, "is a ndarray"),
        (lambda: trace(lambda *X: X, X=(2,)), UsageError, r"parameter \*X cannot be given by name"),
        (lambda: trace(lambda dtype: dtype), UsageError, "parameter 'dtype' has the name of an option"),
        (lambda: trace(3), UsageError, "trace needs a function, got int"),  # type: ignore[arg-type]
        (lambda: trace(lambda X: X or 1, X=(2,)), UsageError, "the truth of tensor X is not known"),
        (lambda: trace(lambda X: X + other_value(), X=(2,)), UnknownTensorError, "'Z' belongs to another graph"),
        (lambda: trace(lambda X, Y: X @ Y, X=(2, 3), Y=(4, 5)), ShapeError, "matmul"),
        (lambda: trace(lambda X: X / 0, X=(2,)), UsageError, "X is divided by the number 0"),
    ],
)  # fmt: skip
def test_mistakes_are_named(make: Callable[[], Any], error: type[WorkbenchError], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


# ---------------------------------------------------------------------------------------------------- named axes
SOURCE = '''
def rms_linear(X: "b h", G: "h", W: "h d", eps=1e-6):
    """Normalise, scale, multiply."""
    return wb.rms_norm(X, eps=eps) * G @ W
def heads(Q: "2 rows 64", s: ""):
    return Q * s
def no_axes(X):
    return X
def unquoted(X: int):
    return X
def bad_axis(X: "b -1"):
    return X
def quotes(X: "'b'"):
    return X
def reserved(X: "dtype"):
    return X
def clash(X: "eps", eps=1):
    return X
'''


def defined(postponed: bool) -> dict[str, Any]:
    """Return the functions of SOURCE, compiled with or without `from __future__ import annotations`."""
    names: dict[str, Any] = {"wb": wb}
    head = "from __future__ import annotations\n" if postponed else ""
    exec(compile(head + SOURCE, "programs", "exec", dont_inherit=True), names)
    return names


@pytest.fixture(params=[True, False], ids=["postponed", "plain"])
def functions(request: pytest.FixtureRequest) -> dict[str, Any]:
    return defined(request.param)


@pytest.fixture
def rms_linear(functions: dict[str, Any]) -> TracedProgram:
    return wb.program(functions["rms_linear"])


def test_a_program_called_with_sizes_is_a_kernel_graph(rms_linear: TracedProgram, rng: np.random.Generator) -> None:
    graph = rms_linear(b=3, h=8, d=5, dtype="float32")
    assert graph.name == "rms_linear"
    assert [(t.name, t.shape, t.dtype) for t in graph.inputs] == [
        ("X", (3, 8), DType.FLOAT32),
        ("G", (8,), DType.FLOAT32),
        ("W", (8, 5), DType.FLOAT32),
    ]
    x, g, w = rng.standard_normal((3, 8)), rng.standard_normal(8), rng.standard_normal((8, 5))
    expected = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * g @ w
    np.testing.assert_allclose(evaluate(graph, [x, g, w])[0], expected, rtol=1e-9)
    assert rms_linear(b=3, h=8, d=5).inputs[0].dtype is DType.FLOAT16


def test_a_program_knows_its_axes_and_options(rms_linear: TracedProgram) -> None:
    assert rms_linear.axes == ("b", "h", "d")
    assert rms_linear.signature == {"X": ("b", "h"), "G": ("h",), "W": ("h", "d")}
    assert repr(rms_linear) == "<program rms_linear(X: b h, G: h, W: h d)>"
    assert rms_linear.__doc__ == "Normalise, scale, multiply."
    (norm, *_) = rms_linear(b=1, h=2, d=2, eps=0.25).nodes
    assert isinstance(norm, OpNode)
    assert norm.attribute_map == {"eps": Fraction(1, 4)}


def test_fixed_extents_and_scalars(functions: dict[str, Any]) -> None:
    assert [tensor.shape for tensor in program(functions["heads"])(rows=7).inputs] == [(2, 7, 64), ()]


def test_programs_call_programs_and_can_be_traced(rms_linear: TracedProgram) -> None:
    by_position = trace(lambda X, G, W: rms_linear(X, G, W, eps=0.25), X=(3, 8), G=(8,), W=(8, 5))
    assert ops(by_position) == ["rms_norm", "mul", "matmul"]
    assert ops(trace(rms_linear, X=(3, 8), G=(8,), W=(8, 5))) == ["rms_norm", "mul", "matmul"]


@pytest.mark.parametrize(
    ("sizes", "error", "message"),
    [
        ({"b": 3, "h": 8}, UsageError, r"program rms_linear: no size for d; call rms_linear\(b=..., h=..., d=...\)"),
        ({}, UsageError, "no size for b, h, d"),
        ({"b": 3, "h": 8, "dd": 5}, UsageError, "has no axis or option 'dd'; did you mean d"),
        ({"b": 3, "h": 8, "d": 0}, ShapeError, "size d=0 must be an integer of at least 1"),
        ({"b": 3, "h": 8, "d": 2.0}, ShapeError, "size d=2.0 must be an integer"),
        ({"b": 3, "h": 8, "d": True}, ShapeError, "size d=True"),
        ({"b": 3, "h": 8, "d": 5, "dtype": "int4"}, DTypeError, "int4"),
        ({"b": 3, "h": 8, "d": 5, "dtype": 16}, UsageError, "dtype 16 is no data type"),
    ],
)
def test_wrong_sizes_are_named(
    rms_linear: TracedProgram, sizes: dict[str, Any], error: type[WorkbenchError], message: str
) -> None:
    with pytest.raises(error, match=message):
        rms_linear(**sizes)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_axes", 'program no_axes: parameter X has no axes; annotate it, X: "b h"'),
        ("unquoted", "parameter X: annotation .*int.* is no string of axes"),
        ("bad_axis", "'-1' is neither the name of an axis nor a positive extent"),
        ("quotes", "is neither the name of an axis"),
        ("reserved", "axis 'dtype' has the name of an option"),
        ("clash", "axis 'eps' has the name of an option"),
    ],
)
def test_wrong_annotations_are_named(functions: dict[str, Any], name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        program(functions[name])


def test_only_functions_are_programs() -> None:
    with pytest.raises(UsageError, match="@program needs a function, got str"):
        program("f")  # type: ignore[arg-type]


def test_numbers_of_numpy_and_reflected_powers(rng: np.random.Generator) -> None:
    graph = trace(
        lambda X: (X + np.int64(2), np.float32(0.5) * X, 2**X, wb.pow(3, X), X**1, wb.reshape(X, 6)), X=(2, 3)
    )
    x = rng.standard_normal((2, 3))
    expected = [x + 2, 0.5 * x, 2**x, 3**x, x, x.reshape(6)]
    for got, want in zip(evaluate(graph, [x]), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12)


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (lambda X: X * float("nan"), "nan is not finite"),
        (lambda X: X + float("inf"), "inf is not finite"),
        (lambda X: X * "a", "'a' is neither a tensor of the graph nor a number"),
        (lambda X: X * np.ones((2, 3)), "a value of type ndarray is neither"),
        (lambda X: X * 1j, "neither a tensor of the graph nor a number"),
        (lambda X: X ** "a", "'a' is neither"),
        (lambda X: wb.exp([X, X]), "needs a traced tensor among its operands, got list"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_number_is_said_in_one_line(fn: Callable[[Any], Value], message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        trace(fn, X=(2, 3))
    assert "\n" not in str(caught.value)


def test_sizes_by_position_are_refused() -> None:
    @program
    def f(X: "b h") -> Any:  # type: ignore[valid-type]  # noqa: F722
        return X

    with pytest.raises(UsageError, match=r"program f: sizes are given by name, f\(b=..., h=...\)"):
        f(2, 3)  # type: ignore[call-overload]  # the mistake under test
