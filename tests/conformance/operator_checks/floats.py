"""The float rule against the oracle, under leading axes, against its expansion; what the record says of symmetry."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np

from tests.conformance.operator_checks.cases import CASES, Case, operands_of, oracle
from workbench.core.shapes import num_elements
from workbench.ops import complete_attributes, operator
from workbench.ops.spec import Array, AttributeValue, OpSpec

RELATIVE = 1e-12


def close(left: Array, right: Array, tolerance: float = RELATIVE) -> bool:
    """Return whether arrays have one shape and agree, relative to the larger of 1 and the largest element."""
    if left.shape != right.shape:
        return False
    scale = max(1.0, float(np.max(abs(right), initial=0.0)))
    return bool((abs(left - right) <= tolerance * scale).all())


class FloatApply:
    """An `Apply` over float64 arrays. Attributes: largest, the largest finite magnitude met: errors scale with it."""

    def __init__(self) -> None:
        self.largest = 1.0

    def __call__(self, name: str, *operands: Array, **attributes: AttributeValue) -> Array:
        spec = operator(name)
        complete = complete_attributes(spec, attributes, tuple(array.shape for array in operands))
        with np.errstate(all="ignore"):
            (result,) = spec.on_float(operands, complete, 0)
        finite = np.asarray(result)[np.isfinite(result)]
        self.largest = max(self.largest, float(abs(finite).max(initial=0.0)))
        return result


def check_float(spec: OpSpec) -> None:
    """Compare with the oracle on random operands."""
    rng = np.random.default_rng(3)
    for case in CASES[spec.name]:
        attributes = case.complete(spec)
        operands = operands_of(case, rng)
        expected = oracle(spec.name, operands, attributes)
        for result, right in zip(spec.on_float(operands, attributes, 0), expected, strict=True):
            assert close(np.asarray(result), right), (case, result, right)


def check_prefix(spec: OpSpec) -> None:
    """Compare one call with two leading axes, of extent 1 in the first operand, with one call per cell."""
    rng = np.random.default_rng(4)
    cells = (2, 3)
    for case in CASES[spec.name]:
        attributes = case.complete(spec)
        leading = [(1, 3) if number == 0 and len(case.shapes) > 1 else cells for number in range(len(case.shapes))]
        batched = Case(
            tuple(cell + shape for cell, shape in zip(leading, case.shapes, strict=True)), case.attributes, case.signs
        )
        operands = operands_of(batched, rng)
        results = spec.on_float(operands, attributes, 2)
        for cell in np.ndindex(cells):
            parts = tuple(array[min(cell[0], array.shape[0] - 1), cell[1]] for array in operands)
            expected = spec.on_float(tuple(np.asarray(part) for part in parts), attributes, 0)
            for result, right in zip(results, expected, strict=True):
                part = np.broadcast_to(result, cells + result.shape[2:])[cell]
                assert close(np.asarray(part), np.asarray(right)), (case, cell)


def check_float_expansion(spec: OpSpec) -> None:
    """A composite's float rule equals that of its expansion."""
    if spec.expand is None:
        return
    rng = np.random.default_rng(5)
    for case in CASES[spec.name]:
        attributes = case.complete(spec)
        operands = operands_of(case, rng)
        expanded = spec.expand(FloatApply(), operands, case.shapes, attributes)
        (direct,) = spec.on_float(operands, attributes, 0)
        assert close(np.asarray(expanded), np.asarray(direct), 1e-11), case


def check_commutativity(spec: OpSpec) -> None:
    """The record says commutative exactly where operands of one shape may be exchanged."""
    rng = np.random.default_rng(6)
    if spec.arity != 2:
        assert not spec.commutative
        return
    case = Case(((3, 3), (3, 3)), {}, ("positive", "positive"))
    left, right = operands_of(case, rng)
    (one,) = spec.on_float((left, right), {}, 0)
    (other,) = spec.on_float((right, left), {}, 0)
    assert spec.commutative == close(np.asarray(one), np.asarray(other))


# --------------------------------------------------------------------------------------------------------- constants
_DEGREES = tuple(Fraction(n, 2) for n in range(-14, 22))


def _scales(spec: OpSpec, case: Case, which: tuple[int, ...], degree: Fraction, factor: float) -> bool:
    """Return whether multiplying the operands `which` by `factor` multiplies every result by factor^degree."""
    if factor < 0 and degree.denominator != 1:
        return False
    rng = np.random.default_rng(7)
    attributes = case.complete(spec)
    for _ in range(3):
        operands = operands_of(case, rng)
        scaled = tuple(array * factor if number in which else array for number, array in enumerate(operands))
        with np.errstate(all="ignore"):
            before, after = spec.on_float(operands, attributes, 0), spec.on_float(scaled, attributes, 0)
            right = [factor ** float(degree) * np.asarray(array) for array in before]
        for one, other in zip(after, right, strict=True):
            scale = np.maximum(abs(other), abs(np.asarray(one)))
            if not (abs(one - other) <= 1e-9 * scale).all():
                return False
    return True


def check_homogeneity(spec: OpSpec) -> None:
    """What is declared is true, with its sign condition no wider than needed; and nothing that is true is missing."""
    for case in CASES[spec.name]:
        if not case.shapes:
            assert spec.homogeneous(case.complete(spec)) == ()
            continue
        everything = tuple(range(len(case.shapes)))
        declared = {
            (rule.operands or everything, rule.degree): rule.positive for rule in spec.homogeneous(case.complete(spec))
        }
        for (which, degree), positive in declared.items():
            assert all(_scales(spec, case, which, degree, factor) for factor in (3.0, 0.25)), (case, which, degree)
            assert positive != _scales(spec, case, which, degree, -2.0), (case, which, degree)
        if max(num_elements(shape) for shape in spec.infer_shapes(case.shapes, case.complete(spec))) < 10:
            continue  # on few elements a clamp or a maximum may happen to look constant
        for size in range(1, len(everything) + 1):
            for which in combinations(everything, size):
                found = [d for d in _DEGREES if _scales(spec, case, which, d, 3.0)]
                implied = sum((d for (own, d) in declared if set(own) <= set(which)), Fraction(0))
                known = any(set(own) <= set(which) for own, _ in declared)
                assert not found or (known and implied in found) or (which, found[0]) in declared, (case, which, found)
