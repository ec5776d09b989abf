from __future__ import annotations

import numpy as np
import pytest

from workbench.domains import modular_matmul
from workbench.domains.field_pairs import PRESETS
from workbench.domains.modular_matmul import matmul
from workbench.domains.residues import Modulus, Residues, random_residues
from workbench.errors import ShapeError

# Beside the presets: float32, the widest single dgemm, and digits that are just full or just one more (31, 32, 33, 47 to
# 49 bits). The product asks for no prime.
MODULI = sorted(
    {m for pair in PRESETS.values() for m in (pair.p, pair.q)}
    | {
        3,
        2**21 - 9,
        2**22 - 3,
        2**23 + 9,
        2**31 - 1,
        2**32 - 5,
        2**33 - 9,
        2**47 - 115,
        2**48 - 59,
        2**49 - 81,
        2**61 - 1,
    }
)


def python_matmul(a: Residues, b: Residues, m: int) -> list[object]:
    product: list[object] = (np.matmul(a.astype(object), b.astype(object)) % m).tolist()
    return product


@pytest.mark.parametrize("m", MODULI)
@pytest.mark.parametrize("below", [1, 2])  # m - 1 is even, so its sums round to nothing; m - 2 is odd
@pytest.mark.parametrize("terms", [329, 601, 5000, 10_001])
def test_largest_elements_over_a_long_axis(m: int, below: int, terms: int) -> None:
    """All entries m - 1, or all m - 2: the sum is that of (-1)^2, or (-2)^2, and Python integers agree."""
    a, b = np.full((3, terms), m - below, np.int64), np.full((terms, 4), m - below, np.int64)
    got = matmul(a, b, Modulus(m))
    assert set(got.reshape(-1).tolist()) == {terms * below**2 % m}
    assert got[:1, :1].tolist() == python_matmul(a[:1], b[:, :1], m)


@pytest.mark.parametrize("m", MODULI)
@pytest.mark.parametrize("terms", [63, 127, 128, 129, 1023])
def test_full_digits_of_both_operands(m: int, terms: int, rng: np.random.Generator) -> None:
    """Elements put together from the largest, the smallest and the middle 16-bit and 31-bit digits."""

    def pile(shape: tuple[int, int], bits: int) -> Residues:
        turns = [0, 1, (1 << bits - 1) - 1, 1 << bits - 1, (1 << bits - 1) + 1, (1 << bits) - 1]
        digits = [rng.choice(turns[-3:] if i % 2 else turns, shape) << bits * i for i in range(-(-61 // bits))]
        return np.asarray(sum(digits) & (1 << m.bit_length() - 1) - 1 | (1 << m.bit_length() - 1) % m, np.int64) % m

    a, b = pile((3, terms), 16), pile((terms, 4), 31)
    assert matmul(a, b, Modulus(m)).tolist() == python_matmul(a, b, m)
    a, b = pile((3, terms), 31), pile((terms, 2), 16)
    assert matmul(a, b, Modulus(m)).tolist() == python_matmul(a, b, m)
    for left, right in ((0xFFFF0000, 0x7FFFFFFF), (0x7FFF7FFF, m - 2)):
        a, b = np.full((1, terms), left % m, np.int64), np.full((terms, 1), right % m, np.int64)
        assert matmul(a, b, Modulus(m)).tolist() == python_matmul(a, b, m)


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
@pytest.mark.parametrize("small", [0x8000, 0x7FFF])
def test_a_sum_longer_than_int64_holds_unreduced(m: int, small: int) -> None:
    """Digits of -2^15 or 2^15 - 1 times 2^31 - 1: over 1200 chunks of 128 terms their sum passes 2^63."""
    terms = 1200 * 128
    assert terms * small * (2**31 - 1) > 2**63
    a, b = np.full((1, terms), small, np.int64), np.full((terms, 1), 2**31 - 1, np.int64) % m
    assert matmul(a, b, Modulus(m)).tolist() == [[terms * small * ((2**31 - 1) % m) % m]]


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
