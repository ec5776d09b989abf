"""Index arithmetic: the texts, evaluated, name the elements that NumPy's reshapes name."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

from workbench.codegen.cuda.indices import (
    ZERO,
    Index,
    Level,
    constant_index,
    flattened,
    quotient,
    remainder,
    reshaped,
    shifted,
)

NAMES = ("i", "j", "k")


def evaluated(index: Index, values: dict[str, int]) -> int:
    return int(eval(index.text.replace("/", "//"), {"__builtins__": {}}, dict(values)))


def indices(shape: tuple[int, ...]) -> list[Index]:
    return [Index(name, Level(axis + 1), extent) for axis, (name, extent) in enumerate(zip(NAMES, shape, strict=False))]


@pytest.mark.parametrize(
    ("new", "old"),
    [
        ((6, 8), (48,)),
        ((48,), (6, 8)),
        ((6, 8), (2, 3, 8)),
        ((4, 6), (3, 8)),
        ((2, 1, 24), (2, 24)),
        ((5, 12), (1, 5, 3, 4)),
        ((8, 8), (4, 16)),
    ],
)
def test_reshapes_find_the_elements_that_numpy_finds(new: tuple[int, ...], old: tuple[int, ...]) -> None:
    where = np.arange(prod(old)).reshape(old)
    moved = where.reshape(new)
    found = reshaped(indices(new), new, old)
    assert len(found) == len(old)
    for position in np.ndindex(*new):
        values = dict(zip(NAMES, position, strict=False))
        place = tuple(evaluated(part, values) for part in found)
        assert all(p < part.bound for p, part in zip(place, found, strict=True))
        assert where[place] == moved[position]


def test_axes_that_stay_need_no_arithmetic() -> None:
    found = reshaped(indices((5, 12)), (5, 12), (5, 3, 4))
    assert found[0].text == "i"
    assert reshaped(indices((5, 12)), (5, 12), (5, 12))[1].text == "j"


def test_flattened_keeps_level_bound_and_group() -> None:
    row, col = Index("row", Level.ROW, 4), Index("(col + e)", Level.ELEMENT, 8, "col")
    flat = flattened([row, col], (4, 8))
    assert (flat.level, flat.bound) == (Level.ELEMENT, 32)
    assert flat.group == "(row * 8 + col)"
    assert flattened([constant_index(3), ZERO], (4, 8)).number == 24
    assert flattened([], ()).number == 0


def test_quotients_and_remainders_fold_what_is_known() -> None:
    index = Index("i", Level.ROW, 24)
    assert quotient(index, 24) == ZERO
    assert remainder(index, 24) is index
    assert remainder(index, 1) == ZERO
    assert (quotient(constant_index(17), 5).number, remainder(constant_index(17), 5).number) == (3, 2)
    assert quotient(index, 5).bound == 5


def test_shifted_moves_the_group_along() -> None:
    moved = shifted(Index("(col + e)", Level.ELEMENT, 8, "col"), -4)
    assert (moved.text, moved.group, moved.bound) == ("((col + e) - 4)", "(col - 4)", 4)
    assert shifted(constant_index(3), 2).number == 5
    assert shifted(ZERO, 0) is ZERO
