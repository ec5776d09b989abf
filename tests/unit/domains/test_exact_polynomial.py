from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.domains.exact_polynomial import (
    ONE,
    UNIT,
    Polynomial,
    add,
    bits,
    common_powers,
    constant,
    generator,
    power_of,
    rational_content,
    scale,
    unpack,
)
from workbench.errors import BudgetError

EXPONENTS = st.dictionaries(st.integers(0, 6), st.integers(-(2**29), 2**29).filter(bool), max_size=5)


@given(EXPONENTS, EXPONENTS)
def test_packed_powers_add_as_exponents_do(left: dict[int, int], right: dict[int, int]) -> None:
    packed = [sum(generator(index, power) for index, power in powers.items()) for powers in (left, right)]
    expected = {index: left.get(index, 0) + right.get(index, 0) for index in {*left, *right}}
    assert dict(unpack(sum(packed))) == {index: power for index, power in expected.items() if power}
    for index in range(8):
        assert power_of(sum(packed), index) == expected.get(index, 0)


def test_an_exponent_that_packing_cannot_hold_is_refused() -> None:
    with pytest.raises(BudgetError, match="exponent"):
        Polynomial({UNIT: 1}, 2**30)


def test_sums_cancel_and_scale(rng: np.random.Generator) -> None:
    x = Polynomial({(generator(0), 0, 0): 1}, 1)
    assert not add(x, x, -1)
    assert add(x, x).terms == scale(x, 2).terms
    assert scale(x, 0).terms == {}
    assert add(x, constant(Fraction(1, 3)), 3).terms == {(generator(0), 0, 0): 1, UNIT: 1}


def test_numbers_are_recognised() -> None:
    assert constant(Fraction(2, 3)).number() == Fraction(2, 3)
    assert ONE.number() == 1
    assert constant(0).number() == 0
    assert Polynomial({(generator(1), 0, 0): 2}, 1).number() is None


def test_contents() -> None:
    x, y = generator(0), generator(1)
    mixed = Polynomial({(3 * x - y, 0, 0): Fraction(4, 3), (x + y, 0, 0): Fraction(-2, 9)}, 3)
    assert rational_content(mixed) == Fraction(2, 9)
    assert dict(unpack(common_powers(mixed))) == {0: 1, 1: -1}
    later_negative = Polynomial({(x, 0, 0): 1, (-y, 0, 0): 1}, 1)
    assert dict(unpack(common_powers(later_negative))) == {1: -1}


def test_bits_name_factor_and_kind() -> None:
    assert list(bits(0b1001)) == [(0, False), (1, True)]
    assert list(bits(0)) == []
