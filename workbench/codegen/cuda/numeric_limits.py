"""What limits the size of a program's inputs: the largest number of each type, and exponentials without a maximum.

Invariant: everything is evaluated in float64, so a limit is told before it is met on a device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.core.namespaces import array_namespace
from workbench.interpret.floats import FloatDomain
from workbench.interpret.walk import walk
from workbench.ops.spec import Attributes, OpSpec
from workbench.ugraph.block_graph import BlockGraph
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import GraphDefinedNode, InputIterator, OpNode, OutputSaver, ThreadNode

Floats = npt.NDArray[np.float64]
LOGIT_LIMIT = 10.0
"""Exponentials whose argument is not a difference from a maximum are checked up to this: exp(10) fits float16."""

HEADROOM = 4.0
"""The largest value of a tensor stays this factor below its type's largest number."""


class _Sizes:
    """Observes a walk: the largest value of any kernel tensor over its type's largest number; inf if not finite."""

    def __init__(self, graph: KernelGraph) -> None:
        self.ratio, self._tensors = 0.0, graph.tensors

    def __call__(self, path: tuple[str, ...], value: Any) -> None:
        """Look at a tensor; tiles inside block graphs have longer paths."""
        if len(path) == 1 and value.size:
            largest = float(abs(value).max())
            ratio = largest / self._tensors[path[0]].dtype.largest if np.isfinite(largest) else np.inf
            self.ratio = max(self.ratio, ratio)


def evaluate_within_types(
    graph: KernelGraph, values: Sequence[Floats], namespace: Any = np
) -> tuple[list[Floats], float]:
    """Return the float64 outputs, and the largest value of any kernel tensor over its type's largest; inf if not finite."""
    sizes = _Sizes(graph)
    outputs = walk(graph, [namespace.asarray(value) for value in values], FloatDomain(namespace), sizes)
    found = [np.asarray(output if isinstance(output, np.ndarray) else output.get()) for output in outputs]
    return found, sizes.ratio


class _WatchedDomain(FloatDomain):
    """Evaluates, and keeps the largest argument of an exponential that is not a difference from a maximum."""

    largest = 0.0

    def rule(self, spec: OpSpec, operands: tuple[Any, ...], attributes: Attributes, prefix: int) -> tuple[Any, ...]:
        """Return the operator's results."""
        if spec.name == "exp" and operands[0].size:
            upper = float(operands[0].max())
            if not upper <= 1e-9:  # arguments that are never positive come from x - max(x); small ones may underflow
                magnitude = float(abs(operands[0]).max())
                self.largest = max(self.largest, magnitude if np.isfinite(magnitude) else np.inf)
        return super().rule(spec, operands, attributes, prefix)


@dataclass(frozen=True, slots=True)
class Survey:
    """What a graph makes of some inputs.

    Attributes: logit: the largest argument, by size, of an exponential that is not taken below a maximum, 0 without any;
    ratio: the largest value of any kernel tensor over its type's largest number.
    """

    logit: float
    ratio: float


def survey(graph: KernelGraph, values: Sequence[Floats]) -> Survey:
    """Return how large the values of a graph become on these inputs."""
    domain, sizes = _WatchedDomain(array_namespace(*values)), _Sizes(graph)
    walk(graph, list(values), domain, sizes)
    return Survey(min(domain.largest, 1e6), sizes.ratio)


# ------------------------------------------------------------------------------- which inputs reach an exponential
def exponents_of(graph: KernelGraph) -> frozenset[int]:
    """Return the positions of the inputs on which the argument of some exponential depends."""
    reach = {tensor.name: frozenset({position}) for position, tensor in enumerate(graph.inputs)}
    found: frozenset[int] = frozenset()
    for node in graph.nodes:
        operands = [reach[name] for name in node.operands]
        match node:
            case OpNode():
                made = [frozenset[int]().union(*operands)] * len(node.results)
                found |= made[0] if node.op == "exp" else frozenset()
            case GraphDefinedNode():
                made, inside = _exponents_of_block(node.block, operands)
                found |= inside
        reach.update(zip((tensor.name for tensor in node.results), made, strict=True))
    return found


def _exponents_of_block(
    block: BlockGraph, operands: Sequence[frozenset[int]]
) -> tuple[list[frozenset[int]], frozenset[int]]:
    """Return what each saved tensor depends on, and what arguments of exponentials depend on."""
    reach: dict[str, frozenset[int]] = {}
    saved, found = [], frozenset[int]()
    for node in block.nodes:
        read = frozenset[int]().union(*(reach[name] for name in node.operands))
        if isinstance(node, InputIterator):
            read = operands[node.operand]
        has_exponential = (isinstance(node, OpNode) and node.op == "exp") or (
            isinstance(node, ThreadNode) and any(inner.op == "exp" for inner in node.graph.nodes)
        )
        found |= read if has_exponential else frozenset()
        if isinstance(node, OutputSaver):
            saved.append(read)
        reach.update({tensor.name: read for tensor in node.results})
    return saved, found
