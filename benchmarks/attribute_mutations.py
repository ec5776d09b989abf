"""Does every rule honour every attribute? One mutant per rule and attribute that it reads: it reads another value.

A rule that never reads the attribute, seen by a recording mapping over all cases, cannot be changed so and is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import TypeVar

import numpy as np

from benchmarks.mutants import Mutant
from tests.conformance.operator_checks.cases import CASES, Case, operands_of, oracle
from tests.conformance.operator_checks.fields import FieldApply, arithmetic, field_results, random_point
from tests.conformance.operator_checks.floats import FloatApply
from tests.conformance.operator_checks.terms import Formulas
from tests.conformance.operator_checks.work import counted_flops
from workbench.core.shapes import Shape
from workbench.errors import ShapeError
from workbench.ops.spec import (
    AbstractRule,
    Apply,
    Attributes,
    AttributeValue,
    Branch,
    Exact,
    Expansion,
    Guards,
    OpSpec,
    TermAlgebra,
)

T = TypeVar("T")


def other_value(name: str, value: AttributeValue) -> AttributeValue:
    """Return a wrong value for an attribute: the next number, the next axis, the extents in another order."""
    if isinstance(value, str):
        return {"none": "tanh", "tanh": "none"}[value]
    if isinstance(value, tuple):
        return value[::-1] if value != value[::-1] else (*value[:-1], value[-1] + 1)
    if name == "axis":
        return -1 if value != -1 else -2
    if name == "exponent":
        return value + 1 if value != -1 else 1
    return value + 1 if isinstance(value, int) else value + Fraction(1, 8)


def misread(attributes: Attributes, name: str) -> Attributes:
    """Return the attributes with a wrong value for one."""
    return {**attributes, name: other_value(name, attributes[name])}


class _Recorder(dict[str, AttributeValue]):
    """Attributes that remember which of them were read."""

    def __init__(self, attributes: Attributes) -> None:
        super().__init__(attributes)
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> AttributeValue:
        self.read.add(name)
        return super().__getitem__(name)


# ------------------------------------------------------------------------------------------- each rule, run and changed
def _run(rule: str, spec: OpSpec, case: Case, attributes: Attributes) -> None:
    """Run one rule of a record on a case."""
    rng = np.random.default_rng(0)
    operands = operands_of(case, rng)
    match rule:
        case "shape":
            spec.shape(case.shapes, attributes)
        case "axes":
            spec.axes(case.shapes, attributes)
        case "on_float":
            spec.on_float(operands, attributes, 0)
        case "work":
            spec.work(case.shapes, attributes)
        case "num_results":
            spec.num_results(attributes)
        case "homogeneous":
            spec.homogeneous(attributes)
        case "abstract":
            names = tuple((f"x{number}",) for number in range(len(case.shapes)))
            spec.abstract(Formulas(), names, case.shapes, attributes)
        case "expand":
            if spec.expand is not None:
                spec.expand(FloatApply(), operands, case.shapes, attributes)
        case "scalar_c":
            if spec.scalar_c is not None:
                spec.scalar_expression(("x", "y")[: spec.arity], attributes)
        case "field":
            if isinstance(spec.field, Exact | Branch):
                points = tuple(random_point(rng, shape, case.sign(k)) for k, shape in enumerate(case.shapes))
                field_results(spec, FieldApply(arithmetic()), points, attributes)


def _changed(rule: str, spec: OpSpec, name: str) -> Iterator[tuple[str, OpSpec]]:
    """Yield the record with one rule misreading an attribute, and what to call it."""

    def wrong(attributes: Attributes) -> Attributes:
        return misread(attributes, name)

    match rule:
        case "shape":
            shape = spec.shape
            yield rule, replace(spec, shape=lambda s, a: shape(s, wrong(a)))
        case "axes":
            axes = spec.axes
            yield rule, replace(spec, axes=lambda s, a: axes(s, wrong(a)))
        case "on_float":
            on_float = spec.on_float
            yield rule, replace(spec, on_float=lambda x, a, p: on_float(x, wrong(a), p))
        case "work":
            work = spec.work
            yield rule, replace(spec, work=lambda s, a: work(s, wrong(a)))
        case "num_results":
            count = spec.num_results
            yield rule, replace(spec, num_results=lambda a: count(wrong(a)))
        case "homogeneous":
            homogeneous = spec.homogeneous
            yield rule, replace(spec, homogeneous=lambda a: homogeneous(wrong(a)))
        case "abstract":
            yield rule, replace(spec, abstract=_misreading_term(spec.abstract, wrong))
        case "expand":
            assert spec.expand is not None
            yield rule, replace(spec, expand=_misreading_expansion(spec.expand, wrong))
        case "scalar_c":
            expression = spec.scalar_c
            if callable(expression):
                yield rule, replace(spec, scalar_c=lambda a: expression(wrong(a)))
            elif expression is not None:
                yield rule, replace(spec, scalar_c=expression.replace(f"{{{name}}}", f"({{{name}}} + 0.125f)"))
        case "field":
            yield from _changed_field(spec, wrong)


def _misreading_term(rule: AbstractRule, wrong: Callable[[Attributes], Attributes]) -> AbstractRule:
    def mutated(b: TermAlgebra[T], terms: tuple[T, ...], shapes: tuple[Shape, ...], attributes: Attributes) -> T:
        return rule(b, terms, shapes, wrong(attributes))

    return mutated


def _misreading_expansion(rule: Expansion, wrong: Callable[[Attributes], Attributes]) -> Expansion:
    def mutated(b: Apply[T], operands: tuple[T, ...], shapes: tuple[Shape, ...], attributes: Attributes) -> T:
        return rule(b, operands, shapes, wrong(attributes))

    return mutated


def _misreading_guards(rule: Guards, wrong: Callable[[Attributes], Attributes]) -> Guards:
    def mutated(
        b: Apply[T], operands: tuple[T, ...], shapes: tuple[Shape, ...], attributes: Attributes, branch: int
    ) -> tuple[T, ...]:
        return rule(b, operands, shapes, wrong(attributes), branch)

    return mutated


def _changed_field(spec: OpSpec, wrong: Callable[[Attributes], Attributes]) -> Iterator[tuple[str, OpSpec]]:
    match spec.field:
        case Exact(rule):
            yield "rule", replace(spec, field=Exact(lambda f, x, a: rule(f, x, wrong(a))))
        case Branch(count, select, piece, guards) as branch:
            changed = {
                "count": replace(branch, count=lambda s, a: count(s, wrong(a))),
                "select": replace(branch, select=lambda x, a: select(x, wrong(a))),
                "rule": replace(branch, rule=lambda f, x, a, c: piece(f, x, wrong(a), c)),
                "guards": replace(branch, guards=_misreading_guards(guards, wrong)),
            }
            unread = {"max": {"guards"}, "clamp": {"count"}}.get(spec.name, set())
            for part, new in changed.items():
                if part not in unread:
                    yield part, replace(spec, field=new)


RULES = ("shape", "axes", "on_float", "work", "num_results", "homogeneous", "abstract", "expand", "scalar_c", "field")


def mutate_attributes_read(spec: OpSpec) -> Iterator[Mutant]:
    """Let each rule misread each attribute."""
    for attribute in spec.attributes:
        for rule in RULES:
            read: set[str] = set()
            for case in CASES[spec.name]:
                recorder = _Recorder(case.complete(spec))
                _run(rule, spec, case, recorder)
                read |= recorder.read
            template = spec.scalar_c if rule == "scalar_c" and isinstance(spec.scalar_c, str) else ""
            if attribute.name in read or f"{{{attribute.name}}}" in template:
                for part, mutated in _changed(rule, spec, attribute.name):
                    what = f"{part} misreads {attribute.name}" if part != rule else f"misreads {attribute.name}"
                    same = _same_work(spec, attribute.name) if rule == "work" else ""
                    yield Mutant(rule, what, mutated, same)


def _same_work(spec: OpSpec, name: str) -> str:
    """Return why the work does not depend on an attribute, judged by the oracle and by counting, not by the work rule."""
    rng = np.random.default_rng(0)
    for case in CASES[spec.name]:
        operands = tuple(array / 16 for array in operands_of(case, rng))
        seen = []
        for attributes in (case.complete(spec), misread(case.complete(spec), name)):
            try:
                shapes = [result.shape for result in oracle(spec.name, operands, attributes)]
                seen.append((shapes, counted_flops(spec, operands, case.shapes, attributes)))
            except (ShapeError, ValueError):
                return ""
        if seen[0] != seen[1]:
            return ""
    return "the work is the same along every axis"
