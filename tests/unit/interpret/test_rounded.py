from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt
import pytest

import workbench as wb
from workbench.core.dtypes import DType
from workbench.errors import ShapeError
from workbench.interpret.rounded import evaluate_rounded, round_to
from workbench.ugraph.builder import KernelBuilder


def half_by_struct(value: float) -> float:
    """The nearest float16, by Python's own packing; inf where that refuses."""
    try:
        return float(struct.unpack("<e", struct.pack("<e", value))[0])
    except OverflowError:
        return float(np.copysign(np.inf, value))


def bfloat16_by_definition(value: float) -> float:
    """The nearest number of 8 significant bits, ties to even, from the definition."""
    if value == 0 or not np.isfinite(value):
        return value
    _, exponent = np.frexp(value)
    step = 2.0 ** (max(int(exponent), -125) - 8)
    rounded = float(np.round(value / step) * step)  # np.round goes to even
    return rounded if abs(rounded) <= DType.BFLOAT16.largest else float(np.copysign(np.inf, value))


@pytest.fixture
def values(rng: np.random.Generator) -> npt.NDArray[np.float64]:
    random = rng.standard_normal(4000) * 10.0 ** rng.integers(-8, 6, 4000)
    special = [0.0, 1.0, -1.0, 65504.0, 65519.9, 65520.0, 65536.0, 2.0**-24, 2.0**-25, 1 + 2.0**-11, 1 + 3 * 2.0**-11]
    special += [1 + 2.0**-8, 1 + 3 * 2.0**-8, 3.3895e38, 3.396e38, -3.4e38]
    return np.concatenate([random, special]).astype(np.float32).astype(np.float64)


def test_float16_is_rounded_as_python_packs_it(values: npt.NDArray[np.float64]) -> None:
    expected = [half_by_struct(value) for value in values]
    np.testing.assert_array_equal(round_to(values, DType.FLOAT16), expected)


def test_bfloat16_is_rounded_to_eight_bits(values: npt.NDArray[np.float64]) -> None:
    expected = [bfloat16_by_definition(value) for value in values]
    np.testing.assert_array_equal(round_to(values, DType.BFLOAT16), expected)


@pytest.mark.parametrize("dtype", list(DType))
def test_what_is_not_finite_stays_so_and_shapes_too(dtype: DType) -> None:
    array = np.array([[np.inf, -np.inf, np.nan, -0.0]])
    rounded = round_to(array, dtype)
    np.testing.assert_array_equal(rounded, array)
    assert np.signbit(rounded[0, 3])
    assert round_to(np.asarray(2.5), dtype).shape == ()


def test_every_tensor_is_rounded_after_its_operator() -> None:
    """1 + 2^-12 is lost between two operators in float16, and kept in float32."""
    for dtype, expected in (("float16", 0.0), ("float32", 2.0**-12)):
        graph = wb.trace(lambda x, y: (x + y) - x, x=((1,), dtype), y=((1,), dtype))
        (found,) = evaluate_rounded(graph, [np.ones(1), np.full(1, 2.0**-12)])
        assert found[0] == expected


def test_sums_inside_an_operator_are_float32_and_the_result_is_rounded() -> None:
    """2048 ones and one 1: a float16 running sum would stick at 2048."""
    graph = wb.trace(lambda x: wb.sum(x), x=((1, 2052), "float16"))
    (found,) = evaluate_rounded(graph, [np.ones((1, 2052))])
    assert found[0, 0] == 2052.0
    product = wb.trace(lambda x, y: x @ y, x=((1, 2052), "float16"), y=((2052, 1), "float16"))
    (found,) = evaluate_rounded(product, [np.ones((1, 2052)), np.ones((2052, 1))])
    assert found[0, 0] == 2052.0


def test_accumulators_keep_float32_between_iterations() -> None:
    kernel = KernelBuilder("accumulator")
    x = kernel.input("x", (1, 8), "float16")
    block = kernel.block(x, grid=(1,), loop=4)
    total = block.accumulate(block.load(x, fmap=1), "sum_dim")
    block.save(total - 4096.0)
    kernel.output(*block.finish(dtypes=["float32"]))
    graph = kernel.build()
    (found,) = evaluate_rounded(graph, [np.array([[4096.0, 1, 0, 1, 1, 0, 1, 1]])])
    assert found[0, 0] == 5.0  # float16 cannot hold 4097


def test_overflow_becomes_infinite() -> None:
    graph = wb.trace(lambda x: wb.exp(x), x=((2,), "float16"))
    (found,) = evaluate_rounded(graph, [np.array([11.0, 12.0])])
    assert found[0] == half_by_struct(float(np.float32(np.exp(11.0))))
    assert found[1] == np.inf


def test_float64_programs_are_not_rounded(rng: np.random.Generator) -> None:
    graph = wb.trace(lambda x: wb.softmax(x * 3), x=((3, 5), "float64"))
    x = rng.standard_normal((3, 5))
    np.testing.assert_allclose(evaluate_rounded(graph, [x])[0], wb.evaluate(graph, [x])[0], rtol=1e-14)


def test_shapes_are_checked() -> None:
    graph = wb.trace(lambda x: x, x=(2, 3))
    with pytest.raises(ShapeError, match="input x"):
        evaluate_rounded(graph, [np.zeros((3, 2))])
