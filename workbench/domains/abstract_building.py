"""Builds terms from operators: what an operator's rule for table 1 is given to build with, in both forms.

Invariant: one rule gives both forms; only who interprets "the reduced group number g of extent n" differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from workbench.domains import abstract_expr as expr
from workbench.domains.abstract_expr import Axis, Term
from workbench.errors import UsageError


class SizesBuilder:
    """Builds the paper's form: a reduction keeps the number of elements it folds."""

    def constant(self, value: Fraction) -> Term:
        """Return a rational constant."""
        return expr.constant(value)

    def add(self, left: Term, right: Term) -> Term:
        """Return the sum."""
        return expr.add(left, right)

    def mul(self, left: Term, right: Term) -> Term:
        """Return the product."""
        return expr.mul(left, right)

    def div(self, left: Term, right: Term) -> Term:
        """Return the quotient."""
        return expr.div(left, right)

    def exp(self, argument: Term) -> Term:
        """Return the exponential."""
        return expr.exp(argument)

    def sqrt(self, argument: Term) -> Term:
        """Return the square root."""
        return expr.sqrt(argument)

    def apply(self, name: str, *arguments: Term) -> Term:
        """Return an opaque function of the arguments."""
        return expr.apply(name, *arguments)

    def sum(self, group: int, extent: int, argument: Term) -> Term:
        """Return the sum over `extent` elements; as table 1 has it."""
        return expr.sum_over(self._over(group, extent, argument), argument)

    def max(self, group: int, extent: int, argument: Term) -> Term:
        """Return the largest of `extent` elements."""
        return expr.max_over(self._over(group, extent, argument), argument)

    def concat(self, axis: int, extents: tuple[int, ...], arguments: tuple[Term, ...]) -> Term:
        """Return the parts side by side. Raises: UsageError, because the paper's form has no axis to lay them along."""
        raise UsageError(f"concat of {len(arguments)} parts: build it in the axes form and map that `to_sizes`")

    def _over(self, group: int, extent: int, argument: Term) -> int | tuple[Axis, ...]:
        return extent


class AxesBuilder(SizesBuilder):
    """Builds the axes form for one node: `groups[g]` are the axes of its reduced group g, parts of one axis if split.

    `concatenated` names the axis along which the node lays its operands, `parts` the operands' axes there.
    """

    def __init__(
        self, groups: Sequence[Sequence[Axis]] = (), *, concatenated: str | None = None, parts: Sequence[Axis] = ()
    ) -> None:
        self.groups = tuple(tuple(group) for group in groups)
        self.concatenated = concatenated
        self.parts = tuple(parts)

    def concat(self, axis: int, extents: tuple[int, ...], arguments: tuple[Term, ...]) -> Term:
        """Return the parts laid along the named axis. Raises: UsageError when the node has none, or another number."""
        if self.concatenated is None or len(self.parts) != len(arguments):
            raise UsageError(
                f"concat of {len(arguments)} parts: give `concatenated` and as many `parts`, got {len(self.parts)}"
            )
        return expr.concat(self.concatenated, list(zip(self.parts, arguments, strict=True)))

    def _over(self, group: int, extent: int, argument: Term) -> int | tuple[Axis, ...]:
        if group >= len(self.groups):
            raise UsageError(f"reduced group {group} has no axes; the builder was given {len(self.groups)} groups")
        return self.groups[group]
