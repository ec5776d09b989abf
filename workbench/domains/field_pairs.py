"""Which pairs of primes can carry a program: records of p and q with q | p - 1, by name, and what fails in each.

Invariant: a `FieldPair` that exists is usable: both numbers are prime, q divides p - 1, and p fits the exact arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from workbench.errors import FieldError, UnknownNameError

MAX_MODULUS_BITS = 61  # residues.py and modular_matmul.py are exact up to here, and not beyond
SMALL_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31)

# The first 13 primes decide primality below this bound (Sorenson and Webster, Math. Comp. 86, 2017).
_WITNESSES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41)
_WITNESSES_SUFFICE_BELOW = 3_317_044_064_679_887_385_961_981


def is_prime(n: int) -> bool:
    """Return whether n is prime, without error (Miller-Rabin with witnesses that suffice below 3.3e24).

    Raises: FieldError for n at or above that bound.
    """
    if n >= _WITNESSES_SUFFICE_BELOW:
        raise FieldError(f"cannot decide whether {n} is prime: the fixed witnesses suffice below 3.3e24 only")
    if n < 2:
        return False
    for prime in _WITNESSES:
        if n % prime == 0:
            return n == prime
    odd = n - 1
    twos = (odd & -odd).bit_length() - 1
    odd >>= twos
    return all(_passes(witness, odd, twos, n) for witness in _WITNESSES)


def _passes(witness: int, odd: int, twos: int, n: int) -> bool:
    power = pow(witness, odd, n)
    if power in (1, n - 1):
        return True
    for _ in range(twos - 1):
        power = power * power % n
        if power == n - 1:
            return True
    return False


def is_square(n: int, prime: int) -> bool:
    """Return whether n is a square modulo an odd prime, by Euler's criterion; 0 counts as a square."""
    return pow(n % prime, (prime - 1) // 2, prime) <= 1


@dataclass(frozen=True, slots=True)
class FieldPair:
    """A pair of primes q | p - 1 in whose fields a program is evaluated (Mirage OSDI'25, section 5 and table 3).

    Values are pairs (x mod p, x mod q). exp maps x mod q to omega^x mod p, omega of order q modulo p. That is why q
    must divide p - 1, and why it should be large: exponents that agree modulo q cannot be told apart, so a wrong
    exponent slips through with probability about 1/q.

    Why p cannot be 2^61 - 1, whose arithmetic would be cheapest: 2^61 - 2 = 2 * 3^2 * 5^2 * 7 * 11 * 13 * 31 * 41 *
    61 * 151 * 331 * 1321, so the largest q is 1321. (2^31 - 1 allows 331; 2^64 - 2^32 + 1 allows 65537.) The
    working pairs are p = 2q + 1 instead, the largest q that a p can have.

    Their q is -1 modulo 8*3*5*7*11*13 (20 bits: 8*3*5*7), which makes p and q both 3 modulo 4 and the small primes
    squares on both sides, by quadratic reciprocity. So sqrt is multiplicative on both sides, and sqrt(c^2 x) =
    c sqrt(x) holds for those c as it does over the reals.

    Fields: p, q, name; omega is a fixed root of unity for teaching, None where each test draws its own; remark is
    said in `notes` before what follows from the numbers.
    Raises: FieldError when p or q is not prime, q does not divide p - 1, p is too large, or omega is not a root.
    """

    p: int
    q: int
    name: str = "custom"
    omega: int | None = None
    remark: str = ""

    def __post_init__(self) -> None:
        """Refuse numbers with which the arithmetic would mean nothing."""
        for side, modulus in (("p", self.p), ("q", self.q)):
            if not is_prime(modulus):
                raise FieldError(f"field pair {self.name!r}: {side} = {modulus} is not prime; use a prime")
        if self.p.bit_length() > MAX_MODULUS_BITS:
            raise FieldError(
                f"field pair {self.name!r}: p = {self.p} has {self.p.bit_length()} bits, products are exact up to "
                f"{MAX_MODULUS_BITS}; use a smaller p"
            )
        if (self.p - 1) % self.q:
            raise FieldError(
                f"field pair {self.name!r}: q = {self.q} does not divide p - 1 = {self.p - 1}, so no element has "
                "order q and exp has no meaning; take q from the prime factors of p - 1"
            )
        if self.omega is not None:
            self.check_omega(self.omega)

    @property
    def root_on_p(self) -> bool:
        """Whether x^((p+1)/4) is a multiplicative square root modulo p, i.e. p = 3 mod 4."""
        return self.p % 4 == 3

    @property
    def root_on_q(self) -> bool:
        """Whether x^((q+1)/4) is a multiplicative square root modulo q, i.e. q = 3 mod 4."""
        return self.q % 4 == 3

    def non_squares(self, side: str) -> tuple[int, ...]:
        """Return the primes up to 31 that are no squares modulo p (side "p") or q (side "q")."""
        modulus = {"p": self.p, "q": self.q}[side]
        return tuple(c for c in SMALL_PRIMES if modulus > 2 and not is_square(c, modulus))

    @property
    def notes(self) -> tuple[str, ...]:
        """What does not work in this pair, in sentences; all but the remark is computed from p and q."""
        return (*((self.remark,) if self.remark else ()), *_shortcomings(self))

    def describe(self) -> str:
        """Return the pair and its notes as text, one line each."""
        head = f"{self.name}: p = {self.p} ({self.p.bit_length()} bits), q = {self.q} ({self.q.bit_length()} bits)"
        return "\n".join((head if self.omega is None else f"{head}, omega = {self.omega}", *self.notes))

    def check_omega(self, omega: int) -> None:
        """Raise FieldError unless omega is a q-th root of unity modulo p other than 1."""
        if not 1 < omega < self.p or pow(omega, self.q, self.p) != 1:
            raise FieldError(
                f"omega = {omega} is not a root of unity of order {self.q} modulo {self.p}; "
                "take x^((p-1)/q) mod p for an x where that is not 1, or `random_omega`"
            )

    def random_omega(self, rng: np.random.Generator) -> int:
        """Return a root of unity of order q modulo p, uniform among the q - 1 of them.

        x -> x^((p-1)/q) hits every q-th root equally often, so drawing until the root is not 1 is uniform.
        """
        while True:
            omega = pow(int(rng.integers(1, self.p)), (self.p - 1) // self.q, self.p)
            if omega != 1:
                return omega


def _shortcomings(pair: FieldPair) -> Iterator[str]:
    if pair.q < 1 << 16:
        yield f"Exponents count modulo {pair.q} only and values modulo {pair.p}: for teaching, no useful error bound."
    if not pair.root_on_p:
        yield f"p = 1 mod 4: -1 is a square modulo {pair.p}, so no square root is multiplicative and sqrt is refused."
    if not pair.root_on_q:
        yield f"q = 1 mod 4: no square root modulo {pair.q} is multiplicative; sqrt leaves no q part, exp cannot follow."
    for side, modulus, has_root in (("p", pair.p, pair.root_on_p), ("q", pair.q, pair.root_on_q)):
        bad = [c for c in pair.non_squares(side) if c % modulus] if has_root else []
        if bad:
            listed = ", ".join(map(str, bad))
            yield f"sqrt(c^2 x) = -c sqrt(x) modulo {side} = {modulus} for c = {listed} (of the primes up to 31)."
    lost = sorted({m for m in (pair.p, pair.q) if m <= SMALL_PRIMES[-1]})
    if lost:
        yield f"Constants with {' or '.join(map(str, lost))} in the denominator do not exist."


PRESETS: Mapping[str, FieldPair] = MappingProxyType(
    {
        pair.name: pair
        for pair in (
            FieldPair(1_861_303, 10_007, "course", remark="The course's pair: p - 1 = 186 q."),
            FieldPair(
                227, 113, "paper", remark="The paper's pair: the largest p = 2 q + 1 whose products fit in 16 bits."
            ),
            FieldPair(11, 5, "exercise", omega=4, remark="Small enough for pencil and paper: 4^5 = 1 mod 11."),
            FieldPair(167, 83, "mirage", omega=3, remark="The pair in Mirage's code, whose base 3 is never redrawn."),
            FieldPair(1_014_719, 507_359, "w20"),
            FieldPair(2_147_024_879, 1_073_512_439, "w31"),
            FieldPair(2_305_843_009_207_177_439, 1_152_921_504_603_588_719, "w61"),
        )
    }
)


def field_pair(name: str) -> FieldPair:
    """Return the preset of this name.

    Raises: UnknownNameError, listing the presets.
    """
    try:
        return PRESETS[name]
    except KeyError:
        raise UnknownNameError(f"no field pair is named {name!r}; presets are {', '.join(PRESETS)}") from None
