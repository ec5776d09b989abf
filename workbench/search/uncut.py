"""What a search that cuts fewer axes says of one that cuts more: whether an expression can occur, at what price, made how.

A block graph whose loop has one iteration is a block graph without the loop, with at most as many operators: each does
the same to the axis as a whole, or nothing at all (a sum over iterations). Likewise where an axis is split over one
block. So an expression of a plan that cuts axes is of use only if its image, with one part of an axis of extent 1, is of
use where that part is not cut; it takes no fewer operators, and an operator that makes it makes its image. Invariant:
what is ruled out here is in no graph of the plan within its limit, provided that the other expressions were taken apart
completely.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from workbench.domains.abstract_expr import Axis, Part
from workbench.domains.abstract_normal_form import Algebra, Value
from workbench.domains.abstract_projection import Projection
from workbench.search.palette import Effect, Operator
from workbench.search.plans import AxisParts
from workbench.search.space import NEVER

if TYPE_CHECKING:
    from workbench.search.expressions import Expressions
    from workbench.search.makings import Making

IsFactor = Callable[[int], bool]


class Guide:
    """What may make an expression, read off its image.

    Attributes: multiplies, divides, adds, joins: whether products, quotients, sums and products of concatenations are
    worth looking for; is_factor: whether a monomial may stand in a factor of a product, None if any may.
    """

    multiplies = divides = adds = joins = True
    is_factor: IsFactor | None = None

    def allows(self, operator: Operator, axis: str = "") -> bool:
        """Return whether an operator that folds an axis may make the expression."""
        return True

    def is_factor_over(self, axis: str) -> IsFactor | None:
        """Return the same as `is_factor` for the operands of a product that is summed over an axis."""
        return None


FREE = Guide()
"""Of an expression of which nothing is known."""


class _ImageGuide(Guide):
    def __init__(self, image: Image, makings: Iterable[Making]) -> None:
        self._image = image
        self._makings = tuple(makings)
        self._operators = {(making.operator, making.axis) for making in self._makings}
        names = {making.operator.name for making in self._makings}
        effects = {making.operator.effect for making in self._makings}
        # An operator with a constant operand is found by taking the constant out; differences are sums of a negative.
        others = Effect.UNARY in effects
        self.multiplies = others or bool(names & {"mul", "square"})
        self.divides = others or Effect.WHOLE in effects or "div" in names
        self.adds = others or Effect.BINARY in effects
        self.joins = "add" in names  # halves that differ may have one image
        elementwise = [m for m in self._makings if m.operator.effect in (Effect.UNARY, Effect.BINARY)]
        self.is_factor = self._only(elementwise)

    def allows(self, operator: Operator, axis: str = "") -> bool:
        return (operator, axis) in self._operators

    def is_factor_over(self, axis: str) -> IsFactor | None:
        return self._only([m for m in self._makings if m.operator.effect is Effect.CONTRACT and m.axis == axis])

    def _only(self, makings: Iterable[Making]) -> IsFactor:
        algebra, monomials = self._image.others.algebra, self._image.projection.monomials
        allowed = {m for making in makings for operand in making.operands for m in algebra.polynomials[operand]}

        def is_factor(monomial: int) -> bool:
            return all(m in allowed or _is_number(algebra, m) for m in monomials(monomial))

        return is_factor


def _is_number(algebra: Algebra, m: int) -> bool:
    a = algebra.monomials[m]
    return not a.den and not a.quotient and not a.root and all(map(algebra.is_number, a.num))


class Image:
    """The expressions of a plan as they are where fewer parts of axes are cut. Attributes: others (those); projection."""

    def __init__(self, others: Expressions, cut: Expressions, names: Mapping[Axis, Axis | None]) -> None:
        """Keep both. others: closed and trimmed, of the same problem and palette, with no smaller limit; names: of parts."""
        self.others = others
        self.projection = Projection(cut.algebra, others.algebra, names)
        self._bounds: dict[Value, tuple[int, int]] = {}
        self._guides: dict[Value, Guide] = {}

    def bounds(self, value: Value) -> tuple[int, int]:
        """Return the operators that an expression takes, and those that stand over it, at least; NEVER if it is of no use."""
        found = self._bounds.get(value)
        if found is None:
            image, others = self.projection.image(value), self.others
            # What is undecided is kept.
            found = (0, 0) if image is None else (others.operators.get(image, NEVER), others.above.get(image, NEVER))
            self._bounds[value] = found
        return found

    def guide(self, value: Value) -> Guide:
        """Return what may make an expression."""
        image = self.projection.image(value)
        if image is None:
            return FREE
        found = self._guides.get(image)
        if found is None:
            found = self._guides[image] = _ImageGuide(self, self.others.all_makings.get(image, ()))
        return found


class Uncut:
    """All images of a plan's expressions: what each of them rules out is ruled out."""

    def __init__(self, images: Sequence[Image]) -> None:
        """Keep the images, the one that tells most first."""
        self._images = images

    def bounds(self, value: Value) -> tuple[int, int]:
        """Return the operators that an expression takes, and those that stand over it, at least; NEVER if it is of no use."""
        least = above = 0
        for image in self._images:
            one, other = image.bounds(value)
            least, above = max(least, one), max(above, other)
            if NEVER in (least, above):
                break
        return least, above

    def guide(self, value: Value) -> Guide:
        """Return what may make an expression."""
        return self._images[0].guide(value)


def fewer_parts(parts: Mapping[str, AxisParts]) -> Iterator[tuple[dict[str, AxisParts], dict[Axis, Axis | None]]]:
    """Yield the ways to cut one part less: what is cut then, and the new names of all parts, None for the one that is gone.

    An axis with a single part left is whole; one that is split over blocks and not looped over is cut like one that is
    looped over and not split, under the loop's name.
    """
    for name, part in parts.items():
        outer = [axis for axis in (part.grid, part.loop) if axis is not None]
        for gone in outer:
            others = {other: listed for other, listed in parts.items() if other != name}
            names: dict[Axis, Axis | None] = {gone: None}
            kept = [axis for axis in outer if axis != gone]
            if kept:
                loop = Axis(name, Part.LOOP)
                names[kept[0]] = loop
                others[name] = AxisParts(None, loop, part.tile)
            else:
                names[part.tile] = Axis(name)
            yield dict(sorted(others.items())), names
