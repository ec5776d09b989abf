"""Indices against integer arithmetic on every value of their variables."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.verify.indices import (
    Chosen,
    Digit,
    Index,
    Quotient,
    Remainder,
    Var,
    combine,
    constant,
    divide,
    is_injective,
    shift,
    substitute,
    variable,
)

A, B, C = (Var("free", number, extent) for number, extent in ((0, 3), (1, 4), (2, 5)))


def value(index: Index, env: dict[Var, int]) -> int:
    return index.offset + sum(c * digit_value(digit, env) for c, digit in index.digits)


def digit_value(digit: Digit, env: dict[Var, int]) -> int:
    match digit:
        case Var():
            return env[digit]
        case Quotient():
            return value(digit.index, env) // digit.divisor
        case Remainder():
            return value(digit.index, env) % digit.divisor
        case Chosen():
            return sum(value(argument, env) for argument in digit.arguments) % digit.extent


def points() -> list[dict[Var, int]]:
    return [dict(zip((A, B, C), v, strict=True)) for v in product(range(3), range(4), range(5))]


coefficients = st.integers(0, 12)
indices = st.builds(
    lambda a, b, c, d: combine([(a, variable(A)), (b, variable(B)), (c, variable(C))], d), *([coefficients] * 4)
)


@given(indices, st.integers(1, 9))
def test_quotient_and_remainder_are_right_and_give_the_index_back(index: Index, divisor: int) -> None:
    quotient, remainder = divide(index, divisor, index.high // divisor + 1)
    for env in points():
        assert value(quotient, env) == value(index, env) // divisor
        assert value(remainder, env) == value(index, env) % divisor
    assert combine([(divisor, quotient), (1, remainder)]) == index


@given(indices, indices, st.integers(1, 6))
def test_substitution_is_evaluation_at_the_substituted_index(index: Index, put: Index, divisor: int) -> None:
    for part in (*divide(index, divisor, index.high // divisor + 1), index):
        changed = substitute(part, {B: put})
        for env in points():
            assert value(changed, env) == value(part, {**env, B: value(put, env)})


@given(indices)
def test_smallest_and_largest_value_are_those_taken(index: Index) -> None:
    taken = [value(index, env) for env in points()]
    assert (index.low, index.high) == (min(taken), max(taken))


@pytest.mark.parametrize("divisor", range(2, 7))
def test_division_is_right_for_all_small_coefficients(divisor: int) -> None:
    for a, b, offset in product(range(7), range(7), range(4)):
        index = combine([(a, variable(A)), (b, variable(B))], offset)
        quotient, remainder = divide(index, divisor, index.high // divisor + 1)
        for env in ({A: x, B: y} for x in range(3) for y in range(4)):
            assert (value(quotient, env), value(remainder, env)) == divmod(value(index, env), divisor)


def test_even_cuts_leave_no_quotient() -> None:
    index = combine([(20, variable(A)), (5, variable(B)), (1, variable(C))])
    assert divide(index, 20, 3) == (variable(A), combine([(5, variable(B)), (1, variable(C))]))
    assert divide(index, 5, 12) == (combine([(4, variable(A)), (1, variable(B))]), variable(C))


def test_a_variable_of_extent_one_is_zero() -> None:
    assert variable(Var("free", 0, 1)) == constant(0)


def test_substitution_reaches_the_arguments_of_a_chosen_position() -> None:
    chosen = Index(0, ((1, Chosen("max", (variable(A),), 5)),))
    assert substitute(chosen, {A: constant(2)}) == Index(0, ((1, Chosen("max", (constant(2),), 5)),))
    assert chosen.variables() == {A}


def test_shift_moves_the_offset_only() -> None:
    assert shift(variable(B), 3) == Index(3, ((1, B),))


@pytest.mark.parametrize(
    ("parts", "injective"),
    [
        ([(4, variable(A)), (1, variable(B))], True),
        ([(3, variable(A)), (1, variable(B))], False),  # 3*0 + 3 = 3*1 + 0
        ([(1, variable(A))], False),  # does not move with B
    ],
)
def test_injective_means_a_mixed_radix_system(parts: list[tuple[int, Index]], injective: bool) -> None:
    assert is_injective(combine(parts), frozenset({A, B}), lambda digit: False) is injective
