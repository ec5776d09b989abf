"""The meaning of a µGraph in exact expressions: every output element as an expression of input elements.

Invariant: an operator means what its record says (its field rule, its pieces and guards), so no operator is known by name.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import assert_never, cast

import numpy as np

from workbench.core.shapes import Shape, num_elements
from workbench.domains.exact_arithmetic import ExactArithmetic, ExactValue
from workbench.domains.exact_expression import ExactTerms, Piece
from workbench.domains.exact_numbers import Floats
from workbench.domains.finite_field import FieldValue
from workbench.errors import BudgetError, OutsideLaxError
from workbench.interpret.arrays import ArrayDomain
from workbench.interpret.walk import walk
from workbench.ops.attributes import integer
from workbench.ops.registry import operator
from workbench.ops.spec import (
    Array,
    Attributes,
    AttributeValue,
    Branch,
    Exact,
    Expanded,
    Movement,
    Opaque,
    OpKind,
    OpSpec,
    OutsideLax,
)
from workbench.ugraph.kernel_graph import KernelGraph


class ExactDomain(ArrayDomain[ExactValue]):
    """Values are arrays of expressions of one store."""

    def __init__(self, terms: ExactTerms) -> None:
        super().__init__()
        self.terms = terms
        self.arithmetic = ExactArithmetic(terms)

    def map(self, function: Callable[..., Array], *values: ExactValue) -> ExactValue:
        """Return `function` of the arrays of expressions (movement of elements)."""
        return ExactValue(np.asarray(function(*(value.numbers for value in values))))

    def shape_of(self, value: ExactValue) -> Shape:
        """Return the shape."""
        return value.shape

    def fill(self, value: ExactValue, valid: Array, identity: str) -> ExactValue:
        """Return the value with other slots 0 (sum) or absent (max)."""
        if identity == "max":
            return self.arithmetic.absent(value, valid)
        return self.arithmetic.where(valid, value, self.arithmetic.const(0))

    def integers(self, values: Array) -> ExactValue:
        """Return whole numbers."""
        return self.arithmetic.encode(values)

    def rule(
        self, spec: OpSpec, operands: tuple[ExactValue, ...], attributes: Attributes, prefix: int
    ) -> tuple[ExactValue, ...]:
        """Return the operator's results. Raises: OutsideLaxError for an operator without meaning, BudgetError."""
        match spec.field:
            case Movement():
                arrays = tuple(operand.numbers for operand in operands)
                return tuple(ExactValue(np.asarray(made)) for made in spec.on_float(arrays, attributes, prefix))
            case Expanded():
                return self._expanded(spec, operands, attributes, prefix)
            case Exact(rule=rule):
                try:
                    return (self._as_field(rule)(self.arithmetic, operands, attributes),)
                except OutsideLaxError:
                    return (self._opaque(spec, operands, attributes),)
            case Opaque():
                return (self._opaque(spec, operands, attributes),)
            case Branch() as branch:
                return (self._pieces(spec, branch, operands, attributes, prefix),)
            case OutsideLax(why=why):
                raise OutsideLaxError(f"operator {spec.name} has no exact form: {why}")
            case _:
                assert_never(spec.field)

    @staticmethod
    def _as_field(rule: Callable[..., FieldValue]) -> Callable[..., ExactValue]:
        """Return a field rule as a rule on exact values: it uses the operations that both arithmetics have."""
        return cast(Callable[..., ExactValue], rule)

    def _opaque(self, spec: OpSpec, operands: tuple[ExactValue, ...], attributes: Attributes) -> ExactValue:
        listed = tuple(sorted((name, str(value)) for name, value in attributes.items()))
        return self.arithmetic.opaque(spec.name, listed, operands)

    def _pieces(
        self, spec: OpSpec, branch: Branch, operands: tuple[ExactValue, ...], attributes: Attributes, prefix: int
    ) -> ExactValue:
        """Return the piecewise expressions of every result element: values and guards of all pieces side by side."""
        shapes = tuple(operand.shape[prefix:] for operand in operands)
        count = branch.count(shapes, attributes)
        seen = operands
        if spec.kind is OpKind.REDUCTION:  # guards see one value per reduced element
            axis = integer(attributes, "axis")
            lines = np.moveaxis(operands[0].numbers, axis, 0)
            seen = tuple(ExactValue(np.expand_dims(line, axis)) for line in lines)
        shape = self._result_shape(spec, operands, attributes, prefix)
        apply = self._applier(prefix)
        rule = self._as_field(branch.rule)
        columns = []
        for number in range(count):
            value = rule(self.arithmetic, operands, attributes, np.full(shape, number))
            guards = branch.guards(apply, seen, shapes, attributes, number)
            columns.append([np.broadcast_to(each.numbers, shape).ravel().tolist() for each in (value, *guards)])
        made = []
        for position in range(num_elements(shape)):
            pieces = [Piece(tuple(guard[position] for guard in guards), value[position]) for value, *guards in columns]
            made.append(self.terms.choice(spec.name, pieces))
        return ExactValue(np.asarray(made, dtype=np.int64).reshape(shape))

    @staticmethod
    def _result_shape(
        spec: OpSpec, operands: tuple[ExactValue, ...], attributes: Attributes, prefix: int
    ) -> tuple[int, ...]:
        leading = np.broadcast_shapes(*(operand.shape[:prefix] for operand in operands))
        (trailing,) = spec.shape(tuple(operand.shape[prefix:] for operand in operands), attributes)
        return (*leading, *trailing)


def exact_inputs(terms: ExactTerms, graph: KernelGraph) -> list[ExactValue]:
    """Return a variable for every element of every input of a program."""
    values = []
    for number, tensor in enumerate(graph.inputs):
        made = [terms.variable(number, element) for element in range(num_elements(tensor.shape))]
        values.append(ExactValue(np.asarray(made, dtype=np.int64).reshape(tensor.shape)))
    return values


def exact_outputs(terms: ExactTerms, graph: KernelGraph, inputs: list[ExactValue] | None = None) -> list[ExactValue]:
    """Return the outputs of a program as expressions of its inputs' elements.

    inputs: values per input (variables if not given). Raises: BudgetError when the store's limit is reached or the
    program is too large to begin with, OutsideLaxError for an operator without meaning.
    """
    largest = sum(num_elements(tensor.shape) for tensor in graph.tensors.values())
    if largest > terms.limit:
        raise BudgetError(
            f"the program's tensors have {largest} elements, the exact form may take {terms.limit}; use smaller shapes"
        )
    return walk(graph, exact_inputs(terms, graph) if inputs is None else inputs, ExactDomain(terms))


def opaque_value(name: str, attributes: tuple[tuple[str, str], ...], arguments: tuple[Floats, ...]) -> Floats:
    """Return an opaque operator's float64 value, by its record."""
    spec = operator(name)
    given = spec.check_attributes({key: _parsed(text) for key, text in attributes})
    return np.asarray(spec.on_float(arguments, given, 0)[0], dtype=np.float64)


def _parsed(text: str) -> AttributeValue:
    """Return an attribute from its text: an integer, a fraction, or the text itself."""
    try:
        number = Fraction(text)
    except ValueError:
        return text
    return int(number) if number.denominator == 1 else number
