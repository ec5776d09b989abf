"""How warps share products: layouts divide the tiles, fit the registers, and leave no warp idle where they need not."""

from __future__ import annotations

import pytest

from workbench.codegen.cuda.layouts import (
    MAX_ACCUMULATORS,
    ProductShape,
    check_layout,
    default_layout,
    divisors,
    fragment_layout,
)
from workbench.codegen.cuda.schedule import WarpLayout
from workbench.errors import EmitError

SHAPES = [(16, 64, 128), (64, 64, 64), (1, 8, 4096), (17, 24, 40), (128, 256, 64), (3, 5, 7)]


@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
@pytest.mark.parametrize("warps", [1, 4, 8])
@pytest.mark.parametrize("is_narrow", [False, True])
def test_a_default_layout_covers_the_product_once(m: int, n: int, k: int, warps: int, is_narrow: bool) -> None:
    shape = ProductShape(2, m, n, (k,), "f16", is_narrow=is_narrow)
    for chosen in (default_layout(shape, warps, 4, most=MAX_ACCUMULATORS), fragment_layout(shape, warps)):
        assert shape.fits(chosen, warps)
        made = shape.layout(chosen, warps)
        assert m <= made.rows < m + 16
        assert n <= made.columns < n + 16
        assert k <= made.depth_steps * made.depth_step * made.warp_depth < k + 16
        assert made.accumulators == shape.accumulators(chosen)
        assert made.used_warps <= warps


def test_odd_tiles_of_eight_columns_only_where_they_are_enough() -> None:
    assert ProductShape(1, 16, 24, (64,), "f16", is_narrow=True).column_tiles == 1
    assert ProductShape(1, 16, 24, (64,), "f16").column_tiles == 2
    assert ProductShape(1, 16, 32, (64,), "f16", is_narrow=True).column_tiles == 2
    assert ProductShape(1, 16, 25, (64,), "f16", is_narrow=True).column_tiles == 2


def test_float32_takes_steps_of_eight() -> None:
    assert ProductShape(1, 16, 16, (40,), "float").depths == (6,)  # padded to 48
    assert ProductShape(1, 16, 16, (40,), "f16").depths == (3,)


def test_accumulators_that_do_not_fit_are_as_few_as_can_be() -> None:
    shape = ProductShape(1, 256, 512, (64,), "f16")
    chosen = default_layout(shape, 4, 1, most=MAX_ACCUMULATORS)
    assert shape.accumulators(chosen) == min(
        shape.accumulators(other) for other in shape.candidates(4, split_depth=True)
    )


def test_depth_is_split_where_rows_and_columns_are_few() -> None:
    assert default_layout(ProductShape(1, 16, 16, (256,), "f16"), 4, 16, most=MAX_ACCUMULATORS) == WarpLayout(1, 1, 4)


def test_a_layout_that_does_not_divide_names_the_node() -> None:
    shape = ProductShape(1, 64, 64, (64,), "f16")
    check_layout(shape, WarpLayout(2, 2, 1), 4, "t0")
    for wrong in (WarpLayout(3, 1, 1), WarpLayout(4, 2, 1)):
        with pytest.raises(EmitError, match="t0") as caught:
            check_layout(shape, wrong, 4, "t0")
        assert caught.value.cure


def test_divisors() -> None:
    assert divisors(12, 6) == [1, 2, 3, 4, 6]
    assert divisors(1, 8) == [1]
