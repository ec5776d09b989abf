"""The meaning of a µGraph in a pair of finite fields, with a float64 coordinate that picks the pieces of piecewise operators.

Invariant: a field value is exact or a random function of exact values; what was opaque and which pieces were taken is
recorded, so that a verdict can say what it rests on (paper, section 5; DESIGN 5).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import assert_never

import numpy as np

from workbench.core.shapes import Shape
from workbench.domains.finite_field import Fault, FieldArithmetic, FieldValue
from workbench.errors import OutsideLaxError
from workbench.interpret.arrays import ArrayDomain
from workbench.interpret.walk import Observer, walk
from workbench.ops.spec import (
    Array,
    Attributes,
    Branch,
    Exact,
    Expanded,
    Movement,
    Opaque,
    OpSpec,
    OutsideLax,
)
from workbench.ugraph.kernel_graph import KernelGraph


@dataclass(frozen=True, slots=True, eq=False)
class FieldPoint:
    """A tensor at one random point: its residues, and its float64 value where pieces have to be chosen (else None)."""

    residues: FieldValue
    real: Array | None = None


@dataclass(frozen=True, slots=True, eq=False)
class PieceChoice:
    """The pieces that one application of a piecewise operator took.

    Attributes: op; count of pieces per element; choice: integer array shaped as the result (leading axes included).
    """

    op: str
    count: int
    choice: Array


@dataclass(frozen=True, slots=True, eq=False)
class FaultSite:
    """A fault and where it was met.

    Attributes: application: number of the exact rule's application; fault: zero denominators or non-squares among its
    last operand's elements; after_exp: the operand has no q part, so that its p part rests on the inputs' q parts too.
    """

    application: int
    fault: Fault
    after_exp: bool


@dataclass(eq=False)
class FieldTrace:
    """What one evaluation rests on besides field arithmetic.

    Attributes: opaque: names of operators taken as random functions, in order; pieces: the choices of piecewise
    operators, in order of evaluation; applications: how many exact rules were applied; faults: (number of the
    application, zero denominators or non-squares among its last operand's elements).
    """

    opaque: list[str] = field(default_factory=list)
    pieces: list[PieceChoice] = field(default_factory=list)
    applications: int = 0
    faults: list[FaultSite] = field(default_factory=list)


class FieldDomain(ArrayDomain[FieldPoint]):
    """Values are residues modulo p and q (and float64 coordinates if the inputs bring them).

    seed: keys the random functions that stand for opaque operators; two programs that are compared must share it.
    forced: choices of pieces to take instead of those of the float coordinate, in order of evaluation.
    """

    def __init__(
        self,
        arithmetic: FieldArithmetic,
        *,
        seed: int = 0,
        forced: Sequence[Array] | None = None,
        chunk_elements: int = 1 << 22,
    ) -> None:
        super().__init__(chunk_elements)
        self.arithmetic = arithmetic
        self.seed = seed
        self.trace = FieldTrace()
        self._forced = list(forced) if forced is not None else None

    # ------------------------------------------------------------------------------------------------------- coordinates
    def map(self, function: Callable[..., Array], *values: FieldPoint) -> FieldPoint:
        """Return `function` of every coordinate (movement of elements)."""
        residues = FieldValue.join([value.residues for value in values], lambda arrays: function(*arrays))
        reals = [value.real for value in values if value.real is not None]
        return FieldPoint(residues, function(*reals) if len(reals) == len(values) else None)

    def shape_of(self, value: FieldPoint) -> Shape:
        """Return the shape of the residues."""
        return value.residues.shape

    def fill(self, value: FieldPoint, valid: Array, identity: str) -> FieldPoint:
        """Return the value with other slots 0; for a maximum only the float coordinate matters: -inf is never chosen."""
        zero = self.arithmetic.const(0)
        residues = self.arithmetic.where(np.broadcast_to(valid, value.residues.shape), value.residues, zero)
        if value.real is None:
            return FieldPoint(residues)
        return FieldPoint(residues, np.where(valid, value.real, 0.0 if identity == "sum" else -np.inf))

    def integers(self, values: Array) -> FieldPoint:
        """Return whole numbers as residues."""
        return FieldPoint(self.arithmetic.encode(values), values.astype(np.float64))

    # ------------------------------------------------------------------------------------------------------------- rules
    def rule(
        self, spec: OpSpec, operands: tuple[FieldPoint, ...], attributes: Attributes, prefix: int
    ) -> tuple[FieldPoint, ...]:
        """Return the operator's results by its field meaning. Raises: OutsideLaxError naming operator and reason."""
        meaning = spec.field
        reals = tuple(point.real for point in operands if point.real is not None)
        complete = len(reals) == len(operands)
        residues = tuple(point.residues for point in operands)
        match meaning:
            case Movement():
                return self._moved(spec, operands, attributes, prefix)
            case Expanded():
                return self._expanded(spec, operands, attributes, prefix)
            case Exact():
                value = self._exact(spec, meaning, residues, attributes)
            case Opaque():
                value = self._opaque(spec, residues, attributes)
            case Branch():
                choice = self._choice(spec, meaning, reals, complete, attributes, operands, prefix)
                value = meaning.rule(self.arithmetic, residues, attributes, choice)
            case OutsideLax():
                raise OutsideLaxError(f"operator {spec.name} has no meaning in a finite field: {meaning.why}")
            case _:
                assert_never(meaning)
        real = self._real(spec, reals, attributes, prefix) if complete else None
        return (FieldPoint(value, real),)

    def _exact(
        self, spec: OpSpec, meaning: Exact, residues: tuple[FieldValue, ...], attributes: Attributes
    ) -> FieldValue:
        known = len(self.arithmetic.faults)
        try:
            value = meaning.rule(self.arithmetic, residues, attributes)
        except OutsideLaxError:
            value = self._opaque(spec, residues, attributes)
        for fault in self.arithmetic.faults[known:]:
            self.trace.faults.append(FaultSite(self.trace.applications, fault, residues[-1].q is None))
        self.trace.applications += 1
        return value

    def _opaque(self, spec: OpSpec, residues: tuple[FieldValue, ...], attributes: Attributes) -> FieldValue:
        if spec.name not in self.trace.opaque:
            self.trace.opaque.append(spec.name)
        text = f"{self.seed}|{spec.name}|{sorted((name, str(value)) for name, value in attributes.items())}"
        key = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")
        return self.arithmetic.opaque(residues, key)

    def _choice(
        self,
        spec: OpSpec,
        meaning: Branch,
        reals: tuple[Array, ...],
        complete: bool,
        attributes: Attributes,
        operands: tuple[FieldPoint, ...],
        prefix: int,
    ) -> Array:
        shapes = tuple(point.residues.shape[prefix:] for point in operands)
        if self._forced is not None:
            if len(self.trace.pieces) >= len(self._forced):
                raise OutsideLaxError(f"operator {spec.name}: no piece was given for its application")
            choice = self._forced[len(self.trace.pieces)]
        else:
            if not complete:
                raise OutsideLaxError(
                    f"operator {spec.name} is piecewise and its operand has no float coordinate; give the inputs real values"
                )
            with np.errstate(all="ignore"):
                choice = meaning.select(reals, attributes)
        self.trace.pieces.append(PieceChoice(spec.name, meaning.count(shapes, attributes), choice))
        return choice

    def _real(self, spec: OpSpec, reals: tuple[Array, ...], attributes: Attributes, prefix: int) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(spec.on_float(reals, attributes, prefix)[0])


def evaluate_in_field(
    graph: KernelGraph,
    inputs: Sequence[FieldPoint],
    domain: FieldDomain,
    *,
    observe: Observer | None = None,
) -> list[FieldPoint]:
    """Return the outputs of a program at a point of the field pair, as a list in the program's order of outputs.

    inputs: one point per program input, of the input's shape. Raises: ShapeError, OutsideLaxError.
    """
    result: list[FieldPoint] = walk(graph, inputs, domain, observe)
    return result
