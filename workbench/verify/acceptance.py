"""How often a polynomial in random residues, roots and exponentials vanishes: the sums behind the bound of one test.

Invariant: each probability is an upper bound for every pair of forms of the given sizes, or is not given. The theorems are
numbered as in `docs/verification.md`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil, log2

from workbench.domains.residues import Modulus
from workbench.verify.degrees import Degrees, Size
from workbench.verify.exponents import Basis, basis_of, exponents_in
from workbench.verify.forms import Call, Exponential, Form, Forms
from workbench.verify.patterns import pattern_of
from workbench.verify.roots import RootCost, atoms_outside_exponents, cost_of_roots, families_of


@dataclass(slots=True)
class Side:
    """What one side (modulo p or modulo q) contributes to the bound of an output.

    Attributes: value: probability that the side accepts, if all denominators differ from zero and all random functions
    have different arguments; meeting: probability that some of those do not, where it matters; heights_fit: whether no
    coefficient can be a multiple of the prime; roots; basis: of the exponents.
    """

    value: float
    meeting: float
    heights_fit: bool
    roots: RootCost
    basis: Basis


@dataclass(slots=True)
class Acceptance:
    """Bounds for a list of forms under one prime pair. p, q: arithmetic of both; seed: of the points of the premises.

    divisors: everything that is divided by, with the number of elements; radicands: everything that is rooted.
    """

    forms: Forms
    p: Modulus
    q: Modulus
    seed: int
    divisors: Sequence[tuple[Form, int]]
    radicands: Sequence[Form]
    _zeros: dict[str, tuple[float, str]] = field(default_factory=dict)

    def _conditions(self, name: str) -> list[Form]:
        """Return the radicands that are squares at every point; what contains an exponential has no part modulo q."""
        return [form for form in self.radicands if name == "p" or not exponents_in(self.forms, [form])]

    def basis(self, found: Sequence[Form]) -> Basis:
        """Return the basis of the exponents in some forms, each monomial an atom, or else each exponent."""
        arguments = exponents_in(self.forms, found)
        fine = basis_of(self.forms, arguments, self._conditions("q"), self.q, self.seed)
        if not fine.reason:
            return fine
        coarse = basis_of(self.forms, arguments, self._conditions("q"), self.q, self.seed, coarse=True)
        return fine if coarse.reason else coarse

    def side(self, left: Form, right: Form, name: str) -> tuple[Side, Size]:
        """Return what a side contributes to the difference of two forms, and the difference's size."""
        basis = self.basis([left, right])
        modulus = self.p if name == "p" else self.q
        roots = cost_of_roots(self.forms, [left, right], self._conditions(name), modulus, name, self.seed)
        size = Degrees(self.forms, basis).difference(left, right)
        value = self.vanishing(size, roots, basis, modulus)
        meeting = self.collisions([left, right], size, roots, basis, modulus)
        fits = size.content % modulus.m != 0 and max(
            size.height, 2**roots.constants * size.norm * (roots.constants > 0)
        ) < log2(modulus.m)
        return Side(value, meeting, fits, roots, basis), size

    def vanishing(self, size: Size, roots: RootCost, basis: Basis, modulus: Modulus) -> float:
        """Return the probability that a nonzero polynomial of this size vanishes (theorems 1 to 3)."""
        value = float(max(size.degree, 1 if not (size.plus or size.minus) else 0)) * roots.factor / modulus.m
        weight = laurent_degree(size)
        if weight:
            value += weight * basis.delta + basis.fail_once + min(weight, basis.count) * basis.fail_each
        return value

    def collisions(self, found: Sequence[Form], size: Size, roots: RootCost, basis: Basis, modulus: Modulus) -> float:
        """Return the probability that random functions of different arguments cannot be told apart (theorem 4)."""
        calls = [atom for atom in atoms_outside_exponents(found) if isinstance(atom, Call)]
        if not calls:
            return 0.0
        count = sum(family.count() for family in families_of(self.forms, [self.forms.of(call) for call in calls]))
        if basis.reason and exponents_in(self.forms, [self.forms.of(call) for call in calls]):
            return 1.0
        degrees, known = Degrees(self.forms, basis), dict[int, float]()

        def meeting(call: Call) -> float:
            if call.number not in known:
                worst = 0.0
                for argument in call.arguments:
                    ratio = degrees.of(argument)
                    both = ratio.size.times(ratio.poles)
                    inner = [a for a in atoms_outside_exponents([argument]) if isinstance(a, Call)]
                    nested = max((meeting(a) for a in inner), default=0.0) * count * max(1, ceil(both.degree))
                    twice = Size(both.degree, both.plus + both.minus, both.plus + both.minus)
                    worst = max(worst, self.vanishing(twice, roots, basis, modulus) + nested)
                known[call.number] = worst
            return known[call.number]

        return max(1, ceil(size.degree)) * count * max(meeting(call) for call in calls)

    def zeros(self, name: str) -> tuple[float, str]:
        """Return how often some denominator of the programs is zero on a side, at most, and why that is not known."""
        if name not in self._zeros:
            self._zeros[name] = self._count_zeros(name)
        return self._zeros[name]

    def _count_zeros(self, name: str) -> tuple[float, str]:
        modulus = self.p if name == "p" else self.q
        total = 0.0
        chances: dict[object, float] = {}
        for form, count in self.divisors:
            exponential = any(isinstance(atom, Exponential) for atom in self.forms.inside(form))
            if form.constant is not None or (name == "q" and exponential):
                continue
            key = pattern_of(form).key
            if key not in chances:
                basis = self.basis([form])
                roots = cost_of_roots(self.forms, [form], self._conditions(name), modulus, name, self.seed)
                if basis.reason or roots.reason:
                    return 1.0, f"a denominator: {basis.reason or roots.reason}"
                size = Degrees(self.forms, basis).of(form).size
                chances[key] = self.vanishing(size, roots, basis, modulus)
                chances[key] += self.collisions([form], size, roots, basis, modulus)
            total += count * chances[key]
        return total, ""


def laurent_degree(size: Size) -> int:
    """Return by which multiple of delta the exponentials of a polynomial count: exponents of one sign, or of both."""
    if not size.minus or not size.plus:
        return size.plus + size.minus
    return 2 * (size.plus + size.minus)


def theorem_two(degree: int, terms: float, q: int) -> float:
    """Return the bound of the paper's theorem 2: degree at most d, k terms (Mirage OSDI'25, section 5)."""
    if terms > 1e6:
        return float("inf")
    return float(8 * degree * terms**4 / q + q ** (-1 / terms**2))
