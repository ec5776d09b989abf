"""What square roots cost: which radicands there are, whether they are independent, how often all of them are squares.

Invariant: a number comes out only where it is shown that no product of a nonempty set of the radicands is a square times a
constant; else the reason does. Theorem C of `docs/verification.md`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import isqrt
from typing import Protocol

from workbench.domains.field_pairs import is_square
from workbench.domains.residues import Modulus
from workbench.errors import NotApplicableError
from workbench.verify.degrees import Degrees
from workbench.verify.families import ANYWHERE, Family, families_of, sample_index, up_to_constant
from workbench.verify.form_atoms import AnyAtom, Element, Exponential, Form, Group, Root, atoms_outside_exponents
from workbench.verify.forms import Forms
from workbench.verify.patterns import places_of_tensor
from workbench.verify.points import NoMeaningError, Point

MAX_TOGETHER = 10  # roots of one block of inputs; beyond, the factor 4 for each leaves nothing of the bound
ATTEMPTS = 64  # random points tried until one shows what is to be shown
SPARE_ROWS = 20  # vectors of characters beyond those needed: independent ones fail to show it once in a million times
NOT_INDEPENDENT = "radicands are not shown to be independent: a product of some may be a square"
"""A reason that is one of the polynomials, whatever the primes."""


@dataclass(slots=True)
class RootCost:
    """What the roots of some forms cost on one side.

    Attributes: factor: by how much the probability that a polynomial in input elements vanishes grows (2 for the norm and
    about 2 for the condition, for each root of a block of inputs); spread: the same for everything, exponentials too, where
    radicands contain exponentials; together: most roots of one block; in_cone: different roots;
    tensors: inputs that are drawn under the condition; constants: roots of numbers, each of which doubles heights;
    premises, assumptions: in words; reason: why there is no number, "" if there is.
    """

    factor: float = 1.0
    spread: float = 1.0
    together: int = 0
    in_cone: int = 0
    tensors: frozenset[int] = frozenset()
    constants: int = 0
    premises: list[str] = field(default_factory=list)
    assumptions: list[str] = field(default_factory=list)
    reason: str = ""


class Exponentials(Protocol):
    """What roots need to know of exponentials in radicands."""

    def vanishing_of_exponentials(self, radicand: Form, copies: int) -> float | str:
        """Return how often a product of so many polynomials such as a radicand vanishes for its exponentials, or why not."""
        ...

    def point(self, seed: int) -> Point:
        """Return a random point modulo p at which exponentials have values."""
        ...


class Roots:
    """The roots of two programs on one side.

    conditions: all radicands of the programs, which are squares at every point whether or not their roots are left in the
    forms that are looked at; modulus, side: the prime and its name; seed: of the points that show independence;
    exponentials: what is known of exponents, None where forms with exponentials do not occur.
    """

    def __init__(
        self,
        forms: Forms,
        conditions: Sequence[Form],
        modulus: Modulus,
        side: str,
        seed: int,
        exponentials: Exponentials | None = None,
    ) -> None:
        self.forms, self.conditions, self.modulus, self.side, self.seed = forms, conditions, modulus, side, seed
        self.exponentials = exponentials
        self._shown: dict[tuple[object, int], int | None] = {}
        self._points: list[Point] = []
        self._conditions: tuple[list[Family], RootCost] | None = None

    def cost(self, found: Sequence[Form]) -> RootCost:
        """Return what the roots in some forms cost."""
        cost = RootCost()
        atoms = list(atoms_outside_exponents(found))
        inside = [atom.radicand for atom in atoms if isinstance(atom, Root)]
        if not inside and not self.conditions:
            return cost
        elements = [atom for atom in atoms if isinstance(atom, Element)]
        draws = {(element.tensor, False) for element in elements}
        for atom in atoms:
            if isinstance(atom, Exponential):
                inner = self.forms.inside(atom.argument)
                draws |= {(raised.tensor, True) for raised in inner if isinstance(raised, Element)}
        families = families_of(self.forms, self._simplified(inside, cost))
        known = {family.pattern.key for family in families}
        others, theirs = self._of_conditions()
        families += [family for family in others if family.pattern.key not in known]
        components = [c for c in _components(families) if any(not f.cancelled or f.pattern.draws & draws for f in c)]
        if not components and not cost.constants:
            return cost
        cost.reason = cost.reason or theirs.reason
        if self.modulus.m % 4 != 3:
            cost.reason = f"no square root modulo {self.side} = {self.modulus.m} is multiplicative (it is 1 mod 4)"
        for family in families:
            cost.reason = cost.reason or self._misfit(family, cost)
        cost.in_cone = sum(family.count() for family in families if not family.cancelled)
        for component in components:
            if not cost.reason:
                cost.tensors |= frozenset[int]().union(*(family.pattern.tensors for family in component))
                self._add(component, elements, cost)
        return cost

    def _of_conditions(self) -> tuple[list[Family], RootCost]:
        if self._conditions is None:
            cost = RootCost()
            families = families_of(self.forms, self._simplified(self.conditions, cost))
            for family in families:
                family.cancelled = True
            self._conditions = families, cost
        return self._conditions

    # --------------------------------------------------------------------------------------------------- which radicands
    def _simplified(self, radicands: Sequence[Form], cost: RootCost) -> list[Form]:
        """Return the radicands whose roots are to be shown independent; the others are products of their roots.

        sqrt(1/x) is 1/sqrt(x), sqrt(x y) is sqrt(x) sqrt(y) where both are rooted too, in the field as over the reals.
        """
        forms = self.forms
        single: list[Form] = []
        products: list[tuple[Form, tuple[AnyAtom, ...]]] = []
        for radicand in radicands:
            number = radicand.constant
            if number is not None:
                if not is_square(number.numerator * number.denominator, self.modulus.m):
                    cost.reason = f"the root of {number} does not exist modulo {self.side} = {self.modulus.m}"
                cost.constants += 1
                continue
            if len(radicand.terms) > 1:
                single.append(radicand)
                continue
            monomial = radicand.terms[0][0]
            odd = tuple(atom for atom, power in monomial if power % 2)
            if not odd:
                cost.reason = "a radicand is a perfect square; rewrite its root to an absolute value first"
                return []
            if len(monomial) == 1:
                single.append(forms.scale(_whole(forms, odd[0]), radicand.terms[0][1]))
            else:
                products.append((radicand, odd))
        present = {up_to_constant(forms, form).number for form in single}
        for radicand, odd in products:
            if not all(up_to_constant(forms, _whole(forms, atom)).number in present for atom in odd):
                single.append(radicand)
            elif any(power % 2 == 0 for _, power in radicand.terms[0][0]):
                cost.reason = "a product of radicands is a square times another radicand; its root is an absolute value"
        return single

    def _misfit(self, family: Family, cost: RootCost) -> str:
        """Return why sqrt(c S) is not sqrt(c) sqrt(S) in the field as over the reals, "" if it is."""
        for lead in family.leads[1:]:
            ratio = lead / family.leads[0]
            root = Fraction(isqrt(ratio.numerator), isqrt(ratio.denominator))
            if root * root != ratio:
                cost.constants += 1
            elif not is_square(root.numerator * root.denominator, self.modulus.m):
                return f"sqrt({ratio} x) is -{root} sqrt(x) modulo {self.side} = {self.modulus.m}, where {root} is no square"
        return ""

    # ------------------------------------------------------------------------------------------------------ one component
    def _add(self, component: list[Family], elements: Sequence[Element], cost: RootCost) -> None:
        """Add the cost of families that are connected by inputs."""
        count = sum(family.count() for family in component)
        mixed = any(family.pattern.has_exponents for family in component)
        separate = not mixed and len(component) == 1 and component[0].in_blocks(component[0].pattern.tensors, ANYWHERE)
        together = 1 if separate else count
        if together > MAX_TOGETHER:
            cost.reason = f"{count} roots share inputs; conditioning on all of them leaves no bound"
            return
        if not separate and any(family.cancelled and not family.touches_once(elements) for family in component):
            cost.reason = "roots that cancel share inputs with each other, and inputs are drawn until all of them exist"
            return
        if any(family.pattern.choices or family.pattern.calls for family in component):
            cost.reason = (
                "a radicand contains a piecewise or opaque operator; its roots are not shown to be independent"
            )
            return
        share = self._share_of_squares(component)
        if isinstance(share, str):
            cost.reason = share
            return
        if share is None:
            if not self._independent_by_characters(component):
                cost.reason = NOT_INDEPENDENT
                return
            share = 0.5**together
            cost.assumptions.append(
                f"all {together} radicands are squares modulo {self.side} in at least 1 of {2**together} draws"
            )
        elif share <= 0:
            cost.reason = f"{self.side} = {self.modulus.m} is too small for the degree of the radicands"
            return
        if not separate and any(not f.in_blocks(f.pattern.tensors, ANYWHERE) for f in component):
            cost.assumptions.append(
                "inputs on which radicands of several elements rest are as good as uniform after drawing again"
            )
        cost.together = max(cost.together, together)
        if mixed:
            cost.spread *= 2**together / share
        else:
            cost.factor = max(cost.factor, 2**together / share)
        shown = "1 root" if together == 1 else f"{together} roots"
        cost.premises.append(
            f"{shown} for each block of inputs modulo {self.side}, no product of radicands a square, all squares in at "
            f"least {share:.3g} of the draws"
        )

    # ----------------------------------------------------------------------------------------- independence, by quadratics
    def _share_of_squares(self, component: list[Family]) -> float | str | None:
        """Return a lower bound on how often all radicands are squares, None where this argument does not apply.

        In words: why exponentials in a radicand cannot be judged.

        Families are ordered so that each is a polynomial of degree 1 or 2, with leading coefficient and discriminant not
        zero, in an input element that the earlier ones do not contain. Then no product of a nonempty set is a square (the
        last one of the set has, in that element, a root of odd order), and given the others each is a square for at least
        (m - 1) / 2 values of the element unless leading coefficient or discriminant vanish.
        """
        counts = [family.count() for family in component]
        if max(counts) > 1 and (len(component) > 1 or not component[0].in_blocks(component[0].pattern.tensors)):
            return None
        remaining, order = list(component), list[tuple[Family, int]]()
        while remaining:
            for family in remaining:
                others = frozenset[int]().union(*(f.pattern.tensors for f in remaining if f is not family))
                degrees = [self._quadratic(family, tensor) for tensor in sorted(family.pattern.tensors - others)]
                shown = [degree for degree in degrees if degree is not None]
                if shown:
                    order.append((family, shown[0]))
                    remaining.remove(family)
                    break
            else:
                return None
        share, doubled, m = 1.0, 1, self.modulus.m
        for family, degree in reversed(order):
            total = self._degree_of_radicand(family.form)
            bad = (total - 1) if degree == 1 else 3 * total - 4
            here = 0.5 if degree == 1 else 0.5 * (1 - 1 / m)
            lost = bad / m
            if family.pattern.has_exponents:
                assert self.exponentials is not None
                more = self.exponentials.vanishing_of_exponentials(family.form, degree if degree == 1 else 3)
                if isinstance(more, str):
                    return more
                lost += more
            share *= here * max(0.0, 1 - lost * doubled / share)
            doubled *= 2
            if share <= 0:
                return 0.0
        return share

    def _degree_of_radicand(self, radicand: Form) -> int:
        """Return the degree of the polynomial that a radicand is up to squares."""
        root = next(iter(self.forms.sqrt(radicand).atoms()))
        ratio = Degrees(self.forms, None).of_atom(root, 1)
        return int(2 * next(factor.size.degree for factor, power in ratio.factors.items() if power > 0))

    def _quadratic(self, family: Family, tensor: int) -> int | None:
        key = (family.pattern.key, tensor)
        if key not in self._shown:
            self._shown[key] = self._shown_quadratic(family, tensor)
        return self._shown[key]

    def _shown_quadratic(self, family: Family, tensor: int) -> int | None:
        """Return the degree, 1 or 2, in an element of an input, if leading coefficient and discriminant are not zero.

        A point at which they are not zero is a proof that they are not zero as polynomials.
        """
        ratio = Degrees(self.forms, None, frozenset({tensor})).of(family.form)
        if ratio.size.degree > 2 or any(factor.size.degree for factor in ratio.factors):
            return None
        leaves = [leaf for leaf in places_of_tensor(family.pattern, tensor) if not leaf.raised]
        if not leaves:
            return None
        leaf, m = leaves[0], self.modulus.m
        for attempt in range(ATTEMPTS):
            point = self._point(attempt)
            try:
                index = sample_index(leaf, family.pattern.places, point)
                values = [point.with_element(tensor, index, z).value(family.form) for z in range(3)]
            except NoMeaningError:
                continue
            except NotApplicableError:
                return None
            leading = (values[2] - 2 * values[1] + values[0]) * pow(2, -1, m) % m
            linear = (values[1] - values[0] - leading) % m
            if leading == 0 and linear and ratio.size.degree == 1:
                return 1
            if leading and (linear * linear - 4 * leading * values[0]) % m:
                return 2
        return None

    def _point(self, attempt: int) -> Point:
        seed = self.seed + attempt
        return Point(self.modulus, seed) if self.exponentials is None else self.exponentials.point(seed)

    # ---------------------------------------------------------------------------------------- independence, by characters
    def _independent_by_characters(self, component: list[Family]) -> bool:
        """Return True when it is shown that no product of a nonempty set of radicands is a square times a constant.

        If one were, the product of its quadratic characters would be the same at all points. So the vectors of characters
        over some points, and the constant one, being linearly independent over two elements is a proof.
        """
        if any(family.count() > 1 for family in component):
            return False
        rows: list[int] = []
        full = len(component) + 1
        for attempt in range(ATTEMPTS):
            if attempt == len(self._points):  # points remember the values that they have given
                self._points.append(self._point(attempt))
            point = self._points[attempt]
            try:
                values = [point.value(family.form) for family in component]
            except NoMeaningError:
                continue
            except NotApplicableError:
                return False
            if all(values):
                bits = [1, *(0 if is_square(value, self.modulus.m) else 1 for value in values)]
                rows.append(sum(bit << position for position, bit in enumerate(bits)))
                if len(rows) >= full and rank_over_two(rows) == full:
                    return True
                if len(rows) == full + SPARE_ROWS:
                    break
        return False


def _whole(forms: Forms, atom: AnyAtom) -> Form:
    """Return an atom as a form, a group of terms as the sum that it is."""
    return atom.form if isinstance(atom, Group) else forms.of(atom)


def _components(families: list[Family]) -> list[list[Family]]:
    """Return the families in groups that share no input."""
    groups: list[list[Family]] = []
    for family in families:
        touching = [g for g in groups if any(f.pattern.draws & family.pattern.draws for f in g)]
        groups = [g for g in groups if g not in touching]
        groups.append([f for g in touching for f in g] + [family])
    return groups


def rank_over_two(rows: Sequence[int]) -> int:
    """Return the rank of vectors of bits."""
    pivots: list[int] = []
    for row in rows:
        for pivot in pivots:
            row = min(row, row ^ pivot)
        if row:
            pivots.append(row)
    return len(pivots)
