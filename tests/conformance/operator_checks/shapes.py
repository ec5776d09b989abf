"""The shape rule gives the shape that NumPy gives, for as many results as the record says."""

from __future__ import annotations

import numpy as np

from tests.conformance.operator_checks.cases import CASES, operands_of, oracle
from workbench.ops.spec import OpSpec


def check_shapes(spec: OpSpec) -> None:
    """Compare with the oracle's shapes and with those of `on_float`."""
    rng = np.random.default_rng(1)
    for case in CASES[spec.name]:
        attributes = case.complete(spec)
        shapes = spec.infer_shapes(case.shapes, attributes)
        operands = operands_of(case, rng)
        expected = tuple(result.shape for result in oracle(spec.name, operands, attributes))
        assert shapes == expected, (case, shapes, expected)
        assert spec.num_results(attributes) == len(expected), case
        assert tuple(result.shape for result in spec.on_float(operands, attributes, 0)) == expected, case
