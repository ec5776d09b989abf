"""Functions of one pattern at several places: how many there are, and which of them share no input element.

Invariant: two members of a family at different places that are said to share no element of an input do not, at any
extents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import prod

from workbench.verify.form_atoms import Element, Form
from workbench.verify.forms import Forms
from workbench.verify.indices import Index
from workbench.verify.patterns import Leaf, Pattern, pattern_of, pattern_of_monomial, places_of_tensor
from workbench.verify.points import Point

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
        primitive = up_to_constant(forms, form)
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


def up_to_constant(forms: Forms, form: Form) -> Form:
    """Return the form with leading coefficient 1 or -1."""
    return forms.scale(form, 1 / abs(leading(form)))
