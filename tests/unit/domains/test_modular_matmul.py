from __future__ import annotations

import numpy as np
import pytest

from workbench.domains import modular_matmul
from workbench.domains.field_pairs import PRESETS
from workbench.domains.modular_matmul import matmul
from workbench.domains.residues import Modulus, Residues, random_residues
from workbench.errors import ShapeError

# 3 and 2^23 + 9 reach float32 and the widest single dgemm, 2^31 - 1 and 2^45 + 59 digits that are just full.
MODULI = sorted(
    {m for pair in PRESETS.values() for m in (pair.p, pair.q)}
    | {3, 2**21 - 9, 2**22 - 3, 2**23 + 9, 2**31 - 1, 2**32 - 5, 2**45 + 59, 2**47 + 5, 2**61 - 1}
)


def python_matmul(a: Residues, b: Residues, m: int) -> list[object]:
    product: list[object] = (np.matmul(a.astype(object), b.astype(object)) % m).tolist()
    return product


@pytest.mark.parametrize("m", MODULI)
def test_largest_elements_over_a_long_axis(m: int) -> None:
    """All entries m - 1 over 5000 terms: (m - 1)^2 = 1 mod m, so the sum is 5000 mod m, by Python integers too."""
    a, b = np.full((3, 5000), m - 1, np.int64), np.full((5000, 4), m - 1, np.int64)
    got = matmul(a, b, Modulus(m))
    assert set(got.reshape(-1).tolist()) == {5000 % m}
    assert got.tolist() == python_matmul(a, b, m)


@pytest.mark.parametrize("m", MODULI)
@pytest.mark.parametrize("fill", [2**15 - 1, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**53 + 1, 2**60 - 1])
def test_entries_where_digits_turn_over(m: int, fill: int) -> None:
    a, b = np.full((2, 300), fill % m, np.int64), np.full((300, 2), m - 1 - fill % m, np.int64)
    for x, y in ((a, b), (b.T, a.T)):
        assert matmul(x, y, Modulus(m)).tolist() == python_matmul(x, y, m)


@pytest.mark.parametrize("m", MODULI)
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((2, 3), (3, 5)),
        ((1, 1), (1, 1)),
        ((7, 129), (129, 40)),
        ((40, 257), (257, 3)),
        ((5, 3, 7), (7, 2)),
        ((5, 3, 7), (5, 7, 2)),
        ((3, 7), (5, 7, 2)),
        ((2, 1, 3, 4), (5, 4, 6)),
        ((1, 3, 4), (5, 4, 6)),
        ((4, 0, 3), (3, 2)),
        ((2, 0), (0, 3)),
    ],
)
def test_shapes(m: int, left: tuple[int, ...], right: tuple[int, ...], rng: np.random.Generator) -> None:
    a, b = random_residues(rng, left, m), random_residues(rng, right, m)
    got = matmul(a, b, Modulus(m))
    assert got.dtype == np.int64
    assert got.shape == np.matmul(np.zeros(left), np.zeros(right)).shape
    if got.size and left[-1]:
        assert got.tolist() == python_matmul(a, b, m)
    else:
        assert not got.any()


@pytest.mark.parametrize("m", [227, 1014719, 2147024879, 2305843009207177439])
def test_slabs_and_batches_do_not_change_the_result(
    m: int, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = random_residues(rng, (3, 4, 700), m), random_residues(rng, (3, 700, 90), m)
    whole = matmul(a, b, Modulus(m))
    monkeypatch.setattr(modular_matmul, "_SLAB_HOST", 1 << 10)
    monkeypatch.setattr(modular_matmul, "_INT64_CHUNKS", 2)
    assert (matmul(a, b, Modulus(m)) == whole).all()
    assert (matmul(b.mT, a.mT, Modulus(m)).mT == whole).all()
    assert whole.tolist() == python_matmul(a, b, m)


@pytest.mark.parametrize("m", [2147024879, 2305843009207177439])
def test_a_sum_longer_than_int64_holds_unreduced(m: int) -> None:
    """80,000 terms are more chunks than may be added up before a reduction."""
    terms = (modular_matmul._INT64_CHUNKS + 100) * 128
    a = np.full((1, terms), m - 1, np.int64)
    assert matmul(a, a.T, Modulus(m)).tolist() == [[terms]]


def test_random_entries_of_a_wide_product(rng: np.random.Generator) -> None:
    for name in ("w20", "w31", "w61"):
        m = PRESETS[name].p
        a, b = random_residues(rng, (16, 512), m), random_residues(rng, (512, 2000), m)
        got = matmul(a, b, Modulus(m))
        for i, j in rng.integers(0, (16, 2000), (50, 2)).tolist():
            assert sum(x * y for x, y in zip(a[i].tolist(), b[:, j].tolist(), strict=True)) % m == got[i, j]


@pytest.mark.parametrize(("left", "right"), [((3,), (3, 2)), ((2, 3), (4, 2)), ((2, 2, 3), (3, 3, 2))])
def test_shapes_that_do_not_fit(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError, match="matmul"):
        matmul(np.zeros(left, np.int64), np.zeros(right, np.int64), Modulus(227))
