"""Checks of one operator record, rule against rule (STYLE 2.4), as functions.

Each takes the record and raises AssertionError; `tests/conformance/test_ops.py` runs them over the registry and
`benchmarks/mutate_rules.py` runs them on mutated records, so that the tests themselves are tested.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.conformance.operator_checks.axes import check_axes
from tests.conformance.operator_checks.c_expressions import check_c_expression, has_compiler
from tests.conformance.operator_checks.fields import check_branches, check_field_exactness, check_field_expansion
from tests.conformance.operator_checks.floats import (
    check_commutativity,
    check_float,
    check_float_expansion,
    check_homogeneity,
    check_prefix,
)
from tests.conformance.operator_checks.laws import check_laws
from tests.conformance.operator_checks.records import check_record
from tests.conformance.operator_checks.refusals import check_refusals
from tests.conformance.operator_checks.shapes import check_shapes
from tests.conformance.operator_checks.terms import check_terms, check_terms_expansion
from tests.conformance.operator_checks.work import check_work
from workbench.ops.spec import OpSpec

CHECKS: dict[str, Callable[[OpSpec], None]] = {
    "record": check_record,
    "shape": check_shapes,
    "refusals": check_refusals,
    "axes": check_axes,
    "float": check_float,
    "prefix": check_prefix,
    "float expansion": check_float_expansion,
    "commutative": check_commutativity,
    "homogeneous": check_homogeneity,
    "field": check_field_exactness,
    "branches": check_branches,
    "field expansion": check_field_expansion,
    "terms": check_terms,
    "terms expansion": check_terms_expansion,
    "work": check_work,
    "C expression": check_c_expression,
    "laws": check_laws,
}

__all__ = ["CHECKS", "has_compiler"]
