"""Declared laws: exact in the field, close in float; the tempting false ones fail in both."""

from __future__ import annotations

import numpy as np

from tests.conformance.operator_checks.cases import ANY, POSITIVE, draw
from tests.conformance.operator_checks.fields import FieldApply, NoFieldMeaning, arithmetic, random_point, same
from tests.conformance.operator_checks.floats import FloatApply
from workbench.ops.spec import Array, Law, OpSpec

SHAPE = (2, 6)
FLOAT_TOLERANCE = 1e-9
MOST_DRAWS = 400


def float_sides(law: Law, variables: tuple[Array, ...]) -> tuple[Array, Array, float]:
    """Return both sides and the error that rounding may make: relative to the largest intermediate value."""
    apply = FloatApply()
    left, right = law.left(apply, *variables), law.right(apply, *variables)
    return np.asarray(left), np.asarray(right), FLOAT_TOLERANCE * apply.largest


def float_holds(law: Law, variables: tuple[Array, ...], *, everywhere: bool = True) -> bool:
    """Return whether both sides agree, in shape too; with `everywhere` both must be defined for every element."""
    left, right, error = float_sides(law, variables)
    if left.shape != right.shape:
        return False
    both = np.isfinite(left) & np.isfinite(right)
    if everywhere and not both.all():
        return False
    return bool((abs(left[both] - right[both]) <= error).all())


def field_holds(law: Law, rng: np.random.Generator) -> bool:
    """Return whether both sides agree exactly at a random point that meets the law's premises.

    A true law is drawn again until every root is of a square and no denominator is 0, which is what it presumes; a
    false law must fail as it stands. Raises: NoFieldMeaning.
    """
    for _ in range(MOST_DRAWS):
        field = arithmetic()
        apply = FieldApply(field)
        points = [random_point(rng, SHAPE, POSITIVE if law.positive else ANY) for _ in range(law.variables)]
        left, right = law.left(apply, *points), law.right(apply, *points)
        if law.false_law or not field.take_faults():
            return same(left.residues, right.residues)
    raise AssertionError(f"law {law.name}: its premises were never met in {MOST_DRAWS} draws")


def check_laws(spec: OpSpec) -> None:
    """Hold every true law at several points, and find every false law broken at one of them."""
    for law in spec.laws:
        rng = np.random.default_rng(11)
        sign = POSITIVE if law.positive else ANY
        held = [float_holds(law, tuple(draw(rng, SHAPE, sign) for _ in range(law.variables))) for _ in range(4)]
        assert all(held) if not law.false_law else not all(held), f"{spec.name}: {law.name} in float"
        try:
            held = [field_holds(law, rng) for _ in range(2)]
        except NoFieldMeaning:
            continue  # through an opaque operator a law cannot be seen in the field
        assert all(held) if not law.false_law else not all(held), f"{spec.name}: {law.name} in the field"
