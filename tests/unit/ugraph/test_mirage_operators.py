from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from tests.unit.ugraph.mirage_writer import Writer, run
from workbench.core.namespaces import array_namespace
from workbench.errors import FormatError
from workbench.ugraph.kernel_graph import KernelGraph


def one(op: str, *shapes: Sequence[int], to: Sequence[Sequence[int]], **extra: Any) -> KernelGraph:
    """Return a program of one kernel operator."""
    writer = Writer()
    made = writer.op(op, [writer.input(*shape) for shape in shapes], *to, **extra)
    writer.output(*made)
    return writer.graph()


def sigmoid(x: Any) -> Any:
    return 1 / (1 + array_namespace(x).exp(-x))


@pytest.mark.parametrize(
    ("name", "function"),
    [("exp", np.exp), ("square", np.square), ("sqrt", np.sqrt), ("log", np.log), ("sigmoid", sigmoid),
     ("silu", lambda x: x * sigmoid(x)), ("relu", lambda x: np.maximum(x, 0)),
     ("rms_norm", lambda x: x / np.sqrt((x**2).mean(-1, keepdims=True)))],
)  # fmt: skip
def test_operators_of_one_operand(name: str, function: Callable[[Any], Any], rng: np.random.Generator) -> None:
    x = rng.uniform(0.1, 2, (3, 4))
    np.testing.assert_allclose(run(one(f"kn_{name}_op", (3, 4), to=[(3, 4)]), x)[0], function(x), rtol=1e-12)


def test_gelu_is_the_erf_form() -> None:
    # x Phi(x) at 1 and -2, from a table of the normal distribution
    found = run(one("kn_gelu_op", (2,), to=[(2,)]), np.array([1.0, -2.0]))[0]
    np.testing.assert_allclose(found, [0.8413447460685429, -2 * 0.022750131948179212], rtol=1e-9)


@pytest.mark.parametrize(
    ("name", "function"),
    [("add", np.add), ("mul", np.multiply), ("div", np.divide), ("pow", np.power), ("sub", np.subtract)],
)
def test_operators_of_two_operands_keep_their_order(
    name: str, function: Callable[[Any, Any], Any], rng: np.random.Generator
) -> None:
    x, y = rng.uniform(0.5, 2, (3, 4)), rng.uniform(0.5, 2, (3, 1))
    np.testing.assert_allclose(
        run(one(f"kn_{name}_op", (3, 4), (3, 1), to=[(3, 4)]), x, y)[0], function(x, y), rtol=1e-12
    )


def strided(x: Any, axis: int, kept: int) -> Any:
    """out[j] = sum over k of x[k*kept + j], written as a loop."""
    parts = [np.take(x, range(j, x.shape[axis], kept), axis).sum(axis, keepdims=True) for j in range(kept)]
    return np.concatenate(parts, axis)


@pytest.mark.parametrize(("dim", "kept"), [(0, 1), (1, 1), (2, 1), (0, 2), (1, 3), (2, 4)])
def test_reductions_fold_strided_groups_along_any_dimension(dim: int, kept: int, rng: np.random.Generator) -> None:
    x = rng.standard_normal((4, 6, 8))
    shape = [kept if axis == dim else extent for axis, extent in enumerate(x.shape)]
    np.testing.assert_allclose(
        run(one(f"kn_reduction_{dim}_op", x.shape, to=[shape]), x)[0], strided(x, dim, kept), rtol=1e-9, atol=1e-12
    )


def test_concat_split_and_chunk(rng: np.random.Generator) -> None:
    x, y = rng.standard_normal((2, 6)), rng.standard_normal((3, 6))
    np.testing.assert_array_equal(
        run(one("kn_concat_0_op", x.shape, y.shape, to=[(5, 6)]), x, y)[0], np.concatenate([x, y])
    )
    first, second = run(one("kn_split_1_op", x.shape, to=[(2, 2), (2, 4)]), x)
    np.testing.assert_array_equal(first, x[:, :2])
    np.testing.assert_array_equal(second, x[:, 2:])
    parts = run(one("kn_chunk_1_op", x.shape, to=[(2, 2)] * 3, chunk_size=3, chunk_dim=1), x)
    np.testing.assert_array_equal(np.concatenate(parts, 1), x)


def test_constants_are_read_where_recorded_and_refused_where_not(rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 4))
    np.testing.assert_allclose(run(one("kn_mul_scalar_op", (3, 4), to=[(3, 4)], scalar=0.1), x)[0], x * 0.1, rtol=1e-15)
    clamped = run(one("kn_clamp_op", (3, 4), to=[(3, 4)], min_val=-0.5, max_val=1), x)[0]
    np.testing.assert_array_equal(clamped, np.clip(x, -0.5, 1))
    with pytest.raises(
        FormatError, match=r"\[0\]\[1\] \(kn_clamp_op\): cannot be imported: its constant min_val is not recorded"
    ):
        one("kn_clamp_op", (3, 4), to=[(3, 4)])
    with pytest.raises(FormatError, match="its constant scalar is not recorded"):
        one("kn_mul_scalar_op", (3, 4), to=[(3, 4)])


@pytest.mark.parametrize(
    ("op", "why"),
    [("kn_allreduce_op", "between GPUs"), ("kn_unkown", "did not know"), ("kn_exponential_op", "no operator of Mirage"),
     ("tb_exp_op", "no operator of Mirage at this level"), ("kn_exp_1_op", "no operator of Mirage"),
     ("kn_reduction_2_op", "its operand has no dimension 2")],
)  # fmt: skip
def test_what_cannot_be_imported_is_refused_with_the_reason(op: str, why: str) -> None:
    with pytest.raises(FormatError, match=rf"\[0\]\[1\] \({op}\): cannot be imported: .*{why}"):
        one(op, (3, 4), to=[(3, 4)])
