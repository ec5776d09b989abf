"""Small programs that the tests of the prefix search share."""

from __future__ import annotations

import workbench as wb
from workbench.core.dtypes import DType
from workbench.ugraph.builder import KernelBuilder
from workbench.ugraph.kernel_graph import KernelGraph


def distributed() -> KernelGraph:
    """Return X @ W + Y @ W, the lecture's example of prefixes that are of use and of others that are not."""
    kernel = KernelBuilder("distributed")
    x, y = (kernel.input(name, (3, 5), DType.FLOAT32) for name in "XY")
    w = kernel.input("W", (5, 7), DType.FLOAT32)
    kernel.output(kernel.apply("add", kernel.apply("matmul", x, w), kernel.apply("matmul", y, w)))
    return kernel.build()


def quotient() -> KernelGraph:
    """Return X / square(Y): with the paper's rank as it is written, this graph is lost."""
    kernel = KernelBuilder("quotient")
    x, y = (kernel.input(name, (3, 5), DType.FLOAT32) for name in "XY")
    kernel.output(kernel.apply("div", x, kernel.apply("square", y)))
    return kernel.build()


def studied(name: str) -> KernelGraph:
    """Return a studied program."""
    return wb.programs.get(name)
