"""What square roots cost: which radicands there are, whether they are independent, how often all of them are squares.

Invariant: a number comes out only where it is shown that no product of a nonempty set of the radicands is a square times a
constant; else the reason does. Theorem 3 of `docs/verification.md`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import isqrt, prod

from workbench.domains.field_pairs import is_square
from workbench.domains.residues import Modulus
from workbench.errors import NotApplicableError
from workbench.verify.degrees import Degrees
from workbench.verify.forms import AnyAtom, Element, Exponential, Form, Forms, Group, Root, children
from workbench.verify.indices import Index
from workbench.verify.patterns import Leaf, Pattern, pattern_of, pattern_of_monomial, places_of_tensor
from workbench.verify.points import NoMeaningError, Point

MAX_TOGETHER = 10  # roots of one block of inputs; beyond, the factor 4 for each leaves nothing of the bound
ATTEMPTS = 64  # random points tried until one shows what is to be shown
WITHIN = frozenset({"bound", "open"})  # variables that run within one output element
ANYWHERE = WITHIN | {"free", "cell"}  # and those that tell elements, blocks and iterations apart


@dataclass(slots=True)
class Family:
    """Functions of one pattern at several places.

    Attributes: pattern; form: one of them; places: the places at which it occurs; leads: leading coefficients found;
    cancelled: it occurs in the programs, but in no form that is looked at.
    """

    pattern: Pattern
    form: Form
    places: list[tuple[Index, ...]] = field(default_factory=list)
    leads: list[Fraction] = field(default_factory=list)
    cancelled: bool = False

    def varying(self, kinds: frozenset[str] = WITHIN) -> tuple[int, ...]:
        """Return the parameters that are not one fixed index for a given output element, or for all of them."""
        found = []
        for number in range(len(self.pattern.places)):
            first = self.places[0][number]
            if any(p[number] != first for p in self.places) or any(v.kind in kinds for v in first.variables()):
                found.append(number)
        return tuple(found)

    def count(self) -> int:
        """Return how many different functions an output element rests on at most; of cancelled ones, see `touches_once`."""
        if self.cancelled:
            return 1
        ranges = [{v for index in places for v in index.variables() if v.kind in WITHIN} for places in self.places]
        return sum(prod(var.extent for var in variables) for variables in ranges)

    def in_blocks(self, tensors: frozenset[int], kinds: frozenset[str] = WITHIN) -> bool:
        """Return True when functions at different places share no element of these inputs.

        So it is if each varying parameter stands alone, as the index of one dimension, in every element of them. kinds:
        `WITHIN` for the places within one output element, `ANYWHERE` for those of all elements.
        """
        return all(self.covers(number, tensor) for number in self.varying(kinds) for tensor in tensors)

    def covers(self, parameter: int, tensor: int) -> bool:
        """Return True when a parameter alone is the index of one dimension in every element of an input."""
        return self.dimension(parameter, tensor) is not None

    def dimension(self, parameter: int, tensor: int) -> int | None:
        """Return the dimension whose index a parameter alone is in every element of an input, None if there is none."""
        leaves = list(places_of_tensor(self.pattern, tensor))
        return next(
            (d for d in range(len(leaves[0].inner)) if all(self._holds(leaf, d, parameter) for leaf in leaves)), None
        )

    def touches_once(self, elements: Sequence[Element]) -> bool:
        """Return True when some elements belong to one place of the family only, by an input that tells places apart.

        elements: input elements of the forms that are looked at. Places that share other inputs are not told apart.
        """
        varying = self.varying(ANYWHERE)
        homes = {t: [self.dimension(p, t) for p in varying] for t in self.pattern.tensors}
        homes = {tensor: dims for tensor, dims in homes.items() if None not in dims}
        return bool(homes) and not any(
            var.kind in WITHIN
            for element in elements
            for dim in homes.get(element.tensor, [])
            if dim is not None
            for var in element.index[dim].variables()
        )

    def _holds(self, leaf: Leaf, dim: int, parameter: int) -> bool:
        return leaf.is_pure(dim) and all(p[leaf.parameters[dim]] == p[parameter] for p in self.places)


def families_of(forms: Forms, found: Sequence[Form]) -> list[Family]:
    """Return the families of forms, up to constant factors."""
    families: dict[object, Family] = {}
    for form in found:
        lead = leading(form)
        primitive = _up_to_constant(forms, form)
        pattern = pattern_of(primitive)
        family = families.setdefault(pattern.key, Family(pattern, primitive))
        if pattern.places not in family.places:
            family.places.append(pattern.places)
        if abs(lead) not in family.leads:
            family.leads.append(abs(lead))
    return list(families.values())


def leading(form: Form) -> Fraction:
    """Return the coefficient of the term whose pattern comes first."""
    return min(form.terms, key=lambda term: repr(pattern_of_monomial(term[0]).key))[1]


def sample_index(leaf: Leaf, places: tuple[Index, ...], point: Point) -> tuple[int, ...]:
    """Return the index of the leaf's element at a point, inner variables 0."""
    return tuple(point.place(places[parameter]) for parameter in leaf.parameters)


def atoms_outside_exponents(forms: Sequence[Form]) -> Iterator[AnyAtom]:
    """Yield every atom, inside other atoms too, but not inside exponents; each once."""
    seen: set[int] = set()
    stack = list(forms)
    while stack:
        for atom in stack.pop().atoms():
            if atom.number not in seen:
                seen.add(atom.number)
                yield atom
                if not isinstance(atom, Exponential):
                    stack += children(atom)


@dataclass(slots=True)
class RootCost:
    """What the roots of some forms cost on one side.

    Attributes: factor: by how much the probability that a polynomial vanishes grows (2 for the norm and about 2 for
    the condition, for each root of a block of inputs); together: most roots of one block; in_cone: different roots;
    tensors: inputs that are drawn under the condition; constants: roots of numbers, each of which doubles heights;
    premises, assumptions: in words; reason: why there is no number, "" if there is.
    """

    factor: float = 1.0
    together: int = 0
    in_cone: int = 0
    tensors: frozenset[int] = frozenset()
    constants: int = 0
    premises: list[str] = field(default_factory=list)
    assumptions: list[str] = field(default_factory=list)
    reason: str = ""


def cost_of_roots(
    forms: Forms, found: Sequence[Form], conditions: Sequence[Form], modulus: Modulus, side: str, seed: int
) -> RootCost:
    """Return what roots cost modulo a prime (side: "p" or "q", for messages).

    found: the forms whose values are looked at; conditions: all radicands of the programs, which are squares at every
    point whether or not their roots are left in those forms.
    """
    cost = RootCost()
    atoms = list(atoms_outside_exponents(found))
    inside = [atom.radicand for atom in atoms if isinstance(atom, Root)]
    if not inside and not conditions:
        return cost
    elements = [atom for atom in atoms if isinstance(atom, Element)]
    tensors = frozenset(element.tensor for element in elements)
    proper = _simplified(forms, inside, modulus, side, cost)
    families = families_of(forms, proper)
    known = {family.pattern.key for family in families}
    others = families_of(forms, _simplified(forms, list(conditions), modulus, side, cost))
    for family in others:
        family.cancelled = True
    families += [family for family in others if family.pattern.key not in known]
    components = [c for c in _components(families) if any(f.pattern.tensors & tensors for f in c)]
    if components and modulus.m % 4 != 3:
        cost.reason = f"no square root modulo {side} = {modulus.m} is multiplicative (it is 1 mod 4)"
    for family in families:
        cost.reason = cost.reason or _misfit(family, modulus, side, cost)
    cost.in_cone = sum(family.count() for family in families if not family.cancelled)
    for component in components:
        if not cost.reason:
            cost.tensors |= frozenset[int]().union(*(family.pattern.tensors for family in component))
            _add_component(forms, component, elements, modulus, side, seed, cost)
    return cost


def _simplified(forms: Forms, radicands: list[Form], modulus: Modulus, side: str, cost: RootCost) -> list[Form]:
    """Return the radicands whose roots are to be shown independent; the others are products of their roots.

    sqrt(1/x) is 1/sqrt(x), sqrt(x y) is sqrt(x) sqrt(y) where both are rooted too, in the field as over the reals.
    """
    single: list[Form] = []
    products: list[tuple[Form, tuple[AnyAtom, ...]]] = []
    for radicand in radicands:
        number = radicand.constant
        if number is not None:
            if not is_square(number.numerator * number.denominator, modulus.m):
                cost.reason = f"the root of {number} does not exist modulo {side} = {modulus.m}"
            cost.constants += 1
            continue
        if any(isinstance(atom, Exponential) for atom in atoms_outside_exponents([radicand])):
            cost.reason = "a root is taken of an exponential"
            return []
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
    present = {_up_to_constant(forms, form).number for form in single}
    for radicand, odd in products:
        if not all(_up_to_constant(forms, _whole(forms, atom)).number in present for atom in odd):
            single.append(radicand)
        elif any(power % 2 == 0 for _, power in radicand.terms[0][0]):
            cost.reason = "a product of radicands is a square times another radicand; its root is an absolute value"
    return single


def _up_to_constant(forms: Forms, form: Form) -> Form:
    """Return the form with leading coefficient 1 or -1."""
    return forms.scale(form, 1 / abs(leading(form)))


def _whole(forms: Forms, atom: AnyAtom) -> Form:
    """Return an atom as a form, a group of terms as the sum that it is."""
    return atom.form if isinstance(atom, Group) else forms.of(atom)


def _misfit(family: Family, modulus: Modulus, side: str, cost: RootCost) -> str:
    """Return why sqrt(c S) is not sqrt(c) sqrt(S) in the field as over the reals, "" if it is."""
    for lead in family.leads[1:]:
        ratio = lead / family.leads[0]
        root = Fraction(isqrt(ratio.numerator), isqrt(ratio.denominator))
        if root * root != ratio:
            cost.constants += 1
        elif not is_square(root.numerator * root.denominator, modulus.m):
            return f"sqrt({ratio} x) is -{root} sqrt(x) modulo {side} = {modulus.m}, where {root} is no square"
    return ""


def _components(families: list[Family]) -> list[list[Family]]:
    """Return the families in groups that share no input."""
    groups: list[list[Family]] = []
    for family in families:
        touching = [g for g in groups if any(f.pattern.tensors & family.pattern.tensors for f in g)]
        groups = [g for g in groups if g not in touching]
        groups.append([f for g in touching for f in g] + [family])
    return groups


def _add_component(
    forms: Forms,
    component: list[Family],
    elements: Sequence[Element],
    modulus: Modulus,
    side: str,
    seed: int,
    cost: RootCost,
) -> None:
    count = sum(family.count() for family in component)
    separate = len(component) == 1 and component[0].in_blocks(component[0].pattern.tensors, ANYWHERE)
    together = 1 if separate else count
    if together > MAX_TOGETHER:
        cost.reason = f"{count} roots share inputs; conditioning on all of them leaves no bound"
        return
    if not separate and any(family.cancelled and not family.touches_once(elements) for family in component):
        cost.reason = "roots that cancel share inputs with each other, and inputs are drawn until all of them exist"
        return
    if any(family.pattern.choices or family.pattern.calls for family in component):
        cost.reason = "a radicand contains a piecewise or opaque operator; its roots are not shown to be independent"
        return
    share = _share_of_squares(forms, component, modulus, seed)
    if share is None:
        if not _independent_by_characters(forms, component, modulus, seed):
            cost.reason = "radicands are not shown to be independent: a product of some may be a square"
            return
        share = 0.5**together
        cost.assumptions.append(
            f"all {together} radicands are squares modulo {side} in at least 1 of {2**together} draws (not proved for these)"
        )
    elif share <= 0:
        cost.reason = f"{side} = {modulus.m} is too small for the degree of the radicands"
        return
    if not separate and any(not f.in_blocks(f.pattern.tensors, ANYWHERE) for f in component):
        cost.assumptions.append(
            "inputs on which radicands of several elements rest are as good as uniform after drawing again"
        )
    cost.together = max(cost.together, together)
    cost.factor = max(cost.factor, 2**together / share)
    shown = "1 root" if together == 1 else f"{together} roots"
    cost.premises.append(
        f"{shown} for each block of inputs modulo {side}, no product of radicands a square, all squares in at least "
        f"{share:.3g} of the draws"
    )


# --------------------------------------------------------------------------------------------- independence, by quadratics
def _share_of_squares(forms: Forms, component: list[Family], modulus: Modulus, seed: int) -> float | None:
    """Return a lower bound on how often all radicands are squares, None where this argument does not apply.

    Families are ordered so that each is a polynomial of degree 1 or 2, with leading coefficient and discriminant not
    zero, in an input element that the earlier ones do not contain. Then no product of a nonempty set is a square (the
    last one of the set has, in that element, a root of odd order), and given the others each is a square for at least
    (m - 1) / 2 values of the element unless leading coefficient or discriminant vanish.
    """
    if any(family.count() > 1 for family in component) and len(component) > 1:
        return None
    if len(component) == 1 and component[0].count() > 1 and not component[0].in_blocks(component[0].pattern.tensors):
        return None
    remaining, order = list(component), list[tuple[Family, int, int]]()
    while remaining:
        for family in remaining:
            others = frozenset[int]().union(*(f.pattern.tensors for f in remaining if f is not family))
            fresh = [
                (tensor, degree)
                for tensor in sorted(family.pattern.tensors - others)
                if (degree := _shown_quadratic(forms, family, tensor, modulus, seed)) is not None
            ]
            if fresh:
                order.append((family, *fresh[0]))
                remaining.remove(family)
                break
        else:
            return None
    share, doubled = 1.0, 1
    degrees = Degrees(forms, None)
    for family, _, degree in reversed(order):
        total = int(2 * degrees._root(_root_of(forms, family.form))[0].size.degree)
        bad = (total - 1) if degree == 1 else 3 * total - 4
        lost = bad * doubled / share / modulus.m
        here = 0.5 if degree == 1 else 0.5 * (1 - 1 / modulus.m)
        share *= here * max(0.0, 1 - lost)
        doubled *= 2
        if share <= 0:
            return 0.0
    return share


def _root_of(forms: Forms, radicand: Form) -> Root:
    atom = next(iter(forms.sqrt(radicand).atoms()))
    assert isinstance(atom, Root)
    return atom


def _shown_quadratic(forms: Forms, family: Family, tensor: int, modulus: Modulus, seed: int) -> int | None:
    """Return the degree, 1 or 2, in an element of an input, if leading coefficient and discriminant are shown nonzero.

    A point at which they are not zero is a proof that they are not zero as polynomials.
    """
    ratio = Degrees(forms, None, frozenset({tensor})).of(family.form)
    if ratio.size.degree > 2 or any(factor.size.degree for factor in ratio.factors):
        return None
    leaf = next(places_of_tensor(family.pattern, tensor))
    for attempt in range(ATTEMPTS):
        point = Point(modulus, seed + attempt)
        try:
            index = sample_index(leaf, family.pattern.places, point)
            values = [point.with_element(tensor, index, z).value(family.form) for z in range(3)]
        except NoMeaningError:
            continue
        except NotApplicableError:
            return None
        m = modulus.m
        leading = (values[2] - 2 * values[1] + values[0]) * pow(2, -1, m) % m
        linear = (values[1] - values[0] - leading) % m
        if leading == 0 and linear and ratio.size.degree == 1:
            return 1
        if leading and (linear * linear - 4 * leading * values[0]) % m:
            return 2
    return None


# -------------------------------------------------------------------------------------------- independence, by characters
def _independent_by_characters(forms: Forms, component: list[Family], modulus: Modulus, seed: int) -> bool:
    """Return True when it is shown that no product of a nonempty set of radicands is a square times a constant.

    If one were, the product of its quadratic characters would be the same at all points. So the vectors of characters
    over some points, and the constant one, being linearly independent over two elements is a proof.
    """
    if any(family.count() > 1 for family in component):
        return False
    rows: list[int] = []
    for attempt in range(ATTEMPTS):
        point = Point(modulus, seed + attempt)
        try:
            values = [point.value(family.form) for family in component]
        except NoMeaningError:
            continue
        except NotApplicableError:
            return False
        if all(values):
            bits = [1, *(0 if is_square(value, modulus.m) else 1 for value in values)]
            rows.append(sum(bit << position for position, bit in enumerate(bits)))
    return rank_over_two(rows) == len(component) + 1


def rank_over_two(rows: Sequence[int]) -> int:
    """Return the rank of vectors of bits."""
    pivots: list[int] = []
    for row in rows:
        for pivot in pivots:
            row = min(row, row ^ pivot)
        if row:
            pivots.append(row)
    return len(pivots)
