"""What stands in exponents: integer combinations of atoms that are shown to be independent random numbers modulo q.

An atom is a function at a place (the logit of one query and one key). Invariant: a basis exists only if, given the others
and everything modulo p, each atom takes no value with probability above `delta`, but for an event of probability `fail`;
otherwise `reason` says what was not shown. Theorem B of `docs/verification.md`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import reduce
from math import ceil, gcd, lcm

from workbench.domains.residues import Modulus
from workbench.errors import NotApplicableError
from workbench.verify.degrees import Degrees
from workbench.verify.families import Family, leading, sample_index
from workbench.verify.form_atoms import Choice, Element, Exponential, Form, Monomial, Sum
from workbench.verify.forms import Forms
from workbench.verify.indices import Index, Var
from workbench.verify.patterns import Leaf, pattern_of, places_of_tensor
from workbench.verify.points import NoMeaningError, Point
from workbench.verify.roots import RootCost, Roots

ATTEMPTS = 64


@dataclass(frozen=True, slots=True)
class Fresh:
    """Why the atoms of a family are random: an input of which each atom has elements of its own.

    Attributes: tensor; delta: the largest probability of a value, given the rest; fail: probability that the rest is such
    that this does not hold; common: True when the rest is the same for all atoms of the family; how: in words.
    """

    tensor: int
    delta: float
    fail: float
    common: bool
    how: str


@dataclass(slots=True)
class Basis:
    """The atoms of the exponents in some forms.

    Attributes: delta, fail, common: of the worst family, see `Fresh`, failures of common events added up; count: atoms;
    degree: largest degree of an exponent; premises; reason: why the atoms are not shown to be independent, "" if they are.
    """

    forms: Forms
    coarse: bool
    families: dict[object, Family] = field(default_factory=dict)
    units: dict[object, Fraction] = field(default_factory=dict)
    delta: float = 0.0
    fail_once: float = 0.0
    fail_each: float = 0.0
    count: int = 0
    degree: int = 0
    premises: list[str] = field(default_factory=list)
    reason: str = ""

    # ------------------------------------------------------------------------------------------------------ decomposition
    def pieces(self, argument: Form) -> Iterator[tuple[Fraction, Form]]:
        """Yield coefficients and atoms (forms with leading coefficient 1) of an exponent; 1 stands for constants.

        Where a piecewise operator stands in the exponent, the atoms of every piece.
        """
        rest: dict[Monomial, Fraction] = {}
        for monomial, c in argument.terms:
            if len(monomial) == 1 and isinstance(monomial[0][0], Choice) and monomial[0][1] == 1:
                for alternative in monomial[0][0].alternatives:
                    yield from ((c * d, atom) for d, atom in self.pieces(alternative))
            elif not monomial:
                yield c, self.forms.one
            elif self.coarse:
                rest[monomial] = c
            else:
                yield c, self.forms.form({monomial: Fraction(1)})
        if rest:
            whole = self.forms.form(rest)
            lead = leading(whole)
            yield lead, self.forms.scale(whole, 1 / lead)

    def weights(self, argument: Form) -> tuple[int, int]:
        """Return the sums of the positive and of the negative exponents that an exponential brings, at most."""
        plus, minus = Fraction(0), Fraction(0)
        for monomial, c in argument.terms:
            if len(monomial) == 1 and isinstance(monomial[0][0], Choice) and monomial[0][1] == 1:
                scaled = [self.weights(self.forms.scale(form, c)) for form in monomial[0][0].alternatives]
                plus += max(p for p, _ in scaled)
                minus += max(m for _, m in scaled)
        simple = {m: c for m, c in argument.terms if not (len(m) == 1 and isinstance(m[0][0], Choice) and m[0][1] == 1)}
        for c, atom in self.pieces(self.forms.form(simple)):
            amount = c / self.units[pattern_of(atom).key]
            plus, minus = (plus + amount, minus) if amount > 0 else (plus, minus - amount)
        return ceil(plus), ceil(minus)

    def total(self, argument: Form) -> int | None:
        """Return the sum of the exponents that an exponential brings, None where it depends on a piece."""
        total = Fraction(0)
        for monomial, _ in argument.terms:
            if len(monomial) == 1 and isinstance(monomial[0][0], Choice):
                return None
        for c, atom in self.pieces(argument):
            total += c / self.units[pattern_of(atom).key]
        return int(total) if total.denominator == 1 else None

    def separates(self, argument: Form, var: Var) -> bool:
        """Return True when different values of a variable give different exponents: some atom is at another place."""
        moving = [atom for _, atom in self.pieces(argument) if var in atom.variables]
        if len(moving) != 1:
            return False
        return any(
            index.coefficient(var) and var not in _without(index, var).variables()
            for index in pattern_of(moving[0]).places
        )


def _without(index: Index, var: Var) -> Index:
    return Index(0, tuple((c, digit) for c, digit in index.digits if digit != var))


def basis_of(
    forms: Forms,
    arguments: Sequence[Form],
    modulus: Modulus,
    seed: int,
    rooted: Roots,
    *,
    coarse: bool = False,
) -> Basis:
    """Return the basis of some exponents, its independence checked modulo q.

    rooted: the roots modulo q; coarse: take each exponent as one atom, up to constants, instead of each of its monomials.
    """
    basis = Basis(forms, coarse)
    found = [piece for argument in arguments for piece in basis.pieces(argument)]
    _collect(basis, found, modulus)
    roots = rooted.cost([atom for _, atom in found])
    basis.reason = basis.reason or roots.reason
    if basis.reason:
        return basis
    basis.premises += [f"in exponents: {premise}" for premise in roots.premises]
    degrees = Degrees(forms, None)
    candidates: dict[object, list[Fresh]] = {}
    for key, family in basis.families.items():
        size = degrees.of(family.form)
        basis.degree = max(basis.degree, ceil(size.numerator.degree), ceil(size.poles.degree))
        if family.form is forms.one:
            continue
        if family.pattern.unclear or family.pattern.choices or family.pattern.calls:
            basis.reason = "an exponent contains a piecewise or opaque operator, or indices that are not taken apart"
            return basis
        candidates[key] = [
            fresh
            for tensor in sorted(family.pattern.tensors)
            if (fresh := _fresh(forms, family, tensor, degrees, roots, modulus, seed)) is not None
        ]
    _eliminate(basis, candidates)
    if any(family.form is forms.one for family in basis.families.values()):
        basis.delta = max(basis.delta, 1 / (modulus.m - 1))
    return basis


def _collect(basis: Basis, found: Sequence[tuple[Fraction, Form]], modulus: Modulus) -> None:
    coefficients: dict[object, list[Fraction]] = {}
    for c, atom in found:
        pattern = pattern_of(atom)
        family = basis.families.setdefault(pattern.key, Family(pattern, atom))
        if pattern.places not in family.places:
            family.places.append(pattern.places)
        coefficients.setdefault(pattern.key, []).append(c)
    for key, values in coefficients.items():
        unit = Fraction(reduce(gcd, (abs(c.numerator) for c in values)), reduce(lcm, (c.denominator for c in values)))
        basis.units[key] = unit
        if unit.numerator % modulus.m == 0 or unit.denominator % modulus.m == 0:
            basis.reason = f"a factor in an exponent is {unit}, which is 0 or does not exist modulo q = {modulus.m}"
    basis.count = sum(family.count() for family in basis.families.values())


def _eliminate(basis: Basis, candidates: dict[object, list[Fresh]]) -> None:
    """Find an order in which each family has an input that the families after it do not contain."""
    remaining = dict(candidates)
    while remaining:
        for key, options in remaining.items():
            others = frozenset[int]().union(*(basis.families[k].pattern.tensors for k in remaining if k != key))
            fit = [fresh for fresh in options if fresh.tensor not in others]
            if fit:
                best = min(fit, key=lambda fresh: fresh.delta + fresh.fail)
                basis.delta = max(basis.delta, best.delta)
                if best.common:
                    basis.fail_once += best.fail
                else:
                    basis.fail_each = max(basis.fail_each, best.fail)
                basis.premises.append(best.how)
                del remaining[key]
                break
        else:
            basis.reason = "exponents are not shown to be independent: no input is used by one kind of exponent alone"
            return


def _fresh(
    forms: Forms, family: Family, tensor: int, degrees: Degrees, roots: RootCost, modulus: Modulus, seed: int
) -> Fresh | None:
    """Return how an input makes the atoms of a family random, None if it is not shown to."""
    if not family.in_blocks(frozenset({tensor})):
        return None
    leaves = list(places_of_tensor(family.pattern, tensor))
    others = {p for leaf in family.pattern.leaves if leaf.tensor != tensor for p in leaf.parameters}
    own = {p for leaf in leaves for p in leaf.parameters}
    elsewhere = set(range(len(family.pattern.places))) - own - others
    common = not (others | elsewhere) & set(family.varying())
    if not _changes(family, leaves[0], modulus, seed):
        return None
    ratio = degrees.of(family.form)
    above, below = ratio.numerator.degree, ratio.poles.degree
    condition = roots.factor if tensor in roots.tensors else 1.0
    if len(leaves) == 1 and leaves[0].linear:
        rows = _length_of_dot_product(family.form, tensor)
        rest = float((above - 1) if rows is None else (above - 2)) * roots.factor / modulus.m
        fail = rest + (0.0 if rows is None else roots.factor * float(modulus.m) ** -rows)
        how = f"exponents are affine in fresh elements of input {tensor}, one for each exponent"
        return Fresh(tensor, condition / modulus.m, fail, common, how)
    degree = float(max(above, below))
    how = f"each exponent has elements of input {tensor} of its own, and degree {ceil(degree)}"
    return Fresh(tensor, degree * roots.factor / modulus.m, 2 * degree * roots.factor / modulus.m, common, how)


def _changes(family: Family, leaf: Leaf, modulus: Modulus, seed: int) -> bool:
    """Return True when a point shows that the atom changes with its own element of the input."""
    for attempt in range(ATTEMPTS):
        point = Point(modulus, seed + attempt)
        try:
            index = sample_index(leaf, family.pattern.places, point)
            values = (attempt % modulus.m, (2 * attempt + 1) % modulus.m)
            first, second = (point.with_element(leaf.tensor, index, z).value(family.form) for z in values)
        except NoMeaningError:
            continue
        except NotApplicableError:
            return False
        if first != second:
            return True
    return False


def _length_of_dot_product(form: Form, tensor: int) -> int | None:
    """Return n where the form is, times other factors, a sum over n of x_d y_d with x an element of the input.

    The y_d must be different elements of one other input: then some y_d is not 0 but for a chance of m^-n.
    """
    if len(form.terms) != 1:
        return None
    for atom, power in form.terms[0][0]:
        if not isinstance(atom, Sum) or power != 1 or atom.limits:
            continue
        ((body, _),) = atom.body.terms
        elements = [a for a, e in body if isinstance(a, Element) and e == 1]
        if len(body) != 2 or len(elements) != 2:
            continue
        mine = [a for a in elements if a.tensor == tensor]
        other = [a for a in elements if a.tensor != tensor]
        if len(mine) == len(other) == 1 and all(
            any(index.digits == ((1, atom.var),) or _moves_alone(index, atom.var) for index in a.index)
            for a in elements
        ):
            return atom.var.extent
    return None


def _moves_alone(index: Index, var: Var) -> bool:
    return index.coefficient(var) != 0 and var not in _without(index, var).variables()


def exponents_in(forms: Forms, found: Sequence[Form]) -> list[Form]:
    """Return the arguments of all exponentials in some forms."""
    arguments: dict[int, Form] = {}
    for form in found:
        for atom in forms.inside(form):
            if isinstance(atom, Exponential):
                arguments[atom.argument.number] = atom.argument
    return list(arguments.values())
