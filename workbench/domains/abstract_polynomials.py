"""Arithmetic of normal forms: products, exact division, common divisors, what depends on an axis, renamed axes.

Invariant: polynomials have natural coefficients and are never cancelled, so a product has exactly |p| |q| monomials and
a quotient, where it exists, is unique. Division follows a total order of monomials that products respect.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence

from workbench.domains.abstract_tables import UNIT, Atom, Monomial, Renaming, Tables, UndecidedError, bits_of

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
                raise UndecidedError(
                    f"a product of {len(left)} by {len(right)} monomials; the budget is {self.max_terms}"
                )
            if len(right) * self.weight[p] + len(left) * self.weight[q] > 2 * self.max_weight:
                raise UndecidedError(f"a product of weight above {self.max_weight}")
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
        common = self._common_monomial([self.monomials[m] for p in distinct for m in self.polynomials[p]])
        if common != UNIT:
            divisor = self.polynomial((common,))
            distinct = [self.divide(p, divisor) for p in distinct]
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
            a = self.monomials[m]
            sums = [atom for atom in a.num if self.atoms[atom].kind == "sum"]
            if not sums:
                found = (0, m)
            else:
                plain = tuple(atom for atom in a.num if self.atoms[atom].kind != "sum")
                body = self.monomial(Monomial(plain, a.den, a.quotient, a.root))
                bound = 0
                for atom in sums:
                    own, inner = self.atoms[atom].bound, self.atoms[atom].ref
                    own, inner = self._rename_apart(own, inner, bound | self.monomial_mask[m])
                    bound |= own
                    body = self.multiply_monomials(body, inner)
                found = (bound, body)
            self._opened[m] = found
        return found

    def _rename_apart(self, bound: int, body: int, taken: int) -> tuple[int, int]:
        """Return a bound monomial with those bound axes that are taken renamed to fresh copies."""
        clash = bound & taken
        if not clash:
            return bound, body
        taken |= bound | self.monomial_mask[body]
        renaming = []
        for bit in bits_of(clash):
            new = self.fresh_copy(bit, taken)
            taken |= new
            renaming.append((bit, new))
            bound ^= bit | new
        return bound, self.rename_monomial(body, tuple(renaming))

    def close_sum(self, bound: int, body: int) -> int:
        """Return the sum atom over the bound axes of a monomial, their copies named canonically."""
        bound, body = self._canonical_copies(bound, body)
        return self.atom(Atom("sum", ref=body, bound=bound))

    def _canonical_copies(self, bound: int, body: int) -> tuple[int, int]:
        free = self.monomial_mask[body] & ~bound
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
        orders = itertools.product(*(itertools.permutations(members) for members in groups.values()))
        best = -1
        for order in orders:
            pairs = [
                (bit, new)
                for base, members in zip(groups, order, strict=True)
                for bit, new in zip(members, targets[base], strict=True)
                if bit != new
            ]
            # The candidates are the same for every naming of the same sum, and so is the least of their ids.
            candidate = self.rename_monomial(body, tuple(pairs))
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
                bound, body = self._rename_apart(atom.bound, atom.ref, sum(new for _, new in free))
                return self.close_sum(bound, self.rename_monomial(body, free))
            case "max":
                return self._rename_max(atom, renaming)
        raise UndecidedError(f"renaming axes in an undecided {atom.name}")

    def _rename_max(self, atom: Atom, renaming: Renaming) -> int:
        elements = []
        for bound, p in atom.elements:
            free = tuple((bit, new) for bit, new in renaming if not bound & bit)
            if bound & sum(new for _, new in free if self.mask[p]):
                raise UndecidedError("renaming an axis into one that a maximum binds")
            elements.append((bound, self.rename(p, free)))
        return self.atom(atom._replace(elements=tuple(sorted(elements))))

    def _touches(self, mask: int, renaming: Renaming) -> bool:
        return any(mask & bit for bit, _ in renaming)
