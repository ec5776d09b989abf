"""Arithmetic of tensors of exact expressions, with the operations that operators' field rules are written in.

Invariant: it offers what `FieldArithmetic` offers, so one rule per operator serves both; nothing is rounded or sampled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from workbench.core.shapes import Shape, broadcast_shapes
from workbench.domains.exact_expression import ABSENT, ExactTerms
from workbench.errors import OutsideLaxError

Numbers = npt.NDArray[np.int64]
"""Expressions by their numbers in a store."""


@dataclass(frozen=True, slots=True, eq=False)
class ExactValue:
    """A tensor of expressions: an int64 array of their numbers."""

    numbers: Numbers

    @property
    def shape(self) -> Shape:
        """The tensor's shape."""
        return self.numbers.shape

    def map(self, movement: Callable[[Numbers], Numbers]) -> ExactValue:
        """Return the value with a movement of elements applied."""
        return ExactValue(np.asarray(movement(self.numbers)))


class ExactArithmetic:
    """Elementwise arithmetic, sums and matrix products of exact expressions; operands broadcast as in NumPy."""

    def __init__(self, terms: ExactTerms) -> None:
        self.terms = terms

    def _each(self, rule: Callable[..., int], *operands: ExactValue) -> ExactValue:
        shape = broadcast_shapes([operand.shape for operand in operands])
        flat = [np.broadcast_to(operand.numbers, shape).ravel().tolist() for operand in operands]
        made = [rule(*parts) for parts in zip(*flat, strict=True)]
        return ExactValue(np.asarray(made, dtype=np.int64).reshape(shape))

    def const(self, value: Fraction | int) -> ExactValue:
        """Return a rational constant, shape ()."""
        return ExactValue(np.asarray(self.terms.number(value), dtype=np.int64))

    def encode(self, integers: npt.ArrayLike) -> ExactValue:
        """Return whole numbers."""
        array = np.asarray(integers)
        made = [self.terms.number(int(value)) for value in array.ravel().tolist()]
        return ExactValue(np.asarray(made, dtype=np.int64).reshape(array.shape))

    def add(self, a: ExactValue, b: ExactValue) -> ExactValue:
        """Return a + b."""
        return self._each(self.terms.add, a, b)

    def sub(self, a: ExactValue, b: ExactValue) -> ExactValue:
        """Return a - b."""
        return self._each(self.terms.sub, a, b)

    def mul(self, a: ExactValue, b: ExactValue) -> ExactValue:
        """Return a * b."""
        return self._each(self.terms.mul, a, b)

    def neg(self, a: ExactValue) -> ExactValue:
        """Return -a."""
        return self._each(lambda part: self.terms.scale(-1, part), a)

    def inverse(self, a: ExactValue) -> ExactValue:
        """Return 1/a."""
        return self._each(lambda part: self.terms.product(((part, -1),)), a)

    def div(self, a: ExactValue, b: ExactValue) -> ExactValue:
        """Return a / b."""
        return self._each(self.terms.div, a, b)

    def exp(self, a: ExactValue) -> ExactValue:
        """Return e^a, a second exp on a path included."""
        return self._each(self.terms.exp, a)

    def sqrt(self, a: ExactValue) -> ExactValue:
        """Return the square root."""
        return self._each(self.terms.sqrt, a)

    def power(self, a: ExactValue, exponent: Fraction | int) -> ExactValue:
        """Return an integer or half-integer power. Raises: OutsideLaxError for other exponents."""
        fraction = Fraction(exponent)
        if fraction.denominator not in (1, 2):
            raise OutsideLaxError(f"power: exponent {fraction} is no integer or half-integer; treat it as opaque")
        base = self.sqrt(a) if fraction.denominator == 2 else a
        return self._each(lambda part: self.terms.power(part, fraction.numerator), base)

    def matmul(self, a: ExactValue, b: ExactValue) -> ExactValue:
        """Return the matrix product, a (..., m, k) by b (..., k, n), leading axes broadcast."""
        leading = broadcast_shapes([a.shape[:-2], b.shape[:-2]])
        rows, inner, columns = a.shape[-2], a.shape[-1], b.shape[-1]
        left = np.broadcast_to(a.numbers, (*leading, rows, inner)).reshape(-1, rows, inner).tolist()
        right = np.broadcast_to(b.numbers, (*leading, inner, columns)).swapaxes(-1, -2).reshape(-1, columns, inner)
        mul, linear = self.terms.mul, self.terms.linear
        made = [
            linear([(1, mul(x, y)) for x, y in zip(row, column, strict=True)])
            for block, transposed in zip(left, right.tolist(), strict=True)
            for row in block
            for column in transposed
        ]
        return ExactValue(np.asarray(made, dtype=np.int64).reshape(*leading, rows, columns))

    def sum(self, a: ExactValue, axis: int | tuple[int, ...] = -1, *, keepdims: bool = True) -> ExactValue:
        """Return the sum over an axis or several, kept with extent 1 unless `keepdims` is False."""
        axes = (axis,) if isinstance(axis, int) else axis
        numbers = a.numbers
        for position in sorted((each % numbers.ndim for each in axes), reverse=True):
            lines = np.moveaxis(numbers, position, -1)
            made = [
                self.terms.linear([(1, part) for part in line]) for line in lines.reshape(-1, lines.shape[-1]).tolist()
            ]
            numbers = np.asarray(made, dtype=np.int64).reshape(lines.shape[:-1])
            if keepdims:
                numbers = np.expand_dims(numbers, position)
        return ExactValue(numbers)

    def where(self, mask: npt.NDArray[np.bool_], a: ExactValue, b: ExactValue) -> ExactValue:
        """Return a where the mask is True and b elsewhere."""
        return ExactValue(np.asarray(np.where(mask, a.numbers, b.numbers), dtype=np.int64))

    def opaque(self, name: str, attributes: Sequence[tuple[str, str]], operands: Sequence[ExactValue]) -> ExactValue:
        """Return an operator without algebraic meaning, as itself."""
        return self._each(lambda *parts: self.terms.opaque(name, attributes, parts), *operands)

    def absent(self, a: ExactValue, valid: npt.NDArray[np.bool_]) -> ExactValue:
        """Return the value with slots outside `valid` absent."""
        return ExactValue(np.asarray(np.where(valid, a.numbers, ABSENT), dtype=np.int64))
