"""How values lie when a sketch is built."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb
from workbench.errors import NotApplicableError
from workbench.search.axis_runs import DimNames
from workbench.search.layout import Laid, Layouts
from workbench.ugraph.builder import KernelBuilder
from workbench.ugraph.value import Value

ORDER = {name: place for place, name in enumerate("abcdef")}
EXTENT = {"a": 2, "b": 3, "c": 4, "d": 5, "": 1}


class Bench:
    """A kernel to lay values out in, and its meaning."""

    def __init__(self) -> None:
        self.kernel = KernelBuilder()
        self.layouts = Layouts(self.kernel, ORDER)

    def laid(self, name: str, axes: str) -> Laid:
        """Return an input; '-' is a dimension of extent 1."""
        dims: tuple[DimNames, ...] = tuple(() if axis == "-" else (axis,) for axis in axes)
        return Laid(self.kernel.input(name, tuple(EXTENT[axis.replace("-", "")] for axis in axes)), dims)

    def value(self, result: Value, *arrays: np.ndarray) -> np.ndarray:
        self.kernel.output(result)
        (made,) = wb.evaluate(self.kernel.build(), list(arrays))
        return np.asarray(made)


def random(*axes: str) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.normal(size=tuple(EXTENT[axis.replace("-", "")] for axis in name)) for name in axes]


@pytest.mark.parametrize(
    ("left", "right", "subscripts"),
    [
        ("ab", "bc", "ab,bc->ac"), ("ab", "cb", "ab,cb->ac"), ("ba", "bc", "ba,bc->ac"), ("ba", "cb", "ba,cb->ac"),
        ("bc", "ab", "bc,ab->ac"), ("dab", "bc", "dab,bc->dac"), ("dab", "dbc", "dab,dbc->dac"), ("b", "bc", "b,bc->c"),
        ("ab", "bcd", "ab,bcd->acd"), ("ab", "cdb", "ab,cdb->acd"), ("bad", "bc", "bad,bc->adc"),
    ],
)  # fmt: skip
def test_a_product_over_b_whatever_lies_where(left: str, right: str, subscripts: str) -> None:
    bench, arrays = Bench(), random(left, right)
    laid = bench.layouts.product(bench.laid("x", left), bench.laid("y", right), "b")
    names = "".join(name for dim in laid.dims for name in dim)
    expected = np.einsum(f"{subscripts.split('->')[0]}->{names}", *arrays)
    assert np.allclose(bench.value(laid.value, *arrays).reshape(expected.shape), expected)


@pytest.mark.parametrize(
    ("left", "right"), [("ab", "b"), ("ab", "a"), ("ab", "ba"), ("a-", "ab"), ("dab", "da"), ("a", "ab")]
)
def test_operands_are_brought_together(left: str, right: str) -> None:
    bench, arrays = Bench(), random(left, right)
    one, two, dims = bench.layouts.together(bench.laid("x", left), bench.laid("y", right))
    names = "".join(name for dim in dims for name in dim)
    squeezed = [array.reshape([n for n in array.shape if n > 1]) for array in arrays]
    plain = f"{left},{right}".replace("-", "")
    expected = np.einsum(f"{plain}->{names}", *squeezed)
    made = bench.value(bench.kernel.apply("mul", one, two), *arrays)
    assert np.allclose(made.reshape(expected.shape), expected)


def test_a_product_of_concatenations_is_the_sum_of_two_products() -> None:
    bench, (x, y, w, z) = Bench(), random("ab", "ad", "bc", "dc")
    factors = [bench.laid(name, axes) for name, axes in (("x", "ab"), ("y", "ad"), ("w", "bc"), ("z", "dc"))]
    laid = bench.layouts.joined_product((factors[0], factors[2], "b"), (factors[1], factors[3], "d"))
    assert laid.dims == (("a",), ("c",))
    assert np.allclose(bench.value(laid.value, x, y, w, z), x @ w + y @ z)


def test_halves_that_do_not_lie_alike_are_refused() -> None:
    bench = Bench()
    x, y, w, z = (bench.laid(name, axes) for name, axes in (("x", "ab"), ("y", "cb"), ("w", "bc"), ("z", "bd")))
    with pytest.raises(NotApplicableError, match="different dimensions"):
        bench.layouts.joined_product((x, w, "b"), (y, z, "b"))


def test_what_one_transpose_does_not_mend_is_refused() -> None:
    bench = Bench()
    with pytest.raises(NotApplicableError, match="last two axes"):
        bench.layouts.arranged(bench.laid("x", "abc"), (("c",), ("b",), ("a",)), exactly=True)
    with pytest.raises(NotApplicableError, match="no dimension of its own"):
        bench.laid("y", "ab").position("c")
