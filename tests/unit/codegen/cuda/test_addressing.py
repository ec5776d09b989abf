"""Starts, offsets and valid extents as C text, evaluated here and compared with the cuts counted one element at a time."""

from __future__ import annotations

from itertools import product

import pytest

from workbench.codegen.cuda.addressing import (
    cuts_of,
    depends_on_loop,
    start_of,
    tile_address,
    valid_text,
)
from workbench.core.tensors import RaggedSplit
from workbench.ugraph.inference import LOOP

GRID = (3, 2, 1)


def evaluated(text: str, **names: int) -> int:
    """A text of sums, products and casts as Python computes it."""
    plain = text.replace("(i64)", "")
    functions = {
        "lesser": min,
        "greater": max,
        "clamped": lambda left, full: 0 if left < 0 else min(left, full),
    }
    return int(eval(plain, {"__builtins__": {}}, {**functions, **names}))


def parts(extent: int, cuts: list[tuple[int, int]], coordinates: dict[int, int]) -> range:
    """The elements of a part, by cutting ranges: each cut gives parts of ceil(length / count), the last ones shorter."""
    low, high, length = 0, extent, extent
    for axis, count in cuts:
        length = -(-length // count)
        low = low + coordinates[axis] * length
        high = min(high, low + length)
    return range(low, max(low, high))


@pytest.mark.parametrize("extent", [1, 5, 12, 13, 29])
@pytest.mark.parametrize("cuts", [[(0, 3)], [(0, 3), (1, 2)], [(1, 2), (LOOP, 4)], [(0, 3), (1, 2), (LOOP, 4)]])
def test_tiles_are_where_the_cuts_put_them(extent: int, cuts: list[tuple[int, int]]) -> None:
    start, split = start_of(extent, cuts), RaggedSplit(extent, tuple(cuts))
    for bx, by, step in product(range(3), range(2), range(4)):
        expected = parts(extent, cuts, {0: bx, 1: by, LOOP: step})
        names = {"bx": bx, "by": by, "step": step}
        assert evaluated(valid_text(split), **names) == len(expected)
        if len(expected):
            assert evaluated(start.text(), **names) == expected.start
        assert evaluated(start.text("ahead + 1"), bx=bx, by=by, ahead=step - 1) == evaluated(start.text(), **names)


def test_cuts_of_one_part_are_left_out() -> None:
    assert cuts_of(1, (1, None, 1), 1, (3, 2, 1), 4) == [(0, 3), (LOOP, 4)]
    assert cuts_of(0, (1, None, 1), 1, (3, 2, 1), 4) == []
    assert cuts_of(0, (0, 0, None), 0, (3, 2, 1), 1) == [(0, 3), (1, 2)]


def test_offsets_split_into_what_the_loop_changes_and_the_rest() -> None:
    address = tile_address((12, 40), (50, 1), (0, None, None), 1, GRID, 4)
    assert evaluated(address.offset(), bx=2, step=3) == 2 * 4 * 50 + 3 * 10
    assert evaluated(address.offset(looped=False), bx=2) == 400
    assert evaluated(address.offset(looped=True), step=3) == 30
    assert address.offset(step="ahead").count("ahead") == 1
    assert [start.is_looped for start in address.starts] == [False, True]


def test_alignment_divides_the_start_of_every_row() -> None:
    shape, strides = (12, 40), (50, 1)
    address = tile_address(shape, strides, (0, None, None), 1, GRID, 4)
    rows = [(bx * 4 + row) * 50 + step * 10 for bx in range(3) for row in range(4) for step in range(4)]
    assert all(row % address.alignment(1) == 0 for row in rows)
    assert address.alignment(1) == 10
    assert tile_address((8,), (1,), (None, None, None), None, GRID, 1).alignment(0) >= 1 << 16  # one row, at 0


def test_only_the_loop_changes_an_extent_in_the_loop() -> None:
    assert depends_on_loop(RaggedSplit(5, ((0, 3), (LOOP, 2))))
    assert not depends_on_loop(RaggedSplit(5, ((0, 3),)))
