from __future__ import annotations

from collections.abc import Sequence

import pytest

from workbench.ugraph.atoms import AtomKind, Atoms
from workbench.ugraph.extent_solver import (
    Constraint,
    CutInto,
    EqualProducts,
    Evenness,
    Product,
    Square,
    Sum,
    Values,
    constraints_of,
    solve,
)


def found(
    count: int, constraints: Sequence[Constraint], choices: Sequence[int] = range(1, 30)
) -> dict[int, int] | None:
    return solve(range(count), constraints, lambda atom, values: list(choices), lambda atom, value: value in choices)


def test_the_first_solution_in_order_of_preference() -> None:
    assert found(2, [Product((0, 1), 12)]) == {0: 1, 1: 12}
    assert found(2, [Product((0, 1), 12)], [6, 4, 3, 2]) == {0: 6, 1: 2}
    assert found(2, [Product((0, 1), 13)], [2, 3]) is None


def test_a_variable_that_is_determined_is_not_guessed() -> None:
    asked: list[int] = []

    def preferred(atom: int, values: Values) -> Sequence[int]:
        asked.append(atom)
        return [5]

    values = solve([0, 1], [Product((0, 1), 1000)], preferred, lambda atom, value: True)
    assert values == {0: 5, 1: 200}
    assert asked == [0]


def test_a_square_of_a_variable() -> None:
    assert found(1, [Product((0, 0), 49)]) == {0: 7}
    assert found(1, [Product((0, 0), 50)]) is None


@pytest.mark.parametrize(
    ("base", "counts", "tile", "even", "any_"),
    [
        (12, (3,), 4, True, True),
        (11, (3,), 4, False, True),
        (12, (3,), 5, False, False),
        (24, (2, 3), 4, True, True),
        (10, (4, 2), 2, False, True),
        (10, (4, 2), 1, False, False),
    ],
)
def test_cuts_leave_ceilings(base: int, counts: tuple[int, ...], tile: int, even: bool, any_: bool) -> None:
    """10 in 4 parts leaves 3, in 2 parts of that 2."""
    runs = tuple((number + 2,) for number in range(len(counts)))
    values = {0: base, 1: tile, **{number + 2: count for number, count in enumerate(counts)}}
    assert CutInto((0,), runs, (1,), even=False).holds(values) is any_
    assert CutInto((0,), runs, (1,), even=True).holds(values) is even


def test_a_cut_determines_its_tile_and_if_even_its_whole() -> None:
    uneven, even = (CutInto((0,), ((1,),), (2,), even=e) for e in (False, True))
    assert uneven.values_of(2, {0: 10, 1: 4}) == [3]
    assert uneven.values_of(0, {1: 4, 2: 3}) is None
    assert even.values_of(0, {1: 4, 2: 3}) == [12]
    assert even.values_of(1, {0: 12, 2: 3}) == [4]


def test_sums() -> None:
    total = Sum((0,), ((1,), (2, 2)))
    assert total.values_of(0, {1: 5, 2: 3}) == [14]
    assert total.values_of(1, {0: 14, 2: 3}) == [5]
    assert total.values_of(2, {0: 14, 1: 5}) == [3]
    assert total.values_of(2, {0: 15, 1: 5}) == []
    assert total.values_of(1, {0: 9, 2: 3}) == []
    assert total.holds({0: 14, 1: 5, 2: 3})
    assert not total.holds({0: 15, 1: 5, 2: 3})


def test_equal_products_keep_their_boundaries_apart() -> None:
    regrouped = EqualProducts((0, 1), (2, 3), frozenset())
    assert regrouped.holds({0: 6, 1: 4, 2: 8, 3: 3})
    assert not regrouped.holds({0: 2, 1: 3, 2: 2, 3: 3})
    assert not regrouped.holds({0: 6, 1: 4, 2: 8, 3: 4})
    assert regrouped.values_of(0, {1: 4, 2: 8, 3: 3}) == [6]
    assert regrouped.values_of(0, {1: 5, 2: 8, 3: 3}) == []


def test_squares() -> None:
    assert found(2, [Square((0, 1)), Product((0,), 8)], [2, 3, 8, 18]) == {0: 8, 1: 2}


def test_constraints_of_atoms() -> None:
    atoms = Atoms()
    base, count = atoms.fresh(10, AtomKind.AXIS), atoms.fresh(4, AtomKind.GRID)
    tile = atoms.cut(0, (base,), (0,), (count,), 3)
    one = atoms.fresh(1, AtomKind.AXIS)
    atoms.cut(0, (one,), (0,), (count,), 1)
    joined = atoms.join(((base,), tile))
    whole, single, total = constraints_of(atoms, Evenness.ALL)
    assert (whole, total) == (CutInto((base,), ((count,),), tile, even=True), Sum(joined, ((base,), tile)))
    assert isinstance(single, CutInto)
    assert not single.even  # one element in four parts can never be even
    (as_is, *_) = constraints_of(atoms, Evenness.THOSE_THAT_DO)
    assert isinstance(as_is, CutInto)
    assert not as_is.even
