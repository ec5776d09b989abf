"""Which constants of a program are really counts: the 1/4096 of a mean that a user wrote as a scale.

A constant is carried outwards through the operators that are homogeneous; where it can go no further it is compared with
the sums it passed on the way. Invariant: a constant is a count only if it equals one exactly or is the decimal that float64
arithmetic gives for it (0.041666666666666664 for 1/24), and what is counted are axes whose sums it was carried out of.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations
from math import prod
from typing import assert_never

from workbench.core.tensors import DeviceTensor
from workbench.ops.attributes import fraction
from workbench.ops.spec import Homogeneity
from workbench.ugraph.atoms import Run
from workbench.ugraph.dataflow import Dataflow, Step
from workbench.ugraph.dimensions import Dimensions
from workbench.ugraph.nodes import Accumulator, AccumulatorKind, InputIterator, OpNode, OutputSaver, RunningMax
from workbench.ugraph.scalars import ONE, scalar

LARGEST_GROUP = 3  # sums whose counts are multiplied into one constant
ROUNDING = 2.0**-50  # a quotient or root rounded to float64 once or twice
_ZERO, _ONE = Fraction(0), Fraction(1)
_CONSTANTS = ("scale", "constant")
_SUMS = ("sum", "matmul", "sum_to_columns")
_SUMMING = (AccumulatorKind.SUM, AccumulatorKind.SUM_DIM, AccumulatorKind.SUM_TO_COLUMNS)


@dataclass(frozen=True, slots=True)
class Span:
    """A sum that a value is proportional to. Attributes: steps that fold; run: what they fold together; exponent."""

    steps: frozenset[int]
    run: Run
    exponent: Fraction


@dataclass(frozen=True, slots=True)
class CountPower:
    """A constant's magnitude as a product of powers of counts.

    Attributes: spans: the sums whose counts they are, `exponent` being the count's; is_root: it equals the root of what
    would make the sums means, as 1/sqrt(d) beside a product over d.
    """

    spans: tuple[Span, ...]
    is_root: bool = False


@dataclass(frozen=True, slots=True)
class _Carried:
    """What a value carries: exponents of the constants (by step) it is proportional to, and the sums."""

    constants: Mapping[int, Fraction] = field(default_factory=dict)
    spans: tuple[Span, ...] = ()

    def times(self, other: _Carried, degree: Fraction) -> _Carried:
        """Return what the product of this value and a power of another carries."""
        if other.is_nothing:
            return self
        constants = dict(self.constants)
        for step, exponent in other.constants.items():
            constants[step] = constants.get(step, _ZERO) + degree * exponent
        spans = {span.steps: span for span in self.spans}
        for span in other.spans:
            known = spans[span.steps].exponent if span.steps in spans else _ZERO
            spans[span.steps] = Span(span.steps, span.run, known + degree * span.exponent)
        return _Carried(
            {step: exponent for step, exponent in constants.items() if exponent},
            tuple(span for span in spans.values() if span.exponent),
        )

    @property
    def is_nothing(self) -> bool:
        """Whether it is proportional to no constant and no sum."""
        return not self.constants and not self.spans


_NOTHING = _Carried()


def recognize_counts(dimensions: Dimensions, *, roots: bool) -> dict[int, CountPower]:
    """Return, for `scale` and `constant` steps whose number is a count, which one; by number of the step.

    roots: also recognise the square root of a count, as in the 1/sqrt(d) of attention.
    """
    if not any(isinstance(step.node, OpNode) and step.node.op in _CONSTANTS for step in dimensions.flow.steps):
        return {}
    return _Recognizer(dimensions, roots).run()


class _Recognizer:
    def __init__(self, dimensions: Dimensions, roots: bool) -> None:
        self.dimensions, self.flow, self.roots = dimensions, dimensions.flow, roots
        self.atoms = dimensions.atoms
        self.found: dict[int, CountPower] = {}

    def run(self) -> dict[int, CountPower]:
        carried: dict[int, _Carried] = {}
        for number, step in enumerate(self.flow.steps):
            result = self._step(number, step, [carried[value] for value in step.operands])
            for value in step.results:
                carried[value] = result
        for value in self.flow.outputs:
            self._stop(carried[value])
        return self.found

    def _step(self, number: int, step: Step, operands: list[_Carried]) -> _Carried:
        match step.node:
            case DeviceTensor():
                return _NOTHING
            case InputIterator() | OutputSaver() | RunningMax():
                return operands[0]
            case OpNode():
                return self._operator(number, step.node, operands)
            case Accumulator():
                return self._accumulator(number, step.node, operands)
            case _:
                assert_never(step.node)

    def _operator(self, number: int, node: OpNode, operands: list[_Carried]) -> _Carried:
        if node.op == "constant":
            return _Carried({number: _ONE}) if self._value(number) else _NOTHING
        result = _NOTHING
        if not all([operand.is_nothing for operand in operands]):
            covered: set[int] = set()
            for law in node.spec.homogeneous(node.attribute_map):
                which = law.operands or tuple(range(len(operands)))
                covered.update(which)
                result = result.times(self._through(law, [operands[operand] for operand in which]), _ONE)
            for position, operand in enumerate(operands):
                if position not in covered:
                    self._stop(operand)
        if node.op == "scale":
            if not self._value(number):
                return _NOTHING
            result = result.times(_Carried({number: _ONE}), _ONE)
        if node.op in _SUMS:
            for run in self.dimensions.reduced[number]:
                result = self._summed(number, result, run)
        return result

    def _through(self, law: Homogeneity, operands: list[_Carried]) -> _Carried:
        """Return what passes through: all of one operand, of several that scale together what sums they share."""
        if len(operands) == 1:
            return operands[0] if law.degree == 1 else _NOTHING.times(operands[0], law.degree)
        for operand in operands:
            self._stop(operand)
        shared = operands[0].spans
        for operand in operands[1:]:
            keys = [(self.atoms.extent(span.run), span.exponent) for span in operand.spans]
            shared = tuple(span for span in shared if (self.atoms.extent(span.run), span.exponent) in keys)
        return _NOTHING.times(_Carried({}, shared), law.degree)

    def _accumulator(self, number: int, node: Accumulator, operands: list[_Carried]) -> _Carried:
        for operand in operands[1:]:
            self._stop(operand)
        if node.kind in _SUMMING:
            result = operands[0]
            for run in self.dimensions.reduced[number]:
                result = self._summed(number, result, run)
            return result
        if node.kind is AccumulatorKind.RMS and node.eps:
            self._stop(operands[0])
            return _NOTHING
        return operands[0]

    def _summed(self, number: int, carried: _Carried, run: Run) -> _Carried:
        """Return what a sum over `run` carries: a span more, or one that grew to more of the same axis."""
        spans = list(carried.spans)
        for position, span in enumerate(spans):
            joined = self.atoms.continued(run, span.run) if span.exponent == 1 else None
            if joined is not None:
                spans[position] = Span(span.steps | {number}, joined, span.exponent)
                break
        else:
            spans.append(Span(frozenset({number}), self.atoms.resolve(run), _ONE))
        return _Carried(carried.constants, tuple(spans))

    # ---------------------------------------------------------------------------------------------------- comparing
    def _stop(self, carried: _Carried) -> None:
        """Compare the constants that a value carries with the sums it is proportional to."""
        for number, exponent in carried.constants.items():
            value = abs(self._value(number))
            if number not in self.found and value != 1:
                power = self._match(value, exponent, carried.spans)
                if power is not None:
                    self.found[number] = power

    def _match(self, value: Fraction, exponent: Fraction, spans: tuple[Span, ...]) -> CountPower | None:
        spans = tuple(sorted((s for s in spans if self.atoms.extent(s.run) > 1), key=lambda span: sorted(span.steps)))
        for is_root in (False, True) if self.roots else (False,):
            share = Fraction(1, 2) if is_root else Fraction(1)
            for group in _groups(spans):
                powers = tuple(Span(s.steps, s.run, -s.exponent * share / exponent) for s in group)
                if self._equals(value, powers):
                    return CountPower(powers, is_root)
        return None

    def _equals(self, value: Fraction, powers: tuple[Span, ...]) -> bool:
        counts = [(self.atoms.extent(span.run), span.exponent) for span in powers]
        product = ONE
        for count, power in counts:
            product *= scalar(Fraction(count)).power(power)
        if scalar(value) == product:
            return True
        near: float = float(value) / prod(float(count) ** float(power) for count, power in counts)
        return bool(abs(near - 1) < ROUNDING)

    def _value(self, number: int) -> Fraction:
        return constant_value(self.flow, number)


def _groups(spans: tuple[Span, ...]) -> Iterator[tuple[Span, ...]]:
    for size in range(1, LARGEST_GROUP + 1):
        yield from combinations(spans, size)


def constant_value(flow: Dataflow, number: int) -> Fraction:
    """Return the number that a `scale` or `constant` step holds."""
    node = flow.steps[number].node
    assert isinstance(node, OpNode)
    return fraction(node.attribute_map, "factor" if node.op == "scale" else "value")
