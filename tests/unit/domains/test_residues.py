from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.domains.field_pairs import PRESETS, is_prime
from workbench.domains.residues import Modulus, Residues, random_residues
from workbench.errors import FieldError

# Both sides of every preset, and moduli at the borders of the methods: 2^32 is where one product stops fitting.
MODULI = sorted(
    {m for pair in PRESETS.values() for m in (pair.p, pair.q)} | {2, 3, 2**32 - 5, 2**32 + 15, 2**61 - 1, 2**52 + 21}
)


def extremes(m: int) -> list[int]:
    """Values in [0, m) at which halves, limbs and quotient estimates turn over."""
    near = {0, 1, 2, m - 1, m - 2, m // 2, m // 2 + 1, m // 3}
    near |= {(1 << bits) + d for bits in (16, 21, 30, 31, 32, 53, 60) for d in (-1, 0, 1)}
    return sorted(x for x in near if 0 <= x < m)


def array(values: list[int]) -> Residues:
    return np.array(values, dtype=np.int64)


def exactly(got: Residues, expected: list[int]) -> None:
    assert got.dtype == np.int64
    assert got.reshape(-1).tolist() == expected


@pytest.mark.parametrize("m", MODULI)
def test_elementwise_operations_at_the_extremes(m: int) -> None:
    values = extremes(m)
    modulus, a, b = Modulus(m), array(values)[:, None], array(values)
    pairs = [(x, y) for x in values for y in values]
    exactly(modulus.add(a, b), [(x + y) % m for x, y in pairs])
    exactly(modulus.subtract(a, b), [(x - y) % m for x, y in pairs])
    exactly(modulus.multiply(a, b), [x * y % m for x, y in pairs])
    exactly(modulus.negate(b), [-x % m for x in values])


@pytest.mark.parametrize("m", MODULI)
def test_multiply_agrees_with_python_on_random_elements(m: int, rng: np.random.Generator) -> None:
    a, b = random_residues(rng, (20_000,), m), random_residues(rng, (20_000,), m)
    exactly(Modulus(m).multiply(a, b), [x * y % m for x, y in zip(a.tolist(), b.tolist(), strict=True)])


@given(data=st.data())
def test_multiply_where_the_quotient_is_nearly_an_integer(data: st.DataObject) -> None:
    """Products just around multiples of m are where a rounded quotient is off by one."""
    m = data.draw(st.sampled_from([m for m in MODULI if m > 2**31 and is_prime(m)]))
    a = data.draw(st.integers(1, m - 1))
    b = data.draw(st.integers(-3, 3)) * pow(a, -1, m) % m
    for x, y in ((a, b), (b, a)):
        exactly(Modulus(m).multiply(array([x]), array([y])), [x * y % m])


SHAPES = [
    ((), ()),
    ((1,), ()),
    ((3, 1), (4,)),
    ((0, 3), (3,)),
    ((16, 5000), (16, 1)),
    ((16, 5000), (5000,)),
    ((20_001,), (1,)),
    ((2, 3, 4000), (3, 1)),
    ((5000, 3), (1, 3)),
    ((1, 9000), (2, 1)),
]


@pytest.mark.parametrize(("left", "right"), SHAPES)
@pytest.mark.parametrize("m", [227, 2147024879, 2305843009207177439])
def test_broadcasting_in_pieces_is_that_of_numpy(
    left: tuple[int, ...], right: tuple[int, ...], m: int, rng: np.random.Generator
) -> None:
    a, b = random_residues(rng, left, m), random_residues(rng, right, m)
    for x, y in ((a, b), (b, a)):
        product: Any = np.asarray(x.astype(object) * y % m)
        total: Any = np.asarray((x.astype(object) + y) % m)
        for got, expected in ((Modulus(m).multiply(x, y), product), (Modulus(m).add(x, y), total)):
            assert got.shape == np.broadcast_shapes(left, right)
            assert got.reshape(-1).tolist() == expected.reshape(-1).tolist()


def test_strided_operands_and_fresh_results(rng: np.random.Generator) -> None:
    m = 2305843009207177439
    a = random_residues(rng, (300, 200), m)
    before = a.copy()
    got = Modulus(m).multiply(a.T[::-1, ::2], a.T[::-1, ::2])
    assert got.tolist() == (a.T[::-1, ::2].astype(object) ** 2 % m).tolist()
    Modulus(m).power(a, 1)[:] = 0
    Modulus(m).add(a, a)[:] = 0
    assert (a == before).all()


@pytest.mark.parametrize("m", MODULI)
@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 7, 255, 256, 1000, 2**40 + 12345])
def test_power(m: int, exponent: int, rng: np.random.Generator) -> None:
    for count in (3, 40):
        values = (extremes(m) + random_residues(rng, (40,), m).tolist())[-count:]
        exactly(Modulus(m).power(array(values), exponent), [pow(x, exponent, m) for x in values])


def test_power_of_zero_and_of_negative_exponents() -> None:
    assert Modulus(11).power(array([0, 3]), 0).tolist() == [1, 1]
    with pytest.raises(FieldError, match="negative"):
        Modulus(11).power(array([3]), -1)


@pytest.mark.parametrize("m", [m for m in MODULI if m < 2**52 or m > 2**60])
@pytest.mark.parametrize("count", [1, 16, 17, 33, 1000, 70_001])
def test_inverse(m: int, count: int, rng: np.random.Generator) -> None:
    a = random_residues(rng, (count,), m)
    a[:: max(1, count // 3)] = 0
    inverse, zero = Modulus(m).inverse(a)
    assert (zero == (a == 0)).all()
    assert (inverse[zero] == 0).all()
    assert (Modulus(m).multiply(a, inverse)[~zero] == 1).all()
    some = np.flatnonzero(~zero)[:50]
    exactly(inverse[some], [pow(x, -1, m) for x in a[some].tolist()])


def test_inverse_keeps_the_shape(rng: np.random.Generator) -> None:
    for shape in ((), (3, 1, 4), (0,), (2, 40_000)):
        inverse, zero = Modulus(1014719).inverse(random_residues(rng, shape, 1014719))
        assert inverse.shape == zero.shape == shape


@pytest.mark.parametrize("m", [11, 83, 227, 10007])
def test_square_root_of_every_element(m: int) -> None:
    everything = np.arange(m, dtype=np.int64)
    root, bad = Modulus(m).square_root(everything)
    squares = {x * x % m for x in range(m)}
    for x, r, no_square in zip(range(m), root.tolist(), bad.tolist(), strict=True):
        assert no_square == (x not in squares)
        assert r * r % m == (-x % m if no_square else x)
        if not no_square:
            assert r in squares
    assert root[0] == 0
    assert root[1] == 1


@pytest.mark.parametrize("name", ["w20", "w31", "w61"])
def test_roots_in_working_fields(name: str, rng: np.random.Generator) -> None:
    for m in (PRESETS[name].p, PRESETS[name].q):
        modulus, x = Modulus(m), random_residues(rng, (1000,), m)
        root, bad = modulus.square_root(modulus.multiply(x, x))
        assert not bad.any()
        assert ((root == x) | (root == m - x)).all()
        _, bad = modulus.square_root(root)
        assert not bad.any()  # the root taken is itself a square
        root, bad = modulus.square_root(x)
        assert 400 < bad.sum() < 600
        assert (modulus.multiply(root, root)[bad] == m - x[bad]).all()


def test_no_root_where_minus_one_is_a_square() -> None:
    with pytest.raises(FieldError, match="1 mod 4"):
        Modulus(113).square_root(array([4]))


@pytest.mark.parametrize("m", MODULI)
def test_sum_of_largest_elements_does_not_overflow(m: int) -> None:
    a = np.full((3, 5000, 2), m - 1, np.int64)
    for axis, count in ((1, 5000), (-1, 2), ((0, 1), 15000), ((-2, -1), 10000)):
        got = Modulus(m).sum(a, axis, keepdims=True)
        assert got.shape == np.sum(a.astype(np.float64), axis=axis, keepdims=True).shape
        assert set(got.reshape(-1).tolist()) == {count * (m - 1) % m}
    assert Modulus(m).sum(a, 1, keepdims=False).shape == (3, 2)
    assert Modulus(m).sum(a[0, :, 0], 0, keepdims=False).tolist() == 5000 * (m - 1) % m


@pytest.mark.parametrize("m", [1, 0, -7, 2**61 + 15])
def test_moduli_out_of_range_are_refused(m: int) -> None:
    with pytest.raises(FieldError, match="exact up to 61 bits"):
        Modulus(m)


@pytest.mark.parametrize("m", [2, 5, 11, 113, 227])
def test_random_residues_are_uniform(m: int, rng: np.random.Generator) -> None:
    count = 2000 * m
    counts = np.bincount(random_residues(rng, (count,), m), minlength=m)
    assert len(counts) == m
    statistic = float(((counts - 2000.0) ** 2 / 2000.0).sum())
    assert abs(statistic - (m - 1)) < 4 * (2 * (m - 1)) ** 0.5 + 8


@pytest.mark.parametrize("m", [3 * 2**30, 2**32 - 5, 3 * 2**59, 5 * 2**58])
def test_random_residues_that_are_often_drawn_again_are_uniform(m: int, rng: np.random.Generator) -> None:
    """The moduli reject up to half of the words; eight equal intervals, and the residues modulo 3, get their share.

    Without drawing again, a third of the elements modulo 3 * 2^30 would come twice as often as the others.
    """
    drawn = random_residues(rng, (64_000,), m)
    assert drawn.min() >= 0
    assert drawn.max() < m
    counts = np.bincount(drawn // -(-m // 8), minlength=8)
    assert float(((counts - 8000.0) ** 2 / 8000.0).sum()) < 24.3  # chi-square, 7 degrees of freedom, 0.1 percent
    thirds = np.bincount(drawn % 3, minlength=3)
    assert float(((thirds - 64000 / 3) ** 2 / (64000 / 3)).sum()) < 13.8  # 2 degrees of freedom


def test_random_residues_repeat_with_the_seed() -> None:
    for m in (227, 2147024879, 2305843009207177439):
        first, second = (random_residues(np.random.default_rng(3), (100, 100), m) for _ in range(2))
        assert (first == second).all()
        assert (random_residues(np.random.default_rng(4), (100, 100), m) != first).any()
