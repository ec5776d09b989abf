"""Which operators a search applies, sorted by what they do to axes. Invariant: an operator is told apart by identity.

What an operator makes of an expression is its abstract rule, evaluated on normal forms at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

from workbench.domains.abstract_normal_form import Algebra, Value
from workbench.errors import UsageError
from workbench.ops.registry import operator
from workbench.ops.spec import AttributeValue, Dim, OpKind, OpSpec, Same
from workbench.search.problem import AppliedOperator, Problem
from workbench.search.space import Space


class Effect(Enum):
    """What an operator does to the axes of its operands."""

    UNARY = "unary"  # elementwise, one tensor operand (others are constants)
    BINARY = "binary"  # elementwise, two tensor operands
    FOLD = "fold"  # reduces an axis
    WHOLE = "whole"  # keeps an axis, but every element depends on all of it (softmax, norms)
    CONTRACT = "contract"  # multiplies and sums over a shared axis
    JOIN = "join"  # [x | y] times [w ; z]: two contractions and their sum in one


@dataclass(frozen=True, eq=False, slots=True)
class Operator:
    """An operator of a palette.

    Attributes: spec; effect; attributes (without the axis); constant, position: a number at one operand position;
    counts: it divides by the number of elements of the axis (mean, rms); folds_with_loop: an accumulator may do it;
    completes: the axis, if this is the scale by 1/n that makes a mean of a sum over blocks;
    is_offered: False for one that is only looked through when expressions are taken apart.
    """

    spec: OpSpec
    effect: Effect
    attributes: tuple[tuple[str, AttributeValue], ...] = ()
    constant: Fraction | None = None
    position: int = 0
    counts: bool = False
    folds_with_loop: bool = False
    is_offered: bool = True
    completes: str = ""

    @property
    def name(self) -> str:
        """Its name, with the constant operand if it has one."""
        return self.spec.name

    @property
    def cost(self) -> int:
        """How many operators it counts: two concatenations and a product, or one."""
        return 3 if self.effect is Effect.JOIN else 1

    def __str__(self) -> str:
        if self.effect is Effect.JOIN:
            return "matmul of concat and concat"
        constant = f" {self.constant}" if self.constant is not None else ""
        attributes = " ".join(f"{name}={value}" for name, value in self.attributes)
        return f"{self.spec.name}{constant}" + (f"({attributes})" if attributes else "")

    @property
    def has_axis(self) -> bool:
        """Whether the axis is an attribute (else it is the last one)."""
        return any(attribute.name == "axis" for attribute in self.spec.attributes)

    def abstract(self, algebra: Algebra, operands: tuple[Value, ...], mask: int = 0, number: int = 1) -> Value:
        """Return what it makes of expressions; mask: the axes it folds, number: what stands for their extent."""
        values = list(operands)
        if self.constant is not None:
            values.insert(self.position, algebra.constant(self.constant))
        attributes = dict(self.attributes)
        if self.has_axis:
            attributes["axis"] = -1
        shapes = ((number,),) * len(values)
        return self.spec.abstract(ValueBuilder(algebra, mask), tuple(values), shapes, attributes)


class Palette:
    """The operators of a search, by effect.

    Attributes: unary, binary, folds, wholes: by effect, in a fixed order; add, mul, div, square, sum, max, maximum,
    matmul: the primitive operators (`is_offered` says whether the search may use them); join: a product of concatenations.
    """

    def __init__(self, operators: Sequence[Operator], *, concatenation: bool = False) -> None:
        """Sort operators by effect. concatenation: offer products of concatenations."""
        self.operators = tuple(operators)
        self.unary = self._of(Effect.UNARY)
        self.binary = self._of(Effect.BINARY)
        self.folds = self._of(Effect.FOLD)
        self.wholes = self._of(Effect.WHOLE)
        self._primitive: dict[str, Operator] = {}
        for op in operators:
            if op.constant is None and not op.attributes:
                self._primitive.setdefault(op.name, op)
        self.add, self.mul, self.div = (self._or_closed(name, Effect.BINARY) for name in ("add", "mul", "div"))
        self.maximum = self._or_closed("maximum", Effect.BINARY)
        self.square, self.exp, self.sqrt = (self._or_closed(name, Effect.UNARY) for name in ("square", "exp", "sqrt"))
        self.sum, self.max = (self._or_closed(name, Effect.FOLD) for name in ("sum", "max"))
        self.matmul = self._or_closed("matmul", Effect.CONTRACT)
        self.join = Operator(operator("matmul"), Effect.JOIN, is_offered=concatenation and self.matmul.is_offered)
        known = {self.add, self.mul, self.div, self.maximum}
        self.forward_binary = tuple(op for op in self.binary if op not in known)
        self.counting_folds = tuple(op for op in self.folds if op.counts)
        self.forward_unary = tuple(op for op in self.unary if op not in (self.square, self.exp, self.sqrt))

    def _of(self, effect: Effect) -> tuple[Operator, ...]:
        return tuple(op for op in self.operators if op.effect is effect)

    def _or_closed(self, name: str, effect: Effect) -> Operator:
        return self._primitive.get(name) or Operator(operator(name), effect, is_offered=False)

    @property
    def names(self) -> tuple[str, ...]:
        """The operators, printed, in a fixed order."""
        return tuple(sorted(map(str, self.operators)))


class ValueBuilder:
    """Builds normal forms from operators' abstract rules; every reduced group is the axes of one mask."""

    def __init__(self, algebra: Algebra, mask: int) -> None:
        self.algebra, self.mask = algebra, mask
        self.add, self.mul, self.div = algebra.add, algebra.mul, algebra.div
        self.exp, self.sqrt, self.constant, self.apply = algebra.exp, algebra.sqrt, algebra.constant, algebra.apply

    def sum(self, group: int, extent: int, argument: Value) -> Value:
        """Return the sum over the axes of the mask."""
        return self.algebra.sum_mask(self.mask, argument)

    def max(self, group: int, extent: int, argument: Value) -> Value:
        """Return the maximum over the axes of the mask."""
        return self.algebra.max_over(self.algebra.axes_of(self.mask), argument)

    def concat(self, axis: int, extents: tuple[int, ...], arguments: tuple[Value, ...]) -> Value:
        """Raises: UsageError, because a normal form has no parts."""
        raise UsageError("a concatenation has no normal form of its own")


def palette_of(problem: Problem, space: Space) -> Palette:
    """Return the operators of a search, each once, in an order that does not depend on the program's."""
    applied = [AppliedOperator(operator(name)) for name in space.palette]
    if problem.numbers:
        applied.append(AppliedOperator(operator("mean")))
        applied += [AppliedOperator(operator("rms"), (("eps", eps),)) for eps in (Fraction(0), *problem.constants)]
    applied += problem.operators
    if space.free_scale:
        numbers = {Fraction(1, number) for number in problem.numbers.values()}
        numbers |= {item.constant for item in problem.operators if item.constant is not None}
        applied += [AppliedOperator(operator("scale"), (("factor", number),)) for number in numbers]
    found = {}
    for item in applied:
        found[str((item.spec.name, item.attributes, item.constant, item.position))] = _operator(item)
    every = [found[key] for key in sorted(found) if found[key] is not None]
    completing = [
        Operator(operator("scale"), Effect.UNARY, (("factor", Fraction(1, number)),), completes=name)
        for name, number in problem.numbers.items()
    ]
    return Palette([*(made for made in every if made is not None), *completing], concatenation=space.concatenation)


def _operator(item: AppliedOperator) -> Operator | None:
    spec = item.spec
    match spec.kind:
        case OpKind.CONTRACTION:
            return Operator(spec, Effect.CONTRACT)
        case OpKind.REDUCTION if spec.name == "sum_to_columns":
            return None  # a sum over a part of an axis: split axes have parts of their own
        case OpKind.REDUCTION:
            attributes = dict(item.attributes)
            if any(attribute.name == "axis" for attribute in spec.attributes):
                attributes["axis"] = -1
            keeps = spec.axes(((2,),), attributes).results[0][-1] == Same((Dim(0, -1),))
            counts = spec.name in ("mean", "rms", "rms_norm", "layer_norm")
            effect = Effect.WHOLE if keeps else Effect.FOLD
            with_loop = spec.name in ("sum", "mean", "rms", "max")
            return Operator(spec, effect, item.attributes, counts=counts, folds_with_loop=with_loop)
        case OpKind.ELEMENTWISE:
            tensors = (spec.arity or 2) - (item.constant is not None)
            if tensors > 2:
                return None
            effect = Effect.UNARY if tensors == 1 else Effect.BINARY
            return Operator(spec, effect, item.attributes, item.constant, item.position)
    return None
