"""How an expression lies in a goal without any crossing: sum_L (c e) is contained in g for one monomial context c.

Invariant: a path of products, quotients, sums and additions leads from e to g exactly when such a context exists; with
the sums of g opened it is found by dividing monomials. Bound axes have no names of their own, so an axis that the goal
binds twice is tried under each of its copies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import permutations, product
from typing import NamedTuple

from workbench.domains.abstract_normal_form import Algebra
from workbench.domains.abstract_tables import Monomial, Renaming, UndecidedError, bits_of

MAX_CONTEXTS = 2048  # contexts carried out for one query; past it the query is undecided


class Context(NamedTuple):
    """How an expression lies in a region without crossings: sum over `left` of (sum over `own` of the cofactor) times it.

    Attributes: cofactor (monomial), left (axes still to be summed), owners (the monomials of the region that the
    expression's become), own (axes that only the cofactor is summed over).
    """

    cofactor: int
    left: int
    owners: tuple[int, ...]
    own: int = 0


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

    Attributes: polynomial; monomials, multiplicity (its distinct monomials and how often each occurs); views;
    has_copies, has_extents (of axes; with neither, equal contexts are equal tuples); owners ((body, bound) -> owner).
    """

    polynomial: int
    monomials: tuple[int, ...]
    multiplicity: tuple[int, ...]
    views: tuple[View, ...]
    has_copies: bool = False
    has_extents: bool = False
    owners: dict[tuple[int, int], int] = field(default_factory=dict)


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
        owners = {(view.body, view.bound): view.owner for view in views}
        return OpenedPolynomial(p, tuple(distinct), tuple(distinct.values()), views, copies, extents, owners)

    def contexts(self, region: OpenedPolynomial, p: int) -> Iterable[Context]:
        """Return every way the polynomial lies in the region without a crossing."""
        algebra = self.algebra
        if len(algebra.polynomials[p]) == 1:
            return self._single(region, algebra.polynomials[p][0])
        if region.has_copies or region.has_extents:
            return self._several(region, p)
        return self._several_plain(region, p)

    def _single(self, region: OpenedPolynomial, m: int) -> list[Context]:
        algebra = self.algebra
        guard, count = algebra.guard, algebra.monomial_count[m]
        bound, body = algebra.open_sums(m)
        if bound:
            return [
                Context(cofactor, left, (view.owner,))
                for view in region.views
                for cofactor, left in self.embeddings(view, m)
            ]
        results = []
        for view in region.views:
            if ((view.count | guard) - count) & guard == guard:
                cofactor = algebra.divide_monomials(view.body, body)
                if cofactor >= 0:
                    results.append(Context(cofactor, view.bound, (view.owner,)))
        return results

    def _several_plain(self, region: OpenedPolynomial, p: int) -> Iterator[Context]:
        """Return the contexts of one monomial in which the others lie too: their products are looked up."""
        algebra = self.algebra
        monomials = Counter(algebra.polynomials[p])
        if len(monomials) > len(region.monomials):
            return
        first, *others = monomials
        for context in self._single(region, first):
            used = Counter({context.owners[0]: monomials[first]})
            owners = [context.owners[0]]
            for m in others:
                owner = self._owner(region, context, m)
                if owner < 0:
                    break
                used[owner] += monomials[m]
                owners.append(owner)
            else:
                if all(times <= region.multiplicity[owner] for owner, times in used.items()):
                    yield context._replace(owners=tuple(owners))

    def _owner(self, region: OpenedPolynomial, context: Context, m: int) -> int:
        """Return which monomial of the region a monomial becomes in a context, -1 for none."""
        algebra = self.algebra
        bound, body = algebra.open_sums(m)
        if bound & (algebra.monomial_mask[context.cofactor] | context.left):
            return -1
        try:
            product = algebra.multiply_monomials(context.cofactor, body)
        except UndecidedError:
            return -1
        return region.owners.get((product, context.left | bound), -1)

    def _several(self, region: OpenedPolynomial, p: int) -> Iterator[Context]:
        algebra = self.algebra
        monomials = Counter(algebra.polynomials[p])
        tables: list[dict[tuple[int, int], list[View]]] = []
        for m in monomials:
            table: dict[tuple[int, int], list[View]] = {}
            for view in region.views:
                for key in self.embeddings(view, m):
                    table.setdefault(key, []).append(view)
            if not table:  # every monomial must lie there by itself
                return
            tables.append(table)
        shared = set(tables[0]).intersection(*tables[1:])
        for cofactor, left in sorted(shared):
            used: Counter[int] = Counter()
            owners = []
            for table, times in zip(tables, monomials.values(), strict=True):
                owner = table[cofactor, left][0].owner
                used[owner] += times
                owners.append(owner)
            if all(times <= region.multiplicity[owner] for owner, times in used.items()):
                yield Context(cofactor, left, tuple(owners))
        smallest = min(tables, key=len)
        keys = set(smallest) - shared
        if not region.has_extents:  # the cofactors differ in the names of axes only, so not in their counts
            counts = [{self._signature(key) for key in table} for table in tables]
            alike = counts[0].intersection(*counts[1:])
            keys = {key for key in keys if self._signature(key) in alike}
        yield from self._constructed(region, p, {(*key, view.renaming) for key in keys for view in smallest[key]})

    def _signature(self, key: tuple[int, int]) -> tuple[int, int]:
        return self.algebra.monomial_count[key[0]], key[1].bit_count()

    def embeddings(self, view: View, m: int) -> Iterator[tuple[int, int]]:
        """Return pairs (cofactor, axes left): the sum over them of cofactor times m is the view's monomial."""
        algebra = self.algebra
        guard = algebra.guard
        if ((view.count | guard) - algebra.monomial_count[m]) & guard != guard:
            return
        bound, body = algebra.open_sums(m)
        copies = algebra.copy_mask
        has_copies = (view.bound | algebra.monomial_mask[view.body]) & copies
        if bound & copies and not has_copies:  # two axes of one kind in it, one in the view
            return
        options = self._named_as_in(view.bound, bound, body) if bound and has_copies else [(bound, body)]
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
        terms = len(algebra.polynomials[p])
        budget = algebra.count[region.polynomial] if all(view.count >= 0 for view in region.views) else -1
        every = sorted(self._with_extents_summed(candidates))
        if sum(1 << (left & algebra.mask[p]).bit_count() for _, left, _ in every) > MAX_CONTEXTS:
            raise UndecidedError(f"more than {MAX_CONTEXTS} ways in which a sum may lie in a goal")
        for cofactor, left, renaming in every:
            # The cofactor stands in every product.
            if not algebra.fits(terms * algebra.monomial_count[cofactor], budget):
                continue
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
                    yield Context(cofactor, joint, tuple(distinct[m] for m in parts), left & ~joint)

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
            if len(results) > MAX_CONTEXTS:
                raise UndecidedError(f"more than {MAX_CONTEXTS} ways in which a sum may lie in a goal")
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
