from __future__ import annotations

import pytest

from workbench.core.layouts import SharedLayout, Spread
from workbench.optimize.banks import (
    address,
    fragment_passes,
    ldmatrix_passes,
    passes,
    row_chunks,
    tile_bytes,
    walk_passes,
)


def test_one_pass_per_different_word_of_a_bank() -> None:
    assert passes([4 * lane for lane in range(32)], 4) == 1
    assert passes([0] * 32, 4) == 1  # one word for all
    assert passes([128 * lane for lane in range(32)], 4) == 32
    assert passes([8 * lane for lane in range(32)], 4) == 2
    assert passes([16 * lane for lane in range(32)], 16) == 4  # 512 bytes are four times 128


@pytest.mark.parametrize(("columns", "plain"), [(64, 8), (32, 4), (16, 2), (8, 1), (128, 8), (24, 1), (40, 1)])
def test_ldmatrix_without_and_with_a_swizzle(columns: int, plain: int) -> None:
    """float16 rows of 8, 4, 2, 1 chunks: 8 rows meet in the banks unless their number of chunks is odd."""
    assert ldmatrix_passes(columns, 2, Spread.PLAIN) == plain
    assert ldmatrix_passes(columns, 2, Spread.SWIZZLED) == 1
    assert ldmatrix_passes(columns, 2, Spread.PADDED) == 1


def test_ldmatrix_cannot_read_rows_that_are_not_whole_chunks() -> None:
    assert ldmatrix_passes(20, 2, Spread.PLAIN) == 0
    assert ldmatrix_passes(20, 2, Spread.PADDED) == 1


def test_swizzled_chunks_are_a_permutation_of_each_row() -> None:
    for columns in (8, 16, 32, 64, 128, 24, 48):
        for row in range(16):
            found = {address(row, column, columns, 2, Spread.SWIZZLED) for column in range(columns)}
            assert found == {address(row, column, columns, 2, Spread.PLAIN) for column in range(columns)}


def test_walking_down_a_column_of_float32() -> None:
    assert walk_passes(32, 32, 4, Spread.PLAIN, along_rows=False) == 1
    assert walk_passes(32, 32, 4, Spread.PLAIN, along_rows=True) == 32
    assert walk_passes(32, 32, 4, Spread.SWIZZLED, along_rows=True) == 4
    assert walk_passes(32, 32, 4, Spread.PADDED, along_rows=True) == 4


def test_fragments_store_best_in_rows_8_floats_apart_in_the_banks() -> None:
    assert fragment_passes(72, 4, Spread.PLAIN, transposed=False) == 2  # 256 bytes: two is the least
    assert fragment_passes(64, 4, Spread.PLAIN, transposed=False) > 2
    assert fragment_passes(64, 2, Spread.SWIZZLED, transposed=False) == 1


def test_bytes_count_padding() -> None:
    assert tile_bytes(64, 64, 2, SharedLayout(-1, Spread.PLAIN)) == 64 * 128
    assert tile_bytes(64, 64, 2, SharedLayout(-1, Spread.PADDED)) == 64 * 144
    assert tile_bytes(16, 64, 2, SharedLayout(-2, Spread.PADDED)) == 64 * 48
    assert row_chunks(24, 2, Spread.PADDED) == 3
