"""The tensors that prefixes are made of: each kept once, with its axes, and with its expression when somebody asks.

Invariant: with `exact`, two tensors are one object exactly when their expressions are equal under A_eq; without, when
they are the same operator on the same tensors. Either way a tensor knows one way to make it.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from workbench.domains.abstract_normal_form import Algebra, Value
from workbench.search.expressions import Expressions
from workbench.search.palette import Effect, Operator


@dataclass(slots=True, eq=False)
class Tensor:
    """A tensor of some prefix.

    Attributes: number; mask: the axes along which it varies; start: which input it is, -1 for none; operator, operands,
    folded, axis: one way to make it (no operator for an input).
    """

    number: int
    mask: int
    start: int = -1
    operator: Operator | None = None
    operands: tuple[Tensor, ...] = ()
    folded: int = 0
    axis: str = ""
    value: Value | None = None


class Tensors:
    """All tensors of the prefixes of plans that cut the same axes.

    Attributes: expressions; algebra; exact; starts: the inputs; every: all tensors by number.
    """

    def __init__(self, expressions: Expressions, *, exact: bool) -> None:
        """Start with the program's inputs."""
        self.expressions, self.exact = expressions, exact
        self.algebra: Algebra = expressions.algebra
        self.every: list[Tensor] = []
        self._known: dict[Hashable, Tensor] = {}
        self.starts = tuple(self._start(position, value) for position, value in enumerate(expressions.starts))

    def _start(self, position: int, value: Value) -> Tensor:
        key: Hashable = value if self.exact else ("input", position)
        return self._keep(key, Tensor(len(self.every), self.algebra.mask[value], position, value=value))

    def _keep(self, key: Hashable, tensor: Tensor) -> Tensor:
        found = self._known.setdefault(key, tensor)
        if found is tensor:
            self.every.append(tensor)
        return found

    def made(self, operator: Operator, operands: tuple[Tensor, ...], folded: int, axis: str) -> Tensor:
        """Return what an operator makes; operands in its order."""
        new = Tensor(len(self.every), 0, -1, operator, operands, folded, axis)
        if self.exact:
            value = new.value = self._value(new)
            new.mask = self.algebra.mask[value]
            return self._keep(value, new)
        numbers = tuple(tensor.number for tensor in operands)
        if operator.spec.commutative:
            numbers = tuple(sorted(numbers))
        for tensor in operands:
            new.mask |= tensor.mask
        if operator.effect is not Effect.WHOLE:
            new.mask &= ~folded
        return self._keep((operator, folded, numbers), new)

    def value(self, tensor: Tensor) -> Value:
        """Return a tensor's expression."""
        if tensor.value is None:
            tensor.value = self._value(tensor)
        return tensor.value

    def _value(self, tensor: Tensor) -> Value:
        operator = tensor.operator
        assert operator is not None
        number = self.expressions.problem.numbers.get(tensor.axis, 2)
        return operator.abstract(self.algebra, tuple(map(self.value, tensor.operands)), tensor.folded, number)
