"""Rules derived from expansions: flops add up, memory is touched once, terms are those of the parts."""

from __future__ import annotations

from typing import TypeVar

from tests.conformance.operator_checks.terms import Formulas
from workbench.core.shapes import Shape
from workbench.domains.work import Work
from workbench.ops.expansion import expanded_abstract, expanded_work
from workbench.ops.spec import Apply, Attributes

T = TypeVar("T")


def _mean_of_exp(b: Apply[T], operands: tuple[T, ...], shapes: tuple[Shape, ...], attributes: Attributes) -> T:
    return b("mean", b("exp", operands[0]), axis=0)


def test_work_counts_the_parts_flops_and_no_intermediate_traffic() -> None:
    """exp: 12, sum of columns: 12, one division for each of 4 columns."""
    assert expanded_work(_mean_of_exp)(((3, 4),), {}) == Work(flops=28, elements_read=12, elements_written=4)


def test_term_is_built_by_the_parts_with_attributes_completed() -> None:
    term = expanded_abstract(_mean_of_exp)(Formulas(), (("x",),), ((3, 4),), {})
    assert term[0] == "mul"
    assert ("sum", 0, 3, ("exp", ("x",))) in term
