"""Shared tiles: every element has a place of its own inside the tile, padding is where tensor cores read."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.codegen.cuda.indices import Index, Level, constant_index
from workbench.codegen.cuda.tile_storage import input_tile, matrix_extents, operand_tile, plain_tile, rounded_up


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("shape", [(5,), (3, 20), (2, 3, 7, 9), (17, 1, 8)])
def test_every_element_has_its_own_place(shape: tuple[int, ...], transposed: bool) -> None:
    for tile in (
        operand_tile("t", "f16", shape, transposed=transposed),
        input_tile("t", "f16", shape, transposed=transposed),
        *([] if transposed else [plain_tile("t", shape)]),
    ):
        places = set()
        for position in np.ndindex(*shape):
            row, column = tile.row_and_column([constant_index(number) for number in position])
            assert row.number is not None
            assert column.number is not None
            assert row.number < tile.slices * tile.slice_rows
            assert column.number < tile.columns <= tile.stride
            places.add((row.number, column.number))
        assert len(places) == np.prod(shape)
        assert tile.nbytes >= tile.slice_rows * tile.stride * (4 if tile.c_type == "float" else 2)


def test_operands_are_padded_to_whole_tensor_core_tiles_and_cleared() -> None:
    tile = operand_tile("t", "f16", (3, 20), transposed=False)
    assert (tile.rows, tile.columns, tile.needs_zero, tile.swizzle) == (16, 32, True, True)
    assert not operand_tile("t", "f16", (16, 32), transposed=False).needs_zero
    assert operand_tile("t", "f16", (3, 20), transposed=True).contiguous_axis == -2


def test_reads_beyond_the_padding_stay_inside() -> None:
    tile = operand_tile("t", "f16", (4, 3, 20), transposed=False)
    tile.rows = 3
    row, col = Index("row", Level.ROW, 16), Index("col", Level.ELEMENT, 32)
    lead, inside, same = tile.readable([Index("m", Level.ROW, 32), row, col])
    assert (lead.text, lead.bound) == ("lesser(m, 3)", 4)
    assert (inside.text, inside.bound) == ("lesser(row, 2)", 3)
    assert same is col


def test_slices_and_copies_lie_behind_each_other() -> None:
    tile = plain_tile("t", (5, 24), slices=4, is_product=True)
    assert tile.c_tile == f"SharedTile<float, {4 * 16}, 32, false, 40>"
    tile.copies = 3
    assert tile.nbytes == 3 * tile.bytes_each
    assert tile.bytes_each % 128 == 0
    assert tile.declaration("memory + 128") == f"const {tile.c_tile} t(memory + 128);"
    tile.is_combined = True
    assert (tile.slices, tile.read_slices) == (4, 1)


def test_extents() -> None:
    assert matrix_extents(()) == (1, 1)
    assert matrix_extents((7,)) == (1, 7)
    assert matrix_extents((2, 3, 4)) == (3, 4)
    assert [rounded_up(n, 16) for n in (0, 1, 16, 17)] == [0, 16, 16, 32]
