"""How often a polynomial in random residues, roots and exponentials vanishes: the sums behind the bound of one test.

Invariant: each probability is an upper bound for every pair of forms of the given sizes, or is not given. The theorems are
lettered as in `docs/verification.md`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log2

from workbench.domains.power_table import PowerTable
from workbench.domains.residues import Modulus
from workbench.verify.degrees import Degrees, Size
from workbench.verify.exponents import Basis, basis_of, exponents_in
from workbench.verify.families import families_of
from workbench.verify.form_atoms import Call, Exponential, Form, Root, atoms_outside_exponents
from workbench.verify.forms import Forms
from workbench.verify.patterns import pattern_of
from workbench.verify.points import Point
from workbench.verify.roots import RootCost, Roots


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


class Acceptance:
    """Bounds for forms of two programs under one prime pair.

    p, q: arithmetic of both; seed: of the points at which premises are checked; divisors: everything that is divided by,
    with the number of elements; radicands: everything that is rooted (those are squares at every point).
    """

    def __init__(
        self,
        forms: Forms,
        p: Modulus,
        q: Modulus,
        seed: int,
        divisors: Sequence[tuple[Form, int]],
        radicands: Sequence[Form],
    ) -> None:
        self.forms, self.seed = forms, seed
        self.moduli = {"p": p, "q": q}
        self.divisors: dict[Form, int] = {}
        for whole, count in divisors:
            form = self._without_exponentials(whole)
            self.divisors[form] = max(count, self.divisors.get(form, 0))
        on_q = [form for form in radicands if self._is_on_q(form)] if q.m % 4 == 3 else []
        self.roots = {
            "p": Roots(forms, radicands, p, "p", seed, self),
            "q": Roots(forms, on_q, q, "q", seed),
        }
        self._bases: dict[frozenset[int], Basis] = {}
        self._zeros: dict[str, tuple[float, str]] = {}

    def _without_exponentials(self, form: Form) -> Form:
        """Return a monomial without its exponential, which is never zero."""
        if len(form.terms) != 1:
            return form
        monomial, c = form.terms[0]
        return self.forms.form({tuple((a, e) for a, e in monomial if not isinstance(a, Exponential)): c})

    def _is_on_q(self, form: Form) -> bool:
        """Return True when a form has a part modulo q: no exponential, no root where q has none."""
        atoms = list(atoms_outside_exponents([form]))
        rooted = any(isinstance(atom, Root) for atom in atoms) and self.moduli["q"].m % 4 != 3
        return not rooted and not any(isinstance(atom, Exponential) for atom in atoms)

    def basis(self, found: Sequence[Form]) -> Basis:
        """Return the basis of the exponents in some forms, each monomial an atom, or else each exponent."""
        arguments = exponents_in(self.forms, found)
        key = frozenset(argument.number for argument in arguments)
        if key not in self._bases:
            modulus, roots = self.moduli["q"], self.roots["q"]
            basis = basis_of(self.forms, arguments, modulus, self.seed, roots)
            if basis.reason:
                coarse = basis_of(self.forms, arguments, modulus, self.seed, roots, coarse=True)
                basis = basis if coarse.reason else coarse
            self._bases[key] = basis
        return self._bases[key]

    def side(self, left: Form, right: Form, name: str) -> tuple[Side, Size]:
        """Return what a side contributes to the difference of two forms, and the difference's size."""
        basis, modulus, roots = self.basis([left, right]), self.moduli[name], self.roots[name].cost([left, right])
        size = Degrees(self.forms, basis).difference(left, right)
        value = self.vanishing(size, roots, basis, modulus)
        meeting = self.collisions([left, right], size, roots, basis, modulus)
        height = max(size.height, 2**roots.constants * size.norm) if roots.constants else size.height
        fits = size.content % modulus.m != 0 and height < log2(modulus.m)
        return Side(value, meeting, fits, roots, basis), size

    def vanishing(self, size: Size, roots: RootCost, basis: Basis, modulus: Modulus) -> float:
        """Return the probability that a nonzero polynomial of this size vanishes (theorems A to C)."""
        value = float(max(size.degree, 1 if not (size.plus or size.minus) else 0)) * roots.factor / modulus.m
        return roots.spread * (value + self._of_exponentials(laurent_degree(size), basis))

    def _of_exponentials(self, weight: int, basis: Basis) -> float:
        if not weight:
            return 0.0
        return weight * basis.delta + basis.fail_once + min(weight, basis.count) * basis.fail_each

    def vanishing_of_exponentials(self, radicand: Form, copies: int) -> float | str:
        """Return how often a product of so many polynomials such as a radicand vanishes for its exponentials, or why not."""
        basis = self.basis([radicand])
        if basis.reason:
            return f"a root is taken of exponentials: {basis.reason}"
        size = Degrees(self.forms, basis).of(self.forms.sqrt(radicand)).numerator
        weight = 2 * copies * (size.plus + size.minus)  # a root's weights are half of its radicand's, rounded up
        return self._of_exponentials(2 * weight, basis)

    def point(self, seed: int) -> Point:
        """Return a random point modulo p at which exponentials have values."""
        p, q = self.moduli["p"], self.moduli["q"]
        omega = next(w for x in range(2, p.m) if (w := pow(x, (p.m - 1) // q.m, p.m)) != 1)
        exponent = 1 + seed % (q.m - 1)
        powers = PowerTable(pow(omega, exponent, p.m), q.m, p)
        return Point(p, seed, exponents=Point(q, seed + 1), powers=powers)

    def collisions(self, found: Sequence[Form], size: Size, roots: RootCost, basis: Basis, modulus: Modulus) -> float:
        """Return the probability that random functions of different arguments cannot be told apart (theorem D)."""
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
                    both = ratio.numerator.times(ratio.poles)
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
        modulus, total = self.moduli[name], 0.0
        chances: dict[object, float] = {}
        for form, count in self.divisors.items():
            if form.constant is not None or (name == "q" and not self._is_on_q(form)):  # exp leaves no part modulo q
                continue
            key = pattern_of(form).key
            if key not in chances:
                basis, roots = self.basis([form]), self.roots[name].cost([form])
                if basis.reason or roots.reason:
                    return 1.0, f"a denominator: {basis.reason or roots.reason}"
                size = Degrees(self.forms, basis).of(form).numerator
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
