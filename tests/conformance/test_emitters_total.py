"""The table of CUDA rules is total: a rule for every operator of the registry, and none beside."""

from __future__ import annotations

from workbench.codegen.cuda.element import EXACT, FAST
from workbench.codegen.cuda.emitters import CLAIMED, EMITTERS
from workbench.ops.registry import operators


def test_every_operator_has_a_rule() -> None:
    registered = {spec.name for spec in operators()}
    assert set(EMITTERS) == registered
    assert registered == CLAIMED


def test_intrinsics_belong_to_elementwise_operators() -> None:
    elementwise = {spec.name for spec in operators() if spec.scalar_c is not None}
    assert set(FAST) | set(EXACT) <= elementwise
