from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.domains.exact_signs import SignEquations, root_bit, sign_bit
from workbench.errors import NowhereDefinedError

FACTORS = 4
EQUATIONS = st.lists(
    st.tuples(st.sets(st.integers(0, FACTORS - 1), max_size=FACTORS), st.sampled_from([1, -1])), max_size=6
)


@given(EQUATIONS)
def test_all_signs_that_meet_the_equations_settle_alike(equations: list[tuple[set[int], int]]) -> None:
    """Against all 16 assignments of signs: what is learnt, what contradicts, and what a set of signs becomes."""
    possible = list(itertools.product((1, -1), repeat=FACTORS))
    signs = SignEquations()
    for factors, product in equations:
        remaining = [s for s in possible if _product(s, factors) == product]
        if not remaining:
            with pytest.raises(NowhereDefinedError):
                signs.learn(factors, product)
            return
        before = signs.learnt
        signs.learn(factors, product)
        assert (signs.learnt > before) == (len(remaining) < len(possible))
        possible = remaining
    for chosen in itertools.chain.from_iterable(itertools.combinations(range(FACTORS), n) for n in range(FACTORS + 1)):
        settled, sign = signs.settle(sum(sign_bit(factor) for factor in chosen))
        left = {factor for factor in range(FACTORS) if settled & sign_bit(factor)}
        assert all(_product(s, set(chosen)) == sign * _product(s, left) for s in possible)
        if len({_product(s, set(chosen)) for s in possible}) == 1:
            assert not left  # a sign that is the same in all of them is known


def _product(signs: tuple[int, ...], factors: set[int]) -> int:
    result = 1
    for factor in factors:
        result *= signs[factor]
    return result


def test_roots_are_left_alone() -> None:
    signs = SignEquations()
    assert not signs
    signs.learn([1], -1)
    assert signs
    assert signs.settle(root_bit(1) | root_bit(0) | sign_bit(1)) == (root_bit(1) | root_bit(0), -1)
