"""What is known of the signs of factors: equations "these signs multiply to +1 (or -1)", kept in reduced form.

A sign s is 1 or -1; a set of signs is a bit set, the sign of factor f being bit 2 f + 1 (as in monomials). Signs multiply
as sets add modulo 2, so what is known is a linear system over the field of two elements.
Invariant: each pivot occurs in its own equation only, so that replacing pivots once settles a set.
"""

from __future__ import annotations

from collections.abc import Iterable

from workbench.errors import NowhereDefinedError


class SignEquations:
    """A growing system of equations between signs. Attributes: learnt: how many it has taken in so far."""

    def __init__(self) -> None:
        self.learnt = 0
        self._pivots: dict[int, tuple[int, int]] = {}  # sign bit -> (equation: set of signs, its product)

    def __bool__(self) -> bool:
        """True where something is known."""
        return bool(self._pivots)

    def settle(self, roots: int) -> tuple[int, int]:
        """Return a set of roots and signs with known signs replaced, and the sign that leaves it."""
        sign = 1
        for pivot, (equation, product) in self._pivots.items():
            if roots & pivot:
                roots ^= equation
                sign *= product
        return roots, sign

    def learn(self, factors: Iterable[int], product: int) -> None:
        """Take in that the signs of some factors have a product. Raises: NowhereDefinedError when known signs contradict."""
        signs = 0
        for factor in factors:
            signs ^= sign_bit(factor)
        signs, sign = self.settle(signs)
        product *= sign
        if not signs:
            if product < 0:
                raise NowhereDefinedError("the conditions under which the expression is defined contradict each other")
            return
        self.learnt += 1
        pivot = 1 << (signs.bit_length() - 1)
        for other, (equation, known) in list(self._pivots.items()):
            if equation & pivot:
                self._pivots[other] = (equation ^ signs, known * product)
        self._pivots[pivot] = (signs, product)


def root_bit(factor: int) -> int:
    """Return the bit of a factor's root."""
    return 1 << (2 * factor)


def sign_bit(factor: int) -> int:
    """Return the bit of a factor's sign."""
    return 2 << (2 * factor)
