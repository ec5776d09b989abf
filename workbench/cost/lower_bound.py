"""What no kernels for a program can undercut: its inputs read once, its outputs written once, its products, one launch.

Invariant: the bound is at least compulsory bytes over bandwidth; it takes the program as written, so a rewriting that
needs fewer products can undercut the part of computing (never the others). Source: the roofline model (Williams,
Waterman, Patterson, CACM 2009).
"""

from __future__ import annotations

from dataclasses import dataclass

from workbench.core.dtypes import DType
from workbench.cost.hardware import Hardware
from workbench.errors import UsageError
from workbench.ops.spec import OpKind
from workbench.ugraph.dataflow import flatten
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import OpNode
from workbench.units import format_bytes


@dataclass(frozen=True, slots=True)
class LowerBound:
    """A lower bound. Attributes: memory_us, compute_us, launch_us; bytes: compulsory ones; flops: of products."""

    memory_us: float
    compute_us: float
    launch_us: float
    bytes: int
    flops: float
    hardware: str

    @property
    def total_us(self) -> float:
        """Microseconds: the larger of memory and computing, and one launch."""
        return max(self.memory_us, self.compute_us) + self.launch_us

    def gap(self, cost_us: float) -> float:
        """Return by which share a cost exceeds the bound: 0.25 for a quarter. Raises: UsageError below zero."""
        if cost_us < 0:
            raise UsageError(f"a cost of {cost_us} us; costs are positive")
        return cost_us / self.total_us - 1.0

    def describe(self) -> str:
        """Return the bound in words."""
        return (
            f"at least {self.total_us:.2f} us on {self.hardware}: {format_bytes(self.bytes)} once through device memory "
            f"{self.memory_us:.2f} us, {self.flops / 1e9:.3g} GFLOP of products {self.compute_us:.2f} us, "
            f"one launch {self.launch_us:.2f} us"
        )


def lower_bound(program: KernelGraph, hardware: Hardware) -> LowerBound:
    """Return the lower bound of a program on a GPU, cold L2 cache; inputs that nothing needs do not count."""
    flow = flatten(program)
    needed, stack = set[int](), list(flow.outputs)
    makers = flow.makers()
    while stack:
        value = stack.pop()
        if value not in needed:
            needed.add(value)
            stack += makers[value].operands
    inputs = [tensor for value, tensor in enumerate(program.inputs) if value in needed]
    written = {
        name: program.tensors[name] for name in program.output_names if name not in {t.name for t in program.inputs}
    }
    total = sum(tensor.nbytes for tensor in inputs) + sum(tensor.nbytes for tensor in written.values())
    flops, seconds = _products(program, hardware)
    memory = total / (hardware.bandwidth_tb_s * 1e6)
    return LowerBound(memory, seconds, hardware.node_us, total, flops, hardware.name)


def _products(program: KernelGraph, hardware: Hardware) -> tuple[float, float]:
    """Return flops of predefined products that outputs need, and their microseconds at the peak; 0 for block graphs.

    What block graphs compute again in several blocks is no compulsory work, so only programs of operators are counted.
    """
    live, flops, time_us = set(program.output_names), 0.0, 0.0
    for node in reversed(program.nodes):
        if not any(tensor.name in live for tensor in node.results):
            continue
        live.update(node.operands)
        if isinstance(node, OpNode) and node.spec.kind is OpKind.CONTRACTION:
            operands = [program.tensors[name] for name in node.operands]
            work = float(node.spec.work(tuple(tensor.shape for tensor in operands), node.attribute_map).flops)
            kind: DType = min((tensor.dtype for tensor in operands), key=lambda dtype: dtype.nbytes)
            flops += work
            time_us += work / (hardware.tensor_rate(kind) * 1e6)
    return flops, time_us
