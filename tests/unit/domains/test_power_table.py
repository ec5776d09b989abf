from __future__ import annotations

import numpy as np
import pytest

from workbench.domains.field_pairs import PRESETS
from workbench.domains.power_table import PowerTable
from workbench.domains.residues import Modulus, random_residues


@pytest.mark.parametrize("name", list(PRESETS))
@pytest.mark.parametrize("count", [1, 50, 20_000])
def test_powers_agree_with_python(name: str, count: int, rng: np.random.Generator) -> None:
    pair = PRESETS[name]
    omega = pair.random_omega(rng)
    table = PowerTable(omega, pair.q, Modulus(pair.p))
    exponents = random_residues(rng, (count,), pair.q)
    exponents[:3] = [pair.q - 1, 0, 1][: min(3, count)]
    got = table(exponents)
    checked = slice(0, 2000)
    assert got[checked].tolist() == [pow(omega, x, pair.p) for x in exponents[checked].tolist()]
    assert (table(exponents[::-1].copy()) == got[::-1]).all()


def test_every_exponent_of_a_small_order() -> None:
    table = PowerTable(4, 5, Modulus(11))
    assert table(np.arange(5)).tolist() == [1, 4, 5, 9, 3]
    assert table(np.arange(4).reshape(2, 2)).shape == (2, 2)
    assert table(np.array(3)).shape == ()
    assert table(np.zeros((0, 2), np.int64)).shape == (0, 2)


def test_small_and_large_tables_agree(rng: np.random.Generator) -> None:
    pair = PRESETS["w61"]
    table = PowerTable(pair.random_omega(rng), pair.q, Modulus(pair.p))
    exponents = random_residues(rng, (17_000,), pair.q)
    assert (table(exponents)[:100] == table(exponents[:100])).all()
