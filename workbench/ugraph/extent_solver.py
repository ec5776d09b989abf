"""Finding extents for atoms: products that agree, cuts that leave their tiles, sums that add up.

Invariant: a solution meets every constraint; values are tried in the order in which the caller prefers them, and the
last choice is changed first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from functools import cached_property
from math import isqrt, prod
from typing import Protocol

from workbench.ugraph.atoms import Atoms, Run
from workbench.ugraph.scalars import exact_root

Values = Mapping[int, int]
MAX_STEPS = 5_000


class Constraint(Protocol):
    """A relation between extents."""

    @property
    def variables(self) -> frozenset[int]:
        """The atoms it speaks about."""
        ...

    def holds(self, values: Values) -> bool:
        """Return True when the relation is met; every variable has a value."""
        ...

    def values_of(self, variable: int, values: Values) -> Sequence[int] | None:
        """Return the values that the only variable without one may take, preferred first; None if it cannot tell."""
        ...


def _product(run: Iterable[int], values: Values) -> int:
    return prod(values[atom] for atom in run)


def _solve_power(variable: int, run: Run, target: Fraction, values: Values) -> Sequence[int]:
    """Return the value of a variable with which a run multiplies to `target`."""
    times = run.count(variable)
    rest = target / prod(values[atom] for atom in run if atom != variable)
    root = rest if times == 1 else exact_root(rest, times)
    return [int(root)] if root is not None and root.denominator == 1 and root >= 1 else []


@dataclass(frozen=True)
class EqualProducts:
    """Two runs have one product, and inside them boundaries meet where they met before and nowhere else.

    (4, 3) against (3, 4) must not become (2, 3) against (2, 3): the reshape would move nothing.

    Attributes: meets: which proper inner parts (counted in atoms from the innermost) of both have one product.
    """

    left: Run
    right: Run
    meets: frozenset[tuple[int, int]]

    @cached_property
    def variables(self) -> frozenset[int]:
        """Atoms of both."""
        return frozenset(self.left + self.right)

    def holds(self, values: Values) -> bool:
        """Compare the products, and those of all inner parts."""
        if _product(self.left, values) != _product(self.right, values):
            return False
        return meeting_parts(self.left, self.right, values) == self.meets

    def values_of(self, variable: int, values: Values) -> Sequence[int] | None:
        """Divide, unless the variable stands on both sides."""
        if variable in self.left and variable in self.right:
            return None
        mine, other = (self.left, self.right) if variable in self.left else (self.right, self.left)
        return _solve_power(variable, mine, Fraction(_product(other, values)), values)


def meeting_parts(left: Run, right: Run, values: Values) -> frozenset[tuple[int, int]]:
    """Return the pairs (i, j) for which the i innermost atoms of one and the j of the other have one product."""
    return frozenset(
        (i, j)
        for i in range(1, len(left))
        for j in range(1, len(right))
        if _product(left[-i:], values) == _product(right[-j:], values)
    )


@dataclass(frozen=True)
class Product:
    """A run has a given product."""

    run: Run
    value: int

    @cached_property
    def variables(self) -> frozenset[int]:
        """Atoms of the run."""
        return frozenset(self.run)

    def holds(self, values: Values) -> bool:
        """Compare the product."""
        return _product(self.run, values) == self.value

    def values_of(self, variable: int, values: Values) -> Sequence[int] | None:
        """Divide."""
        return _solve_power(variable, self.run, Fraction(self.value), values)


@dataclass(frozen=True)
class CutInto:
    """Counts, from the outermost, cut a run and leave a tile; each cut leaves ceil(extent / count).

    Attributes: even: every count must divide.
    """

    base: Run
    counts: tuple[Run, ...]
    tile: Run
    even: bool

    @cached_property
    def variables(self) -> frozenset[int]:
        """Atoms of all."""
        return frozenset(self.base + self.tile + tuple(atom for count in self.counts for atom in count))

    def holds(self, values: Values) -> bool:
        """Cut and compare."""
        extent = _product(self.base, values)
        for count in self.counts:
            parts = _product(count, values)
            if self.even and extent % parts:
                return False
            extent = -(-extent // parts)
        return extent == _product(self.tile, values)

    def values_of(self, variable: int, values: Values) -> Sequence[int] | None:
        """Multiply the parts, or cut the whole; where tiles may end early, a tile does not tell the whole."""
        counts = tuple(atom for count in self.counts for atom in count)
        if variable in self.base:
            if not self.even or variable in counts or variable in self.tile:
                return None
            return _solve_power(variable, self.base, Fraction(_product(counts + self.tile, values)), values)
        if variable in self.tile and variable not in counts:
            extent = _product(self.base, values)
            for count in self.counts:
                extent = -(-extent // _product(count, values))
            return _solve_power(variable, self.tile, Fraction(extent), values)
        if self.even and variable not in self.tile:
            whole = Fraction(_product(self.base, values), _product(self.tile, values))
            return _solve_power(variable, counts, whole, values)
        return None


@dataclass(frozen=True)
class Sum:
    """A run's product is the sum of the products of others."""

    total: Run
    parts: tuple[Run, ...]

    @cached_property
    def variables(self) -> frozenset[int]:
        """Atoms of all."""
        return frozenset(self.total + tuple(atom for part in self.parts for atom in part))

    def holds(self, values: Values) -> bool:
        """Add up."""
        return _product(self.total, values) == sum(_product(part, values) for part in self.parts)

    def values_of(self, variable: int, values: Values) -> Sequence[int] | None:
        """Return the total, or what is missing to it."""
        inside = [part for part in self.parts if variable in part]
        if variable in self.total:
            if inside:
                return None
            added = sum(_product(part, values) for part in self.parts)
            return _solve_power(variable, self.total, Fraction(added), values)
        if len(inside) != 1:
            return None
        missing = _product(self.total, values) - sum(_product(p, values) for p in self.parts if p is not inside[0])
        return _solve_power(variable, inside[0], Fraction(missing), values) if missing > 0 else []


@dataclass(frozen=True)
class Square:
    """A run's product is the square of a whole number."""

    run: Run

    @cached_property
    def variables(self) -> frozenset[int]:
        """Atoms of the run."""
        return frozenset(self.run)

    def holds(self, values: Values) -> bool:
        """Take the root."""
        value = _product(self.run, values)
        return isqrt(value) ** 2 == value

    def values_of(self, variable: int, values: Values) -> Sequence[int] | None:
        """Leave the choice open."""
        return None


class Evenness(Enum):
    """Which counts must divide what they cut; those of a single element never have to."""

    ALL = "all"
    THOSE_THAT_DO = "those that do"
    NONE = "none"


def constraints_of(atoms: Atoms, evenness: Evenness) -> list[Constraint]:
    """Return what ties the extents of atoms: cuts, concatenations and products that no refinement aligns."""
    found: list[Constraint] = []
    for cut in atoms.cuts:
        counts = tuple(atoms.resolve((count,)) for count in cut.counts)
        base, tile = atoms.normal(cut.base), atoms.resolve(cut.tile)
        if base != tuple(atom for count in counts for atom in count) + tile:
            divides = atoms.extent(base) == atoms.extent(tile) * prod(atoms.extent(count) for count in counts)
            even = evenness is Evenness.ALL or (evenness is Evenness.THOSE_THAT_DO and divides)
            found.append(CutInto(base, counts, tile, even and atoms.extent(base) > 1))
    for run, parts in atoms.sums:
        found.append(Sum(atoms.resolve(run), tuple(atoms.normal(part) for part in parts)))
    for left, right in atoms.equalities:
        both = atoms.normal(left), atoms.normal(right)
        found.append(EqualProducts(*both, meeting_parts(*both, dict(enumerate(atoms.extents)))))
    return found


def solve(
    variables: Sequence[int],
    constraints: Sequence[Constraint],
    preferred: Callable[[int, Values], Sequence[int]],
    allowed: Callable[[int, int], bool],
) -> dict[int, int] | None:
    """Return values that meet all constraints, None when none were found within the limit of steps.

    variables: in the order in which they are chosen; one that a constraint determines is chosen as soon as it is.
    preferred: the values to try for a variable, given the values so far; allowed: whether a variable may have a value.
    """
    return _Search(variables, constraints, preferred, allowed).run()


class _Search:
    def __init__(
        self,
        variables: Sequence[int],
        constraints: Sequence[Constraint],
        preferred: Callable[[int, Values], Sequence[int]],
        allowed: Callable[[int, int], bool],
    ) -> None:
        self.variables, self.constraints = variables, constraints
        self.preferred, self.allowed = preferred, allowed
        self.about = {v: [c for c in constraints if v in c.variables] for v in variables}
        self.values: dict[int, int] = {}
        self.steps = 0

    def run(self) -> dict[int, int] | None:
        return dict(self.values) if self._extend() else None

    def _extend(self) -> bool:
        self.steps += 1
        if self.steps > MAX_STEPS:
            return False
        choice = self._next()
        if choice is None:
            return True
        variable, candidates = choice
        for value in candidates:
            if not self.allowed(variable, value):
                continue
            self.values[variable] = value
            if self._fits(variable) and self._extend():
                return True
            del self.values[variable]
        return False

    def _next(self) -> tuple[int, Sequence[int]] | None:
        """Return the next variable and its candidates: one that is determined, else the first in order."""
        for constraint in self.constraints:
            open_ = [variable for variable in constraint.variables if variable not in self.values]
            if len(open_) == 1:
                found = constraint.values_of(open_[0], self.values)
                if found is not None:
                    return open_[0], found
        for variable in self.variables:
            if variable not in self.values:
                return variable, self.preferred(variable, self.values)
        return None

    def _fits(self, variable: int) -> bool:
        return all(
            constraint.holds(self.values)
            for constraint in self.about.get(variable, ())
            if all(other in self.values for other in constraint.variables)
        )
