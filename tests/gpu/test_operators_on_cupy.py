"""Every operator's float rule on CuPy arrays gives what it gives on NumPy arrays, to rounding."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

from tests.conformance.operator_checks.cases import CASES, operands_of
from tests.conformance.operator_checks.floats import close
from workbench.ops import operator, operators
from workbench.ops.spec import Branch

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("name", [spec.name for spec in operators()])
def test_float_rule(name: str, cupy: ModuleType) -> None:
    spec, rng = operator(name), np.random.default_rng(0)
    for case in CASES[name]:
        attributes = case.complete(spec)
        operands = operands_of(case, rng)
        on_device = tuple(cupy.asarray(array) for array in operands)
        expected = spec.on_float(operands, attributes, 0)
        for result, right in zip(spec.on_float(on_device, attributes, 0), expected, strict=True):
            assert close(np.asarray(cupy.asnumpy(result)), np.asarray(right), 1e-11), case
        if isinstance(spec.field, Branch) and len({len(shape) for shape in case.shapes}) == 1:
            choice = spec.field.select(on_device, attributes)
            assert (cupy.asnumpy(choice) == spec.field.select(operands, attributes)).all()
