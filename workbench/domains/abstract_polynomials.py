"""Arithmetic of normal forms: products, exact division, common divisors, what depends on an axis, renamed axes.

Invariant: polynomials have natural coefficients and are never cancelled, so a product has exactly |p| |q| monomials and
a quotient, where it exists, is unique. Division follows a total order of monomials that products respect.
Long because measuring a monomial, multiplying, splitting and opening sums all call each other.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction

from workbench.domains.abstract_tables import (
    UNIT,
    Atom,
    Monomial,
    Renaming,
    Tables,
    TooLargeError,
    UndecidedError,
    bits_of,
)

OrderKey = tuple[object, ...]
MAX_COPY_ORDERS = 720  # permutations of equally named bound axes tried for the canonical one


def merge(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...]:
    """Return the union of two multisets kept in descending order."""
    if not left:
        return right
    return tuple(sorted(left + right, reverse=True)) if right else left


def subtract(whole: tuple[int, ...], part: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the multiset difference in descending order, None when `part` is not contained."""
    if not part:
        return whole
    if len(part) > len(whole):
        return None
    rest = list(whole)
    for atom in part:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)


def intersect(multisets: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the common part of multisets in descending order."""
    common = Counter(multisets[0])
    for other in multisets[1:]:
        common &= Counter(other)
        if not common:
            return ()
    return tuple(sorted(common.elements(), reverse=True))


class Polynomials(Tables):
    """Tables with arithmetic. Every method may raise UndecidedError past the budget."""

    def __init__(self, *, max_terms: int = 512, max_weight: int = 12_000) -> None:
        """Raises: ValueError as `Tables`."""
        super().__init__(max_terms=max_terms, max_weight=max_weight)
        self._monomial_products: dict[tuple[int, int], int] = {}
        self._products: dict[tuple[int, int], int] = {}
        self._monomial_quotients: dict[tuple[int, int], int] = {}
        self._quotients: dict[tuple[int, int], int] = {}
        self._monomial_orders: dict[int, OrderKey] = {UNIT: ((), (), (), ())}
        self._orders: dict[int, OrderKey] = {UNIT: ()}
        self._contents: dict[int, tuple[tuple[int, ...], int]] = {UNIT: ((), UNIT)}
        self._splits: dict[tuple[int, int], tuple[int, int]] = {}
        self._monomial_splits: dict[tuple[int, int], tuple[int, int]] = {}
        self._opened: dict[int, tuple[int, int]] = {}
        self._renamed: dict[tuple[str, int, Renaming], int] = {}

    # -------------------------------------------------------------------------------------------------- measuring
    def monomial(self, monomial: Monomial) -> int:
        """Return the id of a monomial whose atoms are in descending order."""
        found = self.monomial_id(monomial)
        return self.new_monomial(monomial, *self._measure_monomial(monomial)) if found is None else found

    def atom_polynomial(self, atom: int) -> int:
        """Return the polynomial that is one atom."""
        return self.polynomial((self.monomial(Monomial((atom,))),))

    def _measure_monomial(self, monomial: Monomial) -> tuple[int, int, int, bool]:
        """Return free axes, feature count, weight, and whether a part is undecided.

        What stands below and under a root is counted multiplied out and with the sums opened, because a subexpression
        may be multiplied out: z (x + y) below, held as z and x + y, has the subexpression z x + z y with two z.
        """
        mask, count, weight, frozen = 0, 0, 0, False
        roots, sums, is_quotient = [], 0, bool(monomial.den) or monomial.quotient != UNIT
        for atom in monomial.num:
            mask |= self.atom_mask[atom]
            frozen = frozen or self.atom_frozen[atom]
            kind = self.atoms[atom].kind
            if kind == "sqrt":
                roots.append(atom)
            elif not is_quotient or not self.is_number(atom):  # else counted below, see `below`
                sums += kind == "sum"
                count += self.atom_count[atom]
                weight += self.atom_weight[atom]
        parts = []
        if roots or monomial.root != UNIT:
            parts.append(self.under_root(tuple(roots), monomial.root))
            count += len(roots) * self.feature("sqrt")
            weight += len(roots)
        if is_quotient:
            parts.append(self.below(monomial))
        for p in parts:
            mask |= self.mask[p]
            count += self.count[p]
            weight += self.weight[p]
            frozen = frozen or self.frozen[p]
        if sums and (sums > 1 or len(monomial.num) > 1 or parts):
            bound, body = self.open_product(monomial)
            count = self.monomial_count[body] + sum(self.feature(("sum", self.base(bit))) for bit in bits_of(bound))
            weight = self.monomial_weight[body] + bound.bit_count()
        return mask, count, weight, frozen

    def below(self, monomial: Monomial) -> int:
        """Return the largest denominator the monomial may have had, as one polynomial.

        x / c is held as x * (1/c), so constants above may have been below.
        """
        numbers = [self.inverse(atom) for atom in monomial.num if self.is_number(atom)]
        den = tuple(sorted([*monomial.den, *numbers], reverse=True))
        return self.scale(self.monomial(Monomial(den)), monomial.quotient)

    def under_root(self, roots: tuple[int, ...], root: int) -> int:
        """Return the radicand as one polynomial: the arguments of the root atoms times the primitive one."""
        refs = tuple(sorted((self.atoms[atom].ref for atom in roots), reverse=True))
        return self.scale(self.monomial(Monomial(refs)), root)

    # --------------------------------------------------------------------------------------------------- numbers
    def is_number(self, atom: int) -> bool:
        """Return whether an atom is a constant other than 0, or a root of one."""
        kind, name, ref = self.atoms[atom][:3]
        return (kind == "constant" and name != "0") or (kind == "sqrt" and self.is_number(ref))

    def is_positive_number(self, atom: int) -> bool:
        """Return whether an atom is a constant above 0, or a root of one."""
        kind, name, ref = self.atoms[atom][:3]
        return (kind == "constant" and name != "0" and name[0] != "-") or (
            kind == "sqrt" and self.is_positive_number(ref)
        )

    def inverse(self, number: int) -> int:
        """Return the atom of 1/number."""
        atom = self.atoms[number]
        if atom.kind == "sqrt":
            return self.atom(Atom("sqrt", ref=self.inverse(atom.ref)))
        return self.atom(Atom("constant", str(1 / Fraction(atom.name))))

    # --------------------------------------------------------------------------------------------------- products
    def multiply_monomials(self, m: int, n: int) -> int:
        """Return m n."""
        if m == UNIT or n == UNIT:
            return m or n
        key = (m, n) if m < n else (n, m)
        found = self._monomial_products.get(key)
        if found is None:
            a, b = self.monomials[m], self.monomials[n]
            quotient = self.multiply(a.quotient, b.quotient)
            root = self.multiply(a.root, b.root)
            found = self.monomial(Monomial(merge(a.num, b.num), merge(a.den, b.den), quotient, root))
            self._monomial_products[key] = found
        return found

    def multiply(self, p: int, q: int) -> int:
        """Return p q, multiplied out."""
        if p == UNIT or q == UNIT:
            return p or q
        key = (p, q) if p < q else (q, p)
        found = self._products.get(key)
        if found is None:
            left, right = self.polynomials[p], self.polynomials[q]
            if len(left) * len(right) > self.max_terms:
                raise TooLargeError(
                    f"a product of {len(left)} by {len(right)} monomials; the budget is {self.max_terms}"
                )
            if len(right) * self.weight[p] + len(left) * self.weight[q] > 2 * self.max_weight:
                raise TooLargeError(f"a product of weight above {self.max_weight}")
            times = self.multiply_monomials
            found = self._products[key] = self.polynomial([times(m, n) for m in left for n in right])
        return found

    def plus(self, p: int, q: int) -> int:
        """Return p + q."""
        return self.polynomial(self.polynomials[p] + self.polynomials[q])

    def scale(self, m: int, p: int) -> int:
        """Return the product of a monomial and a polynomial."""
        return self.polynomial([self.multiply_monomials(m, n) for n in self.polynomials[p]]) if m != UNIT else p

    # --------------------------------------------------------------------------------------------------- division
    def monomial_order(self, m: int) -> OrderKey:
        """Return a key: greater keys are greater monomials, and m < n gives m r < n r."""
        key = self._monomial_orders.get(m)
        if key is None:
            a = self.monomials[m]
            key = self._monomial_orders[m] = (a.num, a.den, self.order(a.quotient), self.order(a.root))
        return key

    def order(self, p: int) -> OrderKey:
        """Return a key: p is greater than q when the largest monomial in which they differ is in p."""
        key = self._orders.get(p)
        if key is None:
            key = self._orders[p] = tuple(sorted(map(self.monomial_order, self.polynomials[p]), reverse=True))
        return key

    def descending(self, p: int) -> list[int]:
        """Return the monomials, greatest first."""
        return sorted(self.polynomials[p], key=self.monomial_order, reverse=True)

    def divide_monomials(self, m: int, n: int) -> int:
        """Return m / n, or -1 when n is no divisor."""
        if n == UNIT:
            return m
        found = self._monomial_quotients.get((m, n))
        if found is None:
            found = self._monomial_quotients[m, n] = self._divide_monomials(m, n)
        return found

    def _divide_monomials(self, m: int, n: int) -> int:
        a, b = self.monomials[m], self.monomials[n]
        num = subtract(a.num, b.num)
        if num is None:
            return -1
        den = subtract(a.den, b.den)
        if den is None:
            return -1
        quotient = self.divide(a.quotient, b.quotient)
        if quotient < 0:
            return -1
        root = self.divide(a.root, b.root)
        return self.monomial(Monomial(num, den, quotient, root)) if root >= 0 else -1

    def divide(self, p: int, q: int) -> int:
        """Return p / q where q times a polynomial is p, else -1."""
        if q == UNIT:
            return p
        if p == q:
            return UNIT
        if len(self.polynomials[p]) % len(self.polynomials[q]) or not self.fits(self.count[q], self.count[p]):
            return -1
        found = self._quotients.get((p, q))
        if found is None:
            found = self._quotients[p, q] = self._divide(p, q)
        return found

    def _divide(self, p: int, q: int) -> int:
        rest = Counter(self.polynomials[p])
        divisor = self.descending(q)
        result = []
        for m in self.descending(p):
            if not rest[m]:
                continue
            term = self.divide_monomials(m, divisor[0])
            if term < 0:
                return -1
            for n in divisor:
                product = self.multiply_monomials(term, n)
                if not rest[product]:
                    return -1
                rest[product] -= 1
            result.append(term)
            # A greatest monomial that occurs several times is met again at its next place in the descending list.
        return self.polynomial(result)

    # --------------------------------------------------------------------------------------------- common divisors
    def content(self, p: int) -> tuple[tuple[int, ...], int]:
        """Return the atoms above that divide every monomial, and the primitive polynomial that remains."""
        found = self._contents.get(p)
        if found is None:
            parts = [self.monomials[m] for m in self.polynomials[p]]
            atoms = intersect([part.num for part in parts])
            if atoms:
                divisor = self.monomial(Monomial(atoms))
                primitive = self.polynomial([self.divide_monomials(m, divisor) for m in self.polynomials[p]])
            else:
                primitive = p
            found = self._contents[p] = (atoms, primitive)
        return found

    def common_divisor(self, polynomials: Sequence[int]) -> int:
        """Return a greatest common divisor. Raises: UndecidedError where finding one needs more than division."""
        distinct = sorted(set(polynomials))
        if UNIT in distinct:
            return UNIT
        if len(distinct) == 1:
            return distinct[0]
        contents = [self._common_monomial([self.monomials[m] for m in self.polynomials[p]]) for p in distinct]
        common = self._common_monomial([self.monomials[m] for m in contents])
        # What is left of each has no monomial as a factor, and so has a common divisor of what is left.
        distinct = [self.divide(p, self.polynomial((m,))) for p, m in zip(distinct, contents, strict=True)]
        smallest = min(distinct, key=lambda p: (len(self.polynomials[p]), p))
        if all(self.divide(p, smallest) >= 0 for p in distinct):
            return self.scale(common, smallest)
        if any(len(self.polynomials[p]) == 1 for p in distinct):
            return self.polynomial((common,))
        raise UndecidedError("whether two sums have a common factor")

    def _common_monomial(self, parts: Sequence[Monomial]) -> int:
        num = intersect([part.num for part in parts])
        den = intersect([part.den for part in parts])
        quotient = self.common_divisor([part.quotient for part in parts])
        root = self.common_divisor([part.root for part in parts])
        return self.monomial(Monomial(num, den, quotient, root))

    # ----------------------------------------------------------------------------------------- dependence on an axis
    def split_monomial(self, m: int, axis: int) -> tuple[int, int]:
        """Return (what does not vary along the axis, what does); their product is m."""
        if not self.monomial_mask[m] & axis:
            return m, UNIT
        found = self._monomial_splits.get((m, axis))
        if found is None:
            a = self.monomials[m]
            varies = [tuple(atom for atom in side if self.atom_mask[atom] & axis) for side in (a.num, a.den)]
            fixed = [tuple(atom for atom in side if not self.atom_mask[atom] & axis) for side in (a.num, a.den)]
            quotients, roots = self.split(a.quotient, axis), self.split(a.root, axis)
            found = self._monomial_splits[m, axis] = (
                self.monomial(Monomial(fixed[0], fixed[1], quotients[0], roots[0])),
                self.monomial(Monomial(varies[0], varies[1], quotients[1], roots[1])),
            )
        return found

    def split(self, p: int, axis: int) -> tuple[int, int]:
        """Return (greatest factor that does not vary along the axis, the rest). Raises: UndecidedError."""
        if not self.mask[p] & axis:
            return p, UNIT
        found = self._splits.get((p, axis))
        if found is None:
            coefficients: dict[int, list[int]] = {}
            for m in self.polynomials[p]:
                fixed, varies = self.split_monomial(m, axis)
                coefficients.setdefault(varies, []).append(fixed)
            factor = self.common_divisor([self.polynomial(fixed) for fixed in coefficients.values()])
            found = self._splits[p, axis] = (factor, self.divide(p, factor))
        return found

    # ---------------------------------------------------------------------------------------------- bound axes
    def open_sums(self, m: int) -> tuple[int, int]:
        """Return (bound axes, monomial) with every sum above opened: sum_B of the monomial is m."""
        found = self._opened.get(m)
        if found is None:
            found = self._opened[m] = self.open_product(self.monomials[m])
        return found

    def open_product(self, monomial: Monomial) -> tuple[int, int]:
        """Return (bound axes, monomial) of a product with every sum above opened."""
        sums = [atom for atom in monomial.num if self.atoms[atom].kind == "sum"]
        plain = tuple(atom for atom in monomial.num if self.atoms[atom].kind != "sum")
        body = self.monomial(monomial._replace(num=plain))
        if not sums:
            return 0, body
        bound, outer = 0, self.monomial_mask[body]
        for atom in sums:
            outer |= self.atom_mask[atom]
        for atom in sums:
            own, inner = self._sum_apart(self.atoms[atom], bound | outer)
            bound |= own
            body = self.multiply_monomials(body, inner)
        return bound, body

    def _sum_apart(self, atom: Atom, taken: int) -> tuple[int, int]:
        return self._apart(atom.bound, atom.ref, taken, self.monomial_mask, self.rename_monomial)

    def close_sum(self, bound: int, body: int) -> int:
        """Return the sum atom over the bound axes of a monomial, their copies named canonically."""
        bound, body = self._canonical(bound, body, self.monomial_mask, self.rename_monomial)
        return self.atom(Atom("sum", ref=body, bound=bound))

    def canonical_element(self, bound: int, p: int) -> tuple[int, int]:
        """Return an element of a maximum with the copies of its bound axes named canonically."""
        return self._canonical(bound & self.mask[p], p, self.mask, self.rename)

    def element_apart(self, bound: int, p: int, taken: int) -> tuple[int, int]:
        """Return an element of a maximum with those bound axes that are taken renamed to fresh copies."""
        return self._apart(bound, p, taken, self.mask, self.rename)

    def _apart(
        self, bound: int, body: int, taken: int, masks: Sequence[int], rename: Callable[[int, Renaming], int]
    ) -> tuple[int, int]:
        """Return a bound body with those bound axes that are taken renamed to fresh copies."""
        clash = bound & taken
        if not clash:
            return bound, body
        taken |= bound | masks[body]
        renaming = []
        for bit in bits_of(clash):
            new = self.fresh_copy(bit, taken)
            taken |= new
            renaming.append((bit, new))
            bound ^= bit | new
        return bound, rename(body, tuple(renaming))

    def _canonical(
        self, bound: int, body: int, masks: Sequence[int], rename: Callable[[int, Renaming], int]
    ) -> tuple[int, int]:
        """Return a bound body whose bound axes are the smallest copies that are not free in it."""
        free = masks[body] & ~bound
        if not (bound | free) & self.copy_mask:
            return bound, body
        groups: dict[int, list[int]] = {}
        for bit in bits_of(bound):
            groups.setdefault(self.base(bit), []).append(bit)
        targets: dict[int, list[int]] = {}
        for base, members in groups.items():
            taken = free
            for _ in members:
                bit = self.fresh_copy(base, taken)
                taken |= bit
                targets.setdefault(base, []).append(bit)
        if math.prod(math.factorial(len(members)) for members in groups.values()) > MAX_COPY_ORDERS:
            raise UndecidedError("the canonical names of many equally named bound axes")
        best = -1
        for order in itertools.product(*(itertools.permutations(members) for members in groups.values())):
            pairs = [
                (bit, new)
                for base, members in zip(groups, order, strict=True)
                for bit, new in zip(members, targets[base], strict=True)
                if bit != new
            ]
            # The candidates are the same for every naming of the same sum, and so is the least of their ids.
            candidate = rename(body, tuple(pairs))
            best = candidate if best < 0 else min(best, candidate)
        new_bound = 0
        for members in targets.values():
            for bit in members:
                new_bound |= bit
        return new_bound, best

    # --------------------------------------------------------------------------------------------------- renaming
    def rename(self, p: int, renaming: Renaming) -> int:
        """Return the polynomial with free axes renamed, all at once."""
        if not self._touches(self.mask[p], renaming):
            return p
        key = ("polynomial", p, renaming)
        found = self._renamed.get(key)
        if found is None:
            found = self._renamed[key] = self.polynomial(
                [self.rename_monomial(m, renaming) for m in self.polynomials[p]]
            )
        return found

    def rename_monomial(self, m: int, renaming: Renaming) -> int:
        """Return the monomial with free axes renamed, all at once."""
        if not self._touches(self.monomial_mask[m], renaming):
            return m
        key = ("monomial", m, renaming)
        found = self._renamed.get(key)
        if found is None:
            a = self.monomials[m]
            num, den = (tuple(sorted((self._rename_atom(x, renaming) for x in side), reverse=True)) for side in a[:2])
            found = self.monomial(Monomial(num, den, self.rename(a.quotient, renaming), self.rename(a.root, renaming)))
            self._renamed[key] = found
        return found

    def _rename_atom(self, atom: int, renaming: Renaming) -> int:
        if not self._touches(self.atom_mask[atom], renaming):
            return atom
        key = ("atom", atom, renaming)
        found = self._renamed.get(key)
        if found is None:
            found = self._renamed[key] = self._renamed_atom(self.atoms[atom], renaming)
        return found

    def _renamed_atom(self, atom: Atom, renaming: Renaming) -> int:
        names = dict(renaming)
        match atom.kind:
            case "symbol":
                return self.atom(atom._replace(refs=tuple(names.get(bit, bit) for bit in atom.refs)))
            case "exp":
                return self.atom(atom._replace(ref=self.rename_monomial(atom.ref, renaming)))
            case "sqrt":
                return self.atom(atom._replace(ref=self._rename_atom(atom.ref, renaming)))
            case "apply":
                return self.atom(atom._replace(refs=tuple(self.rename(p, renaming) for p in atom.refs)))
            case "sum":
                free = tuple((bit, new) for bit, new in renaming if not atom.bound & bit)
                bound, body = self._sum_apart(atom, _names(free))
                return self.close_sum(bound, self.rename_monomial(body, free))
            case "max":
                return self._rename_max(atom, renaming)
        raise UndecidedError(f"renaming axes in an undecided {atom.name}")

    def _rename_max(self, atom: Atom, renaming: Renaming) -> int:
        elements = []
        for bound, p in atom.elements:
            free = tuple((bit, new) for bit, new in renaming if not bound & bit)
            own, body = self.element_apart(bound, p, _names(free))
            elements.append(self.canonical_element(own, self.rename(body, free)))
        return self.atom(atom._replace(elements=tuple(sorted(elements))))

    def _touches(self, mask: int, renaming: Renaming) -> bool:
        return any(mask & bit for bit, _ in renaming)


def _names(renaming: Renaming) -> int:
    mask = 0
    for bit, new in renaming:
        mask |= bit | new
    return mask
