from __future__ import annotations

import pickle
from math import prod

import numpy as np
import pytest

from workbench.domains.field_pairs import PRESETS, FieldPair, field_pair, is_prime, is_square
from workbench.errors import FieldError, UnknownNameError, WorkbenchError


def trial_division(n: int) -> bool:
    return n > 1 and all(n % d for d in range(2, int(n**0.5) + 1))


def test_is_prime_agrees_with_trial_division() -> None:
    assert [n for n in range(-5, 5000) if is_prime(n)] == [n for n in range(5000) if trial_division(n)]


@pytest.mark.parametrize(
    "pseudoprime",
    [
        3215031751,  # strong pseudoprime to bases 2, 3, 5, 7 (Pomerance, Selfridge, Wagstaff 1980)
        3825123056546413051,  # to the first nine primes (Jaeschke 1993)
        318665857834031151167461,  # to the first twelve primes (Sorenson and Webster)
        561,
        (2**31 - 1) ** 2,
    ],
)
def test_strong_pseudoprimes_are_composite(pseudoprime: int) -> None:
    assert not is_prime(pseudoprime)


def test_large_primes_are_prime_and_too_large_numbers_are_refused() -> None:
    assert is_prime(2**61 - 1)
    assert is_prime(2**64 - 2**32 + 1)
    with pytest.raises(FieldError, match="cannot decide"):
        is_prime(2**89 - 1)


@pytest.mark.parametrize(
    ("name", "p", "q"),
    [
        ("course", 1861303, 10007),
        ("paper", 227, 113),
        ("exercise", 11, 5),
        ("mirage", 167, 83),
        ("w20", 1014719, 507359),
        ("w31", 2147024879, 1073512439),
        ("w61", 2305843009207177439, 1152921504603588719),
    ],
)
def test_presets(name: str, p: int, q: int) -> None:
    pair = field_pair(name)
    assert (pair.p, pair.q, pair.name) == (p, q, name)
    assert (p - 1) % q == 0
    assert pickle.loads(pickle.dumps(pair)) == pair
    assert pair.describe().splitlines()[0].startswith(f"{name}: p = {p} (")


def test_course_pair_has_186_cosets() -> None:
    assert field_pair("course").p - 1 == 186 * field_pair("course").q


def test_unknown_preset_lists_the_known() -> None:
    with pytest.raises(UnknownNameError, match="presets are course, paper"):
        field_pair("w32")


@pytest.mark.parametrize(
    ("p", "q", "message"),
    [
        (15, 7, "p = 15 is not prime"),
        (227, 1, "q = 1 is not prime"),
        (227, 57, "q = 57 is not prime"),
        (227, 5, "does not divide p - 1"),
        (2**61 - 1, 1152921504603588719, "does not divide p - 1"),
        (2**64 - 2**32 + 1, 65537, "has 64 bits"),
    ],
)
def test_unusable_pairs_are_refused(p: int, q: int, message: str) -> None:
    with pytest.raises(FieldError, match=message) as caught:
        FieldPair(p, q)
    assert isinstance(caught.value, WorkbenchError)
    assert isinstance(caught.value, ValueError)


def test_the_largest_q_for_two_to_the_61_minus_1_is_1321() -> None:
    factors = [2, 3, 3, 5, 5, 7, 11, 13, 31, 41, 61, 151, 331, 1321]
    assert prod(factors) == 2**61 - 2
    assert all(trial_division(factor) for factor in factors)
    assert "1321" in (FieldPair.__doc__ or "")
    FieldPair(2**61 - 1, 1321)


@pytest.mark.parametrize(
    ("name", "constants"), [("w20", (2, 3, 5, 7)), ("w31", (2, 3, 5, 7, 11, 13)), ("w61", (2, 3, 5, 7, 11, 13))]
)
def test_small_constants_are_squares_on_both_sides_of_working_pairs(name: str, constants: tuple[int, ...]) -> None:
    pair = field_pair(name)
    for m in (pair.p, pair.q):
        assert m % 4 == 3
        for c in constants:
            root = pow(c, (m + 1) // 4, m)
            assert root * root % m == c
    assert not set(constants) & {*pair.non_squares("p"), *pair.non_squares("q")}


@pytest.mark.parametrize("name", list(PRESETS))
def test_non_squares_agree_with_brute_force(name: str) -> None:
    pair = field_pair(name)
    for side, m in (("p", pair.p), ("q", pair.q)):
        if m < 20_000:
            squares = {x * x % m for x in range(m)}
            primes = [c for c in range(2, 32) if trial_division(c)]
            assert pair.non_squares(side) == tuple(c for c in primes if c % m not in squares)
            assert all(is_square(c, m) == (c % m in squares) for c in range(-40, 40))


def test_notes_say_what_fails() -> None:
    notes = {name: " ".join(pair.notes) for name, pair in PRESETS.items()}
    # p and q of the course are 3 mod 4, but 3 has no root modulo p and 5 none modulo q.
    assert "mod 4" not in notes["course"]
    assert "modulo p = 1861303 for c = 3, 5, 11, 13" in notes["course"]
    assert "modulo q = 10007 for c = 5, 7" in notes["course"]
    for name in ("paper", "exercise"):
        assert "q = 1 mod 4" in notes[name]
    assert "5 or 11 in the denominator" in notes["exercise"]
    for name in ("course", "paper", "exercise", "mirage"):
        assert "for teaching" in notes[name]
    for name in ("w20", "w31", "w61"):
        assert "teaching" not in notes[name]
        assert "1 mod 4" not in notes[name]
    assert "p = 1 mod 4" in " ".join(FieldPair(13, 3).notes)


def test_a_note_about_a_constant_is_true_of_the_roots() -> None:
    pair = field_pair("mirage")
    assert pair.non_squares("p")
    for c in (2, 3, 5, 7, 11, 13):
        sign = -1 if c in pair.non_squares("p") else 1
        for x in range(1, 50):
            root, scaled = (pow(v, (pair.p + 1) // 4, pair.p) for v in (x, c * c * x))
            assert (scaled - sign * c * root) % pair.p == 0


def test_random_omega_takes_every_root_equally_often(rng: np.random.Generator) -> None:
    pair = FieldPair(11, 5)
    roots = [x for x in range(2, 11) if pow(x, 5, 11) == 1]
    drawn = [pair.random_omega(rng) for _ in range(4000)]
    counts = np.array([drawn.count(root) for root in roots])
    assert counts.sum() == 4000
    assert ((counts - 1000) ** 2 / 1000).sum() < 16.3  # chi-square with 3 degrees of freedom, 0.1 percent


@pytest.mark.parametrize("name", list(PRESETS))
def test_random_omega_has_order_q(name: str, rng: np.random.Generator) -> None:
    pair = field_pair(name)
    omega = pair.random_omega(rng)
    assert omega != 1
    assert pow(omega, pair.q, pair.p) == 1


@pytest.mark.parametrize("omega", [1, 0, -1, 11, 2, 10])
def test_wrong_omega_is_refused(omega: int) -> None:
    with pytest.raises(FieldError, match="not a root of unity"):
        FieldPair(11, 5, omega=omega)
