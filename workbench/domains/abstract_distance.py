"""How far an expression is from a goal: 0 if it equals the goal under A_eq, FAR if it is no subexpression of it (A_sub).

Invariant: a distance below FAR never exceeds the number of operators on any path from the expression to the goal (it is
admissible), and an expression is FAR only if A_eq and A_sub do not make it a subexpression. Where the normal form is
undecided the answer is 0: keep.

How it works. A path consists of products, quotients, sums and additions, between *crossings*: into an exp, a root, an
opaque function, a maximum, or under a bar. Without crossings e reaches g exactly when for one monomial context c, applied
to all of e, sum_L (c e) is contained in g: inclusion of multisets once the sums of g are opened. What can be crossed is
compiled once per goal into regions, each the largest argument that occurs at a place; an argument may be smaller
(exp(a) exp(b) = exp(a + b)), so a region answers three questions at once: how far is e from the region itself, from
*some summands* of it, from *some factor* of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product

from workbench.domains.abstract_costs import StepCosts
from workbench.domains.abstract_embedding import Context, Embeddings, OpenedPolynomial, View
from workbench.domains.abstract_lattice import Element, flatten, peel, zero_monomial
from workbench.domains.abstract_normal_form import Algebra
from workbench.domains.abstract_tables import FIELD_BITS, UNIT, Monomial, UndecidedError

FAR = 99  # no subexpression
Distances = tuple[int, int, int]  # to the region itself, to some of its summands, to some factor of it
WHOLE, SUMMANDS, FACTOR = 0, 1, 2
_FAR: Distances = (FAR, FAR, FAR)
_HERE: Distances = (0, 0, 0)


@dataclass(slots=True)
class Place:
    """A crossing in a region.

    Attributes:
        label: exp, sqrt, div, max, or a function's name.
        view: where it occurs; monomial: what it contributes there (the argument taken whole), UNIT if nothing is known.
        child: the largest argument.
        exact: operators from the crossing of the whole argument to the region, per question.
        partial: which of the child's answers serves for a smaller argument, WHOLE for none.
        follows: whether a product follows the crossing of a smaller argument, per question.
        axes: axes a smaller argument surely still carries if the expression carries them.
        cross, absorb: operators of the crossing; operators below it that it takes along.
    """

    label: str
    view: View
    child: Region
    exact: Distances
    partial: int
    follows: Distances
    axes: int
    cross: int
    absorb: int


@dataclass(slots=True)
class Region:
    """One polynomial of a goal, compiled: where an expression can lie in it.

    Attributes:
        opened: the polynomial with its sums opened.
        count: its feature count.
        places: the crossings.
        lattices: (view, elements, steps after the maximum) of every maximum in it.
        inner_bound: every axis bound anywhere inside, without copies.
        undecided: everything may be in it that its count allows; a count of -1 allows all.
    """

    opened: OpenedPolynomial
    count: int
    places: list[Place] = field(default_factory=list)
    lattices: list[tuple[View, list[Element], Distances]] = field(default_factory=list)
    inner_bound: int = 0
    undecided: bool = False
    known: dict[int, Distances] = field(default_factory=dict)


class DistanceTables:
    """Distances to regions of one algebra; regions are compiled once and shared between goals.

    Attributes: algebra, costs, regions (by polynomial), embeddings, undecided (queries that were given up: kept).
    """

    def __init__(self, algebra: Algebra, costs: StepCosts | None = None) -> None:
        """Keep the algebra; `costs` default to a palette of primitives with matmul."""
        self.algebra = algebra
        self.costs = costs or StepCosts()
        self.embeddings = Embeddings(algebra)
        self.regions: dict[int, Region] = {}
        self.undecided = 0
        self._maxima: dict[int, bool] = {}
        self._cofactors: dict[int, tuple[bool, int]] = {}

    # ----------------------------------------------------------------------------------------------------- queries
    def distances(self, region: Region, p: int) -> Distances:
        """Return the three distances of a polynomial from a region."""
        found = region.known.get(p)
        if found is None:
            try:
                found = self._distances(region, p)
            except UndecidedError:
                self.undecided += 1
                found = _HERE
            region.known[p] = found
        return found

    def _distances(self, region: Region, p: int) -> Distances:
        algebra = self.algebra
        if p == region.opened.polynomial:
            return _HERE
        guard = algebra.guard
        if ((region.count | guard) - algebra.count[p]) & guard != guard:
            return _FAR
        if region.undecided:
            return _HERE
        best = self.linear(region, p)
        mask = algebra.mask[p]
        if self._is_number(p):  # x / c is held as x * (1/c): a constant may be one step away wherever it is counted
            best = (min(best[0], 1), min(best[1], 1), min(best[2], 1))
        for place in region.places:
            inner = self.distances(place.child, p)
            if inner[0] < FAR:
                best = self._through(place, inner, mask, best)
        for _, elements, after in region.lattices:
            if self._in_lattice(p, elements):
                best = (min(best[0], 1 + after[0]), min(best[1], 1 + after[1]), min(best[2], 1 + after[2]))
        return best

    def _through(self, place: Place, inner: Distances, mask: int, best: Distances) -> Distances:
        whole, summands, factor = best
        for answer, _ in self.alternatives(place, inner, mask):
            whole, summands, factor = min(whole, answer[0]), min(summands, answer[1]), min(factor, answer[2])
        return whole, summands, factor

    def alternatives(self, place: Place, inner: Distances, mask: int) -> list[tuple[Distances, int]]:
        """Return (distances by way of the place, which of the child's answers they rest on) for a value free in `mask`."""
        whole = place.cross + max(inner[WHOLE] - place.absorb, 0)
        exact = place.exact
        results = []
        if exact[0] < FAR:
            results.append(((whole + exact[0], whole + exact[1], whole + exact[2]), WHOLE))
        if place.partial:
            smaller = place.cross + max(inner[place.partial] - place.absorb, 0)
            carried, follows = place.axes & mask, place.follows
            if carried:
                after = (
                    self._steps(follows[0], carried),
                    self._steps(follows[1], carried),
                    self._steps(follows[2], carried),
                )
            else:
                after = follows
            results.append(((smaller + after[0], smaller + after[1], smaller + after[2]), place.partial))
        return results

    def _steps(self, multiplies: int, axes: int) -> int:
        """Return the fewest operators that multiply (or not) and sum over axes."""
        algebra = self.algebra
        if self.costs.folds_whole:
            return max(multiplies, 1 if axes else 0) if self.costs.product_sums else multiplies + (1 if axes else 0)
        loop = 1 if axes & algebra.loop_mask else 0
        grid = 1 if axes & algebra.grid_mask else 0
        total = multiplies + loop + grid
        if axes & ~(algebra.loop_mask | algebra.grid_mask) and (
            not total or not (self.costs.product_sums or loop or grid)
        ):
            total += 1
        return total

    # ---------------------------------------------------------------------------------------- without any crossing
    def linear(self, region: Region, p: int, *, counts_additions: bool = True) -> Distances:
        """Return the three distances by products, quotients, sums and additions alone."""
        if p == region.opened.polynomial:
            return _HERE
        algebra, mask = self.algebra, self.algebra.mask[p]
        covered = 0
        factor = summands = FAR
        for cofactor, left, owners, _ in self.embeddings.contexts(region.opened, p):
            for owner in owners:
                covered |= 1 << owner
            carried = left & mask
            summands = min(summands, self._steps_of(cofactor, carried))
            factor = min(factor, self._steps(0, carried) if carried else 0)
        if summands == FAR:
            return _FAR
        whole = summands
        # A product reaches every monomial of the region; where it cannot, an addition is needed as well.
        terms, parts = len(algebra.polynomials[region.opened.polynomial]), len(algebra.polynomials[p])
        misses = covered != (1 << len(region.opened.monomials)) - 1 or terms % parts > 0
        adds = 1 if misses and counts_additions else 0
        return (whole + adds if whole else 1), summands, factor + adds

    def steps_of(self, context: Context, p: int) -> int:
        """Return the fewest operators that carry a context out."""
        return self._steps_of(context.cofactor, context.left & self.algebra.mask[p])

    def _steps_of(self, cofactor: int, axes: int) -> int:
        if not axes and cofactor == UNIT:
            return 0
        is_number, extents = self._cofactor_kind(cofactor)
        if is_number and (cofactor == UNIT or (self.costs.sum_scales and axes)):
            return self._steps(0, axes)
        steps = self._steps(1, axes)
        # An extent comes from a sum over an axis that something added on the way carries: one sum with the others.
        return min(steps, self._steps(0, axes | extents)) if extents else steps

    def _cofactor_kind(self, cofactor: int) -> tuple[bool, int]:
        """Return whether a cofactor is a product of constants, and the axes of its extents if it is nothing else."""
        found = self._cofactors.get(cofactor)
        if found is None:
            algebra = self.algebra
            a = algebra.monomials[cofactor]
            kinds = [algebra.atoms[atom].kind for atom in a.num]
            extents = 0
            if kinds and all(kind == "extent" for kind in kinds) and not a.den and a.quotient == a.root == UNIT:
                for atom in a.num:
                    extents |= algebra.atoms[atom].refs[0]
            found = self._cofactors[cofactor] = (self._is_scale(cofactor), extents)
        return found

    def _is_number(self, p: int) -> bool:
        monomials = self.algebra.polynomials[p]
        return len(monomials) == 1 and self._is_scale(monomials[0])

    def _is_scale(self, m: int) -> bool:
        a = self.algebra.monomials[m]
        return not a.den and a.quotient == UNIT and a.root == UNIT and all(map(self.algebra.is_number, a.num))

    def _in_lattice(self, p: int, elements: Sequence[Element]) -> bool:
        """Return whether a polynomial with a maximum among its summands may become the maximum of the elements.

        Only counts decide: constants may be multiplied in, and elements split in more than one way.
        """
        algebra = self.algebra
        if all(peel(algebra, m) is None for m in algebra.polynomials[p]):
            return False
        budgets = [algebra.element_count(*element) for element in elements]
        return all(any(algebra.fits(algebra.count[q], budget) for budget in budgets) for q in flatten(algebra, p))

    def has_maximum(self, p: int) -> bool:
        """Return whether there is a maximum anywhere in a polynomial."""
        found = self._maxima.get(p)
        if found is None:
            found = self._maxima[p] = any(map(self._monomial_has_maximum, self.algebra.polynomials[p]))
        return found

    def _monomial_has_maximum(self, m: int) -> bool:
        a = self.algebra.monomials[m]
        inner = [p for p in (a.quotient, a.root) if p != UNIT]
        return any(map(self.has_maximum, inner)) or any(map(self._atom_has_maximum, a.num + a.den))

    def _atom_has_maximum(self, atom: int) -> bool:
        a = self.algebra.atoms[atom]
        match a.kind:
            case "max":
                return True
            case "exp" | "sum":
                return self._monomial_has_maximum(a.ref)
            case "sqrt":
                return self._atom_has_maximum(a.ref)
            case "apply":
                return any(map(self.has_maximum, a.refs))
        return False

    # --------------------------------------------------------------------------------------------------- compiling
    def region(self, p: int) -> Region:
        """Return the compiled region of a polynomial."""
        found = self.regions.get(p)
        if found is None:
            try:
                found = self._compile(p)
            except UndecidedError:
                found = Region(OpenedPolynomial(p, (), (), ()), -1, undecided=True)
            self.regions[p] = found
        return found

    def budget(self, p: int) -> int:
        """Return the counts a subexpression may have.

        A constant that a maximum was taken out of stood in each of its summands, so with a maximum any number will do.
        """
        algebra = self.algebra
        count = algebra.count[p]
        if self.has_maximum(p):
            for key in algebra.feature_counts(count):
                if isinstance(key, tuple) and key[0] == "constant":
                    count |= algebra.feature(key) * ((1 << FIELD_BITS - 1) - 1)
        return count

    def _compile(self, p: int) -> Region:
        opened = self.embeddings.open(p, counts=not self.has_maximum(p))
        region = Region(opened, self.budget(p))
        unique: dict[tuple[object, ...], Place] = {}
        for view in opened.views:
            region.inner_bound |= self.algebra.base_mask(view.bound)
            for place in self._places(region, view):
                child = place.child.opened.polynomial
                unique.setdefault((place.label, child, place.exact, place.follows, place.axes), place)
                region.inner_bound |= place.child.inner_bound
        region.places = list(unique.values())
        return region

    def _places(self, region: Region, view: View) -> Iterator[Place]:
        algebra = self.algebra
        atoms, monomial = algebra.atoms, algebra.monomials[view.body]
        kinds: dict[str, list[int]] = {}
        for atom in monomial.num:
            kinds.setdefault(atoms[atom].kind, []).append(atom)
        if "frozen" in kinds or any(atoms[atom].kind == "frozen" for atom in monomial.den):
            raise UndecidedError("a part of the goal is undecided")
        if "exp" in kinds:
            argument = algebra.polynomial([atoms[atom].ref for atom in kinds["exp"]])
            yield self._place("exp", region, view, argument, Monomial(tuple(kinds["exp"])), SUMMANDS)
        if "sqrt" in kinds or monomial.root != UNIT:
            roots = tuple(kinds.get("sqrt", ()))
            argument = algebra.under_root(roots, monomial.root)
            yield self._place("sqrt", region, view, argument, Monomial(roots, root=monomial.root), FACTOR)
        if monomial.den or monomial.quotient != UNIT:
            yield self._place("div", region, view, algebra.below(monomial), None, FACTOR)
        for atom in sorted(set(kinds.get("apply", ()))):
            for argument in dict.fromkeys(atoms[atom].refs):
                yield self._place(atoms[atom].name, region, view, argument, Monomial((atom,)), WHOLE)
        for atom in sorted(set(kinds.get("max", ()))):
            yield from self._maximum(region, view, atom)

    def _place(
        self, label: str, region: Region, view: View, argument: int, whole: Monomial | None, partial: int
    ) -> Place:
        """Return the place of a crossing whose largest argument is given and which then contributes `whole`."""
        algebra = self.algebra
        child = self.region(argument)
        exact = _FAR
        if whole is not None:
            produced = algebra.polynomial((algebra.monomial(whole),))
            exact = self.linear(region, produced, counts_additions=not algebra.mask[produced] & algebra.copy_mask)
        follows: Distances = (0, 0, 0) if label == "div" else (1, 1, 0)
        return self._new_place(label, view, child, exact, partial, follows)

    def _new_place(
        self, label: str, view: View, child: Region, exact: Distances, partial: int, follows: Distances
    ) -> Place:
        axes = self.algebra.mask[child.opened.polynomial] & view.bound
        axes &= ~child.inner_bound & ~self.algebra.copy_mask
        cross, absorb = self.costs.crossing.get(label, 1), self.costs.absorbs.get(label, 0)
        return Place(label, view, child, exact, partial, follows, axes, cross, absorb)

    def _maximum(self, region: Region, view: View, atom: int) -> Iterator[Place]:
        """Return the places inside a maximum: its elements, with all that may be added to them within the product.

        c (z + max(x, y)) is c max(x + z, y + z), and positive constants of c may be within as well.
        """
        algebra = self.algebra
        cofactor = algebra.divide_monomials(view.body, algebra.monomial(Monomial((atom,))))
        numbers = [a for a in algebra.monomials[cofactor].num if algebra.is_positive_number(a)]
        for chosen in sorted({tuple(n for n, take in zip(numbers, pick, strict=True) if take)
                              for pick in product((False, True), repeat=len(numbers))}):  # fmt: skip
            scale = algebra.monomial(Monomial(chosen))
            outside = algebra.divide_monomials(cofactor, scale)
            itself = algebra.multiply_monomials(scale, algebra.monomial(Monomial((atom,))))
            added: Counter[int] = Counter()
            multiplicity = region.opened.multiplicity
            is_simple = True
            for other in region.opened.views:
                summand = algebra.divide_monomials(other.body, outside)
                if other.owner != view.owner and summand >= 0:
                    is_simple = is_simple and other.bound == view.bound
                    added[summand] += multiplicity[other.owner]
            added[itself] += multiplicity[view.owner] - 1
            follows: Distances = (0, 0, 0) if outside == UNIT else (1, 1, 0)
            zero = zero_monomial(algebra)
            elements = []
            for bound, q in algebra.atoms[atom].elements:
                scaled = [algebra.multiply_monomials(scale, m) for m in algebra.polynomials[q] if m != zero]
                elements.append((bound, algebra.polynomial([*scaled, *added.elements()] or [zero])))
            is_simple = is_simple and not any(
                self.has_maximum(q) or (bound | algebra.mask[q]) & algebra.copy_mask for bound, q in elements
            )
            if not is_simple:  # maxima within maxima can be written in too many ways: only the counts decide
                child = Region(OpenedPolynomial(-1, (), (), ()), region.count, undecided=True)
                yield Place("max", view, child, _FAR, SUMMANDS, (0, 0, 0), 0, self.costs.crossing.get("max", 1), 0)
                continue
            region.lattices.append((view, elements, follows))
            for _, q in elements:
                yield self._new_place("max", view, self.region(q), _FAR, SUMMANDS, follows)
