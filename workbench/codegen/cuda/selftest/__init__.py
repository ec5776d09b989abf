"""Is the device header right: one small kernel for every intrinsic, checked against NumPy on the host or on a GPU."""

from __future__ import annotations

from workbench.codegen.cuda.selftest import exchange, kernels, memory, numbers, tensor_cores
from workbench.codegen.cuda.selftest.case import IntrinsicCase


def intrinsic_cases() -> list[IntrinsicCase]:
    """Return all checks; together they call every intrinsic of the header."""
    return [*numbers.cases(), *memory.cases(), *exchange.cases(), *tensor_cores.cases(), *kernels.cases()]
