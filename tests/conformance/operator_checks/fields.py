"""The meaning in Z_p x Z_q: exact on rational operands, equal to the expansion's, its branches chosen as in float."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import assert_never

import numpy as np

from tests.conformance.operator_checks.cases import CASES, POSITIVE, RATIONAL, Case, operands_of, oracle
from tests.conformance.operator_checks.floats import FloatApply
from workbench.core.shapes import Shape
from workbench.domains.finite_field import FieldArithmetic, FieldValue, field_pair, random_elements
from workbench.ops import align_ranks, complete_attributes, operator
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

PAIR = field_pair("w31")
OMEGA = pow(3, (PAIR.p - 1) // PAIR.q, PAIR.p)


class NoFieldMeaning(Exception):
    """An operator without algebraic meaning was met; what is compared then is not settled by the field."""


@dataclass(frozen=True)
class Point:
    """A value of both domains: a float coordinate, which picks branches, and a pair of residues."""

    real: Array
    residues: FieldValue


class FieldApply:
    """An `Apply` over points."""

    def __init__(self, arithmetic: FieldArithmetic) -> None:
        self.arithmetic = arithmetic

    def __call__(self, name: str, *operands: Point, **attributes: AttributeValue) -> Point:
        spec = operator(name)
        complete = complete_attributes(spec, attributes, tuple(point.real.shape for point in operands))
        with np.errstate(all="ignore"):
            (real,) = spec.on_float(tuple(point.real for point in operands), complete, 0)
        (residues,) = field_results(spec, self, operands, complete)
        return Point(np.asarray(real), residues)


def field_results(
    spec: OpSpec, apply: FieldApply, operands: tuple[Point, ...], attributes: Attributes
) -> tuple[FieldValue, ...]:
    """Return an operator's results in the field. Raises: NoFieldMeaning."""
    values = tuple(point.residues for point in operands)
    if spec.kind in (OpKind.ELEMENTWISE, OpKind.CONTRACTION):
        rank = max(len(value.shape) for value in values)
        values = tuple(value.map(lambda a: a.reshape((1,) * (rank - a.ndim) + a.shape)) for value in values)
    match spec.field:
        case Exact(rule):
            return (rule(apply.arithmetic, values, attributes),)
        case Movement():
            count = spec.num_results(attributes)

            def moved(number: int, arrays: list[Array]) -> Array:
                return spec.on_float(tuple(arrays), attributes, 0)[number]

            return tuple(FieldValue.join(values, partial(moved, number)) for number in range(count))
        case Expanded():
            assert spec.expand is not None
            shapes = tuple(point.real.shape for point in operands)
            return (spec.expand(apply, operands, shapes, attributes).residues,)
        case Branch() as branch:
            choice = branch.select(align_ranks(tuple(point.real for point in operands), 0), attributes)
            return (branch.rule(apply.arithmetic, values, attributes, choice),)
        case Opaque(why) | OutsideLax(why):
            raise NoFieldMeaning(f"{spec.name}: {why}")
        case _:
            assert_never(spec.field)


def arithmetic() -> FieldArithmetic:
    """Return the arithmetic of the 31-bit pair with a fixed root of unity."""
    return FieldArithmetic(PAIR, OMEGA)


def random_point(rng: np.random.Generator, shape: Shape, sign: str) -> Point:
    """Return independent coordinates; where a positive number is asked for, the residues are squares."""
    real = operands_of(Case((shape,), {}, (sign,)), rng)[0]
    residues = random_elements(rng, shape, PAIR)
    if sign == POSITIVE:
        residues = arithmetic().mul(residues, residues)
    return Point(real, residues)


def same(left: FieldValue, right: FieldValue) -> bool:
    """Return whether two values have one shape and agree on every side that both have."""
    if left.shape != right.shape:
        return False
    return not bool(np.asarray(arithmetic().differs(left, right)).any())


# ------------------------------------------------------------------------------------------------------------- checks
def check_field_exactness(spec: OpSpec) -> None:
    """On integers a rational operator gives the residues of its exact result, with a q part; shapes are right."""
    rng = np.random.default_rng(8)
    for case in CASES[spec.name]:
        attributes = case.complete(spec)
        points = tuple(random_point(rng, shape, case.sign(number)) for number, shape in enumerate(case.shapes))
        shapes = spec.infer_shapes(case.shapes, attributes)
        try:
            results = field_results(spec, FieldApply(arithmetic()), points, attributes)
        except NoFieldMeaning:
            return
        assert tuple(result.shape for result in results) == shapes, case
        if spec.name not in RATIONAL:
            continue
        wholes = [rng.integers(1, 9, shape) * rng.choice([-1, 1], shape) for shape in case.shapes]
        points = tuple(Point(whole.astype(float), arithmetic().encode(whole)) for whole in wholes)
        fractions = tuple(np.vectorize(Fraction, otypes=[object])(whole) for whole in wholes)
        with np.errstate(all="ignore"):
            expected = oracle(spec.name, fractions, attributes)
        results = field_results(spec, FieldApply(arithmetic()), points, attributes)
        for result, right in zip(results, expected, strict=True):
            assert result.q is not None
            for index in np.ndindex(right.shape):
                constant = arithmetic().const(Fraction(right[index]))
                assert constant.q is not None
                assert (result.p[index], result.q[index]) == (constant.p, constant.q), (case, index)


def check_branches(spec: OpSpec) -> None:
    """Of a piecewise operator: the guards of the chosen piece hold, of every other one fails; every piece occurs."""
    if not isinstance(spec.field, Branch):
        return
    rng, branch = np.random.default_rng(9), spec.field
    for case in CASES[spec.name]:
        attributes = case.complete(spec)
        pieces = branch.count(case.shapes, attributes)
        seen: set[int] = set()
        (result,) = spec.infer_shapes(case.shapes, attributes)
        for _ in range(40):
            operands = align_ranks(operands_of(case, rng), 0)
            choice = branch.select(operands, attributes)
            assert choice.shape == result, case
            seen |= {int(number) for number in np.unique(choice)}
            index = tuple(int(rng.integers(extent)) for extent in result)
            scalars = _cone(spec, operands, attributes, index)
            for piece in range(pieces):
                guards = branch.guards(FloatApply(), scalars, case.shapes, attributes, piece)
                holds = all(float(guard) >= 0 for guard in guards)
                assert guards, "a piece that always holds would leave no choice"
                assert holds == (piece == choice[index]), (case, index, piece)
        assert seen == set(range(pieces)), (case, seen)


def _cone(
    spec: OpSpec, operands: tuple[Array, ...], attributes: Attributes, index: tuple[int, ...]
) -> tuple[Array, ...]:
    """Return the scalars that one result element depends on: of a reduction, one per folded element."""
    if spec.kind is OpKind.REDUCTION:
        axis = attributes["axis"]
        assert isinstance(axis, int)
        return tuple(np.asarray(value) for value in np.moveaxis(operands[0], axis, -1)[_without(index, axis)])
    return tuple(
        np.asarray(array[tuple(0 if extent == 1 else at for extent, at in zip(array.shape, index, strict=True))])
        for array in operands
    )


def _without(index: tuple[int, ...], axis: int) -> tuple[int, ...]:
    position = axis % len(index)
    return index[:position] + index[position + 1 :]


def check_field_expansion(spec: OpSpec) -> None:
    """A composite's own field rule equals that of its expansion."""
    if spec.expand is None or isinstance(spec.field, Expanded):
        return
    rng = np.random.default_rng(10)
    for case in CASES[spec.name]:
        attributes = case.complete(spec)
        points = tuple(random_point(rng, shape, case.sign(number)) for number, shape in enumerate(case.shapes))
        apply = FieldApply(arithmetic())
        (direct,) = field_results(spec, apply, points, attributes)
        expanded = spec.expand(apply, points, case.shapes, attributes).residues
        assert same(direct, expanded), case
        assert (direct.q is None) == (expanded.q is None), case
