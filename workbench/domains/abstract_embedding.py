"""How an expression lies in a goal without any crossing: sum_L (c e) is contained in g for one monomial context c.

Invariant: a path of products, quotients, sums and additions leads from e to g exactly when such a context exists; with
the sums of g opened it is found by dividing monomials. Bound axes have no names of their own, so an axis that the goal
binds twice is tried under each of its copies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations, product

from workbench.domains.abstract_normal_form import Algebra
from workbench.domains.abstract_tables import Monomial, Renaming, UndecidedError, bits_of


@dataclass(frozen=True, slots=True)
class Context:
    """How an expression without crossings lies in a region: sum over `left` of `cofactor` times it.

    Attributes: cofactor (monomial), left (axes still to be summed), owners (per monomial of the expression the monomial
    of the region that it becomes).
    """

    cofactor: int
    left: int
    owners: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class View:
    """A monomial of a region with all its sums opened.

    Attributes: owner (place in the region's distinct monomials), bound (axes summed over), body (monomial), count,
    renaming (an exchange of free axes with copies that was made in it).
    """

    owner: int
    bound: int
    body: int
    count: int
    renaming: Renaming


@dataclass(frozen=True, slots=True)
class OpenedPolynomial:
    """A polynomial with its monomials opened.

    Attributes: polynomial; monomials, multiplicity (its distinct monomials and how often each occurs); views; is_plain
    (no copies of axes and no extents in it: then equal contexts are equal tuples).
    """

    polynomial: int
    monomials: tuple[int, ...]
    multiplicity: tuple[int, ...]
    views: tuple[View, ...]
    is_plain: bool


class Embeddings:
    """Finds contexts in opened polynomials of one algebra."""

    def __init__(self, algebra: Algebra) -> None:
        """Keep the algebra."""
        self.algebra = algebra

    def open(self, p: int, *, counts: bool = True) -> OpenedPolynomial:
        """Return the polynomial opened; without `counts` its monomials are not compared by counts first."""
        algebra = self.algebra
        distinct = Counter(algebra.polynomials[p])
        views = tuple(view for owner, m in enumerate(distinct) for view in self._views(owner, m, counts))
        extents = any(
            algebra.atoms[atom].kind == "extent" for view in views for atom in algebra.monomials[view.body].num
        )
        copies = any((view.bound | algebra.monomial_mask[view.body]) & algebra.copy_mask for view in views)
        return OpenedPolynomial(p, tuple(distinct), tuple(distinct.values()), views, not extents and not copies)

    def contexts(self, region: OpenedPolynomial, p: int) -> Iterator[Context]:
        """Return every way the polynomial lies in the region without a crossing."""
        algebra = self.algebra
        monomials = Counter(algebra.polynomials[p])
        if len(monomials) == 1 and len(algebra.polynomials[p]) == 1:
            for view in region.views:
                for cofactor, left in self.embeddings(view, algebra.polynomials[p][0]):
                    yield Context(cofactor, left, (view.owner,))
            return
        if len(monomials) > len(region.monomials) and region.is_plain:
            return
        candidates: set[tuple[int, int, Renaming]] = set()
        tables: list[dict[tuple[int, int], list[int]]] = []
        for m in monomials:
            table: dict[tuple[int, int], list[int]] = {}
            for view in region.views:
                for key in self.embeddings(view, m):
                    table.setdefault(key, []).append(view.owner)
                    candidates.add((*key, view.renaming))
            if not table and region.is_plain:
                return
            tables.append(table)
        shared = set(tables[0]).intersection(*tables[1:])
        for cofactor, left in sorted(shared):
            used: Counter[int] = Counter()
            owners = []
            for table, times in zip(tables, monomials.values(), strict=True):
                owner = table[cofactor, left][0]
                used[owner] += times
                owners.append(owner)
            if all(times <= region.multiplicity[owner] for owner, times in used.items()):
                yield Context(cofactor, left, tuple(owners))
        if not region.is_plain:
            yield from self._constructed(region, p, {found for found in candidates if found[:2] not in shared})

    def embeddings(self, view: View, m: int) -> Iterator[tuple[int, int]]:
        """Return pairs (cofactor, axes left): the sum over them of cofactor times m is the view's monomial."""
        algebra = self.algebra
        guard = algebra.guard
        if ((view.count | guard) - algebra.monomial_count[m]) & guard != guard:
            return
        bound, body = algebra.open_sums(m)
        copies = algebra.copy_mask
        if bound and (view.bound | bound | algebra.monomial_mask[view.body]) & copies:
            options = self._named_as_in(view.bound, bound, body)
        else:
            options = [(bound, body)]
        for own, renamed in options:
            if own & ~view.bound:
                continue
            cofactor = algebra.divide_monomials(view.body, renamed)
            if cofactor >= 0 and not algebra.monomial_mask[cofactor] & own:
                yield cofactor, view.bound & ~own

    def _named_as_in(self, target: int, bound: int, body: int) -> list[tuple[int, int]]:
        """Return a bound monomial with its bound axes named as axes of the same kind that the target binds."""
        algebra = self.algebra
        groups: dict[int, list[int]] = {}
        for bit in bits_of(bound):
            groups.setdefault(algebra.base(bit), []).append(bit)
        targets = {base: [bit for bit in bits_of(target) if algebra.base(bit) == base] for base in groups}
        results = []
        for choice in product(*(permutations(targets[base], len(own)) for base, own in groups.items())):
            pairs = [
                (bit, new)
                for own, names in zip(groups.values(), choice, strict=True)
                for bit, new in zip(own, names, strict=True)
            ]
            new_bound = sum(new for _, new in pairs)
            free = algebra.monomial_mask[body] & ~bound
            if free & new_bound:  # the expression varies along an axis that the place binds: another view names it
                continue
            renaming = tuple(pair for pair in pairs if pair[0] != pair[1])
            results.append((new_bound, algebra.rename_monomial(body, renaming)))
        return results

    def _constructed(
        self, region: OpenedPolynomial, p: int, candidates: set[tuple[int, int, Renaming]]
    ) -> Iterator[Context]:
        """Return the candidate contexts that, carried out, give monomials of the region."""
        algebra = self.algebra
        distinct = {m: place for place, m in enumerate(region.monomials)}
        available = Counter(dict(zip(region.monomials, region.multiplicity, strict=True)))
        for cofactor, left, renaming in sorted(self._with_extents_summed(candidates)):
            for joint in _subsets(left & algebra.mask[p]):
                try:
                    # Axes that only the cofactor carries, or carries under the same name by chance, are its own.
                    factor = self._sum(algebra.polynomial((cofactor,)), left & ~joint)
                    result = self._sum(algebra.multiply(factor, p), joint)
                    result = algebra.rename(result, renaming)
                except UndecidedError:
                    yield Context(cofactor, left, tuple(range(len(region.monomials))))
                    continue
                parts = Counter(algebra.polynomials[result])
                if all(available[m] >= times for m, times in parts.items()):
                    yield Context(cofactor, joint, tuple(distinct[m] for m in parts))

    def _sum(self, p: int, axes: int) -> int:
        for bit in bits_of(axes):
            p = self.algebra.sum_polynomial(p, bit)
        return p

    def _with_extents_summed(self, candidates: set[tuple[int, int, Renaming]]) -> set[tuple[int, int, Renaming]]:
        """Return contexts, also with factors that are extents turned into sums over those axes."""
        algebra = self.algebra
        results = set(candidates)
        for cofactor, left, renaming in candidates:
            for atom in algebra.monomials[cofactor].num:
                bit = algebra.atoms[atom].refs[0] if algebra.atoms[atom].kind == "extent" else 0
                if not bit:
                    continue
                rest = algebra.divide_monomials(cofactor, algebra.monomial(Monomial((atom,))))
                own, names = left, renaming
                if (own | algebra.monomial_mask[rest]) & bit:  # the cofactor has an axis of that name: another copy
                    copy = algebra.fresh_copy(bit, own | algebra.monomial_mask[rest])
                    rest = algebra.rename_monomial(rest, ((bit, copy),))
                    if own & bit:
                        own |= copy
                    else:
                        names = (*renaming, (bit, copy), (copy, bit))
                results |= self._with_extents_summed({(rest, own | bit, names)})
        return results

    def _views(self, owner: int, m: int, counts: bool) -> list[View]:
        """Return the monomial opened; once for every choice of which copy of an axis bears the axis' own name."""
        algebra = self.algebra
        bound, body = algebra.open_sums(m)
        present = bound | algebra.monomial_mask[body]
        count = algebra.monomial_count[m] if counts else -1
        groups: dict[int, list[int]] = {}
        for bit in bits_of(present & algebra.copy_mask):
            groups.setdefault(algebra.base(bit), []).append(bit)
        views: dict[tuple[int, int], View] = {}
        for choice in product(*([base, *copies] for base, copies in groups.items())):
            renaming = []
            new_bound = bound
            for base, bit in zip(groups, choice, strict=True):
                if bit != base:
                    renaming += [(base, bit), (bit, base)]
                    if bool(bound & base) != bool(bound & bit):
                        new_bound ^= base | bit
            exchange = tuple(renaming)
            new_body = algebra.rename_monomial(body, exchange)
            views.setdefault((new_bound, new_body), View(owner, new_bound, new_body, count, exchange))
        return list(views.values())


def _subsets(mask: int) -> Iterator[int]:
    """Return every subset of a mask, the mask itself first."""
    part = mask
    while part:
        yield part
        part = (part - 1) & mask
    yield 0
