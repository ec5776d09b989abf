from __future__ import annotations

import numpy as np
import pytest

from workbench.domains.random_function import random_function
from workbench.domains.residues import Modulus, random_residues


def test_a_function_of_its_operands_and_key(rng: np.random.Generator) -> None:
    modulus = Modulus(2305843009207177439)
    a, b = random_residues(rng, (30, 1), modulus.m), random_residues(rng, (20,), modulus.m)
    value = random_function([a, b], 5, modulus)
    assert value.shape == (30, 20)
    assert value.min() >= 0
    assert value.max() < modulus.m
    assert (random_function([a[::-1], b[3:]], 5, modulus) == value[::-1, 3:]).all()
    assert (random_function([a, b], 6, modulus) != value).all()
    assert (random_function([b, a], 5, modulus) != value).all()
    assert len(np.unique(value)) == value.size


def test_scalars_and_large_keys() -> None:
    modulus = Modulus(227)
    value = random_function([np.array(3)], -(2**80), modulus)
    assert value.shape == ()
    assert value == random_function([np.array([[3]])], -(2**80), modulus)[0, 0]


@pytest.mark.parametrize("m", [11, 227])
def test_consecutive_arguments_give_uniform_values(m: int) -> None:
    counts = np.bincount(random_function([np.arange(1000 * m)], 1, Modulus(m)), minlength=m)
    statistic = float(((counts - 1000.0) ** 2 / 1000.0).sum())
    assert abs(statistic - (m - 1)) < 4 * (2 * (m - 1)) ** 0.5 + 8
