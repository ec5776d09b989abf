"""Abstract expressions: evaluated on constants they equal the float result on constant tensors.

On constant tensors it does not matter which element is which, so the check sees extents and factors, not permutations.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Generic, TypeVar

import numpy as np

from tests.conformance.operator_checks.cases import CASES, POSITIVE, Case, oracle
from tests.conformance.operator_checks.floats import close
from workbench.core.shapes import Shape
from workbench.ops import complete_attributes, operator
from workbench.ops.attributes import as_integer
from workbench.ops.spec import AttributeValue, AxisMap, Dim, OpSpec, TermAlgebra

T = TypeVar("T")

FUNCTIONS: dict[str, Callable[..., float]] = {
    "log": math.log,
    "erf": math.erf,
    "pow": lambda x, y: x**y,
    "silu": lambda x: x / (1 + math.exp(-x)),
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    "tanh": math.tanh,
    "gelu": lambda x: x / 2 * (1 + math.erf(x / math.sqrt(2))),
    "gelu_tanh": lambda x: x / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "relu": lambda x: max(x, 0.0),
    "abs": abs,
    "clamp": lambda x, low, high: min(max(x, low), high),
    "maximum": max,
    "minimum": min,
}


class Numbers:
    """The term algebra of plain numbers. `axis_map` None: inside an expansion, where groups belong to the parts."""

    def __init__(self, shapes: tuple[Shape, ...], axis_map: AxisMap | None) -> None:
        self.shapes, self.axis_map = shapes, axis_map

    def constant(self, value: Fraction) -> float:
        return float(value)

    def add(self, left: float, right: float) -> float:
        return left + right

    def mul(self, left: float, right: float) -> float:
        return left * right

    def div(self, left: float, right: float) -> float:
        return left / right

    def exp(self, argument: float) -> float:
        return math.exp(argument)

    def sqrt(self, argument: float) -> float:
        return math.sqrt(argument)

    def apply(self, name: str, *arguments: float) -> float:
        return FUNCTIONS[name](*arguments)

    def sum(self, group: int, extent: int, argument: float) -> float:
        self._check(group, extent)
        return extent * argument

    def max(self, group: int, extent: int, argument: float) -> float:
        self._check(group, extent)
        return argument

    def concat(self, axis: int, extents: tuple[int, ...], arguments: tuple[float, ...]) -> float:
        assert axis < 0
        assert len(set(arguments)) == 1, "constant tensors joined are constant only if they are equal"
        assert extents == tuple(shape[axis] for shape in self.shapes)
        return arguments[0]

    def _check(self, group: int, extent: int) -> None:
        """The group is one of the axis map's, and the extent is the group's."""
        if self.axis_map is None:
            return
        part = self.axis_map.reduced[group][0]
        shape = self.shapes[part.operand if isinstance(part, Dim) else part.dim.operand]
        assert extent == (shape[part.axis] if isinstance(part, Dim) else part.extents[part.position])


def _constants(spec: OpSpec, case: Case) -> tuple[float, ...]:
    """Return one number per operand: all different, but equal where they are joined."""
    values = (0.7, 1.3) if spec.name != "concat" else (0.7,) * len(case.shapes)
    return tuple(
        -value if number == 0 and case.sign(number) != POSITIVE else value
        for number, value in zip(range(len(case.shapes)), values, strict=False)
    )


def check_terms(spec: OpSpec) -> None:
    """Compare the evaluated term with the oracle on constant tensors, for every result."""
    for case in CASES[spec.name]:
        attributes = case.complete(spec)
        if spec.arity is None:  # equal constants cannot show in which order the operands are joined
            names: tuple[Formula, ...] = tuple((f"x{number}",) for number in range(len(case.shapes)))
            formula = spec.abstract(Formulas(), names, case.shapes, attributes)
            extents = tuple(shape[as_integer(attributes["axis"])] for shape in case.shapes)
            assert formula == ("concat", attributes["axis"], extents, *names), case
        if spec.name == "layer_norm" and attributes["eps"] == 0:
            continue  # 0 / 0 on a constant tensor
        for sign in (1.0, -1.0):
            numbers = tuple(
                number * sign if case.sign(k) != POSITIVE else number for k, number in enumerate(_constants(spec, case))
            )
            if spec.name == "concat":
                numbers = (0.7 * sign,) * len(case.shapes)
            algebra = Numbers(case.shapes, spec.axes(case.shapes, attributes))
            term = spec.abstract(algebra, numbers, case.shapes, attributes)
            tensors = tuple(np.full(shape, number) for shape, number in zip(case.shapes, numbers, strict=True))
            for result in oracle(spec.name, tensors, attributes):
                assert close(np.full(result.shape, term), result), (case, numbers, term)


# --------------------------------------------------------------------------------------------------------- expansion
Formula = tuple[object, ...]


class Formulas:
    """The term algebra of formulas as nested tuples, commutative ones in one order: equal means equal as written."""

    def constant(self, value: Fraction) -> Formula:
        return ("constant", value)

    def add(self, left: Formula, right: Formula) -> Formula:
        return ("add", *sorted((left, right), key=repr))

    def mul(self, left: Formula, right: Formula) -> Formula:
        return ("mul", *sorted((left, right), key=repr))

    def div(self, left: Formula, right: Formula) -> Formula:
        return ("div", left, right)

    def exp(self, argument: Formula) -> Formula:
        return ("exp", argument)

    def sqrt(self, argument: Formula) -> Formula:
        return ("sqrt", argument)

    def apply(self, name: str, *arguments: Formula) -> Formula:
        return (name, *arguments)

    def sum(self, group: int, extent: int, argument: Formula) -> Formula:
        return ("sum", group, extent, argument)

    def max(self, group: int, extent: int, argument: Formula) -> Formula:
        return ("max", group, extent, argument)

    def concat(self, axis: int, extents: tuple[int, ...], arguments: tuple[Formula, ...]) -> Formula:
        return ("concat", axis, extents, *arguments)


class _Expand(Generic[T]):
    """An `Apply` over (term, shape): what the parts of an expansion make of it."""

    def __init__(self, algebra: Callable[[tuple[Shape, ...]], TermAlgebra[T]]) -> None:
        self.algebra = algebra

    def __call__(self, name: str, *operands: tuple[T, Shape], **attributes: AttributeValue) -> tuple[T, Shape]:
        spec, shapes = operator(name), tuple(shape for _, shape in operands)
        complete = complete_attributes(spec, attributes, shapes)
        (shape,) = spec.infer_shapes(shapes, complete)
        return spec.abstract(self.algebra(shapes), tuple(term for term, _ in operands), shapes, complete), shape


def check_terms_expansion(spec: OpSpec) -> None:
    """A composite's term is its expansion's, as written; one that is a named function has its value at least."""
    if spec.expand is None:
        return
    for case in CASES[spec.name]:
        attributes = case.complete(spec)
        names = tuple((f"x{number}",) for number in range(len(case.shapes)))
        formula: Formula = spec.abstract(Formulas(), names, case.shapes, attributes)
        if formula[0] in FUNCTIONS:
            (shape,) = case.shapes
            apply = _Expand(lambda shapes: Numbers(shapes, None))
            number, _ = spec.expand(apply, ((0.7, shape),), case.shapes, attributes)
            value = FUNCTIONS[str(formula[0])](0.7)
            assert formula[1:] == names, case
            assert math.isclose(number, value, rel_tol=1e-12), case
            continue
        formulas = _Expand(lambda shapes: Formulas())
        operands = tuple(zip(names, case.shapes, strict=True))
        expanded, _ = spec.expand(formulas, operands, case.shapes, attributes)
        assert formula == expanded, (case, formula, expanded)
